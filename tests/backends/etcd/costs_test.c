/* What locks cost, through the backend's table of operations, on the server that tests/run.sh has started: requests are
 * counted, since each takes a round trip. */
#include "support/claim.h"
#include "support/held.h"
#include "support/relay.h"
#include "support/test.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 256 /* the most claims of a request */ };

static struct link link;
static struct relay *relay;
static struct held held[N];
static char names[N][32];
static struct dlock_claim *claims[N];
static atomic_int proofs, keep_alives, halves; /* halves: heads of requests that come without their body */

static int count(void *arg, size_t pair, bool first, const char *bytes, size_t size) {
    (void)arg, (void)pair, (void)first;
    if (memmem(bytes, size, "POST /v3/kv/txn", 15)) atomic_fetch_add(&proofs, 1);
    if (memmem(bytes, size, "POST ", 5) && size > 4 && memcmp(bytes + size - 4, "\r\n\r\n", 4) == 0)
        atomic_fetch_add(&halves, 1);
    if (memmem(bytes, size, "POST /v3/lease/keepalive", 24)) atomic_fetch_add(&keep_alives, 1);
    return RELAY_PASS;
}

static void run_all(dlock_batch *operation) {
    struct dlock_error err = {0};
    for (int i = 0; i < N; i++) claim_preset(claims[i]);
    if (operation(link.conn, claims, N, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
}

static void expect_results(int expected, int from, int to) {
    for (int i = from; i < to; i++) assert_int_equal(claims[i]->result, expected);
}

static int all_held(void **state) {
    const char *address = getenv("DLOCK_TEST_ETCD"), *colon = address ? strrchr(address, ':') : NULL;
    struct dlock_error err = {0};
    struct uri uri;
    (void)state;
    if (!colon) fail_msg("no server: run the tests with tests/run.sh");
    relay = relay_new(atoi(colon + 1));
    uri_init(&uri, relay_port(relay));
    uri.param[0] = (struct dlock_param){"session", "60s"};
    uri.parts.path = "/dlock/renewals";
    uri.parts.n_params = 1;
    if (link_try(&link, &uri.parts, 'a', 0, CONNECTS_MS, &err) != 0) fail_msg("connect: %s", err.message);
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "job-%03d", i);
        claim_init(&held[i], names[i], 'a', i);
        claims[i] = &held[i].claim;
    }
    run_all(backend->acquire);
    expect_results(0, 0, N);
    relay_watch(relay, count, NULL);
    atomic_store(&proofs, 0);
    atomic_store(&keep_alives, 0);
    return 0;
}

static int all_released(void **state) {
    (void)state;
    run_all(backend->release);
    link_end(&link);
    relay_end(relay);
    return 0;
}

TEST(all_renewals_of_a_call_are_one_request) {
    run_all(backend->renew);
    expect_results(0, 0, N);
    assert_int_equal(atomic_load(&proofs), 1);
    assert_int_equal(atomic_load(&keep_alives), 0);
    for (int i = 0; i < N; i++) assert_in_range(claims[i]->kept_ms, LEASE_MS, 60000);
}

/* Otherwise the server would wake up twice for each. */
TEST(requests_come_in_one_piece) {
    CLAIM_INIT(mine, "piece", 'a', N);
    atomic_store(&halves, 0);
    assert_int_equal(acquire(&link, &mine), 0);
    assert_int_equal(release(&link, &mine), 0);
    assert_int_equal(atomic_load(&halves), 0);
}

/* Deletes the key of a claim, as another client may. */
static void take_away(struct held *mine) {
    struct held copy = *mine;
    assert_int_equal(release(&link, &copy), 0);
}

/* The last one is among those that are compared as a whole, the first one among those that are read. */
TEST(grants_that_are_gone_are_told_apart) {
    for (int gone = 0; gone < N; gone += N - 1) {
        take_away(&held[gone]);
        atomic_store(&proofs, 0);
        run_all(backend->renew);
        assert_in_range(atomic_load(&proofs), 1, 2);
        for (int i = 0; i < N; i++) assert_int_equal(claims[i]->result, i == 0 || i == gone ? DLOCK_ELOST : 0);
    }
}

TESTS(all_held, all_released, backend_load, NULL)
