/* A server that becomes the master may never have heard of the last grants: it grants nothing for one quarantine. */
#include "harness.h"
#include "support/relay.h"

#include <stdio.h>
#include <stdlib.h>

enum { QUARANTINE_MS = 2000 };

/* A master and a replica that follows it through a relay; nothing was locked. */
static struct server master, replica;
static struct relay *between;

static int setup(void **state) {
    (void)state;
    server_start(&master, NULL);
    server_start(&replica, NULL);
    ask_text(&master, "CONFIG SET repl-diskless-sync-delay 0");
    ask_text(&replica, "CONFIG SET repl-diskless-sync-delay 0");
    between = relay_new(master.port);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    relay_end(between);
    server_stop(&replica);
    server_stop(&master);
    return 0;
}

static void careful_link(struct link *link, const struct server *to, char letter) {
    link_careful(link, to->port, letter, QUARANTINE_MS);
}

/* How long the server says that it grants nothing; it must say so. */
static int64_t refused_for(struct link *link, struct held *held) {
    held->claim.ready_ms = -1;
    assert_int_equal(acquire(link, held), DLOCK_ENOTREADY);
    assert_in_range(held->claim.ready_ms, 1, QUARANTINE_MS + 1);
    return held->claim.ready_ms;
}

/* Until the lock is granted. */
static void await_grant(struct link *link, struct held *held) {
    for (int64_t until = now_ms() + 10 * QUARANTINE_MS; acquire(link, held) == DLOCK_ENOTREADY; sleep_ms(20))
        assert_true(now_ms() < until);
    assert_int_equal(held->claim.result, 0);
}

/* A connection to the master after its quarantine, and a claim that was granted over it and released. */
static void link_out_of_quarantine(struct link *link, struct held *held) {
    careful_link(link, &master, 'a');
    claim_init(held, "held", 'a', 1);
    await_grant(link, held);
    assert_int_equal(release(link, held), 0);
}

/* Until the replica knows all that the master has done. WAIT is about what its own connection wrote. */
static void let_replica_catch_up(void) {
    ask_text(&master, "SET written 1");
    assert_int_equal(ask_number(&master, "WAIT 1 10000"), 1);
}

/* The master's changes after this stay unknown to the replica. */
static void cut(void) {
    relay_refuse(between, true);
    await_role(&replica, "master_link_status:down");
}

static void promote(struct server *server) {
    assert_string_equal(ask_text(server, "REPLICAOF NO ONE"), "OK");
}

/* The replica, behind the relay, has heard of the grant of `before`; `last` is yet to be acquired. */
static void begin_at_the_master(struct link *old, struct held *before, struct held *last) {
    follow(&replica, relay_port(between));
    careful_link(old, &master, 'a');
    claim_init(before, "before", 'a', 1);
    claim_init(last, "last", 'a', 2);
    await_grant(old, before);
    let_replica_catch_up();
}

TEST(a_promoted_replica_grants_nothing_at_first) {
    struct link old, new, other;
    struct held before, last, again, theirs;
    begin_at_the_master(&old, &before, &last);
    cut();
    assert_int_equal(acquire(&old, &last), 0);
    promote(&replica);
    assert_int_equal(ask_number(&replica, "EXISTS last"), 0);

    int64_t before_ms = now_ms(); /* the first that connects begins the quarantine */
    careful_link(&new, &replica, 'b');
    claim_init(&again, "last", 'b', 1);
    refused_for(&new, &again);
    /* All agree on when it ends. */
    sleep_ms(QUARANTINE_MS / 2);
    careful_link(&other, &replica, 'c');
    claim_init(&theirs, "theirs", 'c', 1);
    assert_true(refused_for(&other, &theirs) <= QUARANTINE_MS / 2 + 1);
    /* Grants that reached the replica continue. */
    assert_int_equal(renew(&other, &before), 0);
    assert_int_equal(acquire(&other, &before), 0);
    assert_int_equal(release(&other, &before), 0);

    await_grant(&new, &again);
    assert_true(now_ms() - before_ms >= QUARANTINE_MS);
    assert_true(again.claim.fence > last.claim.fence);
    await_grant(&other, &theirs); /* a millisecond later, perhaps */
    link_end(&old);
    link_end(&new);
    link_end(&other);
}

/* With FORCE the master does not wait for a lagging replica: grants that have not reached it are forgotten. */
TEST(a_forced_failover_is_a_promotion) {
    struct link old, new;
    struct held before, last, again;
    begin_at_the_master(&old, &before, &last);
    relay_hold(between, RELAY_ANSWERS, true);
    assert_int_equal(acquire(&old, &last), 0);
    assert_string_equal(ask_text(&master, "FAILOVER TO 127.0.0.1 %d FORCE TIMEOUT 100", replica.port), "OK");
    await_role(&replica, "role:master");
    await_role(&master, "role:slave");
    assert_int_equal(ask_number(&replica, "EXISTS last"), 0);

    const int64_t before_ms = now_ms();
    careful_link(&new, &replica, 'b');
    claim_init(&again, "last", 'b', 1);
    refused_for(&new, &again);
    assert_int_equal(renew(&new, &before), 0);
    await_grant(&new, &again);
    assert_true(now_ms() - before_ms >= QUARANTINE_MS);
    assert_true(again.claim.fence > last.claim.fence);
    link_end(&old);
    link_end(&new);
}

/* Neither a release nor a break hands the lock on in the meantime. */
TEST(a_promoted_replica_hands_nothing_over) {
    struct link old, new;
    struct held holder, waiter;
    struct dlock_error err = {0};
    follow(&replica, relay_port(between));
    careful_link(&old, &master, 'a');
    claim_init(&holder, "handed", 'a', 1);
    await_grant(&old, &holder);
    let_replica_catch_up();
    promote(&replica);
    careful_link(&new, &replica, 'b');
    link_listen(&old); /* of no use: it is at the other server */
    claim_init(&waiter, "handed", 'b', 1);
    assert_int_equal(queue_up(&new, &waiter), DLOCK_EBUSY);
    assert_int_equal(release(&new, &holder), 0);
    assert_int_equal(ask_number(&replica, "EXISTS handed"), 0);
    assert_int_equal(backend->break_lock(new.conn, "handed", TIMEOUT_MS, &err), DLOCK_ELOST);
    assert_int_equal(queue_up(&new, &waiter), DLOCK_ENOTREADY);
    link_end(&old);
    link_end(&new);
}

/* REPLICAOF keeps clients' connections: an idle one may lead to a server that knows less than the other one, which was
 * the master in between. */
TEST(there_and_back_is_noticed_by_idle_connections) {
    struct link idle;
    struct held held, more;
    struct relay *back;
    link_out_of_quarantine(&idle, &held);
    follow(&replica, master.port);
    promote(&replica);
    back = relay_new(replica.port);
    follow(&master, relay_port(back));
    relay_refuse(back, true);
    await_role(&master, "master_link_status:down");
    promote(&master);
    sleep_ms(1200);
    claim_init(&more, "held", 'a', 2);
    refused_for(&idle, &more);
    await_grant(&idle, &more);
    relay_end(back);
    link_end(&idle);
}

/* The replication id changes by that, and nothing else does. */
TEST(the_first_replica_costs_nothing) {
    struct link link, other;
    struct held held, theirs;
    char before[4096];
    careful_link(&link, &master, 'a');
    claim_init(&held, "held", 'a', 1);
    await_grant(&link, &held);
    snprintf(before, sizeof before, "%s", ask_text(&master, "GET {}:dlock:incarnation"));
    follow(&replica, master.port);
    careful_link(&other, &master, 'b');
    claim_init(&theirs, "theirs", 'b', 1);
    assert_int_equal(acquire(&other, &theirs), 0);
    assert_string_not_equal(ask_text(&master, "GET {}:dlock:incarnation"), before);
    sleep_ms(1200);
    assert_int_equal(release(&link, &held), 0);
    assert_int_equal(acquire(&link, &held), 0);
    link_end(&link);
    link_end(&other);
}

/* Kept data do not make a restarted server the one that it was. */
TEST_WITH(NULL, NULL, a_restart_with_all_data_is_another_incarnation) {
    static const char *const always[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    struct server kept;
    struct link link;
    struct held held;
    server_start(&kept, always);
    for (int i = 0; i < 2; i++) {
        careful_link(&link, &kept, 'a');
        claim_init(&held, i ? "second" : "first", 'a', i);
        refused_for(&link, &held);
        await_grant(&link, &held);
        link_end(&link);
        server_kill(&kept);
        server_again(&kept, always);
    }
    server_stop(&kept);
}

static int64_t up_ms(struct server *server) {
    return strtoll(strstr(ask_text(server, "INFO server"), "uptime_in_seconds:") + 18, NULL, 10) * 1000;
}

static void await_uptime(struct server *server, int64_t ms) {
    while (up_ms(server) < ms) sleep_ms(50);
}

/* A process that has been a master for longer than the quarantine, and has lost nothing, needs none, whether or not
 * dlock has used it before. A process that may have lost something does need it. */
TEST_WITH(NULL, NULL, a_server_that_forgot_nothing_grants_at_once) {
    static const char *const always[] = {"--appendonly", "yes", NULL};
    static const char *const losses[] = {"FLUSHALL", "FLUSHDB", "SWAPDB 0 1", "CONFIG RESETSTAT"};
    struct server kept;
    struct link link;
    struct held held;
    server_start(&kept, always);
    for (int i = 0; i < 2; i++) { /* a first use, and one after a restart */
        await_uptime(&kept, QUARANTINE_MS + 1000);
        careful_link(&link, &kept, 'a');
        claim_init(&held, i ? "second" : "first", 'a', i);
        assert_int_equal(acquire(&link, &held), 0);
        link_end(&link);
        if (i == 0) {
            server_kill(&kept);
            server_again(&kept, always);
        }
    }
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        ask_number(&kept, "DEL {}:dlock:incarnation");
        ask_text(&kept, losses[i]);
        careful_link(&link, &kept, 'a');
        claim_init(&held, "lost", 'a', 10 + (int)i);
        refused_for(&link, &held);
        link_end(&link);
    }
    server_stop(&kept);
}

/* Other data with a record of this very process: another database, and those of the last snapshot. */
TEST_WITH(NULL, NULL, exchanged_data_are_noticed) {
    static const char *const options[] = {"--enable-debug-command", "yes", NULL};
    static const char *const exchanges[] = {"SWAPDB 0 1", "DEBUG RELOAD NOSAVE"};
    struct server changed;
    struct link link;
    struct held held;
    server_start(&changed, options);
    careful_link(&link, &changed, 'a');
    for (int i = 0; i < 2; i++) {
        claim_init(&held, "held", 'a', 10 * i);
        await_grant(&link, &held);
        assert_int_equal(release(&link, &held), 0);
        ask_number(&changed, "COPY {}:dlock:incarnation {}:dlock:incarnation DB 1 REPLACE");
        ask_text(&changed, "SAVE");
        claim_init(&held, "held", 'a', 10 * i + 1);
        assert_int_equal(acquire(&link, &held), 0); /* unknown to the other data */
        ask_text(&changed, exchanges[i]);
        sleep_ms(1200);
        assert_int_equal(renew(&link, &held), DLOCK_ELOST);
        claim_init(&held, "held", 'a', 10 * i + 2);
        refused_for(&link, &held);
    }
    link_end(&link);
    server_stop(&changed);
}

/* The very next grant, of any name: no client needs to have asked since the flush. A grant after another client's
 * request is refused as well. */
TEST(a_flush_is_noticed_by_the_next_grant) {
    static const struct {
        const char *name;
        enum dlock_mode mode;
    } cases[] = {{"counted", DLOCK_EXCLUSIVE}, {"new", DLOCK_EXCLUSIVE}, {"read", DLOCK_SHARED}};
    struct link links[2];
    struct held held, next;
    for (int i = 0; i < 2; i++) careful_link(&links[i], &master, (char)('a' + i));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        claim_init(&held, "counted", 'a', 1);
        for (int j = 0; j < 2; j++) {
            await_grant(&links[j], &held);
            assert_int_equal(release(&links[j], &held), 0);
        }
        ask_text(&master, "FLUSHALL");
        for (int j = 0; j < 2; j++) {
            claim_init(&next, cases[i].name, 'a', 2);
            next.claim.mode = cases[i].mode;
            refused_for(&links[j], &next);
        }
        assert_int_equal(ask_number(&master, "EXISTS {%s}:dlock:fence", cases[i].name), 0);
    }
    for (int i = 0; i < 2; i++) link_end(&links[i]);
}

/* Nor does a waiter that leaves, or a break, hand over what it finds free: its connection has asked less than a second ago, and the
 * one behind it has asked since the flush. */
TEST(a_flush_is_noticed_by_who_leaves) {
    struct link links[3], ears[3];
    struct held held, leaving, waiter;
    for (int i = 0; i < 3; i++) {
        careful_link(&links[i], &master, (char)('a' + i));
        careful_link(&ears[i], &master, (char)('a' + i));
        link_listen(&ears[i]);
    }
    claim_init(&held, "flushed", 'a', 1);
    claim_init(&leaving, "flushed", 'b', 1);
    claim_init(&waiter, "flushed", 'c', 1);
    await_grant(&links[0], &held);
    sleep_ms(1200);
    assert_int_equal(queue_up(&links[1], &leaving), DLOCK_EBUSY); /* asks */
    ask_text(&master, "FLUSHALL");
    assert_int_equal(queue_up(&links[2], &waiter), DLOCK_ENOTREADY);
    release(&links[1], &leaving);
    assert_int_equal(ask_number(&master, "EXISTS flushed"), 0);
    ask_text(&master, "SET flushed foreign PX 60000");
    assert_int_equal(backend->break_lock(links[1].conn, "flushed", TIMEOUT_MS, NULL), 0);
    assert_int_equal(ask_number(&master, "EXISTS flushed"), 0);
    assert_int_equal(queue_up(&links[2], &waiter), DLOCK_ENOTREADY);
    for (int i = 0; i < 3; i++) {
        link_end(&links[i]);
        link_end(&ears[i]);
    }
}

/* A replica that takes writes, and has the record of the time before. It does not prolong either what it has granted. */
TEST(a_writable_replica_grants_nothing) {
    struct link link;
    struct held held;
    link_out_of_quarantine(&link, &held);
    ask_text(&master, "CONFIG SET replica-read-only no");
    follow(&master, replica.port);
    ask_text(&master, "SET {}:dlock:incarnation %s", "another another 1");
    sleep_ms(1200);
    struct dlock_error err = {0};
    assert_int_equal(held_run(backend->acquire, &link, &held, 0, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "this is a replica"));
    link_end(&link);
    promote(&master);
    ask_text(&master, "FLUSHALL");
    link_out_of_quarantine(&link, &held);
    claim_init(&held, "held", 'a', 2);
    assert_int_equal(acquire(&link, &held), 0);
    follow(&master, replica.port);
    ask_text(&master, "SET held %s PX 60000", held.token);
    sleep_ms(1200);
    assert_int_equal(held_run(backend->renew, &link, &held, 0, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "this is a replica"));
    promote(&master);
    ask_text(&master, "CONFIG SET replica-read-only yes");
    link_end(&link);
}

/* For that a call of a script reads one key more where a name has no fence, and nothing otherwise. */
TEST(a_quarantine_costs_one_command_for_a_new_name) {
    struct monitor monitor;
    struct link link;
    struct held first, held;
    careful_link(&link, &master, 'a');
    claim_init(&first, "first", 'a', 1);
    claim_init(&held, "held", 'a', 2);
    await_grant(&link, &first);
    sleep_ms(1200);
    assert_int_equal(release(&link, &first), 0); /* asks */
    monitor_begin(&monitor, &master);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(acquire(&link, &held), 0);
        assert_int_equal(release(&link, &held), 0);
    }
    monitor_end(&monitor, &master);
    assert_int_equal(monitor.requests, 20);
    /* EXISTS, GET, GET, TIME, SET, SET, and later as without a quarantine. */
    assert_int_equal(monitor.commands, 6 + 3 + 9 * 6);
    link_end(&link);
}

/* It was set back since the quarantine began: that begins again, and does not last until the clock has caught up. */
TEST(a_clock_that_was_set_back) {
    struct link link;
    struct held held;
    char written[4096], run[64], id[64];
    long long began;
    careful_link(&link, &master, 'a');
    claim_init(&held, "held", 'a', 1);
    await_grant(&link, &held);
    snprintf(written, sizeof written, "%s", ask_text(&master, "GET {}:dlock:incarnation"));
    assert_int_equal(sscanf(written, "%63s %63s %lld", run, id, &began), 3);
    snprintf(written, sizeof written, "%s %s %lld 0 -", run, id, began + 1000000000000); /* ms: some thirty years */
    ask_text(&master, "SET {}:dlock:incarnation %s", written);
    link_end(&link);
    careful_link(&link, &master, 'a');
    claim_init(&held, "other", 'a', 2);
    refused_for(&link, &held);
    await_grant(&link, &held);
    link_end(&link);
}

/* A quarantine that cannot be recorded cannot be waited for: nothing is granted until it can, and all else works. */
TEST(without_memory_nothing_is_granted) {
    struct link careless, link;
    struct held known, held;
    link_to(&careless, master.port, 'b');
    claim_init(&known, "known", 'b', 1);
    assert_int_equal(acquire(&careless, &known), 0);
    ask_text(&master, "SWAPDB 2 3"); /* else it would have forgotten nothing since it was started */
    ask_text(&master, "CONFIG SET maxmemory 1");
    careful_link(&link, &master, 'a');
    assert_int_equal(renew(&link, &known), 0);
    assert_int_equal(release(&link, &known), 0);
    sleep_ms(QUARANTINE_MS + 500);
    ask_text(&master, "CONFIG SET maxmemory 0");
    claim_init(&held, "held", 'a', 1);
    refused_for(&link, &held);
    await_grant(&link, &held);
    link_end(&careless);
    link_end(&link);
}

TEST(a_user_without_the_right_is_told) {
    struct link link;
    struct held held;
    struct uri uri;
    struct dlock_error err = {0};
    claim_init(&held, "lock/held", 'a', 1);
    uri_init(&uri, master.port);
    uri.parts.user = "locks";
    uri.parts.password = "pw";
    for (int i = 0; i < 2; i++) {
        ask_text(&master, "ACL SETUSER locks reset on >pw &* +@all %s %s", i ? "~*" : "~lock/*", i ? "-eval" : "+eval");
        err.message[0] = '\0';
        assert_int_equal(link_try(&link, &uri.parts, 'a', QUARANTINE_MS, TIMEOUT_MS, &err), 0);
        assert_int_equal(held_run(backend->acquire, &link, &held, 0, TIMEOUT_MS, &err), DLOCK_EAUTH);
        assert_non_null(strstr(err.message, "~{}:dlock:incarnation"));
        assert_non_null(strstr(err.message, "+eval"));
        assert_int_equal(ask_number(&master, "EXISTS lock/held"), 0);
        link_end(&link);
        assert_int_equal(link_try(&link, &uri.parts, 'a', 0, TIMEOUT_MS, &err), 0);
        link_end(&link);
    }
}

/* Each prefix has its own record, so a user with the rights of one cannot end the quarantine of another. */
TEST(a_prefix_has_its_own_record) {
    static const char *const prefixes[] = {"mine/", "their{s}"}, *const keys[] = {"{mine/}", "{their%7Bs%7D}"};
    struct link link;
    for (int i = 0; i < 2; i++) {
        struct uri uri;
        uri_init(&uri, master.port);
        link_to(&link, master.port, 'a');
        backend->disconnect(link.conn);
        memset(link.conn, 0, backend->conn_size);
        link.peer.quarantine_ms = QUARANTINE_MS;
        link.peer.prefix = prefixes[i];
        assert_int_equal(backend->connect(link.conn, &uri.parts, &link.peer, TIMEOUT_MS, NULL), 0);
        link_end(&link);
        assert_int_equal(ask_number(&master, "EXISTS %s:dlock:incarnation", keys[i]), 1);
        assert_int_equal(ask_number(&master, "DBSIZE"), 1 + i);
    }
}

/* Nor is one without a quarantine kept from anything, or does it write anything down. */
TEST(a_connection_in_use_asks_once_a_second) {
    enum { N = 20 };
    struct link careless, link;
    struct monitor monitor;
    struct held held;
    link_to(&careless, master.port, 'b');
    claim_init(&held, "held", 'b', 1);
    assert_int_equal(acquire(&careless, &held), 0);
    assert_int_equal(release(&careless, &held), 0);
    assert_int_equal(ask_number(&master, "EXISTS {}:dlock:incarnation"), 0);
    link_out_of_quarantine(&link, &held);
    monitor_begin(&monitor, &master);
    int64_t began = now_ms();
    for (int i = 0; i < N; i++) {
        assert_int_equal(acquire(&link, &held), 0);
        assert_int_equal(release(&link, &held), 0);
    }
    int64_t took_s = (now_ms() - began) / 1000;
    monitor_end(&monitor, &master);
    assert_int_equal(monitor.evalsha, 2 * N);
    assert_in_range(monitor.requests - monitor.evalsha, 0, took_s + 1);
    link_end(&careless);
    link_end(&link);
}

/* Renewals that go one by one, of which only the last may grant: the answers are those of their claims. */
TEST(renewals_of_all_modes_get_their_own_answers) {
    struct link link;
    struct held own, lost, reader, waiting;
    struct dlock_claim *const claims[] = {&own.claim, &lost.claim, &reader.claim};
    struct dlock_error err = {0};
    careful_link(&link, &master, 'a');
    claim_init(&own, "{own", 'a', 1);
    claim_init(&lost, "{lost", 'a', 2);
    claim_init(&reader, "{reader", 'a', 3);
    await_grant(&link, &own);
    assert_int_equal(acquire(&link, &reader), 0);
    claim_init(&waiting, "{reader", 'a', 4);
    reader.claim.mode = waiting.claim.mode = DLOCK_SHARED;
    assert_int_equal(queue_up(&link, &waiting), DLOCK_EBUSY);
    sleep_ms(1200);
    assert_int_equal(backend->renew(link.conn, claims, 3, TIMEOUT_MS, &err), 0);
    assert_int_equal(own.claim.result, 0);
    assert_int_equal(lost.claim.result, DLOCK_ELOST);
    assert_int_equal(reader.claim.result, 0);
    assert_string_equal(ask_text(&master, "GET %s", "%7Breader"), "dlock:shared");
    link_end(&link);
}

TESTS(setup, teardown, backend_load, NULL)
