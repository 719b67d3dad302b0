/* A client with so many locks, or waits, that a message about all of them is longer than a server reads. */
#include "harness.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define SESSION "60s"
enum { PATIENCE_MS = 60000 };

static struct site site;

static int setup(void **state) {
    backend_load(state);
    site_start(&site);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    site_stop(&site);
    return 0;
}

/* Makes `dir` and the containers of n names in it, many in one transaction. */
static void make_containers(const char *dir, char (*names)[256], size_t n) {
    enum { SOME = 100 };
    zhandle_t *handle = plain_to(site.port);
    zoo_op_t parts[SOME];
    zoo_op_result_t results[SOME];
    static char paths[SOME][2048];
    assert_int_equal(zoo_create(handle, dir, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0), ZOK);
    for (size_t done = 0; done < n; done += SOME) {
        for (size_t i = 0; i < SOME; i++) {
            snprintf(paths[i], sizeof paths[i], "%s/%s", dir, names[done + i]);
            zoo_create_op_init(&parts[i], paths[i], "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
        }
        assert_int_equal(zoo_multi(handle, SOME, parts, results), ZOK);
    }
    zookeeper_close(handle);
}

static void run_all(dlock_batch *batch, struct link *link, struct held *held, size_t n, uint32_t flags) {
    enum { SOME = 250 };
    struct dlock_claim *claims[SOME];
    for (size_t done = 0; done < n; done += SOME) {
        for (size_t i = 0; i < SOME; i++) {
            claims[i] = &held[done + i].claim;
            claims[i]->flags = flags;
        }
        assert_int_equal(batch(link->conn, claims, SOME, PATIENCE_MS, NULL), 0);
    }
}

static void init_all(struct held *held, char (*names)[256], char letter, size_t n) {
    for (size_t i = 0; i < n; i++) claim_init(&held[i], names[i], letter, (int)i);
}

static void expect_all(const struct held *held, size_t n, int result) {
    for (size_t i = 0; i < n; i++)
        if (held[i].claim.result != result) fail_msg("lock %zu: %d", i, held[i].claim.result);
}

/* The session continues. */
static void await_server(struct link *link, uint64_t session) {
    CLAIM_INIT(one, "one more", 'b', 1);
    for (int64_t until = now_ms() + PATIENCE_MS; acquire(link, &one) != 0; sleep_ms(50)) assert_true(now_ms() < until);
    assert_int_equal(one.claim.state[0], session);
    assert_int_equal(release(link, &one), 0);
}

TEST(many_locks_survive_a_restart) {
    enum { LOCKS = 20000 };
    char(*names)[256] = calloc(LOCKS, sizeof *names);
    struct held *held = calloc(LOCKS, sizeof *held);
    struct link link;
    assert_true(names && held);
    for (size_t i = 0; i < LOCKS; i++) snprintf(names[i], sizeof names[i], "one-of-very-many-locks-%05zu", i);
    make_containers(BASE, names, LOCKS);
    init_all(held, names, 'a', LOCKS);
    link_new(&link, site.port, SESSION, 'a');
    run_all(backend->acquire, &link, held, LOCKS, 0);
    expect_all(held, LOCKS, 0);
    run_all(backend->renew, &link, held, LOCKS, 0);
    expect_all(held, LOCKS, 0);
    site_restart(&site);
    await_server(&link, held[0].claim.state[0]);
    run_all(backend->renew, &link, held, LOCKS, 0);
    expect_all(held, LOCKS, 0);
    link_end(&link);
    free(names);
    free(held);
}

static char long_base[901];

static void long_link(struct link *link, char letter) {
    struct uri uri;
    uri_session(&uri, site.port, SESSION);
    uri.parts.path = long_base;
    assert_int_equal(link_try(link, &uri.parts, letter, 0, CONNECTS_MS, NULL), 0);
    link_listen(link);
}

/* Waiters without a watch repeat their requests unasked; and every waiter keeps its place. */
TEST(many_waits_survive_a_restart) {
    enum { WAITS = 1000 };
    char(*names)[256] = calloc(WAITS, sizeof *names);
    struct held *held = calloc(WAITS, sizeof *held), *waiting = calloc(WAITS, sizeof *waiting);
    struct link holder, waiter;
    size_t polls = 0;
    assert_true(names && held && waiting);
    memset(long_base, 'x', sizeof long_base - 1);
    long_base[0] = '/';
    for (size_t i = 0; i < WAITS; i++) snprintf(names[i], sizeof names[i], "%0200zu", i);
    make_containers(long_base, names, WAITS);
    long_link(&holder, 'a');
    long_link(&waiter, 'b');
    init_all(held, names, 'a', WAITS);
    init_all(waiting, names, 'b', WAITS);
    run_all(backend->acquire, &holder, held, WAITS, 0);
    expect_all(held, WAITS, 0);
    run_all(backend->acquire, &waiter, waiting, WAITS, DLOCK_CLAIM_QUEUE);
    expect_all(waiting, WAITS, DLOCK_EBUSY);
    for (size_t i = 0; i < WAITS; i++) polls += waiting[i].claim.retry_ms < 5000;
    assert_in_range(polls, WAITS / 10, WAITS - WAITS / 10);
    site_restart(&site);
    await_server(&waiter, waiting[0].claim.state[0]);
    await_server(&holder, held[0].claim.state[0]);
    assert_int_equal(release(&holder, &held[WAITS - 1]), 0);
    assert_int_equal(queue_up(&waiter, &waiting[WAITS - 1]), 0);
    link_end(&holder);
    link_end(&waiter);
    free(names);
    free(held);
    free(waiting);
}

TESTS(NULL, NULL, setup, teardown)
