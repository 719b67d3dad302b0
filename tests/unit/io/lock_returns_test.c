/* A backend's operation may not return a number that says nothing about the connection. If it does, the outcome of the
 * request is unknown, and the connection ends. */
#include "fixture.h"

#include <limits.h>

enum { UNKNOWN = -99 };

/* They are results of claims, or not defined at all. */
static const int numbers[] = {DLOCK_EBUSY, DLOCK_ENOTREADY, DLOCK_ELOST, DLOCK_ECANCELED, 7, UNKNOWN, INT_MIN};
enum { N_NUMBERS = sizeof numbers / sizeof *numbers };

TEST(an_acquire_that_returns_one_is_an_error) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    for (int i = 0; i < N_NUMBERS; i++) {
        struct dlock_error err = {0};
        unsigned disconnects = fake_calls(FAKE_DISCONNECT);
        fake_return(FAKE_ACQUIRE, numbers[i], 1);
        assert_int_equal(dlock_acquire(lock, 0, &err), DLOCK_EPROTO);
        assert_int_equal(err.code, DLOCK_EPROTO);
        assert_non_null(strstr(err.message, "backend fake: acquire returned "));
        assert_int_equal(fake_calls(FAKE_DISCONNECT), disconnects + 1);
        assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
        assert_int_equal(dlock_release(lock, NULL), 0);
        fake_advance_ms(2 * LEASE_MS); /* the acquire may come late until then */
    }
}

/* As if unanswered: it is repeated until it succeeds or the grant is over. */
TEST(a_renewal_that_returns_one_renews_nothing) {
    for (int i = 0; i < N_NUMBERS; i++) {
        struct lost_count lost = {0};
        dlock_client *client = client_new("fake:");
        dlock_lock *lock = watched_lock(client, "n", &lost);
        assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
        fake_return(FAKE_RENEW, numbers[i], 3);
        fake_advance_ms(2 * LEASE_MS);
        assert_int_equal(fake_faults_left(), 0);
        assert_true(dlock_held(lock));
        assert_int_equal(lost.calls, 0);
        struct dlock_stats stats = DLOCK_STATS_INIT;
        assert_int_equal(dlock_client_stats(client, &stats, NULL), 0);
        assert_int_equal(stats.renewal_failures, 3);

        fake_return(FAKE_RENEW, numbers[i], 100000);
        int64_t valid_until_us = dlock__now_us() + dlock_remaining_ms(lock) * 1000;
        fake_advance_ms(LEASE_MS);
        assert_false(dlock_held(lock));
        assert_int_equal(lost.calls, 1);
        assert_in_range(lost.at_us, valid_until_us - 1000, valid_until_us + 1000);
        assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
        fake_faults_clear();
        client_end(client);
        fake_advance_ms(2 * LEASE_MS);
    }
}

/* The server still has the grant: the release is repeated. */
TEST(a_release_that_returns_one_is_sent_again) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    for (int i = 0; i < N_NUMBERS; i++) {
        struct dlock_error err = {0};
        assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
        fake_return(FAKE_RELEASE, numbers[i], 1);
        assert_int_equal(dlock_release(lock, &err), DLOCK_EPROTO);
        assert_int_equal(err.code, DLOCK_EPROTO);
        fake_advance_ms(1000);
        assert_string_equal(fake_holder("n").token, "");
    }
}

/* Also the results of claims: an extension is refused, and it returns an error of dlock.h. */
static int claim_result;

static void edit_result(struct dlock_claim *claim) {
    claim->result = claim_result;
}

TEST(so_is_a_renewal_with_a_result_that_says_nothing) {
    static const int results[] = {DLOCK_EBUSY, DLOCK_ENOTREADY, DLOCK_ECANCELED, DLOCK_EOWNER, 7, UNKNOWN, INT_MIN};
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *actor = actor_new();
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        claim_result = results[i];
        fake_edit(FAKE_RENEW, edit_result, 1);
        assert_int_equal(extend_by(actor, lock, 0), DLOCK_EPROTO);
        fake_advance_ms(LEASE_MS);
        assert_true(held_by(actor, lock));
    }
    assert_int_equal(release_by(actor, lock), 0);
}

static int ignore(const struct dlock_info *info, void *arg) {
    (void)info;
    (void)arg;
    return 0;
}

/* Other codes are passed on, but what is no code is no result of dlock.h. */
TEST(so_is_a_question_of_an_operator_that_returns_no_code) {
    static const int none[] = {7, UNKNOWN, INT_MIN, 1, INT_MAX};
    dlock_client *client = client_new("fake:");
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        struct dlock_error err = {0};
        fake_return(FAKE_INSPECT, none[i], 1);
        assert_int_equal(dlock_inspect(client, "n", ignore, NULL, &err), DLOCK_EPROTO);
        assert_int_equal(err.code, DLOCK_EPROTO);
        assert_non_null(strstr(err.message, "backend fake: inspect returned "));
        assert_int_equal(dlock_inspect(client, "n", ignore, NULL, &err), 0);
    }
}

/* Without a listener, which would also connect. */
TEST(so_is_one_for_which_a_connect_returns_one) {
    dlock_lock *lock = lock_new(client_new("fakepoll:"), "n");
    for (int i = 0; i < N_NUMBERS; i++) {
        assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
        fake_server_cut();
        fake_return(FAKE_CONNECT, numbers[i], 1);
        assert_int_equal(dlock_release(lock, NULL), DLOCK_EPROTO);
        assert_int_equal(fake_faults_left(), 0);
        fake_advance_ms(1000);
        assert_string_equal(fake_holder("n").token, "");
    }
}

/* ---- backends of this file's own ---- */

static int connect_at_once(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                           struct dlock_error *err) {
    (void)conn, (void)uri, (void)peer, (void)timeout_ms, (void)err;
    return 0;
}

static void disconnect(void *conn) {
    (void)conn;
}

static int no_claims(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    (void)conn, (void)claims, (void)n, (void)timeout_ms;
    return dlock_fail(err, DLOCK_EPROTO, "not asked for in these tests");
}

static void register_own(struct dlock_backend own) {
    own.abi = DLOCK_ABI;
    own.size = sizeof own;
    own.conn_size = 1;
    own.connect = connect_at_once;
    own.disconnect = disconnect;
    own.acquire = own.renew = own.release = no_claims;
    assert_int_equal(dlock_register(&own, NULL), 0);
}

static int accepts_number;

static int accepts(const struct dlock_uri *uri, struct dlock_error *err) {
    (void)uri, (void)err;
    return accepts_number;
}

TEST(so_is_a_judgement_of_a_uri_that_returns_one) {
    static const char *const schemes[] = {"fakejudge", NULL};
    register_own((struct dlock_backend){.name = "fakejudge", .schemes = schemes, .accepts = accepts});
    for (int i = 0; i < N_NUMBERS; i++) {
        struct dlock_error err = {0};
        dlock_client *client;
        accepts_number = numbers[i];
        assert_int_equal(dlock_open("fakejudge:", NULL, &client, &err), DLOCK_EPROTO);
        assert_int_equal(err.code, DLOCK_EPROTO);
        assert_non_null(strstr(err.message, "backend fakejudge: accepts returned "));
    }
    accepts_number = 0;
    client_new("fakejudge:");
}

enum { PAGES = 1000 };
static int pages;

/* Has one page more each time, and always the same one. */
static int list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
                struct dlock_error *err) {
    (void)conn, (void)prefix, (void)each, (void)arg, (void)timeout_ms, (void)err;
    snprintf(cursor, 256, "the first page");
    return ++pages < PAGES;
}

TEST(so_is_a_list_that_does_not_get_on) {
    static const char *const schemes[] = {"fakelist", NULL};
    struct dlock_error err = {0};
    register_own((struct dlock_backend){.name = "fakelist", .schemes = schemes, .caps = DLOCK_CAP_LIST, .list = list});
    assert_int_equal(dlock_list(client_new("fakelist:"), "", ignore, NULL, &err), DLOCK_EPROTO);
    assert_int_equal(err.code, DLOCK_EPROTO);
    assert_non_null(strstr(err.message, "backend fakelist: list "));
    assert_int_equal(pages, 2);
}

static int refuse(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err) {
    (void)conn, (void)name, (void)each, (void)arg, (void)timeout_ms, (void)err;
    return DLOCK_EAUTH;
}

static int break_none(void *conn, const char *name, int timeout_ms, struct dlock_error *err) {
    (void)conn, (void)name, (void)timeout_ms, (void)err;
    return DLOCK_ENOTSUP;
}

TEST(a_question_that_fails_without_a_message_gets_one) {
    static const char *const schemes[] = {"fakemute", NULL};
    struct dlock_error err;
    register_own((struct dlock_backend){.name = "fakemute",
                                        .schemes = schemes,
                                        .caps = DLOCK_CAP_INSPECT | DLOCK_CAP_BREAK,
                                        .inspect = refuse,
                                        .break_lock = break_none});
    dlock_client *client = client_new("fakemute:");
    assert_int_equal(dlock_inspect(client, "n", ignore, NULL, &err), DLOCK_EAUTH);
    assert_int_equal(err.code, DLOCK_EAUTH);
    assert_string_equal(err.message, dlock_strerror(DLOCK_EAUTH));
    assert_int_equal(dlock_break(client, "n", &err), DLOCK_ENOTSUP);
    assert_int_equal(err.code, DLOCK_ENOTSUP);
    assert_string_equal(err.message, dlock_strerror(DLOCK_ENOTSUP));
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
