/* libmemcached reconnects on its own, before any request, without telling its caller. A request without an answer must
 * be reported as such, and must never be followed by another one on a new connection. */
#include "harness.h"

#include <stdatomic.h>
#include <stdio.h>

static struct server server;

/* ---- the login --------------------------------------------------------------------------------------------------- */

/* Not an answer that is lost: trying again would not help. */
TEST(a_wrong_password_is_told) {
    struct dlock_error err = {0};
    struct link link;
    assert_int_equal(try_log_in(&link, server.port, 'a', "hunter22", &err), DLOCK_EAUTH);
    assert_null(strstr(err.message, "hunter22"));
}

/* ---- answers that are lost --------------------------------------------------------------------------------------- */

/* Cuts the connection in the place of the answer to one request. */
struct cut {
    atomic_int left; /* requests until then; 0: none */
    atomic_bool done;
};

static int look(void *arg, size_t pair, bool first, const char *bytes, size_t size) {
    struct cut *cut = arg;
    (void)pair, (void)first, (void)bytes, (void)size;
    if (atomic_load(&cut->left) == 0 || atomic_fetch_sub(&cut->left, 1) != 1) return RELAY_PASS;
    atomic_store(&cut->done, true);
    return RELAY_END_IT;
}

static int run(struct link *link, dlock_batch *operation, struct held *held) {
    struct dlock_error err = {0};
    return held_run(operation, link, held, 0, TIMEOUT_MS, &err);
}

/* On a new connection the operation is done, or repeated, whatever became of the first one; and no other client has got
 * in. */
static void do_again(dlock_batch *operation, struct held *held, uint64_t before) {
    struct link again, other;
    struct held rival;
    log_in(&again, server.port, 'a');
    log_in(&other, server.port, 'b');
    held_new(&rival, &other, held->claim.name);
    assert_int_equal(run(&again, operation, held), 0);
    if (operation == backend->release) {
        assert_true(held->claim.result == 0 || held->claim.result == DLOCK_ELOST);
        assert_int_equal(acquire(&other, &rival), 0);
        assert_true(rival.claim.fence > before);
        assert_int_equal(release(&other, &rival), 0);
    } else {
        assert_int_equal(held->claim.result, 0);
        if (operation == backend->acquire) assert_true(held->claim.fence > before);
        assert_int_equal(acquire(&other, &rival), DLOCK_EBUSY);
        assert_int_equal(release(&again, held), 0);
    }
    link_end(&again);
    link_end(&other);
}

/* The answer to the k-th request of the operation is lost. False: it has fewer. */
static bool lose(dlock_batch *operation, enum dlock_mode mode, int k) {
    struct relay *relay = relay_new(server.port);
    struct cut cut = {0};
    struct link link;
    struct held held;
    uint64_t before;
    log_in(&link, relay_port(relay), 'a');
    held_new(&held, &link, "lost");
    assert_int_equal(acquire(&link, &held), 0);
    before = held.claim.fence;
    if (operation == backend->acquire) assert_int_equal(release(&link, &held), 0);
    if (operation == backend->acquire) held_new(&held, &link, "lost");
    held.claim.mode = mode;
    relay_watch(relay, look, &cut);
    atomic_store(&cut.left, k);
    int rc = run(&link, operation, &held);
    const bool lost = atomic_load(&cut.done);
    assert_int_equal(rc, lost ? DLOCK_EUNAVAILABLE : 0);
    /* Now it is dead, and stays so. */
    for (int i = 0; i < 3 && lost; i++) assert_int_equal(run(&link, operation, &held), DLOCK_EUNAVAILABLE);
    assert_int_equal(relay_taken(relay), 1);
    link_end(&link);
    if (lost)
        do_again(operation, &held, before);
    else if (operation != backend->release)
        do_again(backend->renew, &held, before);
    relay_end(relay);
    return lost;
}

static void lose_each(dlock_batch *operation, enum dlock_mode mode, int at_least) {
    int k = 1;
    while (lose(operation, mode, k)) k++;
    print_message("  %d requests, each of whose answers was lost\n", k - 1);
    assert_true(k > at_least);
}

TEST(answers_to_acquires_are_lost) {
    lose_each(backend->acquire, DLOCK_EXCLUSIVE, 4);
}

TEST(answers_to_renewals_are_lost) {
    lose_each(backend->renew, DLOCK_EXCLUSIVE, 2);
}

TEST(answers_to_releases_are_lost) {
    lose_each(backend->release, DLOCK_EXCLUSIVE, 1);
}

TEST(answers_to_downgrades_are_lost) {
    lose_each(backend->renew, DLOCK_SHARED, 3);
}

/* ---- a server that is another one now ---------------------------------------------------------------------------- */

static void take(struct link *link, struct held *held) {
    held_new(held, link, "lock");
    assert_int_equal(acquire(link, held), 0);
}

/* The server is restarted between two renewals, and another client takes the lock. Its ids start again, so the first
 * holder's id is also the second one's: a renewal on a new connection would take the lock over. */
TEST(a_restart_is_no_renewal) {
    struct server restarted;
    struct link first, second;
    struct held lost, held;
    server_start(&restarted, NULL);
    await_grants(restarted.port);
    log_in(&first, restarted.port, 'a');
    take(&first, &lost);
    server_kill(&restarted);
    server_again(&restarted, NULL);
    await_grants(restarted.port);
    log_in(&second, restarted.port, 'b');
    take(&second, &held);
    assert_true(held.claim.state[0] == lost.claim.state[0]); /* the trap is set */
    for (int i = 0; i < 5; i++) assert_int_equal(run(&first, backend->renew, &lost), DLOCK_EUNAVAILABLE);
    for (int i = 0; i < 5; i++) assert_int_equal(run(&first, backend->release, &lost), DLOCK_EUNAVAILABLE);
    assert_int_equal(renew(&second, &held), 0);
    link_end(&first);
    link_end(&second);
    server_stop(&restarted);
}

/* ---- answers that are not whole ---------------------------------------------------------------------------------- */

enum { WHOLE = 24 + 4 + 4 + 40 };
static size_t said_of_item; /* of the answer to the look, before the connection ends */

/* Honest until the lock's item is read. */
static bool half_an_item(struct fake *fake, int fd, int i, const char *asked, size_t size) {
    (void)fake, (void)i;
    if (asked[1] != OPCODE_GETKQ || size != 24 + 4 || memcmp(asked + 24, "lock", 4) != 0)
        return answer_honestly(fd, asked);
    return answer_with(fd, asked, 0, "\0\0\0\0", "lock", "0123456789012345678901234567890123456789", said_of_item);
}

/* To libmemcached an item that it could not read is one that was not found: the release would answer that the lock is
 * lost, which is not known. */
TEST(half_an_item_is_not_none) {
    const size_t said[] = {0, 1, 23, 24, 26, 28, 30, 32, 50, WHOLE - 1};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        struct fake fake = {.converse = half_an_item};
        struct link link;
        struct held held;
        said_of_item = said[i];
        fake_start(&fake);
        log_in(&link, fake.port, 'a');
        held_new(&held, &link, "lock");
        const int rc = run(&link, backend->release, &held);
        if (rc != DLOCK_EUNAVAILABLE && rc != DLOCK_EPROTO)
            fail_msg("after %zu bytes: %d, with the result %d", said[i], rc, held.claim.result);
        fake_unlink(&fake, &link);
    }
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* A server that sends nothing more: the operation ends on its own, and its outcome is unknown. */
TEST(silence_is_no_answer) {
    enum { SHORT_MS = 300 };
    dlock_batch *const operations[] = {backend->acquire, backend->renew, backend->release};
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        struct relay *relay = relay_new(server.port);
        struct dlock_error err = {0};
        struct link link;
        struct held held;
        log_in(&link, relay_port(relay), 'a');
        held_new(&held, &link, "silence");
        if (i > 0) assert_int_equal(acquire(&link, &held), 0);
        relay_silence(relay);
        assert_int_equal(held_run(operations[i], &link, &held, 0, SHORT_MS, &err), DLOCK_EUNAVAILABLE);
        assert_non_null(strstr(err.message, "no answer in time"));
        link_end(&link);
        relay_end(relay);
        log_in(&link, server.port, 'a');
        run(&link, backend->release, &held);
        link_end(&link);
    }
}

static int start(void **state) {
    backend_load(state);
    server_start(&server, NULL);
    await_grants(server.port);
    return 0;
}

static int stop(void **state) {
    (void)state;
    server_stop(&server);
    return 0;
}

TESTS(NULL, NULL, start, stop)
