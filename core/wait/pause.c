/* When a waiter asks the server next. */
#include "wait/wait.h"

enum {
    POLL_MIN_US = 1000,
    POLL_MAX_US = 50000,    /* servers without wake-ups */
    DEAF_MAX_US = 500000,   /* servers with wake-ups, while our listener is down */
    OUTAGE_MIN_US = 10000,  /* between tries while the server is unreachable */
    OUTAGE_MAX_US = 500000, /* "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015), decorrelated */
    LAST_MIN_US = 1000,     /* the last question is sent this long before the deadline, or, up to … */
    LAST_MAX_US = 10000,    /* … this time, 1.5 times as long as its last answer took */
    SLEEP_MAX_MS = 3600000, /* longest time without a question, whatever number a backend says (but DLOCK_FOREVER) */
    STAGGER_MAX_US = 10000  /* spreads clients whose server's queue told them the same time */
};

/* The next pause: random, growing, at most `high`. */
static int64_t next_pause(struct dlock__waiter *waiter, int64_t low, int64_t high) {
    int64_t top = (waiter->pause_us > low ? waiter->pause_us : low) * 3;
    waiter->pause_us = (uint32_t)dlock__jitter(waiter->lock->client, low, top < high ? top : high);
    return waiter->pause_us;
}

int64_t dlock__ask_after_outage_at(struct dlock__waiter *waiter) {
    return dlock__now(waiter->lock->client) + next_pause(waiter, OUTAGE_MIN_US, OUTAGE_MAX_US);
}

int64_t dlock__last_question(const struct dlock__waiter *waiter) {
    int64_t before = waiter->trip_us + waiter->trip_us / 2;
    if (before > LAST_MAX_US) before = LAST_MAX_US;
    return waiter->deadline_us - (before < LAST_MIN_US ? LAST_MIN_US : before);
}

/* When a waiter without wake-ups asks again: after a random pause, or earlier if the holder is likely to be done by
 * then. */
static int64_t poll_at(struct dlock__waiter *waiter, int64_t now, int64_t longest) {
    const struct dlock__rhythm *rhythm = waiter->lock->name->rhythm;
    if (dlock__rhythm_is_known(rhythm)) waiter->pause_us = POLL_MAX_US; /* no short pauses before the predicted end */
    int64_t due = dlock__rhythm_next(rhythm, waiter->lock->client, now);
    int64_t at = now + next_pause(waiter, POLL_MIN_US, longest);
    return due < at ? due : at;
}

/* When to ask again after an answer without a grant, unless something happens before. */
static int64_t ask_at(struct dlock__waiter *waiter, const struct dlock__acquisition *acq,
                      const struct dlock_claim *answer) {
    struct dlock_client *client = waiter->lock->client;
    int64_t now = dlock__now(client), retry_ms = answer->retry_ms;
    if (answer->result == DLOCK_ENOTREADY && retry_ms < 0) retry_ms = answer->ready_ms;
    bool deaf = dlock__can(client, DLOCK_CAP_WAKE) && client->listener.state != DLOCK__LISTENER_UP;
    bool for_good = client->listener.retry_at_us == DLOCK__NEVER;
    if (deaf || retry_ms < 0) return poll_at(waiter, now, deaf && !for_good ? DEAF_MAX_US : POLL_MAX_US);
    if (retry_ms == DLOCK_FOREVER) return DLOCK__NEVER;
    if (retry_ms > SLEEP_MAX_MS) retry_ms = SLEEP_MAX_MS;
    if (acq->unanswered.queued && retry_ms > 0) {
        int64_t stagger = retry_ms * 10 < STAGGER_MAX_US ? retry_ms * 10 : STAGGER_MAX_US;
        return now + retry_ms * 1000 + dlock__jitter(client, 0, stagger);
    }
    int64_t least = next_pause(waiter, POLL_MIN_US, POLL_MAX_US); /* "at once" must not become a tight loop */
    int64_t pause = retry_ms * 1000 + dlock__jitter(client, 0, retry_ms * 100);
    return now + (pause > least ? pause : least);
}

int64_t dlock__ask_again_at(struct dlock__waiter *waiter, const struct dlock__acquisition *acq,
                            const struct dlock_claim *answer) {
    int64_t at = ask_at(waiter, acq, answer), last = dlock__last_question(waiter);
    return !acq->unanswered.queued && last < at && dlock__now(waiter->lock->client) < last ? last : at;
}
