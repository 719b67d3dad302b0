/* The guardian releases a dead client's grants on a server that is slow, refuses some of them, or is away. The server
 * here decides how much fake time its answers take. */
#include "release.h"
#include "support/test.h"

#include "fake_env.h"

#include <dlock/dlock.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOCKS = 2000, TIMEOUT_MS = 3000, LEASE_MS = 30000, REPEAT_MS = 1000, BROKEN = 700 };

/* ---- the server -------------------------------------------------------------------------------------------------- */

static struct server {
    bool down;
    int takes_ms;       /* a request */
    size_t at_most;     /* claims that it answers in one request */
    const char *broken; /* a request about this name is never answered, in all the time that it has */
    int connects;
    int released[LOCKS], renewed[LOCKS];
    int64_t last_us[LOCKS];
} server;

static int slow_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                        struct dlock_error *err) {
    (void)conn, (void)uri, (void)peer;
    server.connects++;
    if (!server.down) return 0;
    fake_jump_ms(timeout_ms);
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "nobody there");
}

static void slow_disconnect(void *conn) {
    (void)conn;
}

static int no_batch(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    (void)conn, (void)claims, (void)n, (void)timeout_ms;
    return dlock_fail(err, DLOCK_EPROTO, "nobody asks for this");
}

static int count_renewals(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                          struct dlock_error *err) {
    (void)conn, (void)timeout_ms, (void)err;
    for (size_t i = 0; i < n; i++) {
        claims[i]->result = 0;
        server.renewed[atoi(claims[i]->name)]++;
    }
    return 0;
}

static int slow_release(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                        struct dlock_error *err) {
    (void)conn;
    fake_jump_ms(server.takes_ms < timeout_ms ? server.takes_ms : timeout_ms);
    if (server.takes_ms > timeout_ms) return dlock_fail(err, DLOCK_EUNAVAILABLE, "too slow");
    for (size_t i = 0; i < n; i++)
        if (server.broken && strcmp(claims[i]->name, server.broken) == 0)
            return fake_jump_ms(timeout_ms), dlock_fail(err, DLOCK_EUNAVAILABLE, "a broken name");
    for (size_t i = 0; i < n; i++) {
        int lock = atoi(claims[i]->name);
        claims[i]->result = i < server.at_most ? 0 : DLOCK_EUNAVAILABLE;
        if (i >= server.at_most) continue;
        server.released[lock]++;
        server.last_us[lock] = dlock__now_us();
    }
    return 0;
}

static const char *const schemes[] = {"slow", NULL};
static const struct dlock_backend slow = {.abi = DLOCK_ABI,
                                          .size = sizeof slow,
                                          .name = "slow",
                                          .conn_size = 1,
                                          .schemes = schemes,
                                          .caps = DLOCK_CAP_FENCE | DLOCK_CAP_LOCAL,
                                          .connect = slow_connect,
                                          .disconnect = slow_disconnect,
                                          .acquire = no_batch,
                                          .renew = count_renewals,
                                          .release = slow_release};

/* ---- the estate -------------------------------------------------------------------------------------------------- */

static struct dlock__guard_table *table;
static int table_fd;

static int register_slow(void **state) {
    (void)state;
    return dlock_register(&slow, NULL);
}

static int setup(void **state) {
    (void)state;
    fake_env_reset(1);
    memset(&server, 0, sizeof server);
    server.at_most = LOCKS;
    server.takes_ms = 1;
    table = dlock__guard_table_new("slow:", NULL, &table_fd);
    assert_non_null(table);
    for (int i = 0; i < LOCKS; i++) {
        struct dlock__guard_entry *entry = dlock__guard_entry(table, dlock__guard_table_grow(table));
        snprintf(entry->name, sizeof entry->name, "%04d", i);
        snprintf(entry->token, sizeof entry->token, "0123456789abcdef01234567.%d", i);
        entry->lease_ms = LEASE_MS;
        atomic_store(&entry->used, 1);
    }
    return 0;
}

static int teardown(void **state) {
    (void)state;
    dlock__guard_table_free(table);
    close(table_fd);
    return 0;
}

/* Returns how long it took. */
static int64_t release_all(void) {
    int64_t died_us = dlock__now_us();
    struct dlock__estate *estate = dlock__estate_open(table);
    assert_non_null(estate);
    dlock__estate_release(estate, died_us);
    dlock__estate_free(estate);
    return (dlock__now_us() - died_us) / 1000;
}

/* Each of them, and once more when what the dead process had sent can be on its way no longer. */
static void expect_released(int64_t died_us, int but) {
    for (int i = 0; i < LOCKS; i++) {
        if (i == but) continue;
        if (server.released[i] == 0) fail_msg("lock %d is not released", i);
        if (server.last_us[i] < died_us + REPEAT_MS * 1000) fail_msg("lock %d is not released again", i);
    }
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* Every request takes its time, and all together longer than one may: they are no single operation. */
TEST(a_slow_server_is_asked_for_all) {
    int64_t died_us = dlock__now_us();
    server.takes_ms = 1200;
    release_all();
    expect_released(died_us, -1);
    assert_int_equal(server.connects, 1); /* no request was given up */
    for (int i = 0; i < LOCKS; i++) assert_in_range(server.released[i], 1, 2);
}

/* A release that was answered is not sent again before all are. */
TEST(half_an_answer_is_no_new_beginning) {
    int64_t died_us = dlock__now_us();
    server.takes_ms = 10;
    server.at_most = 10;
    release_all();
    expect_released(died_us, -1);
    for (int i = 0; i < LOCKS; i++) assert_in_range(server.released[i], 1, 2);
}

/* One request that is never answered keeps no other from being sent. */
TEST(a_broken_name_is_in_nobodys_way) {
    char name[8];
    int64_t died_us = dlock__now_us();
    snprintf(name, sizeof name, "%04d", BROKEN);
    server.broken = name;
    server.takes_ms = 100;
    release_all();
    int missing = 0;
    for (int i = 0; i < LOCKS; i++) missing += server.released[i] == 0;
    assert_true(missing <= 256); /* others in the same request */
    assert_int_equal(server.released[BROKEN], 0);
    assert_true(server.released[LOCKS - 1] > 0);
    assert_true(dlock__now_us() - died_us >= (int64_t)LEASE_MS * 1000); /* as long as it may be held */
}

TEST(an_absent_server_is_tried_until_all_leases_are_over) {
    server.down = true;
    assert_in_range(release_all(), LEASE_MS, LEASE_MS + REPEAT_MS + TIMEOUT_MS);
    assert_true(server.connects >= LEASE_MS / TIMEOUT_MS);
    for (int i = 0; i < LOCKS; i++) assert_int_equal(server.released[i], 0);
}

/* While a group outlives its kill: the dead process renewed each lease every third of it, so a third may be over. */
TEST(renewals_follow_the_shortest_lease) {
    enum { SHORT_MS = 6000 };
    dlock__guard_entry(table, 7)->lease_ms = SHORT_MS;
    struct dlock__estate *estate = dlock__estate_open(table);
    assert_non_null(estate);
    assert_in_range(dlock__estate_patience_us(estate), 1, SHORT_MS * 1000 / 3);
    int64_t begun_us = dlock__now_us();
    assert_in_range(dlock__estate_renew(estate) - begun_us, 1, SHORT_MS * 1000 / 3);
    dlock__estate_free(estate);
}

/* It ends when it would have ended with its holder alive. */
TEST(a_fixed_lease_is_not_renewed) {
    dlock__guard_entry(table, 7)->fixed = 1;
    struct dlock__estate *estate = dlock__estate_open(table);
    assert_non_null(estate);
    for (int pass = 1; pass <= 3; pass++) {
        dlock__estate_renew(estate);
        for (int i = 0; i < LOCKS; i++) assert_int_equal(server.renewed[i], i == 6 ? 0 : pass);
    }
    dlock__estate_free(estate);
}

TESTS(setup, teardown, register_slow, NULL)
