/* The meta commands of 1.6: which requests use them, when, and what their answers mean. */
#include "script.h"

#include <stdio.h>
#include <stdlib.h>

/* The lock is acquired, renewed and released. */
static void live(const char *greeting, const struct line *lines) {
    script_live(greeting, lines, DLOCK_EXCLUSIVE, 1);
}

#define TAKEN                             \
    {ADD, "STORED\r\n" OURS(FRESH, 5)}, { \
        TIME, FAKE_CLOCK(1700100000)      \
    }
#define ASK_TTL "mg clock c t\r\n"
#define MS(flags, id) MS_(flags, id)
#define MS_(flags, id) "ms clock 33 T# F" #flags " C" #id " c\r\n" TOKEN "\r\n" ASK_TTL
#define CLASSIC_END(id) "cas clock 0 2592001 0 " #id "\r\n\r\n"

TEST(a_server_that_evicts_gets_meta_sets) {
    static const struct line lines[] = {
        TAKEN, {MS(FIFTH, 5), "HD c6\r\nHD c6 t13\r\n"}, {"md clock C6\r\n", "HD\r\n"}, {NULL, NULL}};
    static const struct line with_size[] = {TAKEN,
                                            {MS(FIFTH, 5), "HD c6 s35\r\nHD c6 t13\r\n"}, /* as 1.6.20 */
                                            {"md clock C6\r\n", "HD\r\n"},
                                            {NULL, NULL}};
    live(FAKE_SETTINGS("on", "NF"), lines);
    live(FAKE_SETTINGS("on", "EX"), with_size);
    assert_in_range(script_numbers[3], START, START + LEASE_MS / 1000 + 4);
}

static int count_shown(const struct dlock_info *info, void *arg) {
    assert_string_equal(info->name, "clock");
    assert_string_equal(info->token, TOKEN);
    ++*(int *)arg;
    return 0;
}

static int listed(const char *greeting, const struct line *lines) {
    struct fake fake = {0};
    struct dlock_error err = {0};
    struct link link;
    char cursor[256] = "";
    int shown = 0;
    script_link(&fake, &link, greeting, lines);
    int rc = backend->list(link.conn, "cl", cursor, count_shown, &shown, TIMEOUT_MS, &err);
    script_unlink(&fake, &link);
    if (rc) fail_msg("%s", err.message);
    return shown;
}

#define DUMP(walk) "lru_crawler metadump " walk "\r\n"
#define KEYS "key=other exp=1 cas=4\r\nkey=clock exp=1 cas=5\r\nkey=%63lock exp=1\r\nEND\r\n"
#define LOOK \
    { "gets clock\r\n", OURS(FRESH, 5) }

/* The walk of the hash table once, where a client that does not read stops nobody. Elsewhere the other one, until it
 * finds nothing more, and again while the server walks for others. */
TEST(keys_are_walked_as_the_server_can) {
    static const struct line once[] = {{DUMP("hash"), "OK\r\n" KEYS}, LOOK, {NULL, NULL}};
    static const struct line often[] = {{DUMP("all"), "END\r\n"},
                                        {DUMP("all"), "BUSY currently processing crawler request\r\n"},
                                        {DUMP("all"), KEYS},
                                        {DUMP("all"), "END\r\n"},
                                        LOOK,
                                        {NULL, NULL}};
    static const struct line moving[] = {{DUMP("all"), KEYS}, {DUMP("all"), KEYS}, LOOK, {NULL, NULL}};
    static const char *const new[] = {"1.6.19", "1.6.40_beta1", "1.7.0", "1.10.1", "2.0.0"};
    static const char *const old[] = {"1.6.18", "1.5.22", "0.9.99", "1.6", "x"};
    char greeting[500];
    for (size_t i = 0; i < sizeof new / sizeof *new; i++) {
        snprintf(greeting, sizeof greeting, "STAT version %s\r\n" FAKE_GREETING, new[i]);
        assert_int_equal(listed(greeting, once), 1);
        snprintf(greeting, sizeof greeting, "STAT version %s\r\n" FAKE_GREETING, old[i]);
        assert_int_equal(listed(greeting, i % 2 ? moving : often), 1);
    }
}

/* A meta set that finds no memory frees the lock that it was to keep. */
TEST(a_server_that_never_evicts_gets_none) {
    static const struct line lines[] = {TAKEN,
                                        {CAS(5) ASK_TTL, "STORED\r\n" OURS(FIFTH, 6) "HD c6 t13\r\n"},
                                        {"md clock C6\r\n", "HD\r\n"},
                                        {NULL, NULL}};
    live(FAKE_SETTINGS("off", "NF"), lines);
}

/* A server from before 1.6, one from before 1.6.18, and what a proxy may say. */
TEST(others_get_classic_commands) {
    static const struct line lines[] = {TAKEN,
                                        {CAS(5), "STORED\r\n" OURS(FIFTH, 6)},
                                        {TIME, FAKE_CLOCK(1700100000)},
                                        {CLASSIC_END(6), "STORED\r\n"},
                                        {NULL, NULL}};
    live(FAKE_SETTINGS("on", "ERROR"), lines);
    live(FAKE_SETTINGS("on", "NF "), lines);
    live(FAKE_SETTINGS("on", "CLIENT_ERROR bad command line format"), lines);
}

TEST(any_other_answer_is_no_server_of_ours) {
    static const char *const greetings[] = {FAKE_SETTINGS("on", "HD"), FAKE_SETTINGS("on", "NS"),
                                            FAKE_SETTINGS("on", "OK"), FAKE_SETTINGS("on", "")};
    for (size_t i = 0; i < sizeof greetings / sizeof *greetings; i++) {
        struct fake fake = {.greeting = {greetings[i]}};
        struct link link;
        assert_int_equal(fake_try(&fake, &link, TIMEOUT_MS, NULL), DLOCK_EPROTO);
        fake_unlink(&fake, &link);
    }
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* A renewal, or a release, that is told `answer`, and whose look at the item is told `then`. */
static int operate(dlock_batch *operation, const char *answer, const char *then, int *result) {
    const bool renews = operation == backend->renew;
    const struct line lines[] = {TAKEN,
                                 {renews ? MS(FIFTH, 5) : "md clock C5\r\n", answer},
                                 {"gets clock\r\n", then},
                                 {TIME, FAKE_CLOCK(1700100000)}};
    struct fake fake = {0};
    struct held held;
    struct link link;
    script_link(&fake, &link, FAKE_SETTINGS("on", "NF"), lines);
    claim_init(&held, "clock", 'a', 1);
    assert_int_equal(acquire(&link, &held), 0);
    int rc = held_run(operation, &link, &held, 0, TIMEOUT_MS, NULL);
    *result = held.claim.result;
    script_unlink(&fake, &link);
    return rc;
}

static void assert_lost(dlock_batch *operation, const char *answer, const char *then) {
    int result;
    assert_int_equal(operate(operation, answer, then, &result), 0);
    assert_int_equal(result, DLOCK_ELOST);
}

#define OTHERS "VALUE clock 0 4 7\r\nthem\r\nEND\r\n"

TEST(what_a_meta_set_says) {
    static const char *const senseless[] = {
        "HD\r\n",       "HD \r\n",    "HD c\r\n",  "HD cx\r\n",    "HD c0\r\n",      "HD c6 t5\r\n",
        "HD c6 s\r\n",  "HD  c6\r\n", "HDc6\r\n",  "HD c-6\r\n",   "HD c6 s1 s\r\n", "HD c18446744073709551615\r\n",
        "HD c6 c6\r\n", "NS\r\n",     "NS c0\r\n", "STORED\r\n",   "OK\r\n",         "VA 33 c6\r\n",
        "MN\r\n",       "EN\r\n",     "ERROR\r\n", "NOT_FOUND\r\n"};
    int result;
    for (size_t i = 0; i < sizeof senseless / sizeof *senseless; i++)
        if (operate(backend->renew, senseless[i], NULL, &result) != DLOCK_EPROTO) fail_msg("%s", senseless[i]);
    assert_int_equal(operate(backend->renew, "SERVER_ERROR out of memory storing object\r\n", NULL, &result),
                     DLOCK_EUNAVAILABLE);
    assert_lost(backend->renew, "NF c0\r\nEN\r\n", NULL);
    assert_lost(backend->renew, "EX c0\r\nEN\r\n", OTHERS);
    assert_lost(backend->renew, "EX\r\nEN\r\n", "END\r\n");
}

TEST(what_a_meta_delete_says) {
    static const char *const senseless[] = {"NS\r\n",     "HD c5\r\n", "HD \r\n",       "DELETED\r\n", "STORED\r\n",
                                            "EXISTS\r\n", "EN\r\n",    "NOT_FOUND\r\n", "OK\r\n",      "ERROR\r\n"};
    int result;
    for (size_t i = 0; i < sizeof senseless / sizeof *senseless; i++)
        if (operate(backend->release, senseless[i], NULL, &result) != DLOCK_EPROTO) fail_msg("%s", senseless[i]);
    assert_lost(backend->release, "NF\r\n", NULL);
    assert_lost(backend->release, "EX\r\n", OTHERS);
}

/* The flags have 19 bits for the id of the grant: they were written before the new id was known. */
TEST(an_id_that_went_too_far_is_noted_as_unknown) {
    static const struct line lines[] = {TAKEN,
                                        {MS(FIFTH, 5), "HD c1000000\r\nHD c1000000 t13\r\n"},
                                        {MS(FORGOTTEN, 1000000), "HD c1000001\r\nHD c1000001 t13\r\n"},
                                        {"md clock C1000001\r\n", "HD\r\n"},
                                        {NULL, NULL}};
    live(FAKE_SETTINGS("on", "NF"), lines);
}

/* The item may have changed since it was looked at. */
TEST(a_break_compares) {
    static const struct line lines[] = {{"gets clock\r\n", OURS(FRESH, 5)}, {"md clock C5\r\n", "EX\r\n"},
                                        {"gets clock\r\n", OURS(FRESH, 7)}, {"md clock C7\r\n", "HD\r\n"},
                                        {"gets clock\r\n", OURS(FRESH, 9)}, {"md clock C9\r\n", "NF\r\n"},
                                        {"gets clock\r\n", "END\r\n"},      {NULL, NULL}};
    struct fake fake = {0};
    struct link link;
    script_link(&fake, &link, FAKE_SETTINGS("on", "NF"), lines);
    assert_int_equal(backend->break_lock(link.conn, "clock", TIMEOUT_MS, NULL), 0);
    assert_int_equal(backend->break_lock(link.conn, "clock", TIMEOUT_MS, NULL), DLOCK_ELOST);
    script_unlink(&fake, &link);
}

/* A reader alone, whose id the list bears. */
TEST(a_list_of_one_is_renewed_the_same_way) {
#define LIST "dlock shared 0\n" TOKEN
    static const struct line lines[] = {
        {"add clock 0 # 70\r\n" LIST " 0 0 10000 #\n\r\ngets clock\r\n",
         "STORED\r\nVALUE clock 0 70 5\r\n" LIST " 0 0 10000 1700100014\n\r\nEND\r\n"},
        {TIME, FAKE_CLOCK(1700100000)},
        {"ms clock 70 T# F0 C5 c\r\n" LIST " 5 5 10000 #\n\r\n" ASK_TTL, "HD c6\r\nHD c6 t13\r\n"},
        {"ms clock 70 T# F0 C6 c\r\n" LIST " 5 6 10000 #\n\r\n" ASK_TTL, "EX c0\r\nEN\r\n"},
        {"gets clock\r\n", "VALUE clock 0 70 8\r\n" LIST " 5 6 10000 1700100014\n\r\nEND\r\n"},
        {"cas clock 0 # 70 8\r\n" LIST " 5 8 10000 #\n\r\ngets clock\r\n",
         "STORED\r\nVALUE clock 0 70 9\r\n" LIST " 5 8 10000 1700100014\n\r\nEND\r\n"},
        {TIME, FAKE_CLOCK(1700100000)},
        {"md clock C9\r\n", "HD\r\n"},
        {NULL, NULL}};
    script_live(FAKE_SETTINGS("on", "NF"), lines, DLOCK_SHARED, 2);
}

TESTS(NULL, NULL, backend_load, NULL)
