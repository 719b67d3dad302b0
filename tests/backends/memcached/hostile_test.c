/* A server that lies, stutters, floods, says nothing or goes away: an error in time, and the right one. */
#include "harness.h"
#include "support/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { SHORT_MS = 300, SLACK_MS = 3000 };

#define TOKEN "aaaaaaaaaaaaaaaaaaaaaaaa.1@test:1"
#define OURS "VALUE hostile 0 33 5\r\n" TOKEN "\r\nEND\r\n"
#define OTHERS "VALUE hostile 0 4 5\r\nthem\r\nEND\r\n"

enum operation { ACQUIRE, RENEW, RELEASE, BREAK, INSPECT, LIST };

static int ignore(const struct dlock_info *info, void *arg) {
    (void)info, (void)arg;
    return 0;
}

/* `result` is that of the claim, and means something when 0 is returned. */
static int operate(struct link *link, enum operation operation, int *result, struct dlock_error *err) {
    struct held held;
    struct dlock_claim *claim = &held.claim;
    char cursor[256] = "";
    int rc = DLOCK_EINVAL;
    claim_init(&held, "hostile", 'a', 1);
    switch (operation) {
    case ACQUIRE: rc = backend->acquire(link->conn, &claim, 1, SHORT_MS, err); break;
    case RENEW: rc = backend->renew(link->conn, &claim, 1, SHORT_MS, err); break;
    case RELEASE: rc = backend->release(link->conn, &claim, 1, SHORT_MS, err); break;
    case BREAK: rc = backend->break_lock(link->conn, "hostile", SHORT_MS, err); break;
    case INSPECT: rc = backend->inspect(link->conn, "hostile", ignore, NULL, SHORT_MS, err); break;
    case LIST: rc = backend->list(link->conn, "host", cursor, ignore, NULL, SHORT_MS, err); break;
    }
    *result = claim->result;
    return rc;
}

static void assert_answer_is(enum operation operation, const char *answer, const char *then, int code) {
    struct fake fake = {.answers = FAKE_SAYS(answer, then)};
    struct dlock_error err = {0};
    struct link link;
    int result, rc;
    fake_link(&fake, &link);
    rc = operate(&link, operation, &result, &err);
    if (rc != code) fail_msg("%d on \"%s\": %d, not %d: %s", operation, answer, rc, code, err.message);
    assert_int_equal(err.code, code);
    assert_true(strlen(err.message) > 0);
    for (const char *p = err.message; *p; p++) assert_in_range((unsigned char)*p, 0x20, 0x7e);
    /* It cannot be used any more, whatever still comes. */
    assert_true(operate(&link, operation, &result, &err) != 0);
    fake_unlink(&fake, &link);
}

/* ---- malformed answers ------------------------------------------------------------------------------------------- */

static char *long_text(const char *before, char filler, size_t n, const char *after) {
    char *text = malloc(strlen(before) + n + strlen(after) + 1);
    assert_non_null(text);
    sprintf(text, "%s", before);
    memset(text + strlen(before), filler, n);
    sprintf(text + strlen(before) + n, "%s", after);
    return text;
}

TEST(nonsense_is_said_to_be_so) {
    static const char *const answers[] = {
        "220 mail.example ESMTP\r\n", /* of these, half abort or crash libmemcached */
        "OK\r\n", "\r\n", "VERSION\r\n", "VERSION 1.6.18\r\n", "ITEM\r\n", "TOUCHED\r\n", "5\r\n", "STAT a b\r\n",
        "DELETED\r\n", "STORED_AND_MORE\r\n", "STOREDEND\r\n", "EXISTS\r\n", "NOT_FOUND\r\n", "END\r\n", "ERROR\r\n",
        "CLIENT_ERROR bad command line format\r\n", "\x80\x01 binary\r\n", "STORED\a\r\n", "STORED\a and more\r\n",
        "\xe2\x98\xba\r\n", "\033[31mred\r\n",
        /* after an honest beginning */
        "STORED\r\nSTORED\r\n", "STORED\r\nEND \r\n", "STORED\r\nVALUE\r\n", "STORED\r\nVALUE \r\n",
        "STORED\r\nVALUE hostile\r\n", "STORED\r\nVALUE hostile 0 33\r\n" TOKEN "\r\nEND\r\n", /* no id */
        "STORED\r\nVALUE hostile 0 33 0\r\n" TOKEN "\r\nEND\r\n",                              /* memcached -C */
        "STORED\r\nVALUE hostile 0 33 -1\r\n" TOKEN "\r\nEND\r\n",
        "STORED\r\nVALUE hostile 0 33 x\r\n" TOKEN "\r\nEND\r\n",
        "STORED\r\nVALUE hostile 0 33 18446744073709551615\r\n" TOKEN "\r\nEND\r\n", /* a fence beyond 2^55 */
        "STORED\r\nVALUE hostile 0 33 18446744073709551616\r\n" TOKEN "\r\nEND\r\n",
        "STORED\r\nVALUE hostile 0 33 5 6\r\n" TOKEN "\r\nEND\r\n",
        "STORED\r\nVALUE hostile -1 33 5\r\n" TOKEN "\r\nEND\r\n",
        "STORED\r\nVALUE hostile 4294967296 33 5\r\n" TOKEN "\r\nEND\r\n",
        "STORED\r\nVALUE another 0 33 5\r\n" TOKEN "\r\nEND\r\n", /* a late answer */
        "STORED\r\nVALUE hostile2 0 33 5\r\n" TOKEN "\r\nEND\r\n",
        "STORED\r\nVALUE hostileX0 33 5\r\n" TOKEN "\r\nEND\r\n",
        "STORED\r\nVALUE hostile 0 33 18446744073709551621\r\n" TOKEN "\r\nEND\r\n", /* 5, if it were to wrap */
        "STORED\r\nVALUE host 0 33 5\r\n" TOKEN "\r\nEND\r\n",
        "STORED\r\nVALUE hostile 0 32 5\r\n" TOKEN "\r\nEND\r\n", /* another length than it says */
        "STORED\r\nVALUE hostile 0 18446744073709551615 5\r\n" TOKEN "\r\nEND\r\n",
        "STORED\r\nVALUE hostile 0 18446744073709551614 5\r\n" TOKEN "\r\nEND\r\n",
        "STORED\r\nVALUE hostile 0 99999999999 5\r\n" TOKEN "\r\nEND\r\n",
        "STORED\r\n"
        "VALUE hostile 0 33 5\r\n" TOKEN "\r\nVALUE hostile 0 33 5\r\n" TOKEN "\r\nEND\r\n",
        NULL};
    for (int i = 0; answers[i]; i++) assert_answer_is(ACQUIRE, answers[i], NULL, DLOCK_EPROTO);
}

TEST(nonsense_to_the_other_operations) {
    for (int operation = RENEW; operation <= INSPECT; operation++) {
        assert_answer_is((enum operation)operation, "OK\r\n", NULL, DLOCK_EPROTO);
        assert_answer_is((enum operation)operation, "STORED\r\n", NULL, DLOCK_EPROTO);
        assert_answer_is((enum operation)operation, "VALUE hostile 0 33 0\r\n" TOKEN "\r\nEND\r\n", NULL, DLOCK_EPROTO);
    }
    for (int operation = RENEW; operation <= BREAK; operation++) {
        assert_answer_is((enum operation)operation, OURS, "NOT_STORED\r\n", DLOCK_EPROTO);
        assert_answer_is((enum operation)operation, OURS, "OK\r\n", DLOCK_EPROTO);
    }
}

TEST(nonsense_to_a_list) {
    static const char *const answers[] = {"220 mail.example ESMTP\r\n",
                                          "STORED\r\n",
                                          "VALUE hostile 0 33 5\r\n" TOKEN "\r\nEND\r\n",
                                          "OK\r\nkey=\r\n",
                                          "key=hostile\r\n",
                                          "key=a exp=1\r\nOK\r\n",
                                          "key=a exp=1\r\nBUSY\r\n",
                                          "key=a exp=1\r\nERROR\r\n",
                                          "BADCLASS invalid class id\r\n",
                                          "key=a exp=1\r\nEND \r\n",
                                          NULL};
    for (int i = 0; answers[i]; i++) assert_answer_is(LIST, answers[i], NULL, DLOCK_EPROTO);
    /* Keys that no lock has, and then one that has. */
    char *keys = long_text("key= exp=1\r\nkey=%zz exp=1\r\nkey=%0 exp=1\r\nkey=%00 exp=1\r\nkey=", 'k', 251,
                           " exp=1\r\nkey=hostile exp=1\r\nEND\r\n");
    struct fake fake = {.answers = FAKE_SAYS(keys, OURS)};
    struct link link;
    int result;
    fake_link(&fake, &link);
    assert_int_equal(operate(&link, LIST, &result, NULL), 0);
    fake_unlink(&fake, &link);
    free(keys);
    assert_answer_is(LIST, "key=hostile exp=1\r\nEND\r\n", "VALUE another 0 33 5\r\n" TOKEN "\r\nEND\r\n",
                     DLOCK_EPROTO);
    assert_answer_is(LIST, "SERVER_ERROR out of memory\r\n", NULL, DLOCK_EUNAVAILABLE);
    assert_answer_is(LIST, "BUSY currently processing crawler request\r\n", NULL, DLOCK_EUNAVAILABLE);
    assert_answer_is(LIST, "CLIENT_ERROR unauthenticated\r\n", NULL, DLOCK_EAUTH);
    assert_answer_is(LIST, "CLIENT_ERROR lru crawler disabled\r\n", NULL, DLOCK_ENOTSUP);
    assert_answer_is(LIST, "ERROR metadump not allowed\r\n", NULL, DLOCK_ENOTSUP);
    assert_answer_is(LIST, "ERROR\r\n", NULL, DLOCK_ENOTSUP);
}

/* An acquire from a server that knows `mg`, and says `answer` to it. */
static int acquire_with_ttl(const char *answer, int *result, struct dlock_error *err) {
    struct fake fake = {.greeting = {FAKE_SETTINGS("on", "NF")}};
    struct link link;
    char *whole = long_text("STORED\r\n" OURS, ' ', 0, answer);
    int rc;
    fake.answers = FAKE_SAYS("STORED\r\n" OURS, whole);
    fake_link(&fake, &link);
    assert_int_equal(operate(&link, ACQUIRE, result, err), 0); /* asks for `stats` */
    rc = operate(&link, ACQUIRE, result, err);
    fake_unlink(&fake, &link);
    free(whole);
    return rc;
}

TEST(answers_about_the_end_of_an_item) {
    static const char *const useless[] = {"EN\r\n",        "HD c5 t-1\r\n",          "HD c5 tx\r\n", "HD c5 t9 t9\r\n",
                                          "HD c6 t10\r\n", "HD c5 t99999999999\r\n", "HD c5 t10\r\n"};
    static const char *const senseless[] = {"ERROR\r\n",     "HD\r\n", "HD c5\r\n", "HD cx t10\r\n",
                                            "HD t10 c5\r\n", "OK\r\n", "END\r\n"};
    struct dlock_error err = {0};
    int result;
    for (size_t i = 0; i < sizeof useless / sizeof *useless; i++) {
        assert_int_equal(acquire_with_ttl(useless[i], &result, &err), 0);
        assert_int_equal(result, 0);
    }
    for (size_t i = 0; i < sizeof senseless / sizeof *senseless; i++)
        assert_int_equal(acquire_with_ttl(senseless[i], &result, &err), DLOCK_EPROTO);
}

TEST(lines_and_values_without_end) {
    char *answers[] = {long_text("", 'x', 100000, "\r\n"),
                       long_text("STORED\r\nVALUE ", 'k', 340, " 0 1 1\r\nx\r\nEND\r\n"),
                       long_text("STORED\r\nVALUE hostile ", '1', 5000, " 0 1 1\r\nx\r\nEND\r\n"),
                       long_text("CLIENT_ERROR ", 'x', 3000, "\r\n")};
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        assert_answer_is(ACQUIRE, answers[i], NULL, DLOCK_EPROTO);
        free(answers[i]);
    }
}

/* 1 MB that another client has stored under the name: a foreign value, whatever it is. */
TEST(a_big_value_is_read_and_not_kept) {
    char *big = long_text("NOT_STORED\r\nVALUE hostile 0 1048576 5\r\n", 'x', 1048576, "\r\nEND\r\n");
    struct fake fake = {.answers = FAKE_SAYS(big)};
    struct link link;
    struct held held;
    struct dlock_claim *claim = &held.claim;
    fake_link(&fake, &link);
    claim_init(&held, "hostile", 'a', 1);
    assert_int_equal(backend->acquire(link.conn, &claim, 1, SLACK_MS, NULL), 0);
    assert_int_equal(claim->result, DLOCK_EBUSY);
    fake_unlink(&fake, &link);
    free(big);
}

TEST(trouble_of_the_server_is_an_unknown_outcome) {
    static const char *const answers[] = {"SERVER_ERROR out of memory storing object\r\n", "SERVER_ERROR\r\n",
                                          "ERROR Too many open connections\r\n",
                                          "STORED\r\nSERVER_ERROR out of memory writing get response\r\n"};
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++)
        assert_answer_is(ACQUIRE, answers[i], NULL, DLOCK_EUNAVAILABLE);
    assert_answer_is(RENEW, OURS, "SERVER_ERROR out of memory storing object\r\n", DLOCK_EUNAVAILABLE);
    assert_answer_is(RELEASE, OURS, "SERVER_ERROR out of memory storing object\r\n", DLOCK_EUNAVAILABLE);
    assert_answer_is(RENEW, "CLIENT_ERROR unauthenticated\r\n", NULL, DLOCK_EAUTH);
}

/* ---- answers that make sense, and are not what one hopes for
 * --------------------------------------------------------- */

static void assert_result(enum operation operation, const char *answer, const char *then, int expected) {
    struct fake fake = {.answers = FAKE_SAYS(answer, then)};
    struct dlock_error err = {0};
    struct link link;
    int result = 1, rc;
    fake_link(&fake, &link);
    rc = operate(&link, operation, &result, &err);
    if (rc) fail_msg("%s: %s", answer, err.message);
    if (result != expected) fail_msg("%s: %d, not %d", answer, result, expected);
    fake_unlink(&fake, &link);
}

TEST(only_what_was_read_back_is_a_grant) {
    assert_result(ACQUIRE, "STORED\r\n" OURS, NULL, 0);
    assert_result(ACQUIRE, "STORED\r\n" OTHERS, NULL, DLOCK_EBUSY); /* gone at once, and another client came */
    assert_result(ACQUIRE, "STORED\r\nEND\r\n", NULL, DLOCK_EBUSY); /* evicted at once, each time */
    assert_result(ACQUIRE, "NOT_STORED\r\nEND\r\n", "STORED\r\n" OURS, 0);
    assert_result(ACQUIRE, "NOT_STORED\r\n" OURS, "STORED\r\n" OURS, 0);
    assert_result(ACQUIRE, "NOT_STORED\r\n" OURS, "EXISTS\r\n" OTHERS, DLOCK_EBUSY);
    assert_result(RENEW, OURS, "STORED\r\n" OURS, 0);
    assert_result(RENEW, OURS, "STORED\r\nEND\r\n", DLOCK_ELOST); /* flushed in between */
    assert_result(RENEW, OURS, "STORED\r\n" OTHERS, DLOCK_ELOST);
    assert_result(RENEW, OURS, "NOT_FOUND\r\nEND\r\n", DLOCK_ELOST);
    assert_result(RENEW, OURS, "NOT_FOUND\r\n" OTHERS, DLOCK_ELOST);
    assert_result(RENEW, OURS, "EXISTS\r\n" OTHERS, DLOCK_ELOST);
    assert_result(RENEW, OTHERS, NULL, DLOCK_ELOST);
    assert_result(RELEASE, OURS, "STORED\r\n", 0);
    assert_result(RELEASE, OURS, "NOT_FOUND\r\n", DLOCK_ELOST);
    assert_result(RELEASE, OTHERS, NULL, DLOCK_ELOST);
    assert_result(RELEASE, "END\r\n", NULL, DLOCK_ELOST);
}

/* Each cas finds another change: the retries end. */
TEST(a_change_in_every_round_ends) {
    struct fake fake = {.answers = FAKE_SAYS(OURS, "EXISTS\r\n" OURS)};
    struct dlock_error err = {0};
    struct link link;
    int result;
    fake_link(&fake, &link);
    assert_int_equal(operate(&link, RENEW, &result, &err), DLOCK_EUNAVAILABLE);
    assert_in_range(atomic_load(&fake.requests), 5, 50);
    fake_unlink(&fake, &link);
}

/* A list that others change before each of the first `changes` stores. */
static atomic_int changes;

#define OTHER_READER "dlock shared 0\nother 5 0 100000 4000000000\n"
#define OTHER_LIST "VALUE hostile 0 43 5\r\n" OTHER_READER "\r\nEND\r\n"
#define LIST_WITH_US "VALUE hostile 0 98 6\r\n" OTHER_READER TOKEN " 0 5 10000 1700100014\n\r\nEND\r\n"

static bool change_the_list(struct fake *fake, int fd, int i, const char *request, size_t size) {
    const char *text = "NOT_STORED\r\n" OTHER_LIST;
    (void)fake;
    if (i == 0)
        text = FAKE_GREETING;
    else if (size > 5 && strncmp(request, "stats", 5) == 0)
        text = FAKE_CLOCK(1700100000);
    else if (size > 4 && strncmp(request, "gets", 4) == 0)
        text = OTHER_LIST;
    else if (size > 3 && strncmp(request, "cas", 3) == 0)
        text = atomic_fetch_sub(&changes, 1) > 0 ? "EXISTS\r\n" OTHER_LIST : "STORED\r\n" LIST_WITH_US;
    return send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text);
}

static int join_the_list(int times, int timeout_ms, struct dlock_error *err) {
    struct fake fake = {.converse = change_the_list};
    struct link link;
    struct held held;
    atomic_store(&changes, times);
    fake_link(&fake, &link);
    claim_init(&held, "hostile", 'a', 1);
    held.claim.mode = DLOCK_SHARED;
    assert_int_equal(held_run(backend->acquire, &link, &held, 0, timeout_ms, err), 0);
    fake_unlink(&fake, &link);
    return held.claim.result;
}

/* As many as can hold a name, and more: all of them came first, once. */
TEST(a_reader_comes_through_in_the_end) {
    struct dlock_error err = {0};
    if (join_the_list(200, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
}

/* Nothing was stored, which is sure: so the connection stays, and the claim may be asked for again. */
TEST(a_list_that_always_changes_is_busy) {
    struct dlock_error err = {0};
    int64_t begin = now_ms();
    assert_int_equal(join_the_list(INT32_MAX, SHORT_MS, &err), DLOCK_EBUSY);
    assert_in_range(now_ms() - begin, 0, SHORT_MS + SLACK_MS);
    assert_non_null(strstr(err.message, "other clients changed the item"));
}

/* An answer to nothing would be the answer to the next request. */
TEST(an_answer_too_many_is_noticed) {
    struct fake fake = {.answers = FAKE_SAYS(OURS, "STORED\r\nSTORED\r\n")};
    struct link link;
    int result;
    fake_link(&fake, &link);
    assert_int_equal(operate(&link, RELEASE, &result, NULL), 0);
    assert_int_equal(operate(&link, RELEASE, &result, NULL), DLOCK_EUNAVAILABLE);
    fake_unlink(&fake, &link);
}

/* ---- greetings --------------------------------------------------------------------------------------------------- */

TEST(greetings_without_sense_are_refused) {
    static const struct {
        const char *greeting;
        int code;
    } cases[] = {
        {"220 mail.example ESMTP\r\n", DLOCK_EPROTO},
        {"-ERR unknown command 'stats'\r\n", DLOCK_EPROTO}, /* a Redis */
        {"HTTP/1.1 400 Bad Request\r\n", DLOCK_EPROTO},
        {"END\r\nEND\r\n", DLOCK_EPROTO},
        {"STAT uptime 5\r\nEND\r\nEND\r\n", DLOCK_EPROTO},
        {"STAT time 1700000000\r\nEND\r\nEND\r\n", DLOCK_EPROTO},
        {"STAT uptime 1700000001\r\nSTAT time 1700000000\r\nEND\r\nEND\r\n", DLOCK_EPROTO},
        {"STAT uptime 5\r\nSTAT time 99999999999999\r\nEND\r\nEND\r\n", DLOCK_EPROTO},
        {"STAT uptime -5\r\nSTAT time 1700000000\r\nEND\r\nEND\r\n", DLOCK_EPROTO},
        {"STAT uptime 5 \r\nSTAT time 1700000000\r\nEND\r\nEND\r\n", DLOCK_EPROTO},
        {"STAT\r\nEND\r\nEND\r\n", DLOCK_EPROTO},
        {"STAT uptime 5\r\nSTAT time 1700000000\r\nEND\r\nSTAT cas_enabled no\r\nEND\r\n", DLOCK_ENOTSUP},
        {"ERROR Too many open connections\r\n", DLOCK_EUNAVAILABLE},
        {"CLIENT_ERROR unauthenticated\r\n", DLOCK_EAUTH},
        {"", DLOCK_EUNAVAILABLE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fake fake = {.greeting = {cases[i].greeting}};
        struct dlock_error err = {0};
        struct link link;
        const int rc = fake_try(&fake, &link, SHORT_MS, &err);
        if (rc != cases[i].code) fail_msg("\"%s\": %d: %s", cases[i].greeting, rc, err.message);
        fake_unlink(&fake, &link);
    }
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

static void assert_late(struct fake *fake, enum operation operation) {
    struct dlock_error err = {0};
    struct link link;
    int result;
    int64_t begin;
    fake_link(fake, &link);
    begin = now_ms();
    assert_int_equal(operate(&link, operation, &result, &err), DLOCK_EUNAVAILABLE);
    assert_in_range(now_ms() - begin, SHORT_MS - 5, SHORT_MS + SLACK_MS);
    fake_unlink(fake, &link);
}

TEST(silence_ends_in_time) {
    for (int operation = ACQUIRE; operation <= INSPECT; operation++) {
        struct fake fake = {.port = 0};
        assert_late(&fake, (enum operation)operation);
    }
}

/* Each byte arrives in time, the whole does not. libmemcached's timeout would start again with each byte. */
TEST(a_dribble_ends_in_time) {
    for (int operation = ACQUIRE; operation <= INSPECT; operation++) {
        struct fake fake = {.answers = FAKE_SAYS(operation == ACQUIRE ? "STORED\r\n" OURS : OURS), .drip_ms = 50};
        assert_late(&fake, (enum operation)operation);
    }
}

/* Each answer takes two thirds of the time: one deadline for both. */
TEST(several_requests_share_one_deadline) {
    struct fake fake = {.answers = FAKE_SAYS(OURS, "STORED\r\n" OURS),
                        .drip_ms = (SHORT_MS * 2 / 3) / (int)(sizeof OURS - 1)};
    assert_late(&fake, RENEW);
}

TEST(a_flood_ends_in_time) {
    char *flood = long_text("", 'x', 60000, "");
    struct fake values = {.answers = FAKE_SAYS("NOT_STORED\r\nVALUE hostile 0 1073741824 5\r\n"), .flood = flood};
    assert_late(&values, ACQUIRE);
    free(flood);
    struct fake keys = {.answers = FAKE_SAYS("key=hostile exp=1\r\n"), .flood = "key=hostile2 exp=1\r\n"};
    assert_late(&keys, LIST);
}

TEST(a_greeting_by_drops_ends_in_time) {
    struct fake fake = {.drip_ms = 30, .drip_greeting = true};
    struct dlock_error err = {0};
    struct link link;
    int64_t begin = now_ms();
    assert_int_equal(fake_try(&fake, &link, SHORT_MS, &err), DLOCK_EUNAVAILABLE);
    assert_in_range(now_ms() - begin, SHORT_MS - 5, SHORT_MS + SLACK_MS);
    fake_unlink(&fake, &link);
}

/* Claims whose requests are more than the socket or the connection's buffer holds. */
enum { BIG = 256 };

static struct held big[BIG];
static struct dlock_claim *big_claims[BIG];

static void make_big_batch(void) {
    static char names[BIG][201];
    for (int i = 0; i < BIG; i++) {
        snprintf(names[i], sizeof names[i], "%03d", i);
        memset(names[i] + 3, 'n', 197);
        claim_init(&big[i], names[i], 'a', i);
        big_claims[i] = &big[i].claim;
    }
}

/* A server that does not read takes no more than the socket holds. */
TEST(deafness_ends_in_time) {
    struct fake fake = {.deaf = true};
    struct dlock_error err = {0};
    struct link link;
    int64_t begin;
    make_big_batch();
    fake_link(&fake, &link);
    begin = now_ms();
    assert_int_equal(backend->acquire(link.conn, big_claims, BIG, SHORT_MS, &err), DLOCK_EUNAVAILABLE);
    assert_in_range(now_ms() - begin, SHORT_MS - 5, SHORT_MS + SLACK_MS);
    fake_unlink(&fake, &link);
}

/* It has gone away: the first send is answered by a reset, and the second would raise SIGPIPE. */
TEST(no_signal_is_raised) {
    struct fake fake = {.close_greeted = true};
    struct dlock_error err = {0};
    struct link link;
    make_big_batch();
    fake_link(&fake, &link);
    sleep_ms(100);
    assert_int_equal(backend->acquire(link.conn, big_claims, BIG, SHORT_MS, &err), DLOCK_EUNAVAILABLE);
    fake_unlink(&fake, &link);
}

/* ---- how connections end ----------------------------------------------------------------------------------------- */

static void wait_until(atomic_int *counter) {
    for (int64_t until = now_ms() + 5000; !atomic_load(counter) && now_ms() < until;) sleep_ms(5);
}

/* A late duplicate must not arrive: unanswered requests are cut off, not flushed. */
TEST(an_unanswered_request_is_reset) {
    struct fake fake = {.port = 0};
    struct link link;
    int result;
    fake_link(&fake, &link);
    assert_int_equal(operate(&link, ACQUIRE, &result, NULL), DLOCK_EUNAVAILABLE);
    backend->disconnect(link.conn);
    wait_until(&fake.reset);
    assert_int_equal(atomic_load(&fake.reset), 1);
    assert_int_equal(atomic_load(&fake.eof), 0);
    fake_unlink(&fake, &link); /* a second disconnect does nothing */
}

TEST(an_answered_one_is_not) {
    struct fake fake = {.answers = FAKE_SAYS("STORED\r\n" OURS)};
    struct link link;
    int result;
    fake_link(&fake, &link);
    assert_int_equal(operate(&link, ACQUIRE, &result, NULL), 0);
    backend->disconnect(link.conn);
    wait_until(&fake.eof);
    assert_int_equal(atomic_load(&fake.eof), 1);
    fake_unlink(&fake, &link);
}

TEST(a_server_that_goes_away_is_unavailable) {
    struct fake fake = {.answers = FAKE_SAYS("STORED\r\nVALUE hos"), .close_after = true};
    struct dlock_error err = {0};
    struct link link;
    int result;
    int64_t begin = now_ms();
    fake_link(&fake, &link);
    assert_int_equal(operate(&link, ACQUIRE, &result, &err), DLOCK_EUNAVAILABLE);
    assert_true(now_ms() - begin < SHORT_MS + SLACK_MS);
    assert_int_equal(operate(&link, ACQUIRE, &result, &err), DLOCK_EUNAVAILABLE);
    fake_unlink(&fake, &link);
}

TESTS(NULL, NULL, backend_load, NULL)
