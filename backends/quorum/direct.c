/* Requests that the calling thread sends, and whose answers it reads. */
#include "quorum.h"

#include <poll.h>

enum {
    MORE_US = 200,   /* time for the last answers once the request is decided: waking a worker takes longer */
    APART_US = 1000, /* longest wait while workers may be answered */
    REST_MS = 100,   /* time for the rest of an answer: a member that stops in the middle must not stop the caller */
    LATE_MS = 10     /* least time for it when the deadline is near: each member in turn may take that long */
};

/* True if the member was sent the part's request. */
static bool begin(struct quorum_member *member, struct quorum_part *part, int *fd) {
    const struct dlock_backend *backend = member->server.backend;
    struct quorum_round *round = part->round;
    struct dlock_error err;
    *fd = -1;
    if (!backend->begin || member->state != QUORUM_UP || member->busy_us || member->first) return false;
    if (backend->begin(member->conn, (enum dlock_operation)round->verb, &part->claims[0], fd, &err) != 0 || *fd < 0)
        return false; /* the operation itself reports that the connection is dead */
    member->busy_us = dlock_now_us();
    member->polled = part;
    part->state = QUORUM_RUNNING;
    part->sent = true;
    round->refs++;
    return true;
}

uint32_t quorum_send(struct quorum_round *round, uint32_t mask, int fds[QUORUM_MOST]) {
    uint32_t sent = 0;
    const bool can_begin = round->n == 1 && round->verb <= DLOCK_RELEASE;
    for (size_t i = 0; can_begin && i < round->quorum->n; i++)
        if (mask & 1U << i && begin(&round->quorum->members[i], &round->parts[i], &fds[i])) sent |= 1U << i;
    return sent;
}

/* Returns the members of these whose answers are there, after waiting until a time at most. */
static uint32_t await_answers(struct quorum *quorum, uint32_t sent, const int fds[QUORUM_MOST], int64_t until_us) {
    struct pollfd polled[QUORUM_MOST];
    uint32_t ready = 0;
    for (size_t i = 0; i < quorum->n; i++)
        polled[i] = (struct pollfd){.fd = sent & 1U << i ? fds[i] : -1, .events = POLLIN};
    pthread_mutex_unlock(&quorum->mutex);
    const int64_t left_us = until_us - dlock_now_us();
    const struct timespec left = {.tv_sec = left_us / 1000000, .tv_nsec = left_us % 1000000 * 1000};
    const struct timespec none = {0};
    const int n = ppoll(polled, quorum->n, left_us > 0 ? &left : &none, NULL);
    pthread_mutex_lock(&quorum->mutex);
    for (size_t i = 0; n > 0 && i < quorum->n; i++)
        if (polled[i].revents) ready |= 1U << i;
    return ready;
}

/* True if workers have parts that may be answered: the caller does not notice that while it polls. */
static bool workers_have_parts(const struct quorum_round *round, uint32_t sent) {
    for (size_t i = 0; i < round->quorum->n; i++)
        if (!(sent & 1U << i) && round->parts[i].state != QUORUM_UNUSED && round->parts[i].state != QUORUM_DONE)
            return true;
    return false;
}

/* Returns those of these members whose workers have not taken the parts over, as they do if the caller stalls. */
static uint32_t still_polled(const struct quorum_round *round, uint32_t sent) {
    for (size_t i = 0; i < round->quorum->n; i++)
        if (sent & 1U << i && round->quorum->members[i].polled != &round->parts[i]) sent &= ~(1U << i);
    return sent;
}

/* Returns until when to poll: no longer than until a worker may take a part over, since an answer that it reads need not
 * end the poll. */
static int64_t poll_until(const struct quorum_round *round, uint32_t sent, int64_t now_us) {
    int64_t at_us = round->deadline_us;
    if (workers_have_parts(round, sent)) return now_us + APART_US;
    for (size_t i = 0; i < round->quorum->n; i++)
        if (sent & 1U << i && quorum_is_silent(&round->quorum->members[i], now_us, &at_us)) return now_us;
    return at_us;
}

/* Ends the polling for a part. False: its worker has taken it over. */
static bool end_polling(struct quorum_member *member, const struct quorum_part *part) {
    if (member->polled != part) return false;
    member->polled = NULL;
    return true;
}

/* Gives a member that this caller has used back to its worker. */
static void leave(struct quorum_member *member) {
    if (member->begun || member->passed_by || member->first || member->state != QUORUM_UP)
        pthread_cond_signal(&member->work);
    member->passed_by = false;
}

static int rest_ms(const struct quorum_round *round) {
    const int left_ms = dlock_left_ms(round->deadline_us);
    return left_ms < LATE_MS ? LATE_MS : left_ms < REST_MS ? left_ms : REST_MS;
}

void quorum_read(struct quorum_round *round, uint32_t sent, const int fds[QUORUM_MOST]) {
    struct quorum *quorum = round->quorum;
    int64_t until_us = INT64_MAX;
    bool decided = false;
    while ((sent = still_polled(round, sent)) != 0) {
        const int64_t now_us = dlock_now_us();
        if (!decided && round->decided(round, now_us)) {
            decided = true;
            until_us = now_us + MORE_US;
        } else if (!decided) {
            until_us = poll_until(round, sent, now_us);
        }
        const uint32_t ready = await_answers(quorum, sent, fds, until_us);
        for (size_t i = 0; i < quorum->n; i++) {
            if (!(ready & 1U << i) || !end_polling(&quorum->members[i], &round->parts[i])) continue;
            quorum_read_answer(&quorum->members[i], &round->parts[i], rest_ms(round));
            leave(&quorum->members[i]);
        }
        sent &= ~ready;
        if (!ready && dlock_now_us() >= until_us) break;
    }
    for (size_t i = 0; i < quorum->n; i++) {
        if (!(sent & 1U << i) || !end_polling(&quorum->members[i], &round->parts[i])) continue;
        quorum->members[i].begun = &round->parts[i];
        leave(&quorum->members[i]);
    }
}
