/* Readers, writers and permits: who may hold together, who waits, and who is let in when. */
#include "site.h"

#include <pthread.h>
#include <stdatomic.h>

/* A client: one connection for requests and one that listens. */
struct party {
    struct link link, ear;
};

enum { PARTIES = 6 };
static struct party party[PARTIES];

static int parties_begin(void **state) {
    (void)state;
    for (int i = 0; i < PARTIES; i++) {
        link_new(&party[i].link, (char)('a' + i));
        link_new(&party[i].ear, (char)('a' + i));
        link_listen(&party[i].ear);
    }
    return 0;
}

static int parties_end(void **state) {
    (void)state;
    for (int i = 0; i < PARTIES; i++) {
        link_end(&party[i].link);
        link_end(&party[i].ear);
    }
    return 0;
}

static void want(struct held *held, int who, const char *name, enum dlock_mode mode, uint32_t limit) {
    held_new(held, &party[who].link, name);
    held->claim.mode = mode;
    held->claim.limit = limit;
}

static int take(struct held *held, int who, const char *name, enum dlock_mode mode) {
    want(held, who, name, mode, 0);
    return acquire(&party[who].link, held);
}

static int wait_for(struct held *held, int who, const char *name, enum dlock_mode mode) {
    want(held, who, name, mode, 0);
    return queue_up(&party[who].link, held);
}

static int give(struct held *held, int who) {
    return release(&party[who].link, held);
}

static void assert_woken(int who, const struct held *held) {
    struct dlock_wake wake;
    wake_get(&party[who].ear, &wake);
    assert_int_equal(wake.kind, DLOCK_WAKE_GRANTED);
    assert_string_equal(wake.token, held->token);
    assert_string_equal(wake.name, held->claim.name);
    assert_int_equal(wake.kept_ms, 3000);
}

static void assert_not_woken(int who) {
    assert_true(wake_none(&party[who].ear));
}

static int64_t waiting(const char *name) {
    return sql_number("SELECT count(*) FROM {}.queue WHERE name = '%s'", name);
}

/* As if the lease of this claim, or the hand-over to it, had ended. */
static void end_lease(const struct held *held) {
    sql("UPDATE {}.shares SET expires_us = {}.clock_us() - 1 WHERE name = '%s' AND token = '%s'", held->claim.name,
        held->token);
    sql("UPDATE {}.locks SET expires_us = {}.clock_us() - 1 WHERE name = '%s' AND token = '%s'", held->claim.name,
        held->token);
}

/* ---- readers and writers ----------------------------------------------------------------------------------------- */

static void readers_hold_together(void **state) {
    struct held one, two, writer, late;
    (void)state;
    assert_int_equal(take(&one, 0, "together", DLOCK_SHARED), 0);
    assert_int_equal(take(&two, 1, "together", DLOCK_SHARED), 0);
    assert_true(two.claim.fence > one.claim.fence);
    assert_int_equal(two.claim.kept_ms, LEASE_MS);
    /* Each has its own lease and its own fence. */
    uint64_t fence = one.claim.fence;
    assert_int_equal(acquire(&party[0].link, &one), 0);
    assert_true(one.claim.fence == fence);
    assert_int_equal(renew(&party[0].link, &one), 0);
    assert_int_equal(take(&writer, 2, "together", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(waiting("together"), 0);
    assert_int_equal(give(&one, 0), 0);
    assert_int_equal(give(&one, 0), DLOCK_ELOST);
    assert_int_equal(renew(&party[0].link, &one), DLOCK_ELOST);
    assert_int_equal(take(&writer, 2, "together", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(give(&two, 1), 0);
    assert_int_equal(take(&writer, 2, "together", DLOCK_EXCLUSIVE), 0);
    assert_true(writer.claim.fence > two.claim.fence);
    assert_int_equal(take(&late, 0, "together", DLOCK_SHARED), DLOCK_EBUSY);
    assert_int_equal(give(&writer, 2), 0);
    assert_int_equal(take(&late, 0, "together", DLOCK_SHARED), 0);
    assert_true(late.claim.fence > writer.claim.fence);
    assert_int_equal(give(&late, 0), 0);
    assert_int_equal(sql_number("SELECT count(*) FROM {}.shares"), 0);
}

/* Writers do not starve: who comes after one that waits, waits behind it. */
static void no_reader_passes_a_writer(void **state) {
    struct held reader, writer, second, third;
    (void)state;
    assert_int_equal(take(&reader, 0, "order", DLOCK_SHARED), 0);
    assert_int_equal(wait_for(&writer, 1, "order", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(take(&third, 3, "order", DLOCK_SHARED), DLOCK_EBUSY);
    assert_int_equal(wait_for(&second, 2, "order", DLOCK_SHARED), DLOCK_EBUSY);
    assert_int_equal(waiting("order"), 2);
    assert_int_equal(queue_up(&party[2].link, &second), DLOCK_EBUSY);
    assert_int_equal(waiting("order"), 2);
    assert_int_equal(acquire(&party[0].link, &reader), 0); /* who is in stays in */
    assert_int_equal(give(&reader, 0), 0);
    assert_woken(1, &writer);
    assert_not_woken(2);
    assert_int_equal(queue_up(&party[1].link, &writer), 0);
    assert_int_equal(give(&writer, 1), 0);
    assert_woken(2, &second);
    assert_int_equal(renew(&party[2].link, &second), 0);
    assert_int_equal(give(&second, 2), 0);
}

/* A writer, and behind it two readers, a writer and a reader: each party has the grant of its number. */
struct line {
    struct held held[5];
};

static void line_begin(struct line *line, const char *name) {
    static const enum dlock_mode modes[] = {DLOCK_EXCLUSIVE, DLOCK_SHARED, DLOCK_SHARED, DLOCK_EXCLUSIVE, DLOCK_SHARED};
    assert_int_equal(take(&line->held[0], 0, name, modes[0]), 0);
    for (int i = 1; i < 5; i++) assert_int_equal(wait_for(&line->held[i], i, name, modes[i]), DLOCK_EBUSY);
}

/* The first writer has let the two readers in, and nobody else. */
static void line_expect_readers(struct line *line) {
    struct held *held = line->held;
    assert_woken(1, &held[1]);
    assert_woken(2, &held[2]);
    assert_not_woken(3);
    assert_not_woken(4);
    assert_int_equal(queue_up(&party[1].link, &held[1]), 0);
    assert_int_equal(renew(&party[2].link, &held[2]), 0);
    assert_true(held[1].claim.fence > held[0].claim.fence);
}

/* They go, and so do the others, one after the other. */
static void line_end(struct line *line) {
    struct held *held = line->held;
    assert_int_equal(give(&held[1], 1), 0);
    assert_not_woken(3);
    assert_int_equal(give(&held[2], 2), 0);
    assert_woken(3, &held[3]);
    assert_int_equal(give(&held[3], 3), 0);
    assert_woken(4, &held[4]);
    assert_int_equal(give(&held[4], 4), 0);
}

static void leading_readers_enter_together(void **state) {
    struct line line;
    (void)state;
    line_begin(&line, "leading");
    assert_int_equal(give(&line.held[0], 0), 0);
    line_expect_readers(&line);
    line_end(&line);
}

/* A waiter that leaves the queue may have been all that others waited for. */
static void a_writer_gives_up(void **state) {
    struct held reader, writer, one, two;
    (void)state;
    assert_int_equal(take(&reader, 0, "given-up", DLOCK_SHARED), 0);
    assert_int_equal(wait_for(&writer, 1, "given-up", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(wait_for(&one, 2, "given-up", DLOCK_SHARED), DLOCK_EBUSY);
    assert_int_equal(wait_for(&two, 3, "given-up", DLOCK_SHARED), DLOCK_EBUSY);
    assert_int_equal(give(&writer, 1), DLOCK_ELOST);
    assert_woken(2, &one);
    assert_woken(3, &two);
    assert_int_equal(give(&reader, 0), 0);
    assert_int_equal(give(&one, 2), 0);
    assert_int_equal(give(&two, 3), 0);
}

/* Its process is gone: the next who asks is let in, and with it those behind. */
static void a_dead_writer_keeps_nobody_out(void **state) {
    struct held reader, writer, one, two;
    (void)state;
    assert_int_equal(take(&reader, 0, "dead", DLOCK_SHARED), 0);
    assert_int_equal(wait_for(&writer, 1, "dead", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(wait_for(&one, 2, "dead", DLOCK_SHARED), DLOCK_EBUSY);
    assert_true(one.claim.retry_ms <= 4001);
    assert_int_equal(wait_for(&two, 3, "dead", DLOCK_SHARED), DLOCK_EBUSY);
    link_end(&party[1].ear);
    sql_wait("SELECT count(*) FROM (SELECT {}.lives('%s')) x(lives) WHERE NOT lives", writer.token);
    assert_int_equal(queue_up(&party[2].link, &one), 0);
    assert_woken(3, &two);
    assert_int_equal(waiting("dead"), 0);
    assert_int_equal(give(&reader, 0), 0);
    assert_int_equal(give(&one, 2), 0);
    assert_int_equal(give(&two, 3), 0);
}

/* A crashed reader ends at its own lease, whatever others do, and whoever waits knows when to look. */
static void a_readers_lease_ends(void **state) {
    struct held crashed, reader, writer;
    (void)state;
    want(&crashed, 0, "crashed", DLOCK_SHARED, 0);
    crashed.claim.lease_ms = 2200; /* less than a waiter is silent for otherwise */
    assert_int_equal(acquire(&party[0].link, &crashed), 0);
    assert_int_equal(take(&reader, 1, "crashed", DLOCK_SHARED), 0);
    assert_int_equal(wait_for(&writer, 2, "crashed", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_true(writer.claim.retry_ms > 0 && writer.claim.retry_ms <= 2201);
    assert_int_equal(give(&reader, 1), 0);
    end_lease(&crashed);
    assert_int_equal(renew(&party[0].link, &crashed), DLOCK_ELOST);
    assert_int_equal(queue_up(&party[2].link, &writer), 0);
    assert_int_equal(give(&crashed, 0), DLOCK_ELOST);
    assert_int_equal(renew(&party[2].link, &writer), 0);
    assert_int_equal(give(&writer, 2), 0);
}

/* A reader was let in and does not answer: it ends, and what its client waits for goes. */
static void a_readers_hand_over_lapses(void **state) {
    struct held writer, gone, also_gone, reader, next;
    (void)state;
    assert_int_equal(take(&writer, 0, "lapse", DLOCK_EXCLUSIVE), 0);
    assert_int_equal(wait_for(&gone, 1, "lapse", DLOCK_SHARED), DLOCK_EBUSY);
    assert_int_equal(wait_for(&reader, 2, "lapse", DLOCK_SHARED), DLOCK_EBUSY);
    assert_int_equal(wait_for(&also_gone, 1, "lapse", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(wait_for(&next, 3, "lapse", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(give(&writer, 0), 0);
    assert_woken(1, &gone);
    assert_woken(2, &reader);
    assert_int_equal(renew(&party[2].link, &reader), 0);
    end_lease(&gone);
    assert_int_equal(give(&reader, 2), 0);
    assert_woken(3, &next);
    assert_int_equal(waiting("lapse"), 0);
    assert_int_equal(renew(&party[1].link, &gone), DLOCK_ELOST);
    assert_int_equal(give(&next, 3), 0);
}

/* A waiter whose own grant has ended, as the server's clock has it, and stands in its row still: it is given another. */
static void an_ended_grant_is_in_nobodys_way(void **state) {
    struct held writer, reader;
    (void)state;
    assert_int_equal(take(&writer, 0, "ended", DLOCK_EXCLUSIVE), 0);
    assert_int_equal(wait_for(&reader, 1, "ended", DLOCK_SHARED), DLOCK_EBUSY);
    sql("INSERT INTO {}.shares VALUES ('ended', '%s', 1, 1, false)", reader.token);
    assert_int_equal(give(&writer, 0), 0);
    assert_woken(1, &reader);
    assert_int_equal(renew(&party[1].link, &reader), 0);
    assert_int_equal(give(&reader, 1), 0);
}

/* One that answered, and ended later, takes nobody along. */
static void a_confirmed_reader_ends_alone(void **state) {
    struct held writer, renewed, asked, next, last;
    (void)state;
    assert_int_equal(take(&writer, 0, "confirmed", DLOCK_EXCLUSIVE), 0);
    assert_int_equal(wait_for(&renewed, 1, "confirmed", DLOCK_SHARED), DLOCK_EBUSY);
    assert_int_equal(wait_for(&asked, 2, "confirmed", DLOCK_SHARED), DLOCK_EBUSY);
    assert_int_equal(wait_for(&next, 1, "confirmed", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(wait_for(&last, 2, "confirmed", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(give(&writer, 0), 0);
    assert_woken(1, &renewed);
    assert_woken(2, &asked);
    assert_int_equal(renew(&party[1].link, &renewed), 0);
    assert_int_equal(queue_up(&party[2].link, &asked), 0);
    end_lease(&renewed);
    end_lease(&asked);
    assert_int_equal(queue_up(&party[1].link, &next), 0);
    assert_int_equal(waiting("confirmed"), 1);
    assert_int_equal(give(&next, 1), 0);
    assert_woken(2, &last);
    assert_int_equal(give(&last, 2), 0);
}

/* ---- downgrade --------------------------------------------------------------------------------------------------- */

static void downgrades(void **state) {
    struct line line;
    struct held *writer = &line.held[0];
    (void)state;
    line_begin(&line, "down");
    uint64_t fence = writer->claim.fence;
    writer->claim.mode = DLOCK_SHARED;
    for (int i = 0; i < 2; i++) { /* a second time it is a renewal */
        assert_int_equal(renew(&party[0].link, writer), 0);
        assert_int_equal(writer->claim.kept_ms, LEASE_MS);
        assert_true(writer->claim.server_us > 0);
    }
    assert_int_equal(acquire(&party[0].link, writer), 0);
    assert_true(writer->claim.fence == fence);
    line_expect_readers(&line);
    assert_int_equal(give(writer, 0), 0);
    line_end(&line);
}

/* No writer slips in, not even one that waits first. */
static void downgrades_before_a_writer(void **state) {
    struct held writer, next, reader;
    (void)state;
    assert_int_equal(take(&writer, 0, "down-next", DLOCK_EXCLUSIVE), 0);
    assert_int_equal(wait_for(&next, 1, "down-next", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(wait_for(&reader, 2, "down-next", DLOCK_SHARED), DLOCK_EBUSY);
    writer.claim.mode = DLOCK_SHARED;
    assert_int_equal(renew(&party[0].link, &writer), 0);
    assert_not_woken(1);
    assert_not_woken(2);
    assert_int_equal(queue_up(&party[1].link, &next), DLOCK_EBUSY);
    assert_int_equal(renew(&party[0].link, &writer), 0);
    assert_int_equal(give(&writer, 0), 0);
    assert_woken(1, &next);
    assert_int_equal(give(&next, 1), 0);
    assert_woken(2, &reader);
    assert_int_equal(give(&reader, 2), 0);
}

/* A lost grant is not brought back, and nobody downgrades another's. */
static void downgrades_of_nothing(void **state) {
    struct held writer, other, reader;
    (void)state;
    assert_int_equal(take(&writer, 0, "down-none", DLOCK_EXCLUSIVE), 0);
    want(&other, 1, "down-none", DLOCK_SHARED, 0);
    assert_int_equal(renew(&party[1].link, &other), DLOCK_ELOST);
    end_lease(&writer);
    writer.claim.mode = DLOCK_SHARED;
    assert_int_equal(renew(&party[0].link, &writer), DLOCK_ELOST);
    assert_int_equal(give(&writer, 0), DLOCK_ELOST);
    /* The other way round there is none. */
    assert_int_equal(take(&reader, 2, "down-none", DLOCK_SHARED), 0);
    reader.claim.mode = DLOCK_EXCLUSIVE;
    assert_int_equal(renew(&party[2].link, &reader), DLOCK_ELOST);
    assert_int_equal(give(&reader, 2), 0);
}

/* The answer to a downgrade was lost: whatever became of it, the grant can be released. */
static void releases_what_was_not_downgraded(void **state) {
    struct held writer;
    (void)state;
    assert_int_equal(take(&writer, 0, "down-lost", DLOCK_EXCLUSIVE), 0);
    writer.claim.mode = DLOCK_SHARED;
    assert_int_equal(give(&writer, 0), 0);
    assert_int_equal(give(&writer, 0), DLOCK_ELOST);
}

/* ---- permits ----------------------------------------------------------------------------------------------------- */

static int take_permit(struct held *held, int who, const char *name, uint32_t limit) {
    want(held, who, name, DLOCK_PERMIT, limit);
    return acquire(&party[who].link, held);
}

static void as_many_as_permitted(void **state) {
    struct held permit[5];
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(take_permit(&permit[i], i, "permits", 3), 0);
        assert_true(i == 0 || permit[i].claim.fence > permit[i - 1].claim.fence);
    }
    assert_int_equal(take_permit(&permit[3], 3, "permits", 3), DLOCK_EBUSY);
    assert_int_equal(waiting("permits"), 0);
    uint64_t fence = permit[0].claim.fence;
    assert_int_equal(acquire(&party[0].link, &permit[0]), 0);
    assert_true(permit[0].claim.fence == fence);
    for (int i = 3; i < 5; i++) {
        want(&permit[i], i, "permits", DLOCK_PERMIT, 3);
        assert_int_equal(queue_up(&party[i].link, &permit[i]), DLOCK_EBUSY);
    }
    assert_int_equal(give(&permit[1], 1), 0);
    assert_woken(3, &permit[3]);
    assert_not_woken(4);
    assert_int_equal(take_permit(&permit[1], 1, "permits", 3), DLOCK_EBUSY); /* nobody passes who waits */
    /* A crash ends one, and no more. */
    end_lease(&permit[2]);
    assert_int_equal(queue_up(&party[4].link, &permit[4]), 0);
    assert_int_equal(renew(&party[2].link, &permit[2]), DLOCK_ELOST);
    assert_int_equal(renew(&party[0].link, &permit[0]), 0);
    assert_int_equal(renew(&party[3].link, &permit[3]), 0);
    assert_int_equal(take_permit(&permit[1], 1, "permits", 3), DLOCK_EBUSY);
    assert_int_equal(give(&permit[0], 0), 0);
    assert_int_equal(give(&permit[3], 3), 0);
    assert_int_equal(give(&permit[4], 4), 0);
    assert_int_equal(sql_number("SELECT count(*) FROM {}.shares WHERE name = 'permits'"), 0);
}

static void several_are_let_in_at_once(void **state) {
    struct held permit[5];
    (void)state;
    for (int i = 0; i < 5; i++) {
        want(&permit[i], i, "several", DLOCK_PERMIT, 2);
        assert_int_equal(queue_up(&party[i].link, &permit[i]), i < 2 ? 0 : DLOCK_EBUSY);
    }
    end_lease(&permit[0]);
    assert_int_equal(give(&permit[1], 1), 0);
    assert_woken(2, &permit[2]);
    assert_woken(3, &permit[3]);
    assert_not_woken(4);
    assert_int_equal(give(&permit[2], 2), 0);
    assert_woken(4, &permit[4]);
    assert_int_equal(give(&permit[3], 3), 0);
    assert_int_equal(give(&permit[4], 4), 0);
}

static void assert_in_use(int who, const char *name, enum dlock_mode mode, uint32_t limit, const char *as) {
    struct dlock_error err;
    struct held held;
    char message[128];
    for (uint32_t flags = 0; flags <= DLOCK_CLAIM_QUEUE; flags++) {
        want(&held, who, name, mode, limit);
        assert_int_equal(held_run(backend->acquire, &party[who].link, &held, flags, TIMEOUT_MS, &err), 0);
        assert_int_equal(held.claim.result, DLOCK_EINVAL);
        assert_int_equal(err.code, DLOCK_EINVAL);
        snprintf(message, sizeof message, "\"%s\" is in use as %s", name, as);
        assert_string_equal(err.message, message);
    }
}

/* A name is a lock or so many permits, as long as somebody holds it or waits for it. */
static void one_use_at_a_time(void **state) {
    struct held one, two;
    (void)state;
    assert_int_equal(take_permit(&one, 0, "use", 3), 0);
    assert_in_use(1, "use", DLOCK_PERMIT, 2, "3 permits");
    assert_in_use(1, "use", DLOCK_PERMIT, 4, "3 permits");
    assert_in_use(1, "use", DLOCK_EXCLUSIVE, 0, "3 permits");
    assert_in_use(1, "use", DLOCK_SHARED, 0, "3 permits");
    assert_int_equal(give(&one, 0), 0);
    assert_int_equal(take_permit(&one, 0, "use", 1), 0);
    assert_in_use(1, "use", DLOCK_EXCLUSIVE, 0, "1 permit");
    /* Its lease is over, but somebody waits for it: that one gets it. */
    want(&two, 2, "use", DLOCK_PERMIT, 1);
    assert_int_equal(queue_up(&party[2].link, &two), DLOCK_EBUSY);
    end_lease(&one);
    assert_in_use(1, "use", DLOCK_EXCLUSIVE, 0, "1 permit");
    assert_woken(2, &two);
    assert_int_equal(give(&two, 2), 0);
    assert_int_equal(take(&one, 0, "use", DLOCK_EXCLUSIVE), 0);
    assert_in_use(1, "use", DLOCK_PERMIT, 1, "a lock");
    assert_int_equal(give(&one, 0), 0);
    assert_int_equal(take(&one, 0, "use", DLOCK_SHARED), 0);
    assert_in_use(1, "use", DLOCK_PERMIT, 1, "a lock");
    assert_int_equal(waiting("use"), 0);
    end_lease(&one);
    assert_int_equal(take_permit(&two, 1, "use", 9), 0);
    assert_int_equal(give(&two, 1), 0);
}

/* ---- all modes --------------------------------------------------------------------------------------------------- */

/* Several grants of one name in one request; what is lost among them is told apart. */
static void renewals_of_one_name(void **state) {
    enum { N = 4 };
    struct held held[N];
    struct dlock_claim *claims[N];
    struct dlock_error err;
    (void)state;
    for (int i = 0; i < N; i++) {
        assert_int_equal(take(&held[i], 0, "many", DLOCK_SHARED), 0);
        held[i].claim.token = held[i].token;
        claims[i] = &held[i].claim;
    }
    end_lease(&held[2]);
    assert_int_equal(backend->renew(party[0].link.conn, claims, N, TIMEOUT_MS, &err), 0);
    for (int i = 0; i < N; i++) {
        assert_int_equal(claims[i]->result, i == 2 ? DLOCK_ELOST : 0);
        assert_int_equal(give(&held[i], 0), i == 2 ? DLOCK_ELOST : 0);
    }
}

struct seen {
    int n, shared, permits;
    uint32_t limit, waiters;
    uint64_t fences;
};

static int see(const struct dlock_info *info, void *arg) {
    struct seen *seen = arg;
    seen->n++;
    seen->shared += info->mode == DLOCK_SHARED;
    seen->permits += info->mode == DLOCK_PERMIT;
    seen->limit = info->limit;
    seen->waiters = info->waiters;
    seen->fences += info->fence;
    return 0;
}

static void every_holder_is_seen(void **state) {
    struct held one, two, writer, permit;
    struct dlock_error err;
    struct seen seen = {0};
    char cursor[256] = "";
    int rc;
    (void)state;
    assert_int_equal(take(&one, 0, "seen", DLOCK_SHARED), 0);
    assert_int_equal(take(&two, 1, "seen", DLOCK_SHARED), 0);
    assert_int_equal(wait_for(&writer, 2, "seen", DLOCK_EXCLUSIVE), DLOCK_EBUSY);
    assert_int_equal(take_permit(&permit, 3, "seen-permit", 7), 0);
    assert_int_equal(backend->inspect(party[0].link.conn, "seen", see, &seen, TIMEOUT_MS, &err), 0);
    assert_true(seen.n == 2 && seen.shared == 2 && seen.limit == 1 && seen.waiters == 1);
    assert_true(seen.fences == one.claim.fence + two.claim.fence);
    seen = (struct seen){0};
    assert_int_equal(backend->inspect(party[0].link.conn, "seen-permit", see, &seen, TIMEOUT_MS, &err), 0);
    assert_true(seen.n == 1 && seen.permits == 1 && seen.limit == 7);
    /* More readers than a page has names. */
    sql("INSERT INTO {}.shares SELECT 'seen', 'reader-' || n, n, {}.clock_us() + 60000000, false "
        "FROM generate_series(1, 700) n");
    sql("INSERT INTO {}.locks SELECT ('seen-' || n)::bytea, 'writer', n, {}.clock_us() + 60000000 "
        "FROM generate_series(1, 600) n");
    seen = (struct seen){0};
    do rc = backend->list(party[0].link.conn, "seen", cursor, see, &seen, TIMEOUT_MS, &err);
    while (rc == 1);
    assert_int_equal(rc, 0);
    assert_int_equal(seen.n, 702 + 1 + 600);
    assert_int_equal(seen.shared, 702);
    end_lease(&one);
    seen = (struct seen){0};
    assert_int_equal(backend->inspect(party[0].link.conn, "seen", see, &seen, TIMEOUT_MS, &err), 0);
    assert_int_equal(seen.n, 701);
    sql("DELETE FROM {}.locks WHERE token = 'writer'");
    /* All of them are broken at once. */
    assert_int_equal(backend->break_lock(party[0].link.conn, "seen", TIMEOUT_MS, &err), 0);
    assert_woken(2, &writer);
    assert_int_equal(renew(&party[1].link, &two), DLOCK_ELOST);
    assert_int_equal(give(&writer, 2), 0);
    assert_int_equal(backend->break_lock(party[0].link.conn, "seen", TIMEOUT_MS, &err), DLOCK_ELOST);
    assert_int_equal(give(&permit, 3), 0);
}

/* The row of a name that is held stays, however long nobody was granted it. */
static void held_names_are_not_swept(void **state) {
    struct held reader;
    (void)state;
    assert_int_equal(take(&reader, 0, "old", DLOCK_SHARED), 0);
    sql("UPDATE {}.locks SET expires_us = expires_us - 90000000000, fence = fence - 90000000000");
    for (int i = 0; i < 50; i++) sql("SELECT {}.sweep()");
    assert_int_equal(sql_number("SELECT count(*) FROM {}.locks WHERE name = 'old'"), 1);
    assert_int_equal(give(&reader, 0), 0);
    /* Nor is one with a fence of today's. */
    sql("UPDATE {}.locks SET fence = fence + 90000000000");
    for (int i = 0; i < 50; i++) sql("SELECT {}.sweep()");
    assert_int_equal(sql_number("SELECT count(*) FROM {}.locks WHERE name = 'old'"), 1);
    sql("UPDATE {}.locks SET fence = fence - 90000000000");
    /* Each takes a page at random. */
    for (int i = 0; i < 5000 && sql_number("SELECT count(*) FROM {}.locks WHERE name = 'old'") > 0; i++)
        sql("SELECT {}.sweep()");
    assert_int_equal(sql_number("SELECT count(*) FROM {}.locks WHERE name = 'old'"), 0);
}

/* ---- all at once ------------------------------------------------------------------------------------------------- */

static atomic_int writers, readers, permits, wrong, cycles;
static atomic_bool over;

static void *hammer(void *arg) {
    struct party *me = arg;
    struct held held;
    for (int i = 0; !atomic_load(&over); i++) {
        bool permit = i % 4 == 3, write = i % 4 == 1;
        held_new(&held, &me->link, permit ? "hammered-permits" : "hammered");
        held.claim.mode = permit ? DLOCK_PERMIT : write ? DLOCK_EXCLUSIVE : DLOCK_SHARED;
        held.claim.limit = permit ? 2 : 0;
        held.claim.lease_ms = 600000; /* nobody here looks at a clock: no lease may end, however long a commit takes */
        if (acquire(&me->link, &held) != 0) continue;
        atomic_int *mine = permit ? &permits : write ? &writers : &readers;
        int n = atomic_fetch_add(mine, 1) + 1;
        if (permit ? n > 2 : atomic_load(&writers) > (write && atomic_load(&readers) == 0)) atomic_fetch_add(&wrong, 1);
        atomic_fetch_sub(mine, 1);
        if (release(&me->link, &held) != 0) atomic_fetch_add(&wrong, 1);
        atomic_fetch_add(&cycles, 1);
    }
    return NULL;
}

static void nobody_is_let_in_wrongly(void **state) {
    pthread_t threads[PARTIES];
    (void)state;
    for (int i = 0; i < PARTIES; i++) assert_int_equal(pthread_create(&threads[i], NULL, hammer, &party[i]), 0);
    sleep_ms(3000);
    atomic_store(&over, true);
    for (int i = 0; i < PARTIES; i++) pthread_join(threads[i], NULL);
    assert_true(atomic_load(&cycles) > 100);
    assert_int_equal(atomic_load(&wrong), 0);
    assert_int_equal(sql_number("SELECT count(*) FROM {}.shares"), 0);
}

#define MODES_TEST(f) cmocka_unit_test_setup_teardown(f, parties_begin, parties_end)

SITE_MAIN(MODES_TEST(readers_hold_together), MODES_TEST(no_reader_passes_a_writer),
          MODES_TEST(leading_readers_enter_together), MODES_TEST(a_writer_gives_up),
          MODES_TEST(a_dead_writer_keeps_nobody_out), MODES_TEST(a_readers_lease_ends),
          MODES_TEST(a_readers_hand_over_lapses), MODES_TEST(a_confirmed_reader_ends_alone),
          MODES_TEST(an_ended_grant_is_in_nobodys_way), MODES_TEST(downgrades), MODES_TEST(downgrades_before_a_writer),
          MODES_TEST(downgrades_of_nothing), MODES_TEST(releases_what_was_not_downgraded),
          MODES_TEST(as_many_as_permitted), MODES_TEST(several_are_let_in_at_once), MODES_TEST(one_use_at_a_time),
          MODES_TEST(renewals_of_one_name), MODES_TEST(every_holder_is_seen), MODES_TEST(held_names_are_not_swept),
          MODES_TEST(nobody_is_let_in_wrongly))
