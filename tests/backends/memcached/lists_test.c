/* The list of holders in a name's item: its cost and its capacity, concurrent changes, how it is shown, and foreign
 * items in its place. */
#include "trio.h"

#include <pthread.h>
#include <stdio.h>

/* ---- what it costs, and how much fits ---------------------------------------------------------------------------- */

TEST(a_reader_alone_costs_what_a_writer_does) {
    enum { ROUNDS = 50 };
    struct counts counts;
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

TEST(renewals_of_one_name_are_one_change) {
    struct dlock_claim *claims[CROWD];
    struct counts counts;
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

TEST(a_crowd_has_its_limits) {
    static const size_t token_lengths[] = {0, DLOCK_TOKEN_MAX};
    char why[512];
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

/* All change the one item at once, each on its own connection: a client that meets another's change retries until it
 * succeeds. */
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

TEST(many_sharers_do_not_use_up_their_tries) {
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

TEST(a_word_is_no_holder) {
    READER(reader, 0, "word");
    WRITER(writer, 1, "word");
    struct shown shown = {0};
    assert_int_equal(acquire(&links[0], &reader), 0);
    assert_false(poll_for(&links[1], &writer, 500));
    assert_int_equal(backend->inspect(links[2].conn, "word", show, &shown, TIMEOUT_MS, NULL), 0);
    assert_int_equal(shown.n, 1);
    assert_int_equal(shown.info.mode, DLOCK_SHARED);
    assert_string_equal(shown.tokens[0], reader.token);
}

TEST(long_names_are_in_the_list) {
    char name[256], other[256], key[300];
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
    /* Another name with the same key, if there were one, would be a foreign lock. */
    dlock_encode_name(key, 251, name, " ", false);
    ask(&server, "set %s 0 100 %zu\r\ndlock shared 0 %s\n%s 1 1 100000 4000000000\n", key,
        15 + strlen(other) + 1 + strlen(second.token) + 23, other, second.token);
    assert_int_equal(renew(&links[1], &second), DLOCK_ELOST);
    assert_int_equal(acquire(&links[0], &first), DLOCK_EBUSY);
}

/* An item that is not one of our lists is a foreign lock. */
TEST(odd_lists_are_left_alone) {
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

TESTS(trio_begin, trio_end, group_begin, group_end)
