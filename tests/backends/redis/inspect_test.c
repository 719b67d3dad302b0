/* inspect and list. */
#include "harness.h"
#include "support/group.h"
#include "support/pair.h"

#include <stdlib.h>

static int setup(void **state) {
    ask_text(&server, "FLUSHALL");
    return group_pair(state);
}

enum { MAX_SEEN = 20 };
static struct {
    int n;
    char name[MAX_SEEN][256], token[MAX_SEEN][DLOCK_TOKEN_MAX + 1];
    struct dlock_info last;
} seen;

static int see(const struct dlock_info *info, void *arg) {
    assert_ptr_equal(arg, &seen);
    assert_true(seen.n < MAX_SEEN);
    snprintf(seen.name[seen.n], sizeof seen.name[0], "%s", info->name);
    snprintf(seen.token[seen.n], sizeof seen.token[0], "%s", info->token);
    seen.last = *info;
    seen.n++;
    return 0;
}

static void inspect(const char *name) {
    struct dlock_error err = {0};
    seen.n = 0;
    if (backend->inspect(one.conn, name, see, &seen, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
}

/* All pages. */
static void list(const char *prefix) {
    struct dlock_error err = {0};
    char cursor[256] = "";
    int rc;
    seen.n = 0;
    do {
        rc = backend->list(one.conn, prefix, cursor, see, &seen, TIMEOUT_MS, &err);
        if (rc < 0) fail_msg("%s", err.message);
    } while (rc == 1);
}

static bool was_seen(const char *name) {
    for (int i = 0; i < seen.n; i++)
        if (strcmp(seen.name[i], name) == 0) return true;
    return false;
}

/* Joint holders are shown each as long as its own lease lasts. */
TEST(a_joint_holder_whose_lease_has_ended_is_not_shown) {
    static const struct {
        const char *name;
        enum dlock_mode mode;
        uint32_t limit;
    } ways[] = {{"read", DLOCK_SHARED, 0}, {"seats", DLOCK_PERMIT, 7}};
    for (int way = 0; way < 2; way++) {
        struct held held[2];
        for (int i = 0; i < 2; i++) {
            claim_init(&held[i], ways[way].name, 'a', i);
            held[i].claim.mode = ways[way].mode;
            held[i].claim.limit = ways[way].limit;
            if (i == 1) held[i].claim.lease_ms = 50;
            assert_int_equal(acquire(&one, &held[i]), 0);
        }
        sleep_ms(100);
        inspect(ways[way].name);
        assert_int_equal(seen.n, 1);
        assert_string_equal(seen.token[0], held[0].token);
        assert_in_range(seen.last.remaining_ms, LEASE_MS - 3000, LEASE_MS);
    }
    list("");
    assert_int_equal(seen.n, 2);
    assert_true(was_seen("read") && was_seen("seats"));
}

TEST(foreign_holders_are_shown_with_what_is_known) {
    ask_text(&server, "SET foreign %b PX 5000", "a\nb\0c", (size_t)5);
    inspect("foreign");
    assert_int_equal(seen.n, 1);
    assert_string_equal(seen.token[0], "a?b?c");
    assert_int_equal(seen.last.fence, 0);
    assert_in_range(seen.last.remaining_ms, 1, 5000);
    ask_text(&server, "SET foreign %s", "for ever");
    inspect("foreign");
    assert_int_equal(seen.last.remaining_ms, DLOCK_FOREVER);
    assert_string_equal(seen.token[0], ""); /* it may be anything, so it is not shown */
    ask_text(&server, "EVAL %s 1 foreign", "return redis.call('SET', KEYS[1], string.rep('x', 1000000), 'PX', 5000)");
    inspect("foreign");
    assert_int_equal(strlen(seen.token[0]), DLOCK_TOKEN_MAX);
    ask_number(&server, "DEL foreign");
    ask_number(&server, "HSET foreign a b");
    inspect("foreign");
    assert_int_equal(seen.n, 0);
}

TEST(a_list_shows_locks_and_nothing_else) {
    static const char *const names[] = {"app/1", "app/{x}", "a*p/1"};
    struct held held;
    for (int i = 0; i < 3; i++) {
        claim_init(&held, names[i], 'a', i);
        assert_int_equal(acquire(&one, &held), 0);
    }
    ask_text(&server, "SET app/data value");
    ask_number(&server, "HSET app/hash a b");
    ask_text(&server, "SET app/%%zz value");
    list("");
    assert_int_equal(seen.n, 3);
    for (int i = 0; i < 3; i++) assert_true(was_seen(names[i]));
    list("app/");
    assert_int_equal(seen.n, 2);
    list("a*"); /* no pattern */
    assert_int_equal(seen.n, 1);
    assert_string_equal(seen.name[0], "a*p/1");
    list("app/?");
    assert_int_equal(seen.n, 0);
}

static int64_t bytes_sent(void) {
    const char *found = strstr(ask_text(&server, "INFO stats"), "total_net_output_bytes:");
    return found ? atoll(found + strlen("total_net_output_bytes:")) : -1;
}

/* Of names that nobody holds a list gets nothing, and of another program's keys only the question whether they are
 * locks. */
TEST(a_list_among_many_names) {
    enum { N = 5000 };
    struct held held;
    struct monitor monitor;
    claim_init(&held, "name/held", 'a', 0);
    assert_int_equal(acquire(&one, &held), 0);
    ask_text(&server, "EVAL %s 0", "for i = 1, 5000 do redis.call('SET', '{name/' .. i .. '}:dlock:fence', '1') end");
    const int64_t before = bytes_sent(), info = bytes_sent() - before;
    list("");
    assert_in_range(bytes_sent() - before, info, 2 * info + 2000);
    assert_int_equal(seen.n, 1);
    ask_text(&server, "EVAL %s 0", "for i = 1, 5000 do redis.call('SET', 'session/' .. i, 'x') end");
    monitor_begin(&monitor, &server);
    list("");
    monitor_end(&monitor, &server);
    assert_int_equal(seen.n, 1);
    assert_in_range(monitor.commands, 2 * N, 2 * N + 20);
}

/* Another program's tokens may begin with, or even look like, one of our words. They hold the lock alone, and hand over
 * nothing: their waiters must poll. */
TEST(foreign_tokens_like_our_words) {
    static const char *const tokens[] = {"dlock:host:1", "dlock:", "dlock:permits:0", "dlock:permits:4294967296",
                                         "dlock:permits:00000000001"};
    for (int i = 0; i < 5; i++) {
        struct held held;
        ask_text(&server, "SET {like}:dlock:fence 1700000000000000");
        ask_text(&server, "SET like %s PX 60000", tokens[i]);
        inspect("like");
        assert_int_equal(seen.n, 1);
        assert_string_equal(seen.token[0], tokens[i]);
        assert_int_equal(seen.last.mode, DLOCK_EXCLUSIVE);
        list("");
        assert_int_equal(seen.n, 1);
        held_new(&held, &one, "like");
        held.claim.mode = i % 2 ? DLOCK_SHARED : DLOCK_EXCLUSIVE;
        assert_int_equal(queue_up(&one, &held), DLOCK_EBUSY);
        assert_int_equal(held.claim.retry_ms, -1);
        assert_int_equal(release(&one, &held), DLOCK_ELOST);
    }
}

static int look(const struct dlock_finding *finding, void *arg) {
    (void)finding;
    ++*(int *)arg;
    return 0;
}

/* It tries commands, on no key that a lock may have. */
TEST(a_check_changes_no_lock) {
    struct held held;
    int found = 0;
    held_new(&held, &one, "dlock:doctor");
    assert_int_equal(acquire(&one, &held), 0);
    assert_int_equal(backend->check(one.conn, look, &found, TIMEOUT_MS, NULL), 0);
    assert_true(found > 0);
    assert_int_equal(renew(&one, &held), 0);
    assert_int_equal(release(&one, &held), 0);
}

TESTS(setup, pair_end, group_begin, group_end)
