/* redis+sentinel and rediss+sentinel: which server is the master, and since when that is certain.
 *
 * The old master of a failover may live on, cut off or not yet told, and go on granting to those who are connected to
 * it. So nothing that it grants or renews counts by itself: a majority of the Sentinels has to say that it is the
 * master, in answer to a question that was sent SURE after the answer at the earliest, counted back (c >= answered -
 * SURE); and the grant is valid for SURE less than the server keeps it. Two majorities have a Sentinel in common, and no
 * Sentinel goes back to an earlier failover (its configuration epoch only grows, and is on its disk before it is told;
 * redis.io, "High availability with Redis Sentinel": configuration epochs, configuration propagation). From this follows
 * that nobody holds at the old master what is granted at the new one. Let T be when the first majority has named the new
 * one, for which all questions that name the old one were sent before.
 *
 * - What the new one grants: it is met as such after T, and nothing is granted there before its quarantine of at least
 *   a lease is over, for the epoch stands in what the quarantine begins with (incarnation.lua). What was granted or
 *   renewed at the old one, in an answer of the time a, is valid until a + lease - SURE <= c + lease < T + lease.
 * - What the new one has heard of, and renews for its holder X, while the old one, where X does not renew any more,
 *   grants it to Z: X renews there at r > T, in time, so r is before X's lease at the old one ends by SURE at least; Z is
 *   granted it when that has ended, so later than r + SURE; its c is later than r, hence than T: which cannot be.
 *   What X may renew when it does not hold it (an answer was lost), the new one does not renew in its quarantine when
 *   it is about to end (library.lua, LATE).
 *
 * Hence SURE is the same for all clients. */
#include "sentinel.h"

#include <stdlib.h>

#define SURE_US (REDIS_SURE_MS * 1000)
/* They are asked again when the last question is as old as that, by whoever needs it; the answers are looked at
 * when they are needed. */
#define ASK_US (SURE_US / 2)
#define PAUSE_MS 10
/* Without a quarantine one is enough: how long the others may take then. */
#define GRACE_US 100000

/* ---- majorities -------------------------------------------------------------------------------------------------- */

/* How many of them are one: of those that the URI names, or that are known to one of these. */
static size_t majority(const struct redis_sentinels *sentinels) {
    size_t all = sentinels->n;
    for (size_t i = 0; i < sentinels->n; i++) {
        const struct redis_sentinel *sentinel = &sentinels->each[i];
        if (sentinel->said_us && (size_t)sentinel->said.others + 1 > all) all = (size_t)sentinel->said.others + 1;
    }
    return all / 2 + 1;
}

static bool is_same(const struct redis_named *a, const struct redis_named *b) {
    return a->epoch == b->epoch && a->port == b->port && strcmp(a->address, b->address) == 0;
}

/* How many say that, in answer to what was sent then or later. */
static size_t count(const struct redis_sentinels *sentinels, const struct redis_named *named, int64_t since_us) {
    size_t n = 0;
    for (size_t i = 0; i < sentinels->n; i++) {
        const struct redis_sentinel *sentinel = &sentinels->each[i];
        if (sentinel->said_us && sentinel->said_us >= since_us && is_same(&sentinel->said, named)) n++;
    }
    return n;
}

/* What most of those say that have spoken; *n: how many. NULL: none has. */
static const struct redis_named *most_named(const struct redis_sentinels *sentinels, size_t *n) {
    const struct redis_named *most = NULL;
    *n = 0;
    for (size_t i = 0; i < sentinels->n; i++) {
        const struct redis_sentinel *sentinel = &sentinels->each[i];
        const size_t same = sentinel->said_us ? count(sentinels, &sentinel->said, 1) : 0;
        if (same <= *n) continue;
        *n = same;
        most = &sentinel->said;
    }
    return most;
}

static const struct redis_named *elected(const struct redis_sentinels *sentinels) {
    size_t n;
    const struct redis_named *named = most_named(sentinels, &n);
    return n >= majority(sentinels) ? named : NULL;
}

/* The one that has heard of the latest failover: another one may have been cut off. */
static const struct redis_named *latest(const struct redis_sentinels *sentinels) {
    const struct redis_named *named = NULL;
    for (size_t i = 0; i < sentinels->n; i++) {
        const struct redis_sentinel *sentinel = &sentinels->each[i];
        if (sentinel->said_us && (!named || sentinel->said.epoch > named->epoch)) named = &sentinel->said;
    }
    return named;
}

/* ---- a new connection -------------------------------------------------------------------------------------------- */

/* A majority that agrees, or none has more to say. */
static const struct redis_named *await_elected(struct redis *redis, int64_t deadline_us) {
    struct redis_sentinels *sentinels = redis->sentinels;
    while (!elected(sentinels) && redis_sentinels_hear(redis, sentinels, deadline_us)) continue;
    return elected(sentinels);
}

/* All of them, or one and a moment longer. */
static const struct redis_named *await_latest(struct redis *redis, int64_t deadline_us) {
    struct redis_sentinels *sentinels = redis->sentinels;
    while (!latest(sentinels) && redis_sentinels_hear(redis, sentinels, deadline_us)) continue;
    const int64_t grace_us = dlock_now_us() + GRACE_US;
    if (grace_us < deadline_us) deadline_us = grace_us;
    while (redis_sentinels_hear(redis, sentinels, deadline_us)) continue;
    return latest(sentinels);
}

/* There is no majority. */
static int explain(const struct redis_sentinels *sentinels, struct dlock_error *err) {
    size_t n, needed = majority(sentinels);
    const struct redis_named *named = most_named(sentinels, &n);
    if (named && needed > sentinels->n)
        return dlock_fail(
            err, DLOCK_EINVAL,
            "the URI names %zu of the Sentinels of \"%s\", which have to be asked for a majority: name at "
            "least %zu, better all",
            sentinels->n, sentinels->name, needed);
    if (!named && sentinels->code) {
        if (err) *err = sentinels->why;
        return sentinels->code;
    }
    if (!named) return dlock_fail(err, DLOCK_EUNAVAILABLE, "no Sentinel of \"%s\" answers in time", sentinels->name);
    return dlock_fail(err, DLOCK_EUNAVAILABLE,
                      "%zu of the Sentinels of \"%s\" say that %s port %d is the master: %zu have to%s%.300s", n,
                      sentinels->name, named->address, named->port, needed, sentinels->code ? "; " : "",
                      sentinels->code ? sentinels->why.message : "");
}

int redis_find_master(struct redis *redis, const struct redis_address *address, const struct dlock_host *hosts,
                      size_t n, int64_t deadline_us, struct dlock_error *err) {
    const bool strict = redis->peer->quarantine_ms > 0;
    struct redis_sentinels *sentinels = redis_sentinels_new(redis, address, hosts, n);
    if (!sentinels) return dlock_fail(err, DLOCK_ENOMEM, "out of memory");
    const struct redis_named *named = (strict ? await_elected : await_latest)(redis, deadline_us);
    if (!named) return explain(sentinels, err);
    sentinels->master = *named;
    if (strict) sentinels->sure_us = sentinels->asked_us;
    redis->master = (struct redis_master){.port = named->port, .quorum = named->quorum, .strict = strict};
    memcpy(redis->master.address, named->address, sizeof named->address);
    if (strict) snprintf(redis->master.epoch, sizeof redis->master.epoch, "%lld", named->epoch);
    return 0;
}

void redis_forget_sentinels(struct redis *redis) {
    struct redis_sentinels *sentinels = redis->sentinels;
    redis->sentinels = NULL; /* first: a child forked meanwhile looks here */
    redis_sentinels_free(sentinels);
}

size_t redis_count_sentinels(struct redis *redis, int64_t deadline_us, size_t *answered) {
    struct redis_sentinels *sentinels = redis->sentinels;
    *answered = 0;
    if (!sentinels) return 0;
    await_latest(redis, deadline_us);
    for (size_t i = 0; i < sentinels->n; i++) *answered += sentinels->each[i].said_us != 0;
    return sentinels->n;
}

/* ---- a connection in use ----------------------------------------------------------------------------------------- */

void redis_doubt_master(struct redis *redis) {
    struct redis_sentinels *sentinels = redis->sentinels;
    if (redis->master.strict && dlock_now_us() - sentinels->asked_us >= ASK_US) redis_sentinels_ask(sentinels);
}

/* Takes what has been said: since when the connection's master is the master. Another one, or too few that are left to
 * say anything: EUNAVAILABLE. */
static int judge(struct redis_sentinels *sentinels, struct dlock_error *err) {
    const struct redis_named *named = elected(sentinels), *master = &sentinels->master;
    const size_t needed = majority(sentinels);
    size_t open = 0;
    if (named && !is_same(named, master))
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "Redis at %s port %d is not the master any more: %s port %d is",
                          master->address, master->port, named->address, named->port);
    for (size_t i = 0; i < sentinels->n; i++) {
        const struct redis_sentinel *sentinel = &sentinels->each[i];
        open += sentinel->open != 0;
        if (sentinel->said_us > sentinels->sure_us && count(sentinels, master, sentinel->said_us) >= needed)
            sentinels->sure_us = sentinel->said_us;
    }
    if (open >= needed) return 0;
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "%zu Sentinels are left of %zu that have to name the master; %.300s",
                      open, needed, sentinels->why.message);
}

int redis_be_sure(struct redis *redis, int64_t deadline_us, struct dlock_error *err) {
    struct redis_sentinels *sentinels = redis->sentinels;
    if (!redis->master.strict) return 0;
    const int64_t since_us = dlock_now_us() - SURE_US;
    while (sentinels->sure_us < since_us) {
        const bool heard = redis_sentinels_hear(redis, sentinels, deadline_us);
        int rc = judge(sentinels, err);
        if (rc) return rc;
        if (sentinels->sure_us >= since_us) break;
        if (dlock_now_us() >= deadline_us)
            return dlock_fail(err, DLOCK_EUNAVAILABLE,
                              "no majority of the Sentinels of \"%s\" names the master in time", sentinels->name);
        /* All have answered, and do not agree yet: the failover is going round. */
        if (!heard && dlock_now_us() - sentinels->asked_us < PAUSE_MS * 1000) poll(NULL, 0, PAUSE_MS);
        if (!heard || sentinels->asked_us < since_us) redis_sentinels_ask(sentinels);
    }
    return 0;
}

int redis_is_sure(struct redis *redis, struct dlock_error *err) {
    struct redis_sentinels *sentinels = redis->sentinels;
    if (!redis->master.strict) return 1;
    const int64_t since_us = dlock_now_us() - SURE_US;
    while (sentinels->sure_us < since_us && redis_sentinels_hear(redis, sentinels, 0)) continue;
    int rc = judge(sentinels, err);
    redis_doubt_master(redis);
    return rc ? rc : sentinels->sure_us >= since_us;
}
