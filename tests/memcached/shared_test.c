/* Names that several hold: readers, permits, downgrades, and what stands in the item. */
#include "harness.h"
#include "support/group.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static struct link links[3]; /* clients a, b and c */

static int connect_all(void **state) {
    (void)state;
    ask(&server, "flush_all");
    for (int i = 0; i < 3; i++) link_to(&links[i], server.port, (char)('a' + i));
    return 0;
}

static int disconnect_all(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) link_end(&links[i]);
    return 0;
}

static struct held claim_of(int client, const char *name, enum dlock_mode mode, uint32_t limit) {
    static int serial;
    struct held held;
    claim_init(&held, name, (char)('a' + client), ++serial);
    held.claim.mode = mode;
    held.claim.limit = limit;
    return held;
}

/* A struct held that was copied still points into the first one. */
static void own(struct held *held) {
    held->claim.token = held->token;
}

#define CLAIM(name_, client, key, mode, limit)              \
    struct held name_ = claim_of(client, key, mode, limit); \
    own(&name_)
#define READER(name_, client, key) CLAIM(name_, client, key, DLOCK_SHARED, 0)
#define WRITER(name_, client, key) CLAIM(name_, client, key, DLOCK_EXCLUSIVE, 0)

static bool is_free(const char *key) {
    return strcmp(ask(&server, "get %s", key), "END\r\n") == 0;
}

static int try_explained(struct link *link, struct held *held, char why[512]) {
    struct dlock_error err = {0};
    assert_int_equal(held_run(backend->acquire, link, held, 0, TIMEOUT_MS, &err), 0);
    snprintf(why, 512, "%s", err.message);
    return held->claim.result;
}

/* ---- who gets in ------------------------------------------------------------------------------------------------- */

static void readers_keep_writers_out(void **state) {
    READER(first, 0, "room");
    READER(second, 1, "room");
    WRITER(writer, 2, "room");
    WRITER(hasty, 2, "room"); /* one that asked for long would leave word */
    WRITER(late, 2, "room");
    (void)state;
    assert_int_equal(acquire(&links[0], &first), 0);
    assert_int_equal(acquire(&links[2], &hasty), DLOCK_EBUSY);
    assert_int_equal(acquire(&links[1], &second), 0);
    assert_true(second.claim.fence > first.claim.fence);
    assert_int_equal(acquire(&links[2], &late), DLOCK_EBUSY);
    assert_string_equal(ask(&server, "add room 0 10 1\r\nx"), "NOT_STORED\r\n"); /* whoever knows nothing of lists */
    assert_int_equal(release(&links[0], &first), 0);
    assert_int_equal(release(&links[0], &first), DLOCK_ELOST);
    assert_int_equal(acquire(&links[2], &writer), DLOCK_EBUSY);
    assert_int_equal(renew(&links[1], &second), 0);
    assert_int_equal(release(&links[1], &second), 0);
    assert_true(is_free("room"));
    assert_int_equal(acquire(&links[2], &writer), 0);
    assert_true(writer.claim.fence > second.claim.fence);
    assert_int_equal(acquire(&links[0], &first), DLOCK_EBUSY);
    ask(&server, "set room 0 10 1\r\nx"); /* a stranger's lock */
    assert_int_equal(acquire(&links[0], &first), DLOCK_EBUSY);
}

static void readers_know_their_fences(void **state) {
    READER(first, 0, "fences");
    READER(second, 1, "fences");
    uint64_t fences[2];
    (void)state;
    assert_int_equal(acquire(&links[0], &first), 0);
    fences[0] = first.claim.fence;
    assert_int_equal(acquire(&links[0], &first), 0); /* asked again, alone */
    assert_true(first.claim.fence == fences[0]);
    assert_int_equal(acquire(&links[1], &second), 0);
    fences[1] = second.claim.fence;
    assert_int_equal(renew(&links[0], &first), 0);
    for (int i = 0; i < 2; i++) { /* asked again by others' side, with nothing remembered */
        memset(first.claim.state, 0, sizeof first.claim.state);
        memset(second.claim.state, 0, sizeof second.claim.state);
        assert_int_equal(acquire(&links[2], &first), 0);
        assert_int_equal(acquire(&links[2], &second), 0);
        assert_true(first.claim.fence == fences[0] && second.claim.fence == fences[1]);
    }
    assert_int_equal(release(&links[2], &second), 0);
    assert_int_equal(release(&links[0], &first), 0);
    assert_true(is_free("fences"));
}

static void a_downgrade_keeps_the_fence(void **state) {
    (void)state;
    for (int round = 0; round < 3; round++) {
        WRITER(mine, 0, "down");
        READER(reader, 1, "down");
        WRITER(writer, 2, "down");
        uint64_t fence;
        assert_int_equal(acquire(&links[0], &mine), 0);
        if (round == 1) assert_int_equal(renew(&links[0], &mine), 0); /* the item's id is no more the grant's */
        fence = mine.claim.fence;
        assert_int_equal(acquire(&links[1], &reader), DLOCK_EBUSY);
        mine.claim.mode = DLOCK_SHARED;
        assert_int_equal(renew(&links[round == 2 ? 2 : 0], &mine), 0); /* by another process, too */
        assert_int_equal(acquire(&links[2], &writer), DLOCK_EBUSY);
        assert_int_equal(acquire(&links[1], &reader), 0);
        assert_true(reader.claim.fence > fence);
        assert_int_equal(acquire(&links[0], &mine), 0);
        assert_true(mine.claim.fence == fence);
        assert_int_equal(release(&links[0], &mine), 0);
        assert_int_equal(release(&links[1], &reader), 0);
        assert_true(is_free("down"));
    }
}

/* The downgrade never arrived, and its answer neither: the reader still is the writer. */
static void a_reader_may_still_be_a_writer(void **state) {
    (void)state;
    for (int round = 0; round < 2; round++) {
        WRITER(mine, 0, "still");
        assert_int_equal(acquire(&links[0], &mine), 0);
        mine.claim.mode = DLOCK_SHARED;
        if (round) memset(mine.claim.state, 0, sizeof mine.claim.state);
        assert_int_equal(release(&links[0], &mine), 0);
        assert_true(is_free("still"));
    }
}

static void permits_are_counted(void **state) {
    CLAIM(first, 0, "seats", DLOCK_PERMIT, 2);
    CLAIM(second, 1, "seats", DLOCK_PERMIT, 2);
    CLAIM(third, 2, "seats", DLOCK_PERMIT, 2);
    CLAIM(other, 2, "seats", DLOCK_PERMIT, 3);
    READER(reader, 2, "seats");
    WRITER(writer, 2, "seats");
    char why[512];
    (void)state;
    assert_int_equal(acquire(&links[0], &first), 0);
    assert_int_equal(try_explained(&links[2], &other, why), DLOCK_EINVAL);
    assert_non_null(strstr(why, "in use as 2 permits"));
    assert_int_equal(try_explained(&links[2], &reader, why), DLOCK_EINVAL);
    assert_non_null(strstr(why, "in use as 2 permits"));
    assert_int_equal(try_explained(&links[2], &writer, why), DLOCK_EINVAL);
    assert_non_null(strstr(why, "in use as 2 permits"));
    assert_int_equal(acquire(&links[1], &second), 0);
    assert_int_equal(acquire(&links[2], &third), DLOCK_EBUSY);
    assert_int_equal(renew(&links[0], &first), 0);
    assert_int_equal(release(&links[0], &first), 0);
    assert_int_equal(acquire(&links[2], &third), 0);
    assert_true(third.claim.fence > second.claim.fence && second.claim.fence > first.claim.fence);
    assert_int_equal(release(&links[1], &second), 0);
    assert_int_equal(release(&links[2], &third), 0);
    assert_int_equal(acquire(&links[2], &writer), 0);
    assert_int_equal(try_explained(&links[0], &first, why), DLOCK_EINVAL);
    assert_non_null(strstr(why, "as a lock"));
    assert_int_equal(release(&links[2], &writer), 0);
    assert_int_equal(acquire(&links[2], &reader), 0);
    assert_int_equal(try_explained(&links[0], &first, why), DLOCK_EINVAL);
    assert_non_null(strstr(why, "as a lock"));
}

static void long_names_are_in_the_list(void **state) {
    char name[256], other[256], key[300];
    (void)state;
    memset(name, ' ', 255);
    name[255] = '\0';
    memcpy(other, name, sizeof other);
    other[0] = 'x';
    READER(first, 0, name);
    READER(second, 1, name);
    WRITER(writer, 2, name);
    assert_int_equal(acquire(&links[0], &first), 0);
    assert_int_equal(acquire(&links[1], &second), 0);
    assert_int_equal(acquire(&links[2], &writer), DLOCK_EBUSY);
    assert_int_equal(release(&links[0], &first), 0);
    /* Another name with the same key, if there were one, would be somebody else's. */
    dlock_encode_name(key, 251, name, " ", false);
    ask(&server, "set %s 0 100 %zu\r\ndlock shared 0 %s\n%s 1 1 100000 4000000000\n", key,
        15 + strlen(other) + 1 + strlen(second.token) + 23, other, second.token);
    assert_int_equal(renew(&links[1], &second), DLOCK_ELOST);
    assert_int_equal(acquire(&links[0], &first), DLOCK_EBUSY);
}

/* ---- leases ------------------------------------------------------------------------------------------------------ */

static void a_dead_reader_ends_alone(void **state) {
    READER(dead, 0, "grave");
    READER(alive, 1, "grave");
    WRITER(writer, 2, "grave");
    (void)state;
    dead.claim.lease_ms = 700;
    assert_int_equal(acquire(&links[0], &dead), 0);
    assert_int_equal(acquire(&links[1], &alive), 0);
    assert_false(poll_for(&links[2], &writer, 1500));
    assert_int_equal(release(&links[1], &alive), 0); /* drops the dead one, or leaves it to the writer */
    assert_true(poll_for(&links[2], &writer, 5000));
    assert_int_equal(renew(&links[0], &dead), DLOCK_ELOST);
}

static void a_dead_permit_comes_back(void **state) {
    CLAIM(dead, 0, "ghost", DLOCK_PERMIT, 2);
    CLAIM(alive, 1, "ghost", DLOCK_PERMIT, 2);
    CLAIM(waiter, 2, "ghost", DLOCK_PERMIT, 2);
    int64_t begin;
    (void)state;
    dead.claim.lease_ms = 900;
    begin = now_ms();
    assert_int_equal(acquire(&links[0], &dead), 0);
    assert_int_equal(acquire(&links[1], &alive), 0);
    assert_true(poll_for(&links[2], &waiter, 20000));
    assert_in_range(now_ms() - begin, 900, 6000);
    assert_int_equal(renew(&links[0], &dead), DLOCK_ELOST);
    assert_int_equal(renew(&links[1], &alive), 0);
}

/* Each lease of a reader is another one, the first that is set anew as well. */
static void renewed_readers_are_not_taken_for_dead(void **state) {
    READER(reader, 0, "alive");
    WRITER(writer, 1, "alive");
    (void)state;
    reader.claim.lease_ms = 2000;
    assert_int_equal(acquire(&links[0], &reader), 0);
    assert_int_equal(acquire(&links[1], &writer), DLOCK_EBUSY);
    for (int i = 0; i < 2; i++) {
        sleep_ms(1050);
        assert_int_equal(renew(&links[0], &reader), 0);
        sleep_ms(1050);
        assert_int_equal(acquire(&links[1], &writer), DLOCK_EBUSY);
        assert_int_equal(renew(&links[0], &reader), 0);
    }
}

static void a_reader_that_was_added_again_is_not_either(void **state) {
    READER(reader, 0, "again");
    WRITER(writer, 1, "again");
    (void)state;
    reader.claim.lease_ms = 2000;
    assert_int_equal(acquire(&links[0], &reader), 0);
    assert_int_equal(acquire(&links[1], &writer), DLOCK_EBUSY);
    sleep_ms(1100);
    ask(&server, "delete again");
    assert_int_equal(acquire(&links[0], &reader), 0); /* the same token, once more by `add` */
    assert_false(poll_for(&links[1], &writer, 1100));
    assert_int_equal(renew(&links[0], &reader), 0);
}

/* ---- a writer that waits ----------------------------------------------------------------------------------------- */

static void a_waiting_writer_is_let_in(void **state) {
    READER(old, 0, "turn");
    READER(new, 1, "turn");
    WRITER(writer, 2, "turn");
    (void)state;
    assert_int_equal(acquire(&links[0], &old), 0);
    assert_int_equal(acquire(&links[2], &writer), DLOCK_EBUSY);
    assert_int_equal(acquire(&links[1], &new), 0); /* one try holds nobody up */
    assert_int_equal(release(&links[1], &new), 0);
    assert_false(poll_for(&links[2], &writer, 600));
    assert_int_equal(acquire(&links[1], &new), DLOCK_EBUSY);
    assert_int_equal(renew(&links[0], &old), 0);
    assert_int_equal(acquire(&links[0], &old), 0); /* asked again */
    assert_int_equal(release(&links[0], &old), 0);
    assert_int_equal(acquire(&links[1], &new), DLOCK_EBUSY); /* it is the writer's turn, though nobody holds it */
    assert_int_equal(acquire(&links[2], &writer), 0);
    assert_int_equal(release(&links[2], &writer), 0);
    assert_true(is_free("turn"));
}

static void a_writer_that_gives_up_is_forgotten(void **state) {
    READER(old, 0, "gone");
    READER(new, 1, "gone");
    WRITER(writer, 2, "gone");
    (void)state;
    for (int round = 0; round < 2; round++) {
        assert_int_equal(acquire(&links[0], &old), 0);
        assert_false(poll_for(&links[2], &writer, 600));
        if (round) assert_int_equal(release(&links[0], &old), 0);
        assert_int_equal(acquire(&links[1], &new), DLOCK_EBUSY);
        assert_true(poll_for(&links[1], &new, 4000));
        assert_int_equal(release(&links[1], &new), 0);
        if (!round) assert_int_equal(release(&links[0], &old), 0);
        assert_true(is_free("gone"));
        writer = claim_of(2, "gone", DLOCK_EXCLUSIVE, 0);
        own(&writer);
    }
}

/* ---- what it costs, and how much fits ---------------------------------------------------------------------------- */

static void a_reader_alone_costs_what_a_writer_does(void **state) {
    enum { ROUNDS = 50 };
    struct counts counts;
    (void)state;
    await_tick(&server, &links[0]);
    count(&server, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        READER(reader, 0, "cheap");
        assert_int_equal(acquire(&links[0], &reader), 0);
        assert_int_equal(release(&links[0], &reader), 0);
    }
    count(&server, &counts);
    assert_int_equal(counts.stores + counts.deletes, 2 * ROUNDS);
    assert_int_equal(servers_are_classic() ? counts.cas_hits : counts.deletes, ROUNDS);
    assert_int_equal(counts.gets, ROUNDS + reservations(&server) * ROUNDS);
    assert_int_equal(counts.cas_misses, 0);
}

enum { CROWD = 128 };

static struct held crowd[CROWD + 1];

static void fill(const char *name, size_t token_length) {
    for (int i = 0; i <= CROWD; i++) {
        crowd[i] = claim_of(0, name, DLOCK_SHARED, 0);
        own(&crowd[i]);
        while (strlen(crowd[i].token) < token_length) strcat(crowd[i].token, "x");
    }
}

static void renewals_of_one_name_are_one_change(void **state) {
    struct dlock_claim *claims[CROWD];
    struct counts counts;
    (void)state;
    fill("renewals", 0);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(acquire(&links[0], &crowd[i]), 0);
        claims[i] = &crowd[i].claim;
        claim_preset(claims[i]);
    }
    assert_int_equal(release(&links[0], &crowd[7]), 0);
    claim_preset(&crowd[7].claim);
    count(&server, NULL);
    assert_int_equal(backend->renew(links[0].conn, claims, 40, TIMEOUT_MS, NULL), 0);
    count(&server, &counts);
    assert_int_equal(counts.stores, 1);
    assert_int_equal(counts.gets, 2);
    for (int i = 0; i < 40; i++) assert_int_equal(crowd[i].claim.result, i == 7 ? DLOCK_ELOST : 0);
}

static void a_crowd_has_its_limits(void **state) {
    static const size_t token_lengths[] = {0, DLOCK_TOKEN_MAX};
    char why[512];
    (void)state;
    for (int round = 0; round < 2; round++) {
        int inside = 0;
        fill(round ? "longer" : "full", token_lengths[round]);
        while (inside <= CROWD && try_explained(&links[0], &crowd[inside], why) == 0) inside++;
        assert_in_range(inside, round ? 60 : CROWD, CROWD);
        assert_int_equal(crowd[inside].claim.result, DLOCK_EBUSY);
        assert_non_null(strstr(why, round ? "too many holders" : "no more than 128"));
        assert_int_equal(renew(&links[0], &crowd[0]), 0);
        assert_int_equal(release(&links[0], &crowd[1]), 0);
        if (try_explained(&links[0], &crowd[inside], why) != 0) fail_msg("%d, %d: %s", round, inside, why);
        for (int i = 0; i <= inside; i++)
            if (i != 1) assert_int_equal(release(&links[0], &crowd[i]), 0);
        assert_true(is_free(round ? "longer" : "full"));
    }
}

/* Everybody changes the one item at once, each on a connection of its own: whoever meets another's change tries again
 * until it comes through. */
enum { SHARERS = 120, PLENTY_MS = 60000 };

struct sharer {
    struct link link;
    struct held held;
    dlock_batch *operation;
    struct dlock_error err;
    int rc;
    pthread_t thread;
};

static struct sharer sharers[SHARERS];
static pthread_barrier_t start_line;

static void *share(void *arg) {
    struct sharer *sharer = arg;
    pthread_barrier_wait(&start_line);
    sharer->rc = held_run(sharer->operation, &sharer->link, &sharer->held, 0, PLENTY_MS, &sharer->err);
    return NULL;
}

static void at_once(dlock_batch *operation) {
    for (int i = 0; i < SHARERS; i++) {
        sharers[i].operation = operation;
        assert_int_equal(pthread_create(&sharers[i].thread, NULL, share, &sharers[i]), 0);
    }
    for (int i = 0; i < SHARERS; i++) pthread_join(sharers[i].thread, NULL);
    for (int i = 0; i < SHARERS; i++) {
        if (sharers[i].rc) fail_msg("%s", sharers[i].err.message);
        assert_int_equal(sharers[i].held.claim.result, 0);
    }
}

static void many_sharers_do_not_use_up_their_tries(void **state) {
    (void)state;
    assert_int_equal(pthread_barrier_init(&start_line, NULL, SHARERS), 0);
    for (int i = 0; i < SHARERS; i++) {
        sharers[i].held = claim_of(0, "sharers", DLOCK_SHARED, 0);
        own(&sharers[i].held);
        sharers[i].held.claim.lease_ms = PLENTY_MS;
        link_to(&sharers[i].link, server.port, 'a');
    }
    at_once(backend->acquire);
    at_once(backend->renew);
    at_once(backend->release);
    for (int i = 0; i < SHARERS; i++) link_end(&sharers[i].link);
    pthread_barrier_destroy(&start_line);
    assert_true(is_free("sharers"));
}

/* ---- for operators, and what others may have put there ----------------------------------------------------------- */

struct shown {
    int n;
    uint64_t fences[8];
    struct dlock_info info;
    char tokens[8][DLOCK_TOKEN_MAX + 1];
};

static int show(const struct dlock_info *info, void *arg) {
    struct shown *shown = arg;
    shown->info = *info;
    shown->fences[shown->n] = info->fence;
    snprintf(shown->tokens[shown->n++], sizeof shown->tokens[0], "%s", info->token);
    return shown->n == 8;
}

static void all_holders_are_shown_and_broken(void **state) {
    CLAIM(first, 0, "shown", DLOCK_PERMIT, 5);
    CLAIM(second, 1, "shown", DLOCK_PERMIT, 5);
    struct shown shown = {0};
    (void)state;
    assert_int_equal(acquire(&links[0], &first), 0);
    assert_int_equal(acquire(&links[1], &second), 0);
    assert_int_equal(backend->inspect(links[2].conn, "shown", show, &shown, TIMEOUT_MS, NULL), 0);
    assert_int_equal(shown.n, 2);
    assert_string_equal(shown.tokens[0], first.token);
    assert_string_equal(shown.tokens[1], second.token);
    assert_true(shown.fences[0] == first.claim.fence && shown.fences[1] == second.claim.fence);
    assert_int_equal(shown.info.mode, DLOCK_PERMIT);
    assert_int_equal(shown.info.limit, 5);
    assert_int_equal(backend->break_lock(links[2].conn, "shown", TIMEOUT_MS, NULL), 0);
    assert_int_equal(renew(&links[0], &first), DLOCK_ELOST);
    assert_int_equal(release(&links[1], &second), DLOCK_ELOST);
    assert_true(is_free("shown"));
}

static void a_word_is_no_holder(void **state) {
    READER(reader, 0, "word");
    WRITER(writer, 1, "word");
    struct shown shown = {0};
    (void)state;
    assert_int_equal(acquire(&links[0], &reader), 0);
    assert_false(poll_for(&links[1], &writer, 500));
    assert_int_equal(backend->inspect(links[2].conn, "word", show, &shown, TIMEOUT_MS, NULL), 0);
    assert_int_equal(shown.n, 1);
    assert_int_equal(shown.info.mode, DLOCK_SHARED);
    assert_string_equal(shown.tokens[0], reader.token);
}

/* An item that is no list of ours is somebody's lock. */
static void odd_lists_are_left_alone(void **state) {
#define SIXTEEN "0123456789abcdef"
    static const char *const values[] = {
        "dlock",
        "dlock shared 0\n",
        "dlock shared 0\n\n",
        "dlock shared 1\na 1 1 1 1\n",
        "dlock permit 0\na 1 1 1 1\n",
        "dlock permit 4294967296\na 1 1 1 1\n",
        "dlock other 0\na 1 1 1 1\n",
        "dlock shared 0\na 1 1 1\n",
        "dlock shared 0\na 1 1 1 1",
        "dlock shared 0\na 1 1 1 1\n ",
        "dlock shared 0\na 1 1 1 -1\n",
        "dlock shared 0\n 1 1 1 1\n",
        "dlock shared 0\na\tb 1 1 1 1\n",
        "dlock shared 0\na 99999999999 1 1 1\n",
        "dlock shared 0\na 1 99999999999 1 1\n",
        "dlock shared 0\na 1 1 9223372036854775807 1\n",
        "dlock shared 0\na 1 1 1 18446744073709551616\n",
        "dlock shared 0 odd\na 1 1 1 1\n",
        "dlock shared 0\n" SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN " 1 1 1 1\n"};
    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        READER(reader, 0, "odd");
        WRITER(writer, 1, "odd");
        CLAIM(permit, 2, "odd", DLOCK_PERMIT, 4);
        ask(&server, "set odd 0 100 %zu\r\n%s", strlen(values[i]), values[i]);
        for (int round = 0; round < 3; round++) {
            if (acquire(&links[0], &reader) != DLOCK_EBUSY) fail_msg("a reader beside \"%s\"", values[i]);
            if (acquire(&links[1], &writer) != DLOCK_EBUSY) fail_msg("a writer beside \"%s\"", values[i]);
            assert_int_equal(acquire(&links[2], &permit), DLOCK_EINVAL);
            assert_int_equal(renew(&links[0], &reader), DLOCK_ELOST);
            assert_int_equal(release(&links[0], &reader), DLOCK_ELOST);
            sleep_ms(5);
        }
        assert_false(is_free("odd"));
    }
}

static void odd_claims_are_refused(void **state) {
    CLAIM(no_limit, 0, "claims", DLOCK_PERMIT, 0);
    CLAIM(limit, 0, "claims", DLOCK_SHARED, 3);
    CLAIM(unknown, 0, "claims", (enum dlock_mode)3, 0);
    (void)state;
    assert_int_equal(acquire(&links[0], &no_limit), DLOCK_EINVAL);
    assert_int_equal(acquire(&links[0], &limit), DLOCK_EINVAL);
    assert_int_equal(acquire(&links[0], &unknown), DLOCK_ENOTSUP);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, connect_all, disconnect_all)
    const struct CMUnitTest tests[] = {
        TEST(readers_keep_writers_out),
        TEST(readers_know_their_fences),
        TEST(a_downgrade_keeps_the_fence),
        TEST(a_reader_may_still_be_a_writer),
        TEST(permits_are_counted),
        TEST(long_names_are_in_the_list),
        TEST(a_dead_reader_ends_alone),
        TEST(a_dead_permit_comes_back),
        TEST(renewed_readers_are_not_taken_for_dead),
        TEST(a_reader_that_was_added_again_is_not_either),
        TEST(a_waiting_writer_is_let_in),
        TEST(a_writer_that_gives_up_is_forgotten),
        TEST(a_reader_alone_costs_what_a_writer_does),
        TEST(renewals_of_one_name_are_one_change),
        TEST(a_crowd_has_its_limits),
        TEST(many_sharers_do_not_use_up_their_tries),
        TEST(all_holders_are_shown_and_broken),
        TEST(a_word_is_no_holder),
        TEST(odd_lists_are_left_alone),
        TEST(odd_claims_are_refused),
    };
    return cmocka_run_group_tests_name("memcached shared", tests, group_begin, group_end);
}
