/* Events that wake a waiter, through the backend's table of operations, on the server that tests/run.sh has started. */
#include "support/clock.h"
#include "support/held.h"
#include "support/pair.h"
#include "support/relay.h"
#include "support/test.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* With a stream a waiter repeats its request after half of the session, 45 s, but not later than this. */
enum { RETRY_MS = 30000 };

static int server_port(void) {
    const char *address = getenv("DLOCK_TEST_ETCD"), *colon = address ? strrchr(address, ':') : NULL;
    if (!colon) fail_msg("no server: run the tests with tests/run.sh");
    return atoi(colon + 1);
}

static void link_with(struct link *link, char letter, int port, size_t members, const char *session) {
    struct dlock_error err = {0};
    struct uri uri;
    uri_init(&uri, server_port());
    uri.host[0].port = port;
    uri.parts.n_hosts = members;
    uri.param[0] = (struct dlock_param){"session", session};
    uri.parts.path = "/dlock/waiters";
    uri.parts.n_params = 1;
    if (link_try(link, &uri.parts, letter, 0, CONNECTS_MS, &err) != 0) fail_msg("connect: %s", err.message);
    link_listen(link);
}

/* Connects to a cluster of two members: `port`, and the server itself. */
static void link_through(struct link *link, char letter, int port) {
    link_with(link, letter, port, 2, "90s");
}

static int pair_begin(void **state) {
    (void)state;
    link_through(&one, 'a', server_port());
    link_through(&two, 'b', server_port());
    return 0;
}

/* Asks again at each wake-up until the claim is granted. Nothing else makes it ask before the wake-up. */
static void expect_turn(struct link *link, struct held *held) {
    struct dlock_wake wake;
    do {
        assert_int_equal(held->claim.retry_ms, RETRY_MS);
        if (!wake_within(link, &wake, TIMEOUT_MS)) fail_msg("no wake-up");
        assert_int_equal(wake.kind, DLOCK_WAKE_LOOK);
        assert_string_equal(wake.name, held->claim.name);
    } while (queue_up(link, held) == DLOCK_EBUSY);
    assert_int_equal(held->claim.result, 0);
}

TEST(own_release_leaves_the_stream_of_a_waiter) {
    CLAIM_INIT(mine, "readers", 'a', 1);
    CLAIM_INIT(other, "readers", 'b', 1);
    CLAIM_INIT(writer, "readers", 'a', 2);
    mine.claim.mode = other.claim.mode = DLOCK_SHARED;
    assert_int_equal(queue_up(&one, &mine), 0);
    assert_int_equal(queue_up(&two, &other), 0);
    assert_int_equal(queue_up(&one, &writer), DLOCK_EBUSY);
    assert_int_equal(release(&one, &mine), 0);
    assert_int_equal(release(&two, &other), 0);
    expect_turn(&one, &writer);
    assert_int_equal(release(&one, &writer), 0);
}

TEST(own_grant_leaves_the_stream_of_a_waiter) {
    CLAIM_INIT(mine, "grant", 'a', 1);
    CLAIM_INIT(other, "grant", 'b', 1);
    CLAIM_INIT(writer, "grant", 'a', 2);
    mine.claim.mode = other.claim.mode = DLOCK_SHARED;
    assert_int_equal(queue_up(&two, &other), 0);
    assert_int_equal(acquire(&one, &mine), 0);
    assert_int_equal(queue_up(&one, &writer), DLOCK_EBUSY);
    assert_int_equal(acquire(&one, &mine), 0); /* asks once more, as after an answer that was lost */
    assert_int_equal(release(&one, &mine), 0);
    assert_int_equal(release(&two, &other), 0);
    expect_turn(&one, &writer);
    assert_int_equal(release(&one, &writer), 0);
}

/* A waiter that leaves ends its stream, but not that of the one behind it, which has sent its request in the
 * meantime. */
TEST(waiter_that_leaves_late_leaves_the_stream_of_the_next) {
    CLAIM_INIT(holder, "leaving", 'b', 1);
    CLAIM_INIT(first, "leaving", 'a', 1);
    CLAIM_INIT(next, "leaving", 'a', 2);
    first.claim.mode = next.claim.mode = DLOCK_SHARED;
    assert_int_equal(queue_up(&two, &holder), 0);
    assert_int_equal(queue_up(&one, &first), DLOCK_EBUSY);
    assert_int_equal(queue_up(&one, &next), DLOCK_EBUSY);
    assert_int_equal(release(&one, &first), DLOCK_ELOST);
    assert_int_equal(release(&two, &holder), 0);
    expect_turn(&one, &next);
    assert_int_equal(release(&one, &next), 0);
}

TEST(waiter_that_leaves_takes_its_stream_along) {
    struct dlock_wake wake;
    CLAIM_INIT(holder, "left", 'b', 1);
    CLAIM_INIT(waiter, "left", 'a', 1);
    assert_int_equal(queue_up(&two, &holder), 0);
    assert_int_equal(queue_up(&one, &waiter), DLOCK_EBUSY);
    assert_int_equal(release(&one, &waiter), DLOCK_ELOST);
    assert_int_equal(release(&two, &holder), 0);
    assert_false(wake_within(&one, &wake, 300));
}

static int hang_up(void *arg, size_t pair, bool first, const char *bytes, size_t size) {
    (void)arg, (void)pair, (void)first, (void)bytes, (void)size;
    return RELAY_END_IT;
}

/* The first member is stopped, or cut off from the others: its streams stay open, and tell nothing. */
TEST(waiter_that_asks_another_member_has_its_stream_there) {
    SCOPED_RELAY *relay = relay_new(server_port());
    SCOPED_LINK far;
    relay_cut(relay, "/v3/watch");
    link_through(&far, 'c', relay_port(relay));
    CLAIM_INIT(holder, "moving", 'a', 1);
    CLAIM_INIT(waiter, "moving", 'c', 1);
    assert_int_equal(queue_up(&one, &holder), 0);
    assert_int_equal(queue_up(&far, &waiter), DLOCK_EBUSY);
    relay_watch(relay, hang_up, NULL);
    assert_int_equal(queue_up(&far, &waiter), DLOCK_EBUSY);
    assert_int_equal(release(&one, &holder), 0);
    expect_turn(&far, &waiter);
    assert_int_equal(release(&far, &waiter), 0);
}

/* Counts a word in what a client sends. */
struct word {
    const char *text;
    atomic_int n;
};

static int count_word(void *arg, size_t pair, bool first, const char *bytes, size_t size) {
    struct word *word = arg;
    const char *at = bytes, *end = bytes + size;
    (void)pair, (void)first;
    while ((at = memmem(at, (size_t)(end - at), word->text, strlen(word->text)))) at++, atomic_fetch_add(&word->n, 1);
    return RELAY_PASS;
}

/* If the server sorted the queue for each question of each waiter, waiting would cost the square of its length. */
TEST(waiter_that_knows_its_place_reads_two_keys) {
    static struct word sorts = {.text = "sort_order"}, reads = {.text = "request_range"};
    struct relay *relay = relay_new(server_port());
    struct link far;
    link_through(&far, 'c', relay_port(relay));
    CLAIM_INIT(holder, "place", 'a', 1);
    CLAIM_INIT(waiter, "place", 'c', 1);
    assert_int_equal(queue_up(&one, &holder), 0);
    assert_int_equal(queue_up(&far, &waiter), DLOCK_EBUSY);
    relay_watch(relay, count_word, &sorts);
    assert_int_equal(queue_up(&far, &waiter), DLOCK_EBUSY);
    relay_watch(relay, count_word, &reads);
    assert_int_equal(queue_up(&far, &waiter), DLOCK_EBUSY);
    assert_int_equal(atomic_load(&sorts.n), 0);
    assert_int_equal(atomic_load(&reads.n), 2);
    assert_int_equal(release(&one, &holder), 0);
    expect_turn(&far, &waiter);
    assert_int_equal(release(&far, &waiter), 0);
    link_end(&far);
    relay_end(relay);
}

/* It keeps its session alive, and would be told of its turn. */
TEST(waiter_with_a_silent_stream_does_not_ask_each_time) {
    static struct word requests = {.text = "POST "};
    struct relay *relay = relay_new(server_port());
    struct dlock_wake wake;
    struct link far;
    link_through(&far, 'c', relay_port(relay));
    CLAIM_INIT(holder, "silent", 'a', 1);
    CLAIM_INIT(waiter, "silent", 'c', 1);
    assert_int_equal(queue_up(&one, &holder), 0);
    assert_int_equal(queue_up(&far, &waiter), DLOCK_EBUSY);
    relay_watch(relay, count_word, &requests);
    for (int64_t until = now_ms() + TIMEOUT_MS;; atomic_store(&requests.n, 0)) { /* the stream begins */
        wake_within(&far, &wake, 20);
        assert_int_equal(queue_up(&far, &waiter), DLOCK_EBUSY);
        if (atomic_load(&requests.n) == 0) break;
        assert_true(now_ms() < until);
    }
    assert_in_range(waiter.claim.retry_ms, 1, RETRY_MS);
    assert_int_equal(release(&one, &holder), 0);
    if (!wake_within(&far, &wake, TIMEOUT_MS)) fail_msg("no wake-up");
    assert_int_equal(queue_up(&far, &waiter), 0);
    assert_int_equal(release(&far, &waiter), 0);
    link_end(&far);
    relay_end(relay);
}

/* Its stream is open, and tells nothing. */
TEST(waiter_without_a_wake_up_finds_what_has_changed) {
    struct relay *relay = relay_new(server_port());
    struct link far;
    relay_cut(relay, "/v3/watch");
    link_through(&far, 'c', relay_port(relay));
    CLAIM_INIT(holder, "unheard", 'a', 1);
    CLAIM_INIT(before, "unheard", 'b', 1);
    CLAIM_INIT(waiter, "unheard", 'c', 1);
    waiter.claim.mode = DLOCK_SHARED;
    assert_int_equal(queue_up(&one, &holder), 0);
    assert_int_equal(queue_up(&two, &before), DLOCK_EBUSY);
    assert_int_equal(queue_up(&far, &waiter), DLOCK_EBUSY);
    assert_int_equal(release(&two, &before), DLOCK_ELOST);
    assert_int_equal(queue_up(&far, &waiter), DLOCK_EBUSY); /* behind another key */
    holder.claim.mode = DLOCK_SHARED;
    assert_int_equal(renew(&one, &holder), 0);
    assert_int_equal(queue_up(&far, &waiter), 0);
    assert_int_equal(release(&one, &holder), 0);
    assert_int_equal(release(&far, &waiter), 0);
    link_end(&far);
    relay_end(relay);
}

/* Stops this process after a second, for 3 s. */
static pid_t stop_this_process(void) {
    const pid_t child = fork();
    if (child != 0) return child;
    sleep_ms(1000);
    kill(getppid(), SIGSTOP);
    sleep_ms(3000);
    kill(getppid(), SIGCONT);
    _exit(0);
}

/* The request for it ends after 2 s, and this process runs again when the time for the question is over, too. */
TEST(waiter_whose_question_is_never_answered_gives_up) {
    SCOPED_RELAY *relay = relay_new(server_port());
    SCOPED_LINK far;
    struct dlock_error err;
    relay_cut(relay, "/v3/watch"); /* or the waiter would not ask */
    link_with(&far, 'c', relay_port(relay), 1, "6s");
    CLAIM_INIT(holder, "never", 'a', 1);
    CLAIM_INIT(waiter, "never", 'c', 1);
    assert_int_equal(queue_up(&one, &holder), 0);
    assert_int_equal(queue_up(&far, &waiter), DLOCK_EBUSY);
    relay_silence(relay);
    const pid_t child = stop_this_process();
    assert_int_equal(held_run(backend->acquire, &far, &waiter, DLOCK_CLAIM_QUEUE, 3000, &err), 0);
    assert_int_equal(waiter.claim.result, DLOCK_EUNAVAILABLE);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(release(&one, &holder), 0);
}

/* Somebody else has deleted it. */
TEST(waiter_whose_key_is_gone_queues_up_again) {
    CLAIM_INIT(holder, "gone", 'a', 1);
    CLAIM_INIT(waiter, "gone", 'b', 1);
    assert_int_equal(queue_up(&one, &holder), 0);
    assert_int_equal(queue_up(&two, &waiter), DLOCK_EBUSY);
    struct held copy = waiter;
    assert_int_equal(release(&one, &copy), DLOCK_ELOST);
    assert_int_equal(queue_up(&two, &waiter), DLOCK_EBUSY);
    assert_int_equal(release(&one, &holder), 0);
    expect_turn(&two, &waiter);
    assert_int_equal(release(&two, &waiter), 0);
}

/* Otherwise its lease could be as old as its TTL before it is kept alive. */
TEST(question_does_not_put_the_next_one_off) {
    struct link hasty;
    link_with(&hasty, 'c', server_port(), 1, "30s");
    CLAIM_INIT(holder, "hasty", 'a', 1);
    CLAIM_INIT(waiter, "hasty", 'c', 1);
    assert_int_equal(queue_up(&one, &holder), 0);
    assert_int_equal(queue_up(&hasty, &waiter), DLOCK_EBUSY);
    sleep_ms(500);
    assert_int_equal(queue_up(&hasty, &waiter), DLOCK_EBUSY);
    assert_in_range(waiter.claim.retry_ms, 10000, 14500); /* of the session: a third, and half */
    assert_int_equal(release(&hasty, &waiter), DLOCK_ELOST);
    assert_int_equal(release(&one, &holder), 0);
    link_end(&hasty);
}

static int mute_first_question(void *arg, size_t pair, bool first, const char *bytes, size_t size) {
    static const char path[] = "/v3/kv/txn";
    (void)pair, (void)first;
    bool asks = memmem(bytes, size, path, sizeof path - 1);
    return asks && atomic_exchange((atomic_bool *)arg, true) == false ? RELAY_MUTE : RELAY_PASS;
}

/* The call may take longer than the session. */
TEST(waiter_keeps_its_place_beside_an_unanswered_question) {
    static atomic_bool muted;
    struct relay *relay = relay_new(server_port());
    struct link far;
    link_with(&far, 'c', relay_port(relay), 1, "6s");
    CLAIM_INIT(holder, "muted", 'a', 1);
    CLAIM_INIT(first, "muted", 'c', 1);
    CLAIM_INIT(second, "muted", 'b', 1);
    assert_int_equal(queue_up(&one, &holder), 0);
    assert_int_equal(queue_up(&far, &first), DLOCK_EBUSY);
    assert_int_equal(queue_up(&two, &second), DLOCK_EBUSY);
    relay_watch(relay, mute_first_question, &muted);
    assert_int_equal(queue_up(&far, &first), DLOCK_EBUSY);
    assert_true(atomic_load(&muted));
    assert_int_equal(release(&one, &holder), 0);
    assert_int_equal(queue_up(&two, &second), DLOCK_EBUSY);
    assert_int_equal(queue_up(&far, &first), 0);
    assert_int_equal(release(&far, &first), 0);
    assert_int_equal(queue_up(&two, &second), 0);
    assert_int_equal(release(&two, &second), 0);
    link_end(&far);
    relay_end(relay);
}

TESTS(pair_begin, pair_end, backend_load, NULL)
