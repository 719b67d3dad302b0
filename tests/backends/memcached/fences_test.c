/* Fences grow in the order of the grants, whatever thread of the server a client talks to. */
#include "script.h"
#include "support/group.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- many clients ------------------------------------------------------------------------------------------------ */

enum { CLIENTS = 24, ROUND_MS = 3000 };

/* Each client's part in the contest for one name, until `until_ms`: it acquires again and again, and releases at
 * once. */
struct contest {
    enum dlock_mode mode;
    int64_t until_ms;
    atomic_uint_fast64_t last; /* the fence of the last grant; only its holder reads and writes it */
    atomic_int grants, backwards, failures;
};

struct client {
    struct contest *contest;
    struct link link;
    pthread_t thread;
};

static bool run(dlock_batch *operation, struct client *client, struct held *held) {
    const bool ran = claim_run(operation, client->link.conn, &held->claim, TIMEOUT_MS, NULL) == 0;
    if (!ran) atomic_fetch_add(&client->contest->failures, 1);
    return ran;
}

static void *contend(void *arg) {
    struct client *client = arg;
    struct contest *contest = client->contest;
    while (now_ms() < contest->until_ms && atomic_load(&contest->failures) == 0) {
        struct held held;
        held_new(&held, &client->link, "contended");
        held.claim.mode = contest->mode;
        held.claim.limit = contest->mode == DLOCK_PERMIT;
        if (!run(backend->acquire, client, &held) || held.claim.result != 0) continue;
        if (held.claim.fence <= atomic_exchange(&contest->last, held.claim.fence))
            atomic_fetch_add(&contest->backwards, 1);
        atomic_fetch_add(&contest->grants, 1);
        run(backend->release, client, &held);
    }
    return NULL;
}

static void check_contest(enum dlock_mode mode) {
    struct contest contest = {.mode = mode, .until_ms = now_ms() + ROUND_MS};
    static struct client clients[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        clients[i].contest = &contest;
        link_to(&clients[i].link, server.port, (char)('a' + i % 6));
        clients[i].link.tokens = i * 10000000; /* six letters for all of them */
    }
    for (int i = 0; i < CLIENTS; i++)
        assert_int_equal(pthread_create(&clients[i].thread, NULL, contend, &clients[i]), 0);
    for (int i = 0; i < CLIENTS; i++) pthread_join(clients[i].thread, NULL);
    for (int i = 0; i < CLIENTS; i++) link_end(&clients[i].link);
    print_message("%d grants, %d fences below their predecessor's\n", atomic_load(&contest.grants),
                  atomic_load(&contest.backwards));
    assert_int_equal(atomic_load(&contest.failures), 0);
    assert_true(atomic_load(&contest.grants) > 0);
    assert_int_equal(atomic_load(&contest.backwards), 0);
}

TEST(fences_of_a_contended_lock_grow) {
    check_contest(DLOCK_EXCLUSIVE);
}

TEST(fences_of_a_contended_permit_grow) {
    check_contest(DLOCK_PERMIT);
}

/* ---- reservations, to the letter --------------------------------------------------------------------------------- */

#define RESERVES(evictions) FAKE_VERSION(evictions, "NF", "EN")
#define ID "9828875956274201" /* of TOKEN */
#define RESERVE "mg clock N# E" ID "\r\n"
#define FILL "cas clock # # 33 " ID "\r\n" TOKEN "\r\ngets clock\r\n"
#define GRANTED                                            \
    {RESERVE FILL, "HD W\r\nSTORED\r\n" OURS(FRESH, 5)}, { \
        TIME, FAKE_CLOCK(1700100000)                       \
    }

/* The id of the store that follows the reservation is the fence. */
TEST(an_acquire_reserves_and_fills_in_one_packet) {
    static const struct line lines[] = {GRANTED,
                                        {CAS(5) "mg clock c t\r\n", "STORED\r\n" OURS(FIFTH, 6) "HD c6 t13\r\n"},
                                        {"md clock C6\r\n", "HD\r\n"},
                                        {NULL, NULL}};
    script_live(RESERVES("off"), lines, DLOCK_EXCLUSIVE, 1);
}

/* Another client's item is found, and has ended when it is read. */
TEST(a_reservation_that_meets_an_item_is_none) {
    static const struct line lines[] = {{RESERVE FILL, "HD\r\nEXISTS\r\nEND\r\n"},
                                        {TIME, FAKE_CLOCK(1700100000)},
                                        {RESERVE FILL "mg clock c t\r\n",
                                         "HD\r\nNOT_FOUND\r\nVALUE clock 0 4 7\r\nthem\r\nEND\r\nHD c7 t-1\r\n"},
                                        {NULL, NULL}};
    struct held held;
    assert_int_equal(script_run(RESERVES("off"), lines, backend->acquire, DLOCK_EXCLUSIVE, &held), DLOCK_EBUSY);
}

TEST(readers_reserve_too) {
#define LIST "dlock shared 0\n" TOKEN
    static const struct line lines[] = {{RESERVE "cas clock 0 # 70 " ID "\r\n" LIST " 0 0 10000 #\n\r\ngets clock\r\n",
                                         "HD W\r\nSTORED\r\nVALUE clock 0 70 5\r\n" LIST
                                         " 0 0 10000 1700100014\n\r\nEND\r\n"},
                                        {TIME, FAKE_CLOCK(1700100000)},
                                        {NULL, NULL}};
    struct held held;
    assert_int_equal(script_run(RESERVES("on"), lines, backend->acquire, DLOCK_SHARED, &held), 0);
    assert_true(held.claim.fence == FAKE_STARTED_US + 5);
}

/* After the lock was found held an acquire begins with a look, and so finds the reservation that its last try has left.
 * Ids of reservations are greater than all others, so the list must not contain one, which would make it unreadable. */
TEST(a_reader_that_looks_first_completes_its_reservation) {
#define LISTED "VALUE clock 0 70 8\r\n" LIST " 0 0 10000 1700100014\n\r\nEND\r\n"
#define LEFT "VALUE clock 0 0 " ID "\r\n\r\nEND\r\n"
    static const struct line lines[] = {{RESERVE "cas clock 0 # 70 " ID "\r\n" LIST " 0 0 10000 #\n\r\ngets clock\r\n",
                                         "HD\r\nEXISTS\r\nVALUE clock 0 4 7\r\nthem\r\nEND\r\n"},
                                        {TIME, FAKE_CLOCK(1700100001)},
                                        {"gets clock\r\n", LEFT},
                                        {"gets clock\r\n", LEFT},
                                        {"cas clock 0 # 70 " ID "\r\n" LIST " 0 0 10000 #\n\r\ngets clock\r\n",
                                         "STORED\r\n" LISTED},
                                        {NULL, NULL}};
    struct fake fake = {0};
    struct held held;
    struct link link;
    script_link(&fake, &link, RESERVES("on"), lines);
    claim_init(&held, "clock", 'a', 1);
    held.claim.mode = DLOCK_SHARED;
    assert_int_equal(acquire(&link, &held), DLOCK_EBUSY);
    assert_int_equal(acquire(&link, &held), 0);
    assert_true(held.claim.fence == FAKE_STARTED_US + 8);
    script_unlink(&fake, &link);
}

/* It does not say whether it is for a lock or for permits: they may come a moment later. */
TEST(permits_wait_for_a_reservation) {
    static const struct line lines[] = {{RESERVE "cas clock 0 # 70 " ID "\r\ndlock permit 3\n" TOKEN
                                                 " 0 0 10000 #\n\r\ngets clock\r\n",
                                         "HD\r\nEXISTS\r\nVALUE clock 0 0 9828875956274202\r\n\r\nEND\r\n"},
                                        {TIME, FAKE_CLOCK(1700100000)},
                                        {NULL, NULL}};
    struct held held;
    assert_int_equal(script_run(RESERVES("on"), lines, backend->acquire, DLOCK_PERMIT, &held), DLOCK_EBUSY);
}

static int told(const char *answer) {
    const struct line lines[] = {{RESERVE FILL, answer}, {TIME, FAKE_CLOCK(1700100000)}, {NULL, NULL}};
    struct fake fake = {0};
    struct held held;
    struct link link;
    script_link(&fake, &link, RESERVES("off"), lines);
    claim_init(&held, "clock", 'a', 1);
    int rc = held_run(backend->acquire, &link, &held, 0, TIMEOUT_MS, NULL);
    script_unlink(&fake, &link);
    return rc;
}

TEST(what_a_reservation_says) {
    static const char *const senseless[] = {"HDW\r\n",     "VA 0\r\n",  "NF\r\n",
                                            "STORED\r\n",  "ERROR\r\n", "HD W\r\nNOT_STORED\r\n",
                                            "HD\r\nHD\r\n"};
    for (size_t i = 0; i < sizeof senseless / sizeof *senseless; i++)
        if (told(senseless[i]) != DLOCK_EPROTO) fail_msg("%s", senseless[i]);
    assert_int_equal(told("EN\r\nSERVER_ERROR out of memory storing object\r\n"), DLOCK_EUNAVAILABLE);
    assert_int_equal(told("HD W\r\nSERVER_ERROR out of memory storing object\r\n"), DLOCK_EUNAVAILABLE);
}

/* ---- reservations that nothing followed -------------------------------------------------------------------------- */

/* Leaves one for the first token of client a, as a connection does that is cut in the middle of a packet. */
static void leave_reserved(const char *name) {
    if (!reservations(&server)) skip();
    assert_string_equal(ask(&server, "mg %s N100 E" ID, name), "HD W\r\n");
}

static struct held claim_of(const char *name, char client, enum dlock_mode mode) {
    struct held held;
    claim_init(&held, name, client, 1);
    held.claim.mode = mode;
    return held;
}

/* struct held points into itself. */
#define CLAIM(name_, key, client, mode)              \
    struct held name_ = claim_of(key, client, mode); \
    name_.claim.token = name_.token

static const char *item_of(const char *name) {
    return ask(&server, "gets %s", name);
}

static int ignored(const struct dlock_info *info, void *arg) {
    (void)info;
    ++*(int *)arg;
    return 0;
}

TEST(a_reservation_keeps_others_out) {
    CLAIM(writer, "kept", 'b', DLOCK_EXCLUSIVE);
    CLAIM(reader, "kept", 'b', DLOCK_SHARED);
    struct link link;
    int shown = 0;
    leave_reserved("kept");
    link_to(&link, server.port, 'b');
    assert_int_equal(acquire(&link, &writer), DLOCK_EBUSY);
    assert_int_equal(acquire(&link, &reader), DLOCK_EBUSY);
    assert_int_equal(release(&link, &writer), DLOCK_ELOST);
    assert_int_equal(release(&link, &reader), DLOCK_ELOST);
    assert_string_equal(item_of("kept"), "VALUE kept 0 0 " ID "\r\n\r\nEND\r\n");
    assert_int_equal(backend->inspect(link.conn, "kept", ignored, &shown, TIMEOUT_MS, NULL), 0);
    assert_int_equal(shown, 0); /* the name is free */
    assert_int_equal(backend->break_lock(link.conn, "kept", TIMEOUT_MS, NULL), 0);
    assert_int_equal(acquire(&link, &writer), 0);
    assert_int_equal(release(&link, &writer), 0);
    link_end(&link);
}

static void check_own_reservation(const char *name, enum dlock_mode mode) {
    CLAIM(mine, name, 'a', mode);
    struct link link;
    leave_reserved(name);
    link_to(&link, server.port, 'a');
    assert_int_equal(renew(&link, &mine), DLOCK_ELOST);
    assert_int_equal(acquire(&link, &mine), 0);
    assert_true(mine.claim.fence < FAKE_STARTED_US * 2);
    assert_int_equal(release(&link, &mine), 0);
    assert_string_equal(item_of(name), "END\r\n");
    leave_reserved(name);
    assert_int_equal(release(&link, &mine), 0); /* of an acquire without an answer */
    assert_string_equal(item_of(name), "END\r\n");
    link_end(&link);
}

TEST(its_own_token_completes_a_reservation_or_ends_it) {
    check_own_reservation("mine", DLOCK_EXCLUSIVE);
    check_own_reservation("ours", DLOCK_SHARED);
}

TESTS(NULL, NULL, group_begin, group_end)
