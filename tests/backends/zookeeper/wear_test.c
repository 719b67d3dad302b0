/* Containers that have had nearly as many nodes as the server can count; wear.py makes them so. */
#include "pair.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* From this sequence on nothing is granted; the server's count ends at INT32_MAX. */
enum { WORN_OUT = 2147000000 };

static struct site site;

static void wear(const char *path, int32_t nodes) {
    char command[512];
    snprintf(command, sizeof command, "/usr/bin/python3 '%s' '%s/zookeeper' '%s' %d", DLOCK_ZOOKEEPER_WEAR, site.folder,
             path, nodes);
    assert_int_equal(system(command), 0);
}

static void make(zhandle_t *handle, const char *path) {
    assert_int_equal(zoo_create(handle, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_CONTAINER, NULL, 0), ZOK);
}

static const struct {
    const char *path;
    int32_t nodes;
} worn[] = {{BASE "/at the end", INT32_MAX},        {BASE "/nearly", WORN_OUT - 3},
            {BASE "/held", WORN_OUT - 1},           {BASE "/shared", WORN_OUT - 1},
            {BASE "/permits/leases", WORN_OUT - 2}, {BASE "/queue/locks", WORN_OUT - 1},
            {BASE "/was permits", INT32_MAX},       {BASE "/try", WORN_OUT - 1}};

/* The server writes a snapshot when it starts, before it takes clients. */
static int begin(void **state) {
    if (backend_load(state) != 0) return -1;
    site_start(&site);
    zhandle_t *handle = plain_to(site.port);
    make(handle, BASE);
    make(handle, BASE "/permits");
    make(handle, BASE "/queue");
    for (size_t i = 0; i < sizeof worn / sizeof *worn; i++) make(handle, worn[i].path);
    make(handle, BASE "/was permits/leases");
    make(handle, BASE "/was permits/locks");
    zookeeper_close(handle);
    site_restart(&site);
    zookeeper_close(plain_to(site.port));
    site_signal(&site, SIGKILL);
    for (size_t i = 0; i < sizeof worn / sizeof *worn; i++) wear(worn[i].path, worn[i].nodes);
    site_again(&site);
    return 0;
}

static int end(void **state) {
    (void)state;
    site_stop(&site);
    return 0;
}

static int setup(void **state) {
    (void)state;
    pair_new(site.port, "10s");
    return 0;
}

/* Asks until it is granted. */
static void await_grant(struct link *link, struct held *held) {
    int rc;
    for (int64_t until = now_ms() + TIMEOUT_MS; (rc = queue_up(link, held)) == DLOCK_EBUSY; sleep_ms(5))
        assert_true(now_ms() < until);
    assert_int_equal(rc, 0);
}

/* If all nodes had the same sequence, each client would be first. */
TEST(one_holder_at_the_end) {
    const char *names[] = {"at the end", "was permits"};
    for (int i = 0; i < 2; i++) {
        CLAIM_INIT(a, names[i], 'a', i);
        CLAIM_INIT(b, names[i], 'b', i);
        assert_int_equal(acquire(&one, &a), 0);
        assert_int_equal(acquire(&two, &b), DLOCK_EBUSY);
        assert_int_equal(queue_up(&two, &b), DLOCK_EBUSY);
        assert_int_equal(release(&one, &a), 0);
        assert_int_equal(queue_up(&two, &b), 0);
        assert_true(b.claim.fence > a.claim.fence);
        assert_int_equal(release(&two, &b), 0);
    }
}

/* Whether its line is listed or not: the client never waits. */
TEST(one_client_does_not_notice) {
    uint64_t fence = 0;
    for (int i = 0; i < 8; i++) {
        CLAIM_INIT(held, "nearly", 'a', i);
        assert_int_equal(acquire(&one, &held), 0);
        assert_true(held.claim.fence > fence);
        fence = held.claim.fence;
        CLAIM_INIT(other, "nearly", 'b', i);
        if (i % 2) assert_int_equal(acquire(&two, &other), DLOCK_EBUSY);
        assert_int_equal(release(&one, &held), 0);
    }
}

TEST(holders_keep_it) {
    CLAIM_INIT(holder, "held", 'a', 1);
    CLAIM_INIT(first, "held", 'b', 1);
    CLAIM_INIT(second, "held", 'b', 2);
    assert_int_equal(acquire(&one, &holder), 0);
    assert_int_equal(queue_up(&two, &first), DLOCK_EBUSY);
    assert_int_equal(queue_up(&two, &second), DLOCK_EBUSY);
    assert_int_equal(renew(&one, &holder), 0);
    assert_int_equal(release(&one, &holder), 0);
    assert_int_equal(queue_up(&two, &first), DLOCK_EBUSY); /* as long as the other one is queued there */
    assert_true(first.claim.retry_ms < 1000);
    await_grant(&two, &second);
    assert_int_equal(queue_up(&two, &first), DLOCK_EBUSY);
    assert_int_equal(release(&two, &second), 0);
    await_grant(&two, &first);
    assert_true(first.claim.fence > second.claim.fence);
    assert_int_equal(release(&two, &first), 0);
    claim_init(&holder, "held", 'a', 2);
    assert_int_equal(acquire(&one, &holder), 0);
    assert_int_equal(release(&one, &holder), 0);
}

/* A reader beside another one has no node before it. */
TEST(readers_begin_anew_together) {
    CLAIM_AS(old, "shared", 'a', 1, DLOCK_SHARED, 0);
    CLAIM_AS(new, "shared", 'b', 1, DLOCK_SHARED, 0);
    CLAIM_AS(writer, "shared", 'a', 2, DLOCK_EXCLUSIVE, 0);
    assert_int_equal(acquire(&one, &old), 0);
    assert_int_equal(queue_up(&two, &new), DLOCK_EBUSY);
    assert_int_equal(acquire(&one, &writer), DLOCK_EBUSY);
    assert_int_equal(release(&one, &old), 0);
    await_grant(&two, &new);
    assert_int_equal(acquire(&one, &writer), DLOCK_EBUSY);
    assert_int_equal(release(&two, &new), 0);
}

TEST(permits_begin_anew) {
    CLAIM_AS(a, "permits", 'a', 1, DLOCK_PERMIT, 2);
    CLAIM_AS(b, "permits", 'a', 2, DLOCK_PERMIT, 2);
    CLAIM_AS(c, "permits", 'b', 3, DLOCK_PERMIT, 2);
    assert_int_equal(acquire(&one, &a), 0);
    assert_int_equal(acquire(&one, &b), 0);
    assert_int_equal(queue_up(&two, &c), DLOCK_EBUSY);
    assert_int_equal(release(&one, &a), 0);
    assert_int_equal(queue_up(&two, &c), DLOCK_EBUSY); /* b still counts with the old nodes */
    assert_true(c.claim.retry_ms < 1000);
    assert_int_equal(release(&one, &b), 0);
    await_grant(&two, &c);
    assert_int_equal(acquire(&one, &b), 0);
    assert_int_equal(acquire(&one, &a), DLOCK_EBUSY);
    assert_int_equal(release(&one, &b), 0);
    assert_int_equal(release(&two, &c), 0);
}

TEST(queue_for_permits_begins_anew) {
    CLAIM_AS(holder, "queue", 'a', 1, DLOCK_PERMIT, 1);
    CLAIM_AS(first, "queue", 'b', 1, DLOCK_PERMIT, 1);
    CLAIM_AS(second, "queue", 'b', 2, DLOCK_PERMIT, 1);
    assert_int_equal(acquire(&one, &holder), 0);
    assert_int_equal(queue_up(&two, &first), DLOCK_EBUSY);
    assert_int_equal(queue_up(&two, &second), DLOCK_EBUSY);
    assert_int_equal(release(&one, &holder), 0);
    await_grant(&two, &first);
    assert_int_equal(queue_up(&two, &second), DLOCK_EBUSY);
    assert_int_equal(release(&two, &first), 0);
    await_grant(&two, &second);
    assert_int_equal(release(&two, &second), 0);
}

/* A try that cannot start again is busy, and leaves nothing. */
TEST(try_is_busy) {
    struct dlock_error err = {0};
    CLAIM_AS(holder, "try", 'a', 1, DLOCK_SHARED, 0);
    CLAIM_AS(reader, "try", 'b', 1, DLOCK_SHARED, 0);
    assert_int_equal(acquire(&one, &holder), 0);
    assert_int_equal(held_run(backend->acquire, &two, &reader, 0, TIMEOUT_MS, &err), 0);
    assert_int_equal(reader.claim.result, DLOCK_EBUSY);
    assert_non_null(strstr(err.message, "the count starts again"));
    for (size_t i = 0; i < 4; i++) assert_int_equal(reader.claim.state[i], 0);
    assert_int_equal(release(&one, &holder), 0);
}

/* Equal sequences do not tell which node was first, whatever made them. */
TEST(equal_sequences_are_an_error) {
    struct dlock_error err = {0};
    zhandle_t *handle = plain_to(site.port);
    make(handle, BASE "/equal");
    assert_int_equal(
        zoo_create(handle, BASE "/equal/x-lock-0000000001", "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, NULL, 0), ZOK);
    CLAIM_INIT(held, "equal", 'a', 1);
    assert_int_equal(held_run(backend->acquire, &one, &held, 0, TIMEOUT_MS, &err), 0);
    assert_int_equal(held.claim.result, DLOCK_EPROTO);
    assert_non_null(strstr(err.message, "one sequence"));
    (void)release(&one, &held);
    assert_int_equal(zoo_delete(handle, BASE "/equal/x-lock-0000000001", -1), ZOK);
    claim_init(&held, "equal", 'a', 2);
    assert_int_equal(acquire(&one, &held), 0);
    assert_int_equal(release(&one, &held), 0);
    zookeeper_close(handle);
}

TESTS(setup, pair_end, begin, end)
