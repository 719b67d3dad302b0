/* Grants and queues of names. */
#include "mem.h"

#include <stdlib.h>
#include <time.h>

/* Returns the next fence, which is at least `step` greater than the last one, and a multiple of that. It follows the
 * clock, and so is also greater than the fences of earlier runs of the program, unless the clock was set back. */
static uint64_t next_fence(struct mem_space *space, uint64_t step) {
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    const uint64_t now = (uint64_t)wall.tv_sec * 1000000 + (uint64_t)wall.tv_nsec / 1000;
    const uint64_t least = space->last_fence + step > now ? space->last_fence + step : now;
    return space->last_fence = (least + step - 1) / step * step;
}

/* ---- lists of entries -------------------------------------------------------------------------------------------- */

static struct mem_entry **find(struct mem_entry **at, const char *token) {
    while (*at && strcmp((*at)->token, token) != 0) at = &(*at)->next;
    return at;
}

static void put_last(struct mem_entry **at, struct mem_entry *entry) {
    while (*at) at = &(*at)->next;
    entry->next = NULL;
    *at = entry;
}

static struct mem_entry *take(struct mem_entry **at) {
    struct mem_entry *entry = *at;
    *at = entry->next;
    return entry;
}

static void drop(struct mem_entry **at) {
    free(take(at));
}

static struct mem_entry *entry_new(const struct dlock_claim *claim) {
    struct mem_entry *entry = calloc(1, sizeof *entry);
    if (!entry) return NULL;
    snprintf(entry->token, sizeof entry->token, "%s", claim->token);
    entry->mode = claim->mode;
    entry->limit = claim->limit;
    entry->since_us = mem_now_us();
    entry->lease_ms = claim->lease_ms;
    entry->lingers = claim->flags & DLOCK_CLAIM_LINGER;
    return entry;
}

/* ---- room -------------------------------------------------------------------------------------------------------- */

static bool fits(const struct mem_name *name, enum dlock_mode mode, uint32_t limit) {
    uint32_t n = 0;
    for (const struct mem_entry *holder = name->holders; holder; holder = holder->next, n++)
        if (mode == DLOCK_EXCLUSIVE || holder->mode == DLOCK_EXCLUSIVE) return false;
    return mode != DLOCK_PERMIT || n < limit;
}

static void grant(struct mem_space *space, struct mem_name *name, struct mem_entry *entry, int64_t kept_ms) {
    entry->fence = next_fence(space, entry->mode == DLOCK_EXCLUSIVE ? 1 : DLOCK_JOINT_STEP);
    entry->since_us = mem_now_us();
    entry->until_us = entry->since_us + kept_ms * 1000;
    put_last(&name->holders, entry);
}

/* Grants the name to the waiters at the head of the queue that fit, and tells their clients. Drops waiters whose client
 * no longer listens. The token `asking` (NULL: none) is in a request and learns of its grant by the answer. */
static void hand_on(struct mem_space *space, struct mem_name *name, const char *asking) {
    while (name->queue && fits(name, name->queue->mode, name->queue->limit)) {
        struct mem_entry *first = take(&name->queue);
        bool asks = asking && strcmp(first->token, asking) == 0;
        if (!asks && !mem_listens(space, first->token)) {
            free(first);
            continue;
        }
        first->handed = !asks;
        grant(space, name, first, asks || first->lease_ms < DLOCK_HAND_OVER_MS ? first->lease_ms : DLOCK_HAND_OVER_MS);
        if (!asks) mem_tell(space, DLOCK_WAKE_GRANTED, name->text, first);
    }
}

/* After a hand-over that was not confirmed within DLOCK_HAND_OVER_MS, drops the waiters that have not asked for that
 * long: their clients are probably gone as well. */
static void drop_silent(struct mem_name *name, int64_t now) {
    for (struct mem_entry **at = &name->queue; *at;) {
        if ((*at)->asked_us + DLOCK_HAND_OVER_MS * INT64_C(1000) < now)
            drop(at);
        else
            at = &(*at)->next;
    }
}

static void expire(struct mem_name *name) {
    int64_t now = mem_now_us();
    bool unconfirmed = false;
    for (struct mem_entry **at = &name->holders; *at;) {
        if ((*at)->until_us > now) {
            at = &(*at)->next;
            continue;
        }
        unconfirmed = unconfirmed || (*at)->handed;
        drop(at);
    }
    if (unconfirmed) drop_silent(name, now);
}

void mem_settle(struct mem_space *space, struct mem_name *name) {
    expire(name);
    hand_on(space, name, NULL);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* True if the name is in use in a way that excludes the claim: as a lock instead of permits or the reverse, or with
 * another number of permits. */
static bool used_otherwise(const struct mem_name *name, const struct dlock_claim *claim) {
    const struct mem_entry *entry = name->holders ? name->holders : name->queue;
    if (!entry) return false;
    return (entry->mode == DLOCK_PERMIT) != (claim->mode == DLOCK_PERMIT) || entry->limit != claim->limit;
}

static int refuse_use(const struct mem_name *name, struct dlock_error *err) {
    const struct mem_entry *entry = name->holders ? name->holders : name->queue;
    if (entry->mode != DLOCK_PERMIT)
        return dlock_fail(err, DLOCK_EINVAL, "lock \"%.100s\" is in use as a lock", name->text);
    return dlock_fail(err, DLOCK_EINVAL, "lock \"%.100s\" is in use as %u permits", name->text, (unsigned)entry->limit);
}

static void granted(struct dlock_claim *claim, struct mem_entry *holder) {
    holder->until_us = mem_now_us() + claim->lease_ms * 1000;
    holder->handed = false;
    claim->fence = holder->fence;
    claim->result = 0;
}

/* Returns the time until the first lease of the holders ends, in ms; -1: there are no holders. */
static int64_t left_ms(const struct mem_name *name) {
    int64_t least = -1, now = mem_now_us();
    for (const struct mem_entry *holder = name->holders; holder; holder = holder->next) {
        int64_t left = (holder->until_us - now) / 1000;
        if (least < 0 || left < least) least = left > 0 ? left : 0;
    }
    return least;
}

static void busy(struct mem_space *space, struct mem_name *name, struct dlock_claim *claim, struct dlock_error *err) {
    int64_t place = 0;
    claim->result = DLOCK_EBUSY;
    if (name->holders) dlock_held_by(err, name->holders->token);
    for (struct mem_entry *holder = name->holders; holder; holder = holder->next)
        if (holder->lingers && strncmp(holder->token, claim->token, MEM_CLIENT) != 0)
            mem_tell(space, DLOCK_WAKE_WANTED, name->text, holder);
    if (claim->flags & DLOCK_CLAIM_QUEUE && !mem_listens(space, claim->token)) claim->hints = DLOCK_HINT_UNHEARD;
    for (struct mem_entry *entry = name->queue; entry; entry = entry->next, place++) {
        if (strcmp(entry->token, claim->token) != 0) continue;
        entry->asked_us = mem_now_us();
        claim->retry_ms = dlock_queue_retry_ms(place, left_ms(name), claim->lease_ms);
        return;
    }
}

static void ask(struct mem_space *space, struct mem_name *name, struct dlock_claim *claim, struct dlock_error *err) {
    struct mem_entry *mine = *find(&name->holders, claim->token);
    bool waits = *find(&name->queue, claim->token);
    if (!mine && !waits && !name->queue && fits(name, claim->mode, claim->limit) && (mine = entry_new(claim)))
        grant(space, name, mine, claim->lease_ms);
    if (mine) {
        granted(claim, mine);
        mine->lingers = claim->flags & DLOCK_CLAIM_LINGER; /* not said by an earlier request whose answer was lost */
        return;
    }
    if (!waits && claim->flags & DLOCK_CLAIM_QUEUE && (mine = entry_new(claim))) put_last(&name->queue, mine);
    busy(space, name, claim, err);
}

void mem_acquire(struct mem_space *space, struct dlock_claim *claim, struct dlock_error *err) {
    struct mem_name *name = mem_make(space, claim->name);
    claim->server_us = mem_now_us();
    claim->result = DLOCK_EBUSY;
    if (!name) return;
    struct mem_entry *queued = *find(&name->queue, claim->token);
    if (queued) queued->asked_us = claim->server_us;
    expire(name);
    hand_on(space, name, claim->token);
    if (used_otherwise(name, claim))
        claim->result = refuse_use(name, err);
    else
        ask(space, name, claim, err);
    mem_tidy(space, name);
}

void mem_renew(struct mem_space *space, struct dlock_claim *claim) {
    struct mem_name *name = mem_find(space, claim->name);
    claim->server_us = mem_now_us();
    claim->result = DLOCK_ELOST;
    if (!name) return;
    expire(name);
    struct mem_entry *mine = *find(&name->holders, claim->token);
    if (mine) granted(claim, mine);
    if (mine) claim->hints = DLOCK_HINT_LISTEN; /* a lock that is held for long hears of a break */
    if (mine && claim->floor > space->last_fence) space->last_fence = claim->floor;
    if (mine && mine->mode == DLOCK_EXCLUSIVE && claim->mode == DLOCK_SHARED) mine->mode = DLOCK_SHARED;
    if (mine && claim->floor > 0 && (mine->mode == DLOCK_SHARED || claim->floor > mine->fence))
        mine->fence = claim->floor;
    hand_on(space, name, NULL);
    mem_tidy(space, name);
}

void mem_release(struct mem_space *space, struct dlock_claim *claim) {
    struct mem_name *name = mem_find(space, claim->name);
    claim->server_us = mem_now_us();
    claim->result = DLOCK_ELOST;
    if (!name) return;
    expire(name);
    struct mem_entry **held = find(&name->holders, claim->token), **queued = find(&name->queue, claim->token);
    if (*queued) drop(queued);
    if (*held) {
        claim->result = 0;
        drop(held);
    }
    hand_on(space, name, NULL);
    mem_tidy(space, name);
}

/* ---- taking grants away ------------------------------------------------------------------------------------------ */

static void lose(struct mem_space *space, struct mem_name *name, struct mem_entry **at) {
    mem_tell(space, DLOCK_WAKE_LOST, name->text, *at);
    drop(at);
}

bool mem_break(struct mem_space *space, const char *text) {
    struct mem_name *name = mem_find(space, text);
    if (!name) return false;
    expire(name);
    bool broken = name->holders;
    while (name->holders) lose(space, name, &name->holders);
    hand_on(space, name, NULL);
    mem_tidy(space, name);
    return broken;
}

void mem_lose(struct mem_space *space, const char *text, const char *token) {
    struct mem_name *name = mem_find(space, text);
    struct mem_entry **at = name ? find(&name->holders, token) : NULL;
    if (!at || !*at) return;
    lose(space, name, at);
    hand_on(space, name, NULL);
    mem_tidy(space, name);
}
