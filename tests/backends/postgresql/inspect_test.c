/* inspect, list, break. */
#include "site.h"

struct seen {
    int n, enough;
    char names[1300][16];
    struct dlock_info last;
    char token[DLOCK_TOKEN_MAX + 1];
};

static int see(const struct dlock_info *info, void *arg) {
    struct seen *seen = arg;
    seen->last = *info;
    snprintf(seen->token, sizeof seen->token, "%s", info->token);
    snprintf(seen->names[seen->n++], sizeof seen->names[0], "%.15s", info->name);
    return seen->n == seen->enough;
}

static struct seen seen;

TEST(inspects) {
    struct link link, ear, other;
    struct held held, waiter;
    struct dlock_error err;
    link_new(&link, 'a');
    link_new(&other, 'b');
    link_new(&ear, 'b');
    link_listen(&ear);
    memset(&seen, 0, sizeof seen);
    assert_int_equal(backend->inspect(link.conn, "look", see, &seen, TIMEOUT_MS, &err), 0);
    assert_int_equal(seen.n, 0);
    held_new(&held, &link, "look");
    held_new(&waiter, &other, "look");
    assert_int_equal(acquire(&link, &held), 0);
    assert_int_equal(queue_up(&other, &waiter), DLOCK_EBUSY);
    assert_int_equal(backend->inspect(link.conn, "look", see, &seen, TIMEOUT_MS, &err), 0);
    assert_int_equal(seen.n, 1);
    assert_string_equal(seen.names[0], "look");
    assert_string_equal(seen.token, held.token);
    assert_true(seen.last.fence == held.claim.fence);
    assert_int_equal(seen.last.waiters, 1);
    assert_int_equal(seen.last.limit, 1);
    assert_true(seen.last.remaining_ms > 5000 && seen.last.remaining_ms <= LEASE_MS);
    /* Names that begin with it are others. */
    assert_int_equal(backend->inspect(link.conn, "loo", see, &seen, TIMEOUT_MS, &err), 0);
    assert_int_equal(backend->inspect(link.conn, "looka", see, &seen, TIMEOUT_MS, &err), 0);
    assert_int_equal(seen.n, 1);
    sql("UPDATE {}.locks SET expires_us = {}.clock_us() - 1 WHERE name = 'look'");
    assert_int_equal(backend->inspect(link.conn, "look", see, &seen, TIMEOUT_MS, &err), 0);
    assert_int_equal(seen.n, 1);
    link_end(&link);
    link_end(&other);
    link_end(&ear);
}

static int list_all(struct link *link, const char *prefix) {
    char cursor[256] = "";
    struct dlock_error err;
    int pages = 0, rc;
    seen.n = 0;
    do {
        rc = backend->list(link->conn, prefix, cursor, see, &seen, TIMEOUT_MS, &err);
        if (rc < 0) fail_msg("%s", err.message);
        pages++;
    } while (rc == 1 && pages < 100);
    return pages;
}

TEST(lists_in_pages) {
    enum { N = 1200 };
    struct link link;
    memset(&seen, 0, sizeof seen);
    link_new(&link, 'a');
    sql("TRUNCATE {}.locks");
    sql("INSERT INTO {}.locks (name, token, fence, expires_us) SELECT convert_to('list/' || to_char(n, 'FM0000'), "
        "'UTF8'), "
        "'t', 1, {}.clock_us() + 60000000 FROM generate_series(1, %d) n",
        N);
    /* Not held, or not with that prefix. */
    sql("INSERT INTO {}.locks (name, token, fence, expires_us) VALUES ('list/free', NULL, 1, {}.clock_us() + "
        "60000000), "
        "('list/over', 't', 1, {}.clock_us() - 1), ('lisu', 't', 1, {}.clock_us() + 60000000), ('list', 't', 1, "
        "{}.clock_us() + 60000000), ('\\xff'::bytea, 't', 1, {}.clock_us() + 60000000), "
        "('\\xffff61'::bytea, 't', 1, {}.clock_us() + 60000000)");
    assert_int_equal(list_all(&link, "list/"), 3);
    assert_int_equal(seen.n, N);
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "list/%04d", i + 1);
        assert_string_equal(seen.names[i], name);
    }
    list_all(&link, "");
    assert_int_equal(seen.n, N + 4);
    list_all(&link, "\xff");
    assert_int_equal(seen.n, 2);
    list_all(&link, "\xff\xff");
    assert_int_equal(seen.n, 1);
    list_all(&link, "list/12");
    assert_int_equal(seen.n, 1); /* 1200 */
    seen.enough = 7;
    list_all(&link, "list/");
    assert_int_equal(seen.n, 7);
    sql("TRUNCATE {}.locks");
    link_end(&link);
}

TEST(breaks) {
    struct link link, other, ear;
    struct held held, waiter;
    struct dlock_wake wake;
    struct dlock_error err;
    link_new(&link, 'a');
    link_new(&other, 'b');
    link_new(&ear, 'b');
    link_listen(&ear);
    assert_int_equal(backend->break_lock(link.conn, "broken", TIMEOUT_MS, &err), DLOCK_ELOST);
    held_new(&held, &link, "broken");
    held_new(&waiter, &other, "broken");
    assert_int_equal(acquire(&link, &held), 0);
    assert_int_equal(queue_up(&other, &waiter), DLOCK_EBUSY);
    assert_int_equal(backend->break_lock(link.conn, "broken", TIMEOUT_MS, &err), 0);
    wake_get(&ear, &wake);
    assert_string_equal(wake.token, waiter.token);
    assert_true(wake.fence > held.claim.fence);
    assert_int_equal(renew(&link, &held), DLOCK_ELOST);
    assert_int_equal(release(&link, &held), DLOCK_ELOST);
    assert_int_equal(backend->break_lock(link.conn, "broken", TIMEOUT_MS, &err), 0);
    assert_int_equal(backend->break_lock(link.conn, "broken", TIMEOUT_MS, &err), DLOCK_ELOST);
    assert_int_equal(renew(&other, &waiter), DLOCK_ELOST);
    assert_int_equal(acquire(&link, &held), 0);
    assert_true(held.claim.fence > wake.fence);
    link_end(&link);
    link_end(&other);
    link_end(&ear);
}

TESTS(NULL, NULL, site_begin, site_end)
