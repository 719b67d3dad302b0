/* acquire, renew and release on a real server, and what they leave there. */
#include "harness.h"
#include "support/group.h"
#include "support/pair.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int setup(void **state) {
    ask_text(&server, "FLUSHALL");
    return group_pair(state);
}

static int64_t wall_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

TEST(a_grant_is_the_plain_key) {
    struct held held;
    int64_t before = wall_us();
    claim_init(&held, "jobs/nightly", 'a', 1);
    assert_int_equal(acquire(&one, &held), 0);
    assert_true(held.claim.fence >= (uint64_t)before && held.claim.fence < (uint64_t)1 << 55);
    assert_true(held.claim.server_us >= before - 2000 && held.claim.server_us <= wall_us() + 2000);
    assert_int_equal(held.claim.kept_ms, LEASE_MS);
    assert_string_equal(ask_text(&server, "GET jobs/nightly"), held.token);
    assert_in_range(ask_number(&server, "PTTL jobs/nightly"), LEASE_MS - 3000, LEASE_MS);

    assert_int_equal(release(&one, &held), 0);
    assert_int_equal(ask_number(&server, "EXISTS jobs/nightly"), 0);
    assert_int_equal(ask_number(&server, "DBSIZE"), 1); /* the fence */
    assert_in_range(ask_number(&server, "PTTL {jobs/nightly}:dlock:fence"), LIFE_MS, 3 * LIFE_MS + LEASE_MS);
    assert_int_equal(release(&one, &held), DLOCK_ELOST);
}

/* A held lock's fence was deleted: a new one, and greater. */
TEST(a_deleted_fence_is_replaced) {
    struct held held;
    uint64_t fence;
    claim_init(&held, "again", 'a', 1);
    assert_int_equal(acquire(&one, &held), 0);
    fence = held.claim.fence;
    ask_number(&server, "DEL {again}:dlock:fence");
    assert_int_equal(queue_up(&one, &held), 0);
    assert_true(held.claim.fence > fence);
    fence = held.claim.fence;
    assert_int_equal(acquire(&one, &held), 0);
    assert_int_equal(held.claim.fence, fence);
}

/* The next fence is greater, and lives for its time at least, whatever the last one was and however long it had to
 * live. */
TEST(fences_are_made_to_last) {
    const int64_t now = wall_us(), life_us = INT64_C(1000) * LIFE_MS;
    const int64_t last[] = {now - 30 * life_us, now - life_us, now - 1000, now + life_us / 2, 1};
    struct held held;
    for (int i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof name, "lasting-%d", i);
        ask_text(&server, "SET {%s}:dlock:fence %lld PX %d", name, (long long)last[i],
                 last[i] / life_us == now / life_us ? 2 * LIFE_MS + LEASE_MS : 5);
        claim_init(&held, name, 'a', i);
        assert_int_equal(acquire(&one, &held), 0);
        assert_true(held.claim.fence > (uint64_t)last[i] && held.claim.fence >= (uint64_t)now);
        assert_int_equal(strtoll(ask_text(&server, "GET {%s}:dlock:fence", name), NULL, 10), held.claim.fence);
        assert_in_range(ask_number(&server, "PTTL {%s}:dlock:fence", name), LIFE_MS, 3 * LIFE_MS + LEASE_MS);
        assert_int_equal(release(&one, &held), 0);
    }
}

static uint64_t fence_by(struct link *by, const char *name, int number) {
    struct held held;
    claim_init(&held, name, 'a', number);
    assert_int_equal(acquire(by, &held), 0);
    assert_int_equal(release(by, &held), 0);
    return held.claim.fence;
}

/* One connection asks the server's clock for a fence once a second at most, and counts on. */
TEST(fences_are_counted_for_a_moment) {
    uint64_t first = fence_by(&one, "counted", 1), now;
    assert_int_equal(fence_by(&one, "counted", 2), first + 1);
    assert_int_equal(fence_by(&one, "counted", 3), first + 2);
    usleep(1100000);
    now = (uint64_t)wall_us();
    assert_true(fence_by(&one, "counted", 4) >= now);
}

/* A server that comes back without its latest fences comes back without its connections: clients that reconnect ask its
 * clock first. */
TEST(fences_survive_a_server_that_forgets_some) {
    uint64_t before = fence_by(&one, "forgotten", 1), last = fence_by(&one, "forgotten", 2);
    assert_int_equal(last, before + 1);
    ask_text(&server, "SET {forgotten}:dlock:fence %llu PX %d", (unsigned long long)before, LIFE_MS);
    assert_true(fence_by(&two, "forgotten", 3) > last);
}

/* Fences that are counted up grow, whatever became of the key in that moment. */
TEST(counted_fences_are_fences) {
    static const char *const commands[] = {"redis.call('DEL', '{whatever}:dlock:fence')",
                                           "redis.call('SET', '{whatever}:dlock:fence', 5)", "redis.call('FLUSHALL')"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        uint64_t last = fence_by(&one, "whatever", 1);
        ask_text(&server, "EVAL %s 0", commands[i]);
        assert_true(fence_by(&one, "whatever", 2) > last);
        assert_in_range(ask_number(&server, "PTTL {whatever}:dlock:fence"), LIFE_MS, 3 * LIFE_MS + LEASE_MS);
    }
}

/* `fences=` in the URI says how long they are kept; leases of any length come on top of that. */
TEST(fences_live_as_long_as_the_uri_says) {
    enum { SHORT_MS = 120000, LONG_LEASE_MS = 7200000 };
    struct uri uri;
    struct link link;
    struct held held;
    struct dlock_claim *claim = &held.claim;
    struct dlock_error err;
    uri_init(&uri, server.port);
    uri.param[0] = (struct dlock_param){"fences", "2m"};
    uri.parts.n_params = 1;
    assert_int_equal(link_try(&link, &uri.parts, 'e', 0, TIMEOUT_MS, &err), 0);
    for (int i = 0; i < 3; i++) {
        held_new(&held, &link, "short-lived");
        assert_int_equal(i == 1 ? queue_up(&link, &held) : acquire(&link, &held), 0);
        assert_in_range(ask_number(&server, "PTTL {short-lived}:dlock:fence"), SHORT_MS, 3 * SHORT_MS + LEASE_MS);
        claim->lease_ms = LONG_LEASE_MS;
        assert_int_equal(i == 2 ? acquire(&link, &held) : renew(&link, &held), 0);
        assert_in_range(ask_number(&server, "PTTL {short-lived}:dlock:fence"), LONG_LEASE_MS + SHORT_MS,
                        LONG_LEASE_MS + 3 * SHORT_MS);
        assert_int_equal(release(&link, &held), 0);
        ask_number(&server, "PEXPIRE {short-lived}:dlock:fence 1");
        while (ask_number(&server, "EXISTS {short-lived}:dlock:fence")) usleep(1000);
    }
    link_end(&link);
    for (const char *const *bad = (const char *const[]){"", "1", "119s", "61m", "x", "-5m", NULL}; *bad; bad++) {
        uri.param[0].value = *bad;
        assert_int_equal(link_try(&link, &uri.parts, 'e', 0, TIMEOUT_MS, &err), DLOCK_EINVAL);
        link_end(&link);
        assert_non_null(strstr(err.message, "\"fences\" must be"));
    }
}

/* Application keys that look like those we once kept beside a lock are left alone. */
TEST(keys_beside_a_lock_are_left_alone) {
    static const char *const words[] = {"fence", "queue", "waiters", "holders", "grants"};
    enum { N = sizeof words / sizeof words[0] };
    struct held held, other;
    for (int i = 0; i < N; i++) ask_text(&server, "SET {order:7}:%s mine", words[i]);
    for (int mode = DLOCK_EXCLUSIVE; mode <= DLOCK_SHARED; mode++) {
        claim_init(&held, "order:7", 'a', 1);
        claim_init(&other, "order:7", 'b', 1);
        held.claim.mode = other.claim.mode = (enum dlock_mode)mode;
        assert_int_equal(acquire(&one, &held), 0);
        assert_int_equal(queue_up(&two, &other), mode == DLOCK_SHARED ? 0 : DLOCK_EBUSY);
        assert_int_equal(renew(&one, &held), 0);
        assert_int_equal(release(&one, &held), 0);
        release(&two, &other);
    }
    for (int i = 0; i < N; i++) assert_string_equal(ask_text(&server, "GET {order:7}:%s", words[i]), "mine");
}

/* A foreign value in one of our keys is an error, and stays. */
TEST(foreign_data_in_our_keys_is_an_error) {
    static const char *const words[] = {"fence", "queue", "holders", "grants"};
    struct held held;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const bool is_fence = i == 0;
        ask_text(&server, "SET {data}:dlock:%s mine", words[i]);
        claim_init(&held, "data", 'a', (int)i);
        held.claim.mode = is_fence ? DLOCK_EXCLUSIVE : DLOCK_SHARED;
        assert_int_equal(acquire(&one, &held), DLOCK_EINVAL);
        assert_int_equal(ask_number(&server, "EXISTS data"), 0);
        assert_string_equal(ask_text(&server, "GET {data}:dlock:%s", words[i]), "mine");
        ask_number(&server, "DEL {data}:dlock:%s", words[i]);
        assert_int_equal(acquire(&one, &held), 0);
        assert_int_equal(release(&one, &held), 0);
    }
}

/* It concerns the locks whose data that are, and no other of the same batch. */
TEST(foreign_data_spoil_no_batch) {
    enum { N = 3 };
    static char names[N][16];
    struct held held[N], waiter[N];
    struct dlock_claim *claims[N];
    struct dlock_error err = {0};
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "batch-%d", i);
        claim_init(&held[i], names[i], 'a', i);
        claim_init(&waiter[i], names[i], 'b', i);
        claims[i] = &held[i].claim;
        assert_int_equal(acquire(&one, &held[i]), 0);
        assert_int_equal(queue_up(&two, &waiter[i]), DLOCK_EBUSY);
    }
    ask_text(&server, "SET {batch-1}:dlock:waiters mine");
    assert_int_equal(backend->renew(one.conn, claims, N, TIMEOUT_MS, &err), 0);
    for (int i = 0; i < N; i++) assert_int_equal(claims[i]->result, 0);
    assert_int_equal(backend->release(one.conn, claims, N, TIMEOUT_MS, &err), 0);
    for (int i = 0; i < N; i++) assert_int_equal(claims[i]->result, i == 1 ? DLOCK_ELOST : 0);
    /* Something that Lua stumbles over. */
    ask_text(&server, "FLUSHALL");
    claims[1] = &waiter[0].claim;
    ask_number(&server, "ZADD {batch-0}:dlock:queue 1 %s", waiter[0].token);
    ask_number(&server, "HSET {batch-0}:dlock:waiters %s 1@1 %s nonsense", waiter[0].token, "free until");
    assert_int_equal(backend->acquire(one.conn, claims, N, TIMEOUT_MS, &err), 0);
    assert_int_equal(claims[2]->result, 0);
}

/* Without a valid fence no lock is granted. */
TEST(a_fence_of_another_type_is_an_error) {
    struct held held;
    for (int i = 0; i < 2; i++) { /* it also becomes one after a grant */
        ask_number(&server, "LPUSH {typed}:dlock:fence x");
        claim_init(&held, "typed", 'a', 1);
        assert_int_equal(acquire(&one, &held), DLOCK_EINVAL);
        assert_int_equal(ask_number(&server, "EXISTS typed"), 0);
        ask_number(&server, "DEL {typed}:dlock:fence");
        fence_by(&one, "typed", 2);
        ask_number(&server, "DEL {typed}:dlock:fence");
    }
}

TEST(names_become_keys) {
    static const struct {
        const char *name, *key;
    } names[] = {
        {"with space", "with space"},
        {"a{b}c", "a%7Bb%7Dc"},
        {"100%", "100%25"},
        {"../../etc", "../../etc"},
        {"\"quotes'", "\"quotes'"},
        {"*?[x]", "*?[x]"},
        {"gr\xc3\xbc\xc3\x9f \xf0\x9f\x94\x92", "gr\xc3\xbc\xc3\x9f \xf0\x9f\x94\x92"},
        {"\xff\xfe", "\xff\xfe"},
    };
    char longest[256], encoded[3 * 255 + 1] = "";
    struct held held;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        claim_init(&held, names[i].name, 'a', (int)i);
        assert_int_equal(acquire(&one, &held), 0);
        assert_string_equal(ask_text(&server, "GET %b", names[i].key, strlen(names[i].key)), held.token);
        assert_int_equal(release(&one, &held), 0);
    }
    memset(longest, '{', 255);
    longest[255] = '\0';
    for (int i = 0; i < 255; i++) memcpy(encoded + 3 * i, "%7B", 4);
    claim_init(&held, longest, 'a', 99);
    assert_int_equal(acquire(&one, &held), 0);
    assert_string_equal(ask_text(&server, "GET %s", encoded), held.token);
}

enum { SOME = 40, ODD = 5, BUSY = 7, LIST = 9 };

static void assert_batch(dlock_batch *batch, struct held *held, int odd, int listed, int calls) {
    struct dlock_claim *claims[SOME];
    struct dlock_error err = {0};
    struct monitor monitor;
    for (int i = 0; i < SOME; i++) claims[i] = &held[i].claim;
    monitor_begin(&monitor, &server);
    assert_int_equal(batch(one.conn, claims, SOME, TIMEOUT_MS, &err), 0);
    monitor_end(&monitor, &server);
    for (int i = 0; i < SOME; i++) assert_int_equal(held[i].claim.result, i == BUSY ? odd : i == LIST ? listed : 0);
    if (calls) assert_int_equal(monitor.evalsha, calls);
}

/* A client that comes back to many locks, renews them or releases them does so in few calls, each lock for itself: one
 * that is busy, or no lock at all, or whose key has to be encoded, spoils none of the others. */
TEST(many_locks_are_few_calls) {
    static struct held held[SOME];
    static char names[SOME][16];
    struct held other;
    for (int i = 0; i < SOME; i++) {
        snprintf(names[i], sizeof names[i], i == ODD ? "some-%02d{}" : "some-%02d", i);
        claim_init(&held[i], names[i], 'a', i);
    }
    assert_batch(backend->acquire, held, 0, 0, 0);
    assert_batch(backend->release, held, 0, 0, 0);
    claim_init(&other, names[BUSY], 'b', 1);
    assert_int_equal(acquire(&two, &other), 0);
    ask_number(&server, "LPUSH %s x", names[LIST]);
    for (int i = 0; i < SOME; i++) claim_init(&held[i], names[i], 'a', SOME + i);
    /* One call for the claims before the odd one, one for that, and two for the rest. */
    assert_batch(backend->acquire, held, DLOCK_EBUSY, DLOCK_EINVAL, 4);
    for (int i = 0; i < SOME; i++) {
        if (i == BUSY || i == LIST) continue;
        assert_true(held[i].claim.fence > 0);
        assert_string_equal(ask_text(&server, i == ODD ? "GET some-05%%7B%%7D" : "GET some-%02d", i), held[i].token);
    }
    assert_batch(backend->renew, held, DLOCK_ELOST, DLOCK_ELOST, 4);
    ask_text(&server, "SCRIPT FLUSH");
    assert_batch(backend->release, held, DLOCK_ELOST, DLOCK_ELOST, 0);
    assert_string_equal(ask_text(&server, "GET %s", names[BUSY]), other.token);
    assert_int_equal(ask_number(&server, "LLEN %s", names[LIST]), 1);
    assert_int_equal(ask_number(&server, "EXISTS some-00 some-05%%7B%%7D some-39"), 0);
}

static int64_t input_bytes(void) {
    static const char field[] = "total_net_input_bytes:";
    const char *found = strstr(ask_text(&server, "INFO stats"), field);
    assert_non_null(found);
    return strtoll(found + sizeof field - 1, NULL, 10);
}

/* Where the server has the scripts, a new connection sends next to nothing but its requests; and where it has not, none
 * that it does not need. */
TEST(scripts_are_sent_when_they_are_missing) {
    struct link link;
    struct held held;
    int64_t first, second;
    ask_text(&server, "SCRIPT FLUSH");
    for (int i = 0; i < 2; i++) {
        first = input_bytes(); /* this question among them */
        claim_init(&held, "sent", 'c', 1);
        link_to(&link, server.port, 'c');
        assert_int_equal(acquire(&link, &held), 0);
        second = input_bytes();
        link_end(&link);
        assert_int_equal(release(&one, &held), 0);
        print_message("a connection and its first acquire: %d bytes\n", (int)(second - first));
        assert_in_range(second - first, 100, i == 0 ? 16000 : 2000);
    }
}

TEST(a_cycle_is_two_commands) {
    struct monitor monitor;
    struct held held;
    claim_init(&held, "counted", 'a', 1);
    monitor_begin(&monitor, &server);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(acquire(&one, &held), 0);
        assert_int_equal(release(&one, &held), 0);
    }
    monitor_end(&monitor, &server);
    assert_int_equal(monitor.requests, 20);
    assert_int_equal(monitor.evalsha, 20);
    assert_int_equal(monitor.published, 0);
    /* The scripts': EXISTS, GET, SET, TIME, SETRANGE (once a day SET), later EXISTS, SET, INCR; and GET, EXISTS, DEL.
     */
    assert_int_equal(monitor.commands, 8 + 9 * 6);
}

TESTS(setup, pair_end, group_begin, group_end)
