/* The server's requests and writes: statements, messages, WAL, flushes. */
#include "site.h"

#include <unistd.h>

/* How often the server was called with this function or view of our schema, and how much WAL those calls wrote. */
static int64_t statistics(const char *column, const char *function) {
    return sql_number("SELECT coalesce(sum(%s), 0) FROM pg_stat_statements WHERE toplevel AND query LIKE '%%{}%%.%s%%'",
                      column, function);
}

/* Messages of one kind that a connection sends while its trace is on. */
struct trace {
    FILE *file;
    char *text;
    size_t size;
};

static void trace_begin(struct trace *trace, struct link *link) {
    trace->file = open_memstream(&trace->text, &trace->size);
    assert_non_null(trace->file);
    PQtrace(pg_of(link)->link, trace->file);
}

static void trace_end(struct trace *trace, struct link *link) {
    PQuntrace(pg_of(link)->link);
    fclose(trace->file);
}

static int sent(const struct trace *trace, const char *kind) {
    char pattern[32];
    int n = 0;
    for (const char *line = trace->text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        const char *end = strchr(line, '\n'), *at;
        snprintf(pattern, sizeof pattern, "\t%s", kind);
        at = strstr(line, "\tF\t");
        if (!at || (end && at > end)) continue;
        at = strstr(line, pattern);
        n += at && (!end || at < end);
    }
    return n;
}

/* A claim of one of the modes; permits are two. */
static void held_of(struct held *held, struct link *link, const char *name, enum dlock_mode mode) {
    held_new(held, link, name);
    held->claim.mode = mode;
    held->claim.limit = mode == DLOCK_PERMIT ? 2 : 0;
}

static void cycles_of(enum dlock_mode mode, const char *name) {
    struct held held;
    struct trace trace;
    LINK(link, 'a');
    held_of(&held, &link, name, mode);
    assert_int_equal(acquire(&link, &held), 0);
    assert_int_equal(release(&link, &held), 0);
    const char *acquiring = mode == DLOCK_EXCLUSIVE ? "take" : "acquire";
    const char *releasing = mode == DLOCK_EXCLUSIVE ? "give" : "release";
    int64_t acquires = statistics("calls", acquiring), releases = statistics("calls", releasing);
    trace_begin(&trace, &link);
    for (int i = 0; i < 10; i++) {
        held_of(&held, &link, name, mode);
        assert_int_equal(acquire(&link, &held), 0);
        assert_int_equal(release(&link, &held), 0);
    }
    trace_end(&trace, &link);
    assert_int_equal(sent(&trace, "Execute"), 20);
    assert_int_equal(sent(&trace, "Sync"), 20);
    assert_int_equal(sent(&trace, "Parse"), 0);
    assert_int_equal(sent(&trace, "Query"), 0);
    free(trace.text);
    assert_int_equal(statistics("calls", acquiring) - acquires, 10);
    assert_int_equal(statistics("calls", releasing) - releases, 10);
}

TEST(a_cycle_is_two_statements) {
    cycles_of(DLOCK_EXCLUSIVE, "cycle");
    cycles_of(DLOCK_SHARED, "cycle-shared");
    cycles_of(DLOCK_PERMIT, "cycle-permit");
}

/* Statements about our schema since the statistics were reset. */
static int64_t ours(void) {
    return sql_number("SELECT sum(calls) FROM pg_stat_statements WHERE toplevel AND query LIKE '%%{}%%' AND query NOT "
                      "LIKE '%%pg_stat_statements%%'");
}

/* Statements that our functions run on the tables while this session's are counted. */
static int64_t inner(void) {
    return sql_number("SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE NOT toplevel");
}

static void count_inner(struct link *link) {
    PQclear(PQexec(pg_of(link)->link, "SET pg_stat_statements.track = 'all'"));
}

/* The way that is taken most is short: one UPDATE takes a name, and one gives it back, and neither is in a function. */
TEST(a_cycle_is_two_updates) {
    struct held held;
    LINK(link, 'a');
    for (int i = 0; i < 10; i++) {
        held_new(&held, &link, "short");
        assert_int_equal(acquire(&link, &held), 0);
        assert_int_equal(release(&link, &held), 0);
        if (i > 0) continue; /* the first makes the row */
        sql("SELECT pg_stat_statements_reset()");
        count_inner(&link);
    }
    assert_int_equal(ours(), 18);
    assert_int_equal(inner(), 0);
}

/* … also when others have waited and are gone: after one acquire. */
TEST(the_short_way_comes_back) {
    struct dlock_wake wake;
    LINK(link, 'a');
    LINK(waiter, 'b');
    EAR(ear, 'b');
    HELD(held, &link, "again");
    HELD(next, &waiter, "again");
    assert_int_equal(acquire(&link, &held), 0);
    assert_int_equal(queue_up(&waiter, &next), DLOCK_EBUSY);
    assert_int_equal(release(&link, &held), 0);
    wake_get(&ear, &wake);
    assert_int_equal(release(&waiter, &next), 0);
    held_new(&held, &link, "again");
    assert_int_equal(acquire(&link, &held), 0);
    assert_int_equal(release(&link, &held), 0);
    sql("SELECT pg_stat_statements_reset()");
    count_inner(&link);
    held_new(&held, &link, "again");
    assert_int_equal(acquire(&link, &held), 0);
    assert_int_equal(release(&link, &held), 0);
    assert_int_equal(ours(), 2);
    assert_int_equal(inner(), 0);
}

/* A client that had to wait last time joins the queue at once. When the lock is free again, it returns to the short way
 * after one acquire. */
TEST(a_hand_over_is_short) {
    struct link a, b, ears[2];
    struct dlock_wake wake;
    link_new(&a, 'a');
    link_new(&b, 'b');
    for (int i = 0; i < 2; i++) {
        link_new(&ears[i], (char)('a' + i));
        link_listen(&ears[i]);
    }
    HELD(mine, &a, "in turn");
    HELD(next, &b, "in turn");
    assert_int_equal(acquire(&a, &mine), 0);
    assert_int_equal(queue_up(&b, &next), DLOCK_EBUSY);
    assert_int_equal(release(&a, &mine), 0);
    wake_get(&ears[1], &wake);
    held_new(&mine, &a, "in turn");
    assert_int_equal(queue_up(&a, &mine), DLOCK_EBUSY);
    assert_int_equal(release(&b, &next), 0);
    wake_get(&ears[0], &wake);

    sql("SELECT pg_stat_statements_reset()");
    count_inner(&b);
    held_new(&next, &b, "in turn");
    assert_int_equal(queue_up(&b, &next), DLOCK_EBUSY);
    assert_int_equal(inner(), 3); /* locks the row, joins, and marks the row as awaited */
    assert_int_equal(release(&a, &mine), 0);
    wake_get(&ears[1], &wake);
    assert_int_equal(release(&b, &next), 0);

    held_new(&next, &b, "in turn");
    assert_int_equal(queue_up(&b, &next), 0);
    assert_int_equal(release(&b, &next), 0);
    sql("SELECT pg_stat_statements_reset()");
    held_new(&next, &b, "in turn");
    assert_int_equal(queue_up(&b, &next), 0);
    assert_int_equal(release(&b, &next), 0);
    assert_int_equal(ours(), 2);
    assert_int_equal(inner(), 0);
    link_end(&a);
    link_end(&b);
    for (int i = 0; i < 2; i++) link_end(&ears[i]);
}

TEST(many_claims_are_one_statement) {
    enum { N = 256 };
    static struct held held[N];
    static char names[N][16];
    struct dlock_claim *claims[N];
    struct dlock_error err;
    struct trace trace;
    LINK(link, 'a');
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "many-%03d", i);
        held_new(&held[i], &link, names[i]);
        claims[i] = &held[i].claim;
    }
    trace_begin(&trace, &link);
    assert_int_equal(backend->acquire(link.conn, claims, N, TIMEOUT_MS, &err), 0);
    for (int i = 0; i < 4; i++) assert_int_equal(backend->renew(link.conn, claims, N, TIMEOUT_MS, &err), 0);
    assert_int_equal(backend->release(link.conn, claims, N, TIMEOUT_MS, &err), 0);
    trace_end(&trace, &link);
    assert_int_equal(sent(&trace, "Execute"), 6);
    assert_int_equal(sent(&trace, "Parse"), 3);
    free(trace.text);
}

/* One statement releases, hands over and tells the waiter, which asks nothing until it confirms. In the server: the
 * release, and the grant to the first in the queue. A holder that did not expect a waiter has tried the short way
 * first, and expects one after that. */
TEST(a_hand_over_is_one_statement) {
    struct link links[2], ears[2];
    struct held held[3];
    struct dlock_wake wake;
    for (int i = 0; i < 2; i++) {
        link_new(&links[i], (char)('a' + i));
        link_new(&ears[i], (char)('a' + i));
        link_listen(&ears[i]);
    }
    held_new(&held[0], &links[0], "over");
    assert_int_equal(acquire(&links[0], &held[0]), 0);
    for (int i = 0; i < 2; i++) {
        struct link *holder = &links[i % 2], *waiter = &links[(i + 1) % 2];
        held_new(&held[i + 1], waiter, "over");
        assert_int_equal(queue_up(waiter, &held[i + 1]), DLOCK_EBUSY);
        sql("SELECT pg_stat_statements_reset()");
        count_inner(holder);
        assert_int_equal(release(holder, &held[i]), 0);
        wake_get(&ears[(i + 1) % 2], &wake);
        assert_string_equal(wake.token, held[i + 1].token);
        assert_int_equal(ours(), i == 0 ? 2 : 1);
        assert_int_equal(inner(), 2);
    }
    assert_string_equal(pg_of(&links[0])->wanted, "over");
    for (int i = 0; i < 2; i++) {
        link_end(&links[i]);
        link_end(&ears[i]);
    }
}

/* However many enter, if the writer expects a waiter. */
TEST(readers_enter_by_one_statement) {
    enum { READERS = 20 };
    static struct held reader[READERS];
    struct dlock_wake wake;
    LINK(writer, 'a');
    LINK(link, 'b');
    EAR(ear, 'b');
    HELD(held, &writer, "enter");
    assert_int_equal(acquire(&writer, &held), 0);
    for (int i = 0; i < READERS; i++) {
        held_of(&reader[i], &link, "enter", DLOCK_SHARED);
        assert_int_equal(queue_up(&link, &reader[i]), DLOCK_EBUSY);
    }
    strcpy(pg_of(&writer)->wanted, "enter");
    sql("SELECT pg_stat_statements_reset()");
    assert_int_equal(release(&writer, &held), 0);
    for (int i = 0; i < READERS; i++) {
        wake_get(&ear, &wake);
        assert_string_equal(wake.token, reader[i].token);
    }
    assert_int_equal(ours(), 1);
}

static void expect_no_writes(int (*ask)(struct link *, struct held *), struct link *link, struct held *loser) {
    sql("VACUUM {}.locks, {}.shares, {}.queue"); /* or a reader removes dead rows from a page, which it logs */
    sql("SELECT pg_stat_statements_reset()");
    for (int i = 0; i < 20; i++) assert_int_equal(ask(link, loser), DLOCK_EBUSY);
    assert_int_equal(statistics("calls", "acquire"), 20);
    assert_int_equal(statistics("wal_records", "acquire") + statistics("wal_records", "take"), 0);
}

/* A client that is too late for a name held in this mode, before it is in the queue and after that. There may be a
 * waiter for `first` already. */
static void losers_write_nothing(const char *name, enum dlock_mode mode, enum dlock_mode wish,
                                 const enum dlock_mode *first) {
    struct held held[2], before, loser;
    LINK(link, 'a');
    LINK(other, 'b');
    LINK(ear, 'b');
    link_listen(&ear);
    for (int i = 0; i < (mode == DLOCK_EXCLUSIVE ? 1 : 2); i++) {
        held_of(&held[i], &link, name, mode);
        assert_int_equal(acquire(&link, &held[i]), 0);
    }
    if (first) {
        held_of(&before, &other, name, *first);
        assert_int_equal(queue_up(&other, &before), DLOCK_EBUSY);
    }
    held_of(&loser, &other, name, wish);
    expect_no_writes(acquire, &other, &loser);
    assert_int_equal(queue_up(&other, &loser), DLOCK_EBUSY);
    expect_no_writes(queue_up, &other, &loser);
    assert_int_equal(sql_number("SELECT count(*) FROM {}.queue WHERE name = '%s'", name), first ? 2 : 1);
}

TEST(a_loser_writes_nothing) {
    static const enum dlock_mode writer = DLOCK_EXCLUSIVE, reader = DLOCK_SHARED, permit = DLOCK_PERMIT;
    losers_write_nothing("loser-1", DLOCK_EXCLUSIVE, DLOCK_EXCLUSIVE, NULL);
    losers_write_nothing("loser-2", DLOCK_EXCLUSIVE, DLOCK_SHARED, &reader);
    losers_write_nothing("loser-3", DLOCK_SHARED, DLOCK_EXCLUSIVE, NULL);
    losers_write_nothing("loser-4", DLOCK_SHARED, DLOCK_EXCLUSIVE, &writer);
    losers_write_nothing("loser-5", DLOCK_SHARED, DLOCK_SHARED, &writer); /* behind a writer */
    losers_write_nothing("loser-6", DLOCK_PERMIT, DLOCK_PERMIT, NULL);
    losers_write_nothing("loser-7", DLOCK_PERMIT, DLOCK_PERMIT, &permit);
}

/* ---- flushes ----------------------------------------------------------------------------------------------------- */

/* WAL flushes of the whole server, including those of sessions that have ended. */
static int64_t flushes(void) {
    sql("SELECT pg_stat_force_next_flush()");
    return sql_number("SELECT wal_sync FROM pg_stat_wal");
}

/* A session reports its statistics when it ends. */
static void end_and_report(struct link *link) {
    int pid = PQbackendPID(pg_of(link)->link);
    link_end(link);
    session_gone(pid);
}

enum { LOCKS = 200 };

/* Acquires this many names, `together` with each call, and releases them one by one; the flushes of each half. */
static void flushes_of(const struct params *params, enum dlock_mode mode, size_t together, int64_t *acquiring,
                       int64_t *releasing) {
    static struct dlock_claim *claims[LOCKS];
    static struct held held[LOCKS];
    static char names[LOCKS][16];
    struct link link;
    struct dlock_error err;
    if (link_with(&link, params, 'a', TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
    int64_t before = flushes();
    for (int i = 0; i < LOCKS; i++) {
        snprintf(names[i], sizeof names[i], "flush-%03d", i);
        held_of(&held[i], &link, names[i], mode);
        held[i].claim.lease_ms = 60000;
        claims[i] = &held[i].claim;
    }
    for (size_t i = 0; i < LOCKS; i += together)
        assert_int_equal(backend->acquire(link.conn, claims + i, together, TIMEOUT_MS, &err), 0);
    for (int i = 0; i < LOCKS; i++) assert_int_equal(held[i].claim.result, 0);
    end_and_report(&link);
    *acquiring = flushes() - before;
    if (link_with(&link, params, 'a', TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
    before = flushes();
    for (int i = 0; i < LOCKS; i++) assert_int_equal(release(&link, &held[i]), 0);
    end_and_report(&link);
    *releasing = flushes() - before;
}

/* A grant must survive a crash of the server; a release without a new grant need not. */
static void expect_grants_are_flushed(const struct params *params, enum dlock_mode mode) {
    int64_t acquiring, releasing;
    flushes_of(params, mode, 1, &acquiring, &releasing);
    assert_true(acquiring >= LOCKS);
    assert_true(releasing <= LOCKS / 10); /* the WAL writer's */
}

TEST(only_grants_are_flushed) {
    const struct params params = {0}, unsafe = {.user = "dlock_unsafe"};
    for (int mode = DLOCK_EXCLUSIVE; mode <= DLOCK_PERMIT; mode++)
        expect_grants_are_flushed(&params, (enum dlock_mode)mode);
    sql("DROP ROLE IF EXISTS dlock_unsafe");
    sql("CREATE ROLE dlock_unsafe SUPERUSER LOGIN");
    sql("ALTER ROLE dlock_unsafe SET synchronous_commit = off");
    expect_grants_are_flushed(&unsafe, DLOCK_EXCLUSIVE); /* even if a role's settings turn that off */
    sql("DROP ROLE dlock_unsafe");
}

/* Those of a batch with one flush. The second time there are rows, so that each claim takes the short way. */
TEST(batches_are_flushed) {
    const struct params params = {0};
    int64_t acquiring, releasing;
    for (int i = 0; i < 2; i++) {
        flushes_of(&params, DLOCK_EXCLUSIVE, 2, &acquiring, &releasing);
        assert_true(acquiring >= LOCKS / 2);
    }
}

/* A release that hands over is a grant. */
TEST(hand_overs_are_flushed) {
    static struct held held[LOCKS], next[LOCKS];
    static char names[LOCKS][16];
    struct link holder, waiter;
    link_new(&holder, 'a');
    link_new(&waiter, 'b');
    EAR(ear, 'b');
    for (int i = 0; i < LOCKS; i++) {
        snprintf(names[i], sizeof names[i], "heir-%03d", i);
        held_new(&held[i], &holder, names[i]);
        held_new(&next[i], &waiter, names[i]);
        held[i].claim.lease_ms = 60000;
        assert_int_equal(acquire(&holder, &held[i]), 0);
        assert_int_equal(queue_up(&waiter, &next[i]), DLOCK_EBUSY);
    }
    end_and_report(&holder);
    end_and_report(&waiter);
    link_new(&holder, 'a');
    int64_t before = flushes();
    for (int i = 0; i < LOCKS; i++) assert_int_equal(release(&holder, &held[i]), 0);
    end_and_report(&holder);
    assert_true(flushes() - before >= LOCKS);
}

/* Hot rows are updated in place: their index does not grow. */
TEST(updates_stay_in_their_page) {
    struct link link;
    struct held held;
    link_new(&link, 'a');
    sql("TRUNCATE {}.locks");
    for (int i = 0; i < 500; i++) {
        held_new(&held, &link, "hot");
        assert_int_equal(acquire(&link, &held), 0);
        assert_int_equal(release(&link, &held), 0);
    }
    end_and_report(&link);
    int64_t updates =
        sql_number("SELECT n_tup_upd FROM pg_stat_user_tables WHERE schemaname = '{}' AND relname = 'locks'");
    int64_t hot =
        sql_number("SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = '{}' AND relname = 'locks'");
    assert_true(updates >= 1000);
    assert_true(hot >= updates - updates / 20);
    assert_true(sql_number("SELECT pg_relation_size('{}.locks')") <= 8 * 8192);
}

static int counts_begin(void **state) {
    if (site_begin(state) != 0) return 1;
    sql("CREATE EXTENSION IF NOT EXISTS pg_stat_statements");
    return 0;
}

TESTS(NULL, NULL, counts_begin, site_end)
