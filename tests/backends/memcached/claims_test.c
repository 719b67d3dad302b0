/* Acquire, renew and release: what they compare first, leave at the server and cost. */
#include "harness.h"
#include "support/group.h"
#include "support/pair.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int setup(void **state) {
    ask(&server, "flush_all");
    return group_pair(state);
}

/* The value of a key, or "". Lives until the next call. */
static const char *value_of(const char *key) {
    static char value[512];
    const char *text = ask(&server, "get %s", key), *line = strstr(text, "\r\n");
    value[0] = '\0';
    if (strncmp(text, "VALUE ", 6) == 0) snprintf(value, sizeof value, "%.*s", (int)strcspn(line + 2, "\r"), line + 2);
    return value;
}

/* ---- renewal and release ----------------------------------------------------------------------------------------- */

/* "incr" and "touch" of strangers do not ask who owns; a store does change the id. */
TEST(somebody_elses_store_is_a_loss) {
    struct held mine;
    claim_init(&mine, "taken", 'a', 1);
    assert_int_equal(acquire(&one, &mine), 0);
    ask(&server, "set taken 0 100 5\r\nthief");
    assert_int_equal(renew(&one, &mine), DLOCK_ELOST);
    assert_int_equal(release(&one, &mine), DLOCK_ELOST);
    assert_int_equal(acquire(&one, &mine), DLOCK_EBUSY);
    assert_string_equal(value_of("taken"), "thief");
}

TEST(a_value_that_only_begins_like_ours_is_not_ours) {
    struct held mine;
    claim_init(&mine, "alike", 'a', 1);
    ask(&server, "set alike 0 100 %zu\r\n%s!", strlen(mine.token) + 1, mine.token);
    assert_int_equal(acquire(&one, &mine), DLOCK_EBUSY);
    assert_int_equal(release(&one, &mine), DLOCK_ELOST);
    ask(&server, "set alike 0 100 %zu\r\n%.*s", strlen(mine.token) - 1, (int)strlen(mine.token) - 1, mine.token);
    assert_int_equal(acquire(&one, &mine), DLOCK_EBUSY);
    ask(&server, "set alike 0 100 0\r\n");
    assert_int_equal(acquire(&one, &mine), DLOCK_EBUSY);
}

/* ---- ids start again with the server ----------------------------------------------------------------------------- */

/* Stores of the first life, as many as it takes for the second one to reach the same id with another client's item. */
TEST(an_id_is_never_used_across_a_reconnect) {
    struct held mine, theirs;
    uint64_t id;
    server_kill(&server);
    server_again(&server, NULL);
    link_end(&one);
    link_to(&one, server.port, 'a');
    claim_init(&mine, "aba", 'a', 1);
    claim_init(&theirs, "aba", 'b', 1);
    assert_int_equal(acquire(&one, &mine), 0);
    id = mine.claim.state[0];
    server_kill(&server);
    server_again(&server, NULL);
    link_end(&one);
    link_end(&two);
    link_to(&two, server.port, 'b');
    link_to(&one, server.port, 'a');
    assert_int_equal(acquire(&two, &theirs), 0);
    assert_true(theirs.claim.state[0] == id); /* the trap is set */
    assert_int_equal(renew(&one, &mine), DLOCK_ELOST);
    assert_int_equal(release(&one, &mine), DLOCK_ELOST);
    assert_string_equal(value_of("aba"), theirs.token);
}

static uint64_t id_of(const char *key) {
    const char *text = ask(&server, "gets %s", key), *end = strstr(text, "\r\n");
    uint64_t id = 0;
    assert_true(strncmp(text, "VALUE ", 6) == 0 && end);
    while (end[-1] != ' ') end--;
    assert_int_equal(sscanf(end, "%" SCNu64, &id), 1);
    return id;
}

/* The time in the claim is that of the host which stored last: here of one that has been up for longer than ours. */
TEST(an_id_of_another_host_is_not_used) {
    struct held mine;
    server_kill(&server);
    server_again(&server, NULL);
    link_end(&one);
    link_end(&two);
    link_to(&one, server.port, 'a');
    link_to(&two, server.port, 'b');
    claim_init(&mine, "back", 'a', 1);
    assert_int_equal(acquire(&one, &mine), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(renew(&two, &mine), 0);
    mine.claim.state[1] = INT64_MAX;
    server_kill(&server);
    server_again(&server, NULL);
    link_end(&one);
    link_to(&one, server.port, 'a');
    do ask(&server, "set back 0 100 5\r\nthief");
    while (id_of("back") < mine.claim.state[0]);
    assert_true(id_of("back") == mine.claim.state[0]); /* the trap is set */
    assert_int_equal(renew(&one, &mine), DLOCK_ELOST);
    assert_int_equal(release(&one, &mine), DLOCK_ELOST);
    assert_string_equal(value_of("back"), "thief");
}

/* The claim of another process, whose clock says nothing here. */
TEST(an_id_of_another_client_is_not_used) {
    struct held mine;
    struct counts counts;
    claim_init(&mine, "moved", 'a', 1);
    assert_int_equal(acquire(&one, &mine), 0);
    await_tick(&server, &two);
    count(&server, NULL);
    assert_int_equal(renew(&two, &mine), 0);
    count(&server, &counts);
    assert_int_equal(counts.gets, servers_are_classic() ? 2 : 1);
    assert_int_equal(release(&two, &mine), 0);
}

TEST(fences_grow_across_a_restart) {
    struct held mine;
    uint64_t last = 0;
    claim_init(&mine, "life", 'a', 1);
    for (int life = 0; life < 3; life++) {
        for (int i = 0; i < 20; i++) {
            assert_int_equal(acquire(&one, &mine), 0);
            assert_true(mine.claim.fence > last);
            assert_true(mine.claim.fence < UINT64_C(1) << 55);
            last = mine.claim.fence;
            if (i % 2) assert_int_equal(renew(&one, &mine), 0);
            assert_int_equal(release(&one, &mine), 0);
        }
        server_kill(&server);
        sleep_ms(1100); /* its start is told in whole seconds */
        server_again(&server, NULL);
        link_end(&one);
        link_to(&one, server.port, 'a');
    }
}

/* ---- batches, names, arguments ----------------------------------------------------------------------------------- */

enum { MANY = 600 };

static int batch(dlock_batch *operation, struct link *link, struct held *held, size_t n) {
    struct dlock_claim *claims[MANY];
    struct dlock_error err = {0};
    for (size_t i = 0; i < n; i++) {
        claims[i] = &held[i].claim;
        claim_preset(claims[i]);
    }
    if (operation(link->conn, claims, n, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
    for (size_t i = 0; i < n; i++)
        if (held[i].claim.result) return held[i].claim.result;
    return 0;
}

TEST(many_at_once) {
    static struct held held[MANY];
    static char names[MANY][8];
    const int reserved = reservations(&server) * MANY;
    const int64_t stores = servers_are_classic() ? 3 * MANY : 2 * MANY, gets = stores - MANY + reserved;
    struct counts counts = {0};
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "n%04d", i);
        claim_init(&held[i], names[i], 'a', i);
    }
    /* Repeated if the server's clock was read in the meantime, and late: then leases are rightly set again. */
    for (int tries = 0; tries == 0 || (tries < 5 && (counts.stores != stores || counts.gets != gets)); tries++) {
        await_tick(&server, &one);
        count(&server, NULL);
        assert_int_equal(batch(backend->acquire, &one, held, MANY), 0);
        assert_int_equal(batch(backend->renew, &one, held, MANY), 0);
        assert_int_equal(batch(backend->release, &one, held, MANY), 0);
        count(&server, &counts);
    }
    assert_int_equal(counts.stores, stores);
    assert_int_equal(counts.gets, gets);
    assert_int_equal(counts.cas_hits, reserved + (servers_are_classic() ? 2 * MANY : MANY));
    assert_int_equal(counts.cas_misses, 0);
    assert_int_equal(counts.deletes, servers_are_classic() ? 0 : MANY);
    assert_string_equal(value_of("n0599"), "");
}

TEST(a_lease_ends_before_2038) {
    struct held held;
    struct dlock_error err = {0};
    claim_init(&held, "longer", 'a', 1);
    held.claim.lease_ms = INT64_C(20) * 366 * 86400 * 1000;
    assert_int_equal(held_run(backend->acquire, &one, &held, 0, TIMEOUT_MS, &err), 0);
    assert_int_equal(held.claim.result, DLOCK_EINVAL);
    assert_non_null(strstr(err.message, "before 2038"));
}

TEST(names_become_keys) {
    static const char *const names[][2] = {{"with space", "with%20space"},
                                           {"100%", "100%25"},
                                           {"\xc3\xa9t\xc3\xa9", "\xc3\xa9t\xc3\xa9"},
                                           {"a\xc2\xa0\xff\x80", "a\xc2\xa0\xff\x80"},
                                           {"noreply", "noreply"},
                                           {"a/b:c{d}", "a/b:c{d}"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct held mine;
        claim_init(&mine, names[i][0], 'a', 1);
        assert_int_equal(acquire(&one, &mine), 0);
        assert_string_equal(value_of(names[i][1]), mine.token);
        assert_int_equal(renew(&one, &mine), 0);
        assert_int_equal(release(&one, &mine), 0);
        assert_string_equal(value_of(names[i][1]), "");
    }
}

/* 255 bytes, of which memcached takes 250; and 255 times three. */
TEST(long_names_are_cut_and_stay_distinct) {
    static const char fillers[] = {'x', ' '};
    for (size_t i = 0; i < sizeof fillers; i++) {
        char name[2][256];
        struct held mine, theirs;
        memset(name, fillers[i], sizeof name);
        name[0][254] = 'a', name[1][254] = 'b';
        name[0][255] = name[1][255] = '\0';
        claim_init(&mine, name[0], 'a', 1);
        claim_init(&theirs, name[1], 'b', 1);
        assert_int_equal(acquire(&one, &mine), 0);
        assert_int_equal(acquire(&two, &theirs), 0);
        assert_int_equal(acquire(&one, &mine), 0);
        assert_int_equal(renew(&one, &mine), 0);
        assert_int_equal(release(&one, &mine), 0);
        assert_int_equal(release(&two, &theirs), 0);
    }
}

/* Names whose keys are the same: the value tells them apart, even for one token. */
TEST(a_cut_name_is_in_the_value) {
    char name[256], key[600], other[256];
    struct held mine;
    memset(name, 'y', 255);
    name[255] = '\0';
    dlock_encode_name(key, 251, name, " ", false);
    claim_init(&mine, name, 'a', 1);
    assert_int_equal(acquire(&one, &mine), 0);
    assert_memory_equal(value_of(key), mine.token, strlen(mine.token));
    assert_string_equal(value_of(key) + strlen(mine.token) + 1, name);
    memcpy(other, name, sizeof other);
    other[0] = 'z';
    ask(&server, "set %s 0 100 %zu\r\n%s %s", key, strlen(mine.token) + 256, mine.token, other);
    assert_int_equal(renew(&one, &mine), DLOCK_ELOST);
    assert_int_equal(acquire(&one, &mine), DLOCK_EBUSY);
}

TESTS(setup, pair_end, group_begin, group_end)
