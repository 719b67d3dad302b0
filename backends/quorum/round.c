/* A request to the members: copying its claims, sending it, and waiting until it is decided. */
#include "quorum.h"

#include <stdlib.h>

/* Texts are shared by all members; claims are copied for each, since each writes to its copy. */
static size_t text_size(struct dlock_claim *const *claims, size_t n) {
    size_t size = 0;
    for (size_t i = 0; i < n; i++) size += strlen(claims[i]->name) + 1 + 2 * (DLOCK_TOKEN_MAX + 1);
    return size;
}

/* Writes the token of a try. The first one has the claim's token, later ones add their number at its end; if that would
 * be too long, it replaces the end of the token, which only tells people whose it is. */
static char *write_token(char **room, const struct dlock_claim *claim, uint64_t tries) {
    char *to = *room, number[24] = "";
    if (tries > 1) snprintf(number, sizeof number, ":%llu", (unsigned long long)tries - 1);
    const int most = DLOCK_TOKEN_MAX - (int)strlen(number);
    *room += (size_t)sprintf(to, "%.*s%s", most, claim->token, number) + 1;
    return to;
}

static char *copy_text(char **room, const char *text) {
    const size_t size = strlen(text) + 1;
    char *to = memcpy(*room, text, size);
    *room += size;
    return to;
}

static void copy_claim(struct dlock_claim *to, const struct dlock_claim *from, const char *name, const char *token) {
    *to = (struct dlock_claim){.name = name,
                               .token = token,
                               .mode = from->mode,
                               .lease_ms = from->lease_ms,
                               .flags = from->flags & DLOCK_CLAIM_DEAD,
                               .result = DLOCK_EPROTO,
                               .kept_ms = from->lease_ms,
                               .retry_ms = -1,
                               .ready_ms = -1,
                               .floor = from->floor};
}

struct quorum_round *quorum_round_new(struct quorum *quorum, int verb, struct dlock_claim *const *claims, size_t n,
                                      int64_t deadline_us) {
    const size_t members = quorum->n, looks = verb > DLOCK_RELEASE ? members : 0;
    struct quorum_round *round;
    struct dlock_claim *copies;
    struct quorum_look *look;
    round = calloc(1, sizeof *round + looks * sizeof *look + n * (members * sizeof *copies + sizeof *round->counted) +
                          text_size(claims, n));
    if (!round) return NULL;
    look = (struct quorum_look *)(round + 1);
    copies = (struct dlock_claim *)(look + looks);
    round->counted = (uint32_t *)(copies + members * n);
    char *texts = (char *)(round->counted + n);
    for (size_t i = 0; i < n; i++) {
        const uint64_t place = claims[i]->state[QUORUM_PLACE];
        const char *name = copy_text(&texts, claims[i]->name);
        const char *token = write_token(&texts, claims[i], claims[i]->state[QUORUM_TRIES]), *other = token;
        if (place != 0) other = write_token(&texts, claims[i], place >> 8);
        for (size_t j = 0; j < members; j++)
            copy_claim(&copies[j * n + i], claims[i], name, j == quorum_place_at(place) ? other : token);
    }
    for (size_t j = 0; j < members; j++) {
        round->parts[j].round = round;
        round->parts[j].claims = copies + j * n;
        if (looks) round->parts[j].look = &look[j];
        if (looks) look[j].member = j;
    }
    quorum_cond_init(&round->changed);
    round->quorum = quorum;
    round->refs = 1;
    round->verb = verb;
    round->n = n;
    round->deadline_us = round->until_us = deadline_us;
    return round;
}

static void line_up(struct quorum_round *round, uint32_t mask) {
    for (size_t i = 0; i < round->quorum->n; i++) {
        if (!(mask & 1U << i)) continue;
        round->refs++;
        quorum_line_up(&round->quorum->members[i], &round->parts[i]);
    }
}

/* Wakes the workers of these members. */
static void wake_workers(struct quorum *quorum, uint32_t mask) {
    for (size_t i = 0; i < quorum->n; i++)
        if (mask & 1U << i) pthread_cond_signal(&quorum->members[i].work);
}

/* Returns when the next member will be considered silent, or the deadline. */
static int64_t next_look(const struct quorum_round *round, int64_t now_us) {
    int64_t at_us = round->deadline_us;
    if (round->patience_us > now_us && round->patience_us < at_us) at_us = round->patience_us;
    for (size_t i = 0; i < round->quorum->n; i++)
        if (round->parts[i].state == QUORUM_LINED_UP || round->parts[i].state == QUORUM_RUNNING)
            quorum_is_silent(&round->quorum->members[i], now_us, &at_us);
    return at_us;
}

void quorum_ask(struct quorum_round *round, uint32_t mask, bool (*decided)(const struct quorum_round *, int64_t)) {
    struct quorum *quorum = round->quorum;
    int fds[QUORUM_MOST];
    round->decided = decided;
    round->awaited = true;
    const uint32_t sent = quorum_send(round, mask, fds), others = mask & ~sent;
    line_up(round, others);
    if (others) {
        pthread_mutex_unlock(&quorum->mutex); /* which each worker needs as soon as it is awake */
        wake_workers(quorum, others);
        pthread_mutex_lock(&quorum->mutex);
    }
    quorum_read(round, sent, fds);
    for (;;) {
        const int64_t now_us = dlock_now_us();
        if (now_us >= round->deadline_us || decided(round, now_us)) break;
        quorum_wait(&round->changed, &round->quorum->mutex, next_look(round, now_us));
    }
    round->awaited = false;
}

void quorum_send_off(struct quorum_round *round, uint32_t mask, int64_t until_us) {
    round->until_us = until_us;
    line_up(round, mask);
    wake_workers(round->quorum, mask);
    quorum_round_put(round);
}
