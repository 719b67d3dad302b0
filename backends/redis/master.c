/* redis+sentinel and rediss+sentinel: which server is the master, and since when that is certain.
 *
 * After a failover the old master may survive, cut off or not yet informed, and continue to grant locks to the clients
 * that are connected to it. So no grant, renewal or release by a master is valid on its own: a majority of the
 * Sentinels has to confirm it as the master, in answer to a question that was sent no earlier than SURE before the
 * master's own answer arrived (c >= answered - SURE, where c is when the question was sent); and the grant is valid for
 * SURE less than the server keeps it. A Sentinel has one vote, however many addresses lead to it: every connection asks
 * for its run id. So two majorities have a Sentinel in common, and no Sentinel returns to an earlier failover (its
 * configuration epoch only grows, and is on its disk before it is announced; redis.io, "High availability with Redis
 * Sentinel": configuration epochs, configuration propagation). It follows that no grant is valid at the old master once
 * the new one has granted the lock to another client. Let T be the time at which the first majority has named the new
 * master; all questions that a majority answers with the old one were sent before T.
 *
 * - A grant that the new master makes: clients connect to it as the master after T only, and it grants nothing before
 *   its quarantine of at least a lease is over, since the epoch is part of what begins the quarantine
 *   (incarnation.lua). A grant that the old master made or renewed, with an answer at the time a, is valid until
 *   a + lease - SURE <= c + lease < T + lease.
 * - A grant that was replicated to the new master, and that the new master renews for its holder X, while the old one,
 *   where X no longer renews, grants the lock to Z: X renews at a time r > T while its grant is valid, so r is at least
 *   SURE before the end of X's lease at the old master. Z is granted the lock after that end, so later than r + SURE,
 *   and therefore Z's c is later than r, hence later than T, which is impossible. X might also renew a grant that it
 *   does not hold (an answer was lost): in its quarantine the new master does not renew a grant shortly before its end
 *   (library.lua, late()).
 *
 * Hence SURE has to be the same for all clients. tests/systems/models/master.pml is this argument as a model. */
#include "sentinel.h"

#include <stdlib.h>

#define SURE_US (REDIS_SURE_MS * 1000)
/* Age of the last question from which on a request also asks the Sentinels again. Their answers are read when they are
 * needed. */
#define ASK_US (SURE_US / 2)
#define PAUSE_MS 10
/* Without a quarantine one answer is enough; this is how long the others are then waited for. */
#define GRACE_US 100000

/* ---- majorities -------------------------------------------------------------------------------------------------- */

/* A set of Sentinels. One with several addresses is in it only once, as soon as it has identified itself at each. */
typedef unsigned voters;

static voters voter(const struct redis_sentinel *sentinel) {
    return 1u << sentinel->who;
}

static size_t size_of(voters set) {
    return (size_t)__builtin_popcount(set);
}

/* Returns how many Sentinels the URI names. An address whose Sentinel is not known may be that of one more: a name may
 * stand for several. But where a name has addresses of both families, each Sentinel is taken to have one of either,
 * unless more than that are known. */
static size_t named_by_uri(const struct redis_sentinels *sentinels) {
    size_t addresses[REDIS_SENTINELS][2] = {{0}}, all = 0;
    voters seen = 0, known = 0;
    for (size_t i = 0; i < sentinels->n; i++) {
        const struct redis_sentinel *sentinel = &sentinels->each[i];
        if (*sentinel->id) known |= voter(sentinel);
        if (seen & voter(sentinel)) continue;
        seen |= voter(sentinel);
        addresses[sentinel->name][strchr(sentinel->address, ':') != NULL]++;
    }
    for (size_t i = 0; i < sentinels->n; i++) all += addresses[i][addresses[i][1] > addresses[i][0]];
    return size_of(known) > all ? size_of(known) : all;
}

/* Returns the size of a majority of the Sentinels: of those in the URI, or of those that one of them knows, if these
 * are more. */
static size_t majority(const struct redis_sentinels *sentinels) {
    size_t all = named_by_uri(sentinels);
    for (size_t i = 0; i < sentinels->n; i++) {
        const struct redis_sentinel *sentinel = &sentinels->each[i];
        if (sentinel->said_us && (size_t)sentinel->said.others + 1 > all) all = (size_t)sentinel->said.others + 1;
    }
    return all / 2 + 1;
}

static bool is_same(const struct redis_named *a, const struct redis_named *b) {
    return a->epoch == b->epoch && a->port == b->port && strcmp(a->host, b->host) == 0;
}

/* Returns how many Sentinels name this master, in answer to questions that were sent at since_us or later. A connection
 * that has ended does not count: the Sentinel may have been restarted, and be connected again under another id. */
static size_t count(const struct redis_sentinels *sentinels, const struct redis_named *named, int64_t since_us) {
    voters set = 0;
    for (size_t i = 0; i < sentinels->n; i++) {
        const struct redis_sentinel *sentinel = &sentinels->each[i];
        if (sentinel->open && sentinel->said_us && sentinel->said_us >= since_us && is_same(&sentinel->said, named))
            set |= voter(sentinel);
    }
    return size_of(set);
}

/* Returns the most frequent answer, and in *n how many gave it. NULL: there is no answer. */
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

/* Returns the answer with the latest failover, since other Sentinels may have been cut off. */
static const struct redis_named *latest(const struct redis_sentinels *sentinels) {
    const struct redis_named *named = NULL;
    for (size_t i = 0; i < sentinels->n; i++) {
        const struct redis_sentinel *sentinel = &sentinels->each[i];
        if (sentinel->said_us && (!named || sentinel->said.epoch > named->epoch)) named = &sentinel->said;
    }
    return named;
}

/* ---- a new connection -------------------------------------------------------------------------------------------- */

/* Waits until a majority agrees or no further answer is to come. NULL: no majority agrees. */
static const struct redis_named *await_elected(struct redis *redis, int64_t deadline_us) {
    struct redis_sentinels *sentinels = redis->sentinels;
    while (!elected(sentinels) && redis_sentinels_hear(redis, sentinels, deadline_us)) continue;
    return elected(sentinels);
}

/* Waits until every Sentinel has answered, or GRACE_US after the first answer. */
static const struct redis_named *await_latest(struct redis *redis, int64_t deadline_us) {
    struct redis_sentinels *sentinels = redis->sentinels;
    while (!latest(sentinels) && redis_sentinels_hear(redis, sentinels, deadline_us)) continue;
    const int64_t grace_us = dlock_now_us() + GRACE_US;
    if (grace_us < deadline_us) deadline_us = grace_us;
    while (redis_sentinels_hear(redis, sentinels, deadline_us)) continue;
    return latest(sentinels);
}

/* Explains why there is no majority. Returns the code. */
static int explain(const struct redis_sentinels *sentinels, struct dlock_error *err) {
    size_t n, needed = majority(sentinels), all = named_by_uri(sentinels);
    const struct redis_named *named = most_named(sentinels, &n);
    if (named && needed > all)
        return dlock_fail(
            err, DLOCK_EUNAVAILABLE,
            "%zu of the Sentinels of \"%s\" can be asked, %zu have to: name all of them in the URI, and see "
            "that their names can be looked up",
            all, sentinels->name, needed);
    if (!named && sentinels->code) {
        if (err) *err = sentinels->why;
        return sentinels->code;
    }
    if (!named) return dlock_fail(err, DLOCK_EUNAVAILABLE, "no Sentinel of \"%s\" answers in time", sentinels->name);
    return dlock_fail(err, DLOCK_EUNAVAILABLE,
                      "%zu of the Sentinels of \"%s\" say that %s port %d is the master: %zu have to%s%.300s", n,
                      sentinels->name, named->host, named->port, needed, sentinels->code ? "; " : "",
                      sentinels->code ? sentinels->why.message : "");
}

int redis_find_master(struct redis *redis, const struct dlock_uri *uri, int64_t deadline_us, struct dlock_error *err) {
    const bool strict = redis->peer->quarantine_ms > 0;
    struct redis_address address;
    if (redis_address(uri, &address, err)) return DLOCK_EINVAL;
    struct redis_sentinels *sentinels = redis_sentinels_new(redis, &address);
    if (!sentinels) return dlock_fail(err, DLOCK_ENOMEM, "out of memory");
    const struct redis_named *named = (strict ? await_elected : await_latest)(redis, deadline_us);
    if (!named) return explain(sentinels, err);
    sentinels->master = *named;
    if (strict) sentinels->sure_us = sentinels->asked_us;
    redis->master = (struct redis_master){.port = named->port, .quorum = named->quorum, .strict = strict};
    memcpy(redis->master.host, named->host, sizeof named->host);
    if (strict) snprintf(redis->master.epoch, sizeof redis->master.epoch, "%lld", named->epoch);
    return 0;
}

void redis_forget_sentinels(struct redis *redis) {
    struct redis_sentinels *sentinels = redis->sentinels;
    redis->sentinels = NULL; /* cleared first, since a child forked during cleanup reads it */
    redis_sentinels_free(sentinels);
}

size_t redis_count_sentinels(struct redis *redis, int64_t deadline_us, size_t *answered) {
    struct redis_sentinels *sentinels = redis->sentinels;
    voters set = 0;
    *answered = 0;
    if (!sentinels) return 0;
    await_latest(redis, deadline_us);
    for (size_t i = 0; i < sentinels->n; i++)
        if (sentinels->each[i].said_us) set |= voter(&sentinels->each[i]);
    *answered = size_of(set);
    return named_by_uri(sentinels);
}

/* ---- a connection in use ----------------------------------------------------------------------------------------- */

void redis_doubt_master(struct redis *redis) {
    struct redis_sentinels *sentinels = redis->sentinels;
    const int64_t now_us = dlock_now_us();
    if (!redis->master.strict || now_us - sentinels->asked_us < ASK_US) return;
    sentinels->asked_us = now_us;
    redis_sentinels_hear(redis, sentinels, 0); /* one whose answer lies there unread can be asked */
    redis_sentinels_ask(sentinels, now_us);
}

/* Evaluates the answers: updates sure_us. Returns EUNAVAILABLE if a majority names another master, or too few Sentinels
 * are left for a majority. */
static int judge(struct redis_sentinels *sentinels, struct dlock_error *err) {
    const struct redis_named *named = elected(sentinels), *master = &sentinels->master;
    const size_t needed = majority(sentinels);
    voters open = 0;
    if (named && !is_same(named, master))
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "Redis at %s port %d is not the master any more: %s port %d is",
                          master->host, master->port, named->host, named->port);
    for (size_t i = 0; i < sentinels->n; i++) {
        const struct redis_sentinel *sentinel = &sentinels->each[i];
        if (sentinel->open) open |= voter(sentinel);
        if (sentinel->said_us > sentinels->sure_us && count(sentinels, master, sentinel->said_us) >= needed)
            sentinels->sure_us = sentinel->said_us;
    }
    if (size_of(open) >= needed) return 0;
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "%zu Sentinels are left of %zu that have to name the master; %.300s",
                      size_of(open), needed, sentinels->why.message);
}

int redis_be_sure(struct redis *redis, int64_t deadline_us, struct dlock_error *err) {
    struct redis_sentinels *sentinels = redis->sentinels;
    if (!redis->master.strict) return 0;
    const int64_t since_us = dlock_now_us() - SURE_US;
    while (sentinels->sure_us < since_us) {
        /* Each one that has answered gets a new question, without waiting for others, which may be silent: at once if
         * its answer is too old, and after a moment if they disagree, since a failover is spreading among them. */
        const int64_t now_us = dlock_now_us(), soon_us = now_us + PAUSE_MS * 1000;
        redis_sentinels_ask(sentinels, now_us - PAUSE_MS * 1000);
        if (!redis_sentinels_hear(redis, sentinels, soon_us < deadline_us ? soon_us : deadline_us) &&
            dlock_now_us() < soon_us)
            poll(NULL, 0, PAUSE_MS);
        int rc = judge(sentinels, err);
        if (rc) return rc;
        if (sentinels->sure_us < since_us && dlock_now_us() >= deadline_us)
            return dlock_fail(err, DLOCK_EUNAVAILABLE,
                              "no majority of the Sentinels of \"%s\" names the master in time", sentinels->name);
    }
    return 0;
}
