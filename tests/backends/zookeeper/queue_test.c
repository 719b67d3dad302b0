/* Queueing: order, wake-ups, changes between looking and watching, and the counter's wrap. */
#include "trio.h"

#include <stdio.h>

/* ---- order ------------------------------------------------------------------------------------------------------- */

TEST(only_the_next_is_woken) {
    struct dlock_wake wake;
    CLAIM_INIT(a, "order", 'a', 1);
    CLAIM_INIT(b, "order", 'b', 1);
    CLAIM_INIT(c, "order", 'c', 1);
    assert_int_equal(queue_up(&one, &a), 0);
    assert_int_equal(queue_up(&two, &b), DLOCK_EBUSY);
    assert_true(b.claim.retry_ms >= 10000);
    assert_int_equal(queue_up(&three, &c), DLOCK_EBUSY);
    assert_int_equal(release(&one, &a), 0);
    expect_look(&two, "order");
    assert_false(told_within(&three, &wake, 300));
    assert_int_equal(queue_up(&three, &c), DLOCK_EBUSY); /* the free lock goes to the head */
    assert_int_equal(queue_up(&two, &b), 0);
    assert_true(b.claim.fence > a.claim.fence);
    assert_int_equal(release(&two, &b), 0);
    expect_look(&three, "order");
    assert_int_equal(queue_up(&three, &c), 0);
    assert_true(c.claim.fence > b.claim.fence);
    assert_int_equal(release(&three, &c), 0);
}

TEST(deleted_waiter_queues_anew) {
    char path[512];
    CLAIM_INIT(a, "deleted waiter", 'a', 1);
    CLAIM_INIT(b, "deleted waiter", 'b', 1);
    assert_int_equal(queue_up(&two, &b), 0);
    plain_only(BASE "/deleted waiter", path, sizeof path);
    assert_int_equal(queue_up(&one, &a), DLOCK_EBUSY);
    plain_delete(path);
    assert_int_equal(queue_up(&two, &b), DLOCK_EBUSY);
    assert_int_equal(queue_up(&one, &a), 0);
    assert_int_equal(release(&one, &a), 0);
    assert_int_equal(queue_up(&two, &b), 0);
    assert_int_equal(release(&two, &b), 0);
}

/* ---- between looking and watching -------------------------------------------------------------------------------- */

/* The node before ours goes while we ask for the watch on it: looked at again, granted, no wake-up needed. */
TEST(predecessor_that_vanishes_is_noticed) {
    SCOPED_PROXY *proxy = proxy_new(shared_port());
    struct task task;
    LINK(link, proxy_port(proxy), "10s", 'd');
    CLAIM_INIT(a, "vanished predecessor", 'a', 1);
    CLAIM_INIT(b, "vanished predecessor", 'd', 1);
    assert_int_equal(acquire(&one, &a), 0);
    int lists = proxy_seen(proxy, OP_CHILDREN);
    proxy_hold(proxy, true); /* the listing's answer stays in the proxy … */
    task_begin(&task, backend->acquire, &link, &b, DLOCK_CLAIM_QUEUE);
    assert_true(proxy_await(proxy, OP_CHILDREN, lists + 1));
    for (int64_t until = now_ms() + 5000; plain_count(BASE "/vanished predecessor") < 2; sleep_ms(5))
        assert_true(now_ms() < until);
    sleep_ms(100); /* … and was written before this: */
    assert_int_equal(release(&one, &a), 0);
    proxy_hold(proxy, false);
    assert_int_equal(task_end(&task), 0);
    assert_int_equal(b.claim.result, 0);
    assert_int_equal(release(&link, &b), 0);
}

/* A busy machine brings a new connection about, which tells to look at every name: see told_within(). */
TEST(reconnection_hides_no_wake_up) {
    SCOPED_PROXY *proxy = proxy_new(shared_port());
    struct dlock_wake wake;
    LINK(link, proxy_port(proxy), "10s", 'd');
    CLAIM_INIT(a, "reconnected", 'a', 1);
    CLAIM_INIT(b, "reconnected", 'd', 1);
    assert_int_equal(acquire(&one, &a), 0);
    assert_int_equal(queue_up(&link, &b), DLOCK_EBUSY);
    for (int i = 0; i < 2; i++) {
        proxy_refuse(proxy, true);
        proxy_refuse(proxy, false);
        assert_int_equal(queue_up(&link, &b), DLOCK_EBUSY); /* connected again */
        if (i == 0) assert_false(told_within(&link, &wake, 100));
    }
    assert_int_equal(release(&one, &a), 0);
    expect_look(&link, "reconnected");
    assert_int_equal(queue_up(&link, &b), 0);
    assert_int_equal(release(&link, &b), 0);
}

/* ---- foreigners -------------------------------------------------------------------------------------------------- */

TEST(foreign_nodes_are_waited_for) {
    char theirs[512];
    plain_make(BASE "/foreign/_c_0a1b2c3d-0000-4000-8000-000000000000-lock-", "10.0.0.1", ZOO_EPHEMERAL_SEQUENTIAL,
               theirs, sizeof theirs);
    CLAIM_INIT(held, "foreign", 'a', 1);
    assert_int_equal(queue_up(&one, &held), DLOCK_EBUSY);
    plain_delete(theirs);
    expect_look(&one, "foreign");
    assert_int_equal(queue_up(&one, &held), 0);
    assert_int_equal(release(&one, &held), 0);
}

/* As they are by default: its lock's, and its read lock's. */
TEST(kazoos_nodes_are_waited_for) {
    char theirs[512];
    struct held held, reader;
    for (int reads = 0; reads < 2; reads++) {
        plain_make(reads ? BASE "/kazoo/0a1b2c3d000040008000000000000000__rlock__"
                         : BASE "/kazoo/0a1b2c3d000040008000000000000000__lock__",
                   "", ZOO_EPHEMERAL_SEQUENTIAL, theirs, sizeof theirs);
        claim_init(&held, "kazoo", 'a', reads);
        claim_as(&reader, "kazoo", 'b', reads, DLOCK_SHARED, 0);
        assert_int_equal(acquire(&two, &reader), reads ? 0 : DLOCK_EBUSY);
        if (reads) assert_int_equal(release(&two, &reader), 0);
        assert_int_equal(queue_up(&one, &held), DLOCK_EBUSY);
        plain_delete(theirs);
        expect_look(&one, "kazoo");
        assert_int_equal(queue_up(&one, &held), 0);
        assert_int_equal(release(&one, &held), 0);
    }
}

TEST(what_is_no_lock_node_is_ignored) {
    plain_make(BASE "/clutter/note", "", ZOO_EPHEMERAL, NULL, 0);
    plain_make(BASE "/clutter/lock-", "", ZOO_EPHEMERAL, NULL, 0);
    plain_make(BASE "/clutter/lock-12", "", ZOO_EPHEMERAL, NULL, 0);
    plain_make(BASE "/clutter/0000000000", "", ZOO_EPHEMERAL, NULL, 0);
    plain_make(BASE "/clutter/xlock-99999999999", "", ZOO_EPHEMERAL, NULL, 0);
    CLAIM_INIT(held, "clutter", 'a', 1);
    assert_int_equal(acquire(&one, &held), 0);
    assert_int_equal(release(&one, &held), 0);
    const char *rest[] = {"note", "lock-", "lock-12", "0000000000", "xlock-99999999999"};
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) {
        char path[128];
        snprintf(path, sizeof path, BASE "/clutter/%s", rest[i]);
        plain_delete(path);
    }
}

/* ---- the counter ------------------------------------------------------------------------------------------------- */

static int note_token(const struct dlock_info *info, void *arg) {
    snprintf(arg, 64, "%s %u", info->token, info->waiters);
    return 0;
}

/* After 2147483647 comes -2147483648, which is behind it. */
TEST(sequence_wraps) {
    char seen[64] = "";
    plain_make(BASE "/wrap/x-lock--2147483648", "third", ZOO_EPHEMERAL, NULL, 0);
    plain_make(BASE "/wrap/x-lock-2147483646", "first", ZOO_EPHEMERAL, NULL, 0);
    plain_make(BASE "/wrap/x-lock--2147483640", "fourth", ZOO_EPHEMERAL, NULL, 0);
    plain_make(BASE "/wrap/x-lock-2147483647", "second", ZOO_EPHEMERAL, NULL, 0);
    const struct {
        const char *node, *seen;
    } order[] = {{"x-lock-2147483646", "first 3"},
                 {"x-lock-2147483647", "second 2"},
                 {"x-lock--2147483648", "third 1"},
                 {"x-lock--2147483640", "fourth 0"}};
    for (size_t i = 0; i < 4; i++) {
        char path[128];
        assert_int_equal(backend->inspect(one.conn, "wrap", note_token, seen, TIMEOUT_MS, NULL), 0);
        assert_string_equal(seen, order[i].seen);
        snprintf(path, sizeof path, BASE "/wrap/%s", order[i].node);
        plain_delete(path);
    }
    plain_make(BASE "/wrap/x-lock--000000001", "before", ZOO_EPHEMERAL, NULL, 0); /* Java's %010d of -1 */
    CLAIM_INIT(held, "wrap", 'a', 1);
    assert_int_equal(queue_up(&one, &held), DLOCK_EBUSY);
    plain_delete(BASE "/wrap/x-lock--000000001");
    expect_look(&one, "wrap");
    assert_int_equal(queue_up(&one, &held), 0);
    assert_int_equal(release(&one, &held), 0);
}

TESTS(trio_begin, trio_end, backend_load, NULL)
