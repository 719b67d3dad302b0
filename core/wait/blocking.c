/* Waiters that have a thread. The thread takes their turns and sends what they ask in one request; in between it
 * sleeps, after spinning for a moment if the present owner may be done sooner than the thread would be asleep. */
#include "wait/wait.h"

#include <string.h>
#include <unistd.h>

/* Time for leaving the server's queue: after the deadline, and at least. */
enum { LEAVE_US = 50000, LEAST_US = 20000 };

/* Acquisitions that the waiters of one thread ask for, or give up, in one request. */
struct requests {
    struct dlock__acquisition *acqs[DLOCK__BATCH];
    struct dlock__waiter *waiters[DLOCK__BATCH]; /* whose acquisition each is */
    size_t n;
    bool leave;
};

static void add(struct requests *requests, struct dlock__waiter *waiter, struct dlock__acquisition *acq) {
    requests->waiters[requests->n] = waiter;
    requests->acqs[requests->n++] = acq;
}

/* ---- turns ---- */

/* Takes a turn of each waiter: collects requests, or sets how long to sleep. True: all waiters are over. */
static bool take_turns(struct dlock__waiter *const *waiters, size_t n, struct requests *requests, int64_t *until_us) {
    bool over = true;
    requests->n = 0;
    *until_us = DLOCK__NEVER;
    for (size_t i = 0; i < n && requests->n < DLOCK__BATCH; i++) {
        int64_t at_us = DLOCK__NEVER;
        enum dlock__turn turn = dlock__waiter_turn(waiters[i], &at_us);
        if (turn == DLOCK__TURN_OVER) continue;
        over = false;
        if (turn == DLOCK__TURN_ASK) add(requests, waiters[i], waiters[i]->lock->name->asking);
        if (turn == DLOCK__TURN_SLEEP && at_us < *until_us) *until_us = at_us;
    }
    requests->leave = requests->n == 0;
    if (over || !requests->leave) return over;
    for (size_t i = 0; i < n && requests->n < DLOCK__BATCH; i++)
        if (waiters[i]->leaving) add(requests, waiters[i], waiters[i]->leaving);
    return false;
}

static void ask(const struct requests *requests) {
    dlock__op_send(requests->acqs, requests->n);
    for (size_t i = 0; i < requests->n; i++) dlock__waiter_answered(requests->waiters[i]);
}

/* Releases what the waiters gave up, by one deadline soon after that of the wait. */
static void leave(const struct requests *requests) {
    int64_t now = dlock__now(requests->acqs[0]->name->client);
    int64_t until_us = dlock__after(requests->waiters[0]->deadline_us, LEAVE_US);
    if (until_us > now + LEAVE_US) until_us = now + LEAVE_US;
    if (until_us < now + LEAST_US) until_us = now + LEAST_US;
    dlock__release_send(requests->acqs, requests->n, until_us, NULL);
    for (size_t i = 0; i < requests->n; i++) dlock__waiter_left(requests->waiters[i]);
}

/* ---- waiting for one lock ---- */

/* True if the waiter is next after another thread of this process, which may be done in a moment. */
static bool next_in_turn(const struct dlock__waiter *waiter) {
    const struct dlock__name *name = waiter->lock->name;
    return name->head == waiter && !name->asking && dlock__name_exclusive(name);
}

/* Spins until the waiter has a turn, at most for a moment. True if it has. Leaves the mutex in between. */
static bool spin(struct dlock__waiter *waiter) {
    struct dlock_client *client = waiter->lock->client;
    const atomic_uint *word = &waiter->latch->word;
    unsigned seen = atomic_load_explicit(word, memory_order_relaxed);
    bool short_holds = waiter->lock->name->short_holds;
    dlock__leave(client);
    (short_holds ? dlock__spin_then_yield : dlock__spin)(word, seen);
    dlock__enter(client);
    return atomic_load_explicit(word, memory_order_relaxed) != seen;
}

void dlock__latch_sleep(struct dlock_client *client, struct dlock__latch *latch, int64_t until_us) {
    unsigned asleep = atomic_fetch_or(&latch->word, 1) | 1;
    struct dlock__sleep sleep = {.latch = latch};
    if (!atomic_load(&latch->cancelled)) { /* else the word was changed for the last time */
        dlock__sleep_begin(client, &sleep, until_us);
        dlock__leave(client);
        dlock__futex_wait(&latch->word, asleep, UINT32_MAX, until_us);
        dlock__enter(client);
        dlock__timer_disarm(&sleep.timer);
    }
    if (atomic_load_explicit(&latch->word, memory_order_relaxed) & 1)
        atomic_fetch_sub(&latch->word, 1); /* no thread of this client woke it */
}

/* ---- reading wake-ups ---- */

/* How long the keeper leaves the wake-ups to a reader: from the begin of its wait on, since its thread may be stopped,
 * and after its end, since it probably waits again soon. */
enum { READER_US = 100000 };

/* True if no wake-up of this server has to be read at once: that a grant is wanted, or that a session is lost,
 * which does not happen on this machine. */
static bool can_be_late(const struct dlock_client *client) {
    if (client->uri->linger_ms != 0 || client->watches) return false;
    return dlock__can(client, DLOCK_CAP_LOCAL) || !dlock__can(client, DLOCK_CAP_THREADSAFE);
}

/* True if the thread may read the wake-ups while it waits. With other waiters, the keeper does, which then need not be
 * told whenever one of them leaves. It also does if a message must not wait until the keeper comes. */
static bool may_read(const struct dlock__waiter *waiter) {
    struct dlock_client *client = waiter->lock->client;
    const struct dlock__listener *listener = &client->listener;
    const struct dlock__acquisition *asking = waiter->lock->name->asking;
    if (!dlock__listener_readable(client) || listener->reader || listener->bell < 0) return false;
    if (listener->idle >= DLOCK__IDLE_MAX) return false;
    if (!waiter->latch->own || waiter->lock->name->head != waiter || !asking) return false;
    if (!asking->unanswered.queued && !dlock__can(client, DLOCK_CAP_LOCAL)) return false;
    return asking->state == DLOCK__WAITING && client->n_waiting == 1 && can_be_late(client);
}

static void put_keeper_off(struct dlock_client *client) {
    client->listener.keeper_at_us = dlock__now(client) + READER_US;
    dlock__keeper_arm(client, client->listener.keeper_at_us);
}

/* Sleeps until a wake-up arrives, until until_us, or until the latch is woken. Returns the events of the listener's
 * descriptor, which another thread may have closed in between. Leaves the mutex in between. */
static int reader_sleep(struct dlock_client *client, struct dlock__latch *latch, int64_t until_us) {
    const int bell = client->listener.bell;
    struct dlock__sleep sleep = {.latch = latch};
    struct pollfd fds[2] = {{.fd = client->listener.fd, .events = POLLIN}, {.fd = bell, .events = POLLIN}};
    uint64_t count;
    atomic_fetch_or(&latch->word, 1);
    client->listener.reader = latch;
    dlock__sleep_begin(client, &sleep, until_us);
    dlock__leave(client);
    dlock__poll(fds, 2, until_us);
    if (fds[1].revents && read(bell, &count, sizeof count) < 0) {
        /* another thread has read it */
    }
    dlock__enter(client);
    client->listener.reader = NULL;
    dlock__timer_disarm(&sleep.timer);
    if (atomic_load_explicit(&latch->word, memory_order_relaxed) & 1) atomic_fetch_sub(&latch->word, 1);
    return fds[0].revents;
}

/* As dlock__latch_sleep, and reads the wake-ups. Afterwards no thread does for a while, unless others wait. */
static void read_while_waiting(struct dlock__waiter *waiter, int64_t until_us) {
    struct dlock_client *client = waiter->lock->client;
    put_keeper_off(client);
    bool come = client->listener.more || reader_sleep(client, waiter->latch, until_us);
    if (come && dlock__listener_readable(client)) {
        struct dlock_error err;
        err.message[0] = '\0';
        err.code = dlock__wakes_read(client, &err);
        if (err.code != 0) dlock__listener_broke(client, &err);
    }
    put_keeper_off(client);
    if (client->n_waiting > !waiter->done) dlock__listener_needs_keeper(client);
}

/* True if a waiter has a grant, or an error that is not about the time. */
static bool one_is_settled(struct dlock__waiter *const *waiters, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (waiters[i]->over && waiters[i]->result != DLOCK_EBUSY && waiters[i]->result != DLOCK_ETIMEDOUT) return true;
    return false;
}

/* True if a waiter that goes on has to be ended for one that is settled. */
static bool has_to_end_others(struct dlock__waiter *const *waiters, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!waiters[i]->done) return one_is_settled(waiters, n);
    return false;
}

void dlock__waiters_drive(struct dlock__waiter *const *waiters, size_t n, bool any) {
    struct dlock_client *client = waiters[0]->lock->client;
    struct dlock__latch *latch = waiters[0]->latch;
    struct requests requests;
    int64_t until_us;
    for (;;) {
        if (atomic_load_explicit(&latch->cancelled, memory_order_relaxed) || (any && has_to_end_others(waiters, n)))
            for (size_t i = 0; i < n; i++) dlock__waiter_cancel(waiters[i]);
        if (take_turns(waiters, n, &requests, &until_us)) return;
        if (requests.n > 0) {
            (requests.leave ? leave : ask)(&requests);
        } else if (any && has_to_end_others(waiters, n)) {
            continue; /* one took a grant that a wake-up had brought */
        } else if (n == 1 && may_read(waiters[0])) {
            read_while_waiting(waiters[0], until_us);
        } else if (n > 1 || !next_in_turn(waiters[0]) || !spin(waiters[0])) {
            if (client->n_waiting > 0) dlock__listener_needs_keeper(client);
            dlock__latch_sleep(client, latch, until_us);
        }
    }
}

int dlock__acquire(struct dlock_lock *lock, bool try_only, int64_t deadline_us, struct dlock_error *err) {
    struct dlock__waiter waiter, *const one = &waiter;
    struct dlock__latch latch = {.own = true};
    struct dlock_error why;
    why.code = 0;
    memset(&waiter, 0, sizeof waiter);
    waiter.why = &why;
    waiter.latch = &latch;
    dlock__waiter_enter(&waiter, lock, try_only, deadline_us);
    dlock__waiters_drive(&one, 1, false);
    if (waiter.result != 0 && err) *err = why;
    return waiter.result;
}
