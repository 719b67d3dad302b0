/* Waiters queue at one member, and are told when it is their turn. */
#include "servers.h"

#include "support/clock.h"
#include "support/relay.h"
#include "support/test.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define QUIET "quarantine=0&lease=5m&" PATIENT

/* A client with a thread that waits for the lock, and gives it back. */
struct waiter {
    dlock_client *client;
    pthread_t thread;
    const char *name;
    int turns, number;
    int64_t timeout_ms;
    int result;
    char *behind; /* if not NULL, receives the gate's queue as it was in this waiter's turn */
};

static atomic_int served;
static atomic_bool enough; /* no waiter begins another turn */
static int order[16];

enum { QUEUE_MAX = 1024 };

/* The tokens that queue at the first member, each with a space behind it. */
static void read_queue(const char *name, char out[QUEUE_MAX]) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static const char all[] = "local all = '' for _, token in ipairs(redis.call('ZRANGE', KEYS[1], '0', '-1')) do "
                              "all = all .. token .. ' ' end return all";
    pthread_mutex_lock(&mutex);
    snprintf(out, QUEUE_MAX, "%s", ask_text(&member[0], "EVAL %s 1 {%s}:dlock:queue", all, name));
    pthread_mutex_unlock(&mutex);
}

static void *wait_in_turn(void *arg) {
    struct waiter *waiter = arg;
    for (int i = 0; i < waiter->turns && !enough; i++) {
        dlock_lock *lock = api_lock(waiter->client, waiter->name, NULL);
        waiter->result = dlock_acquire(lock, waiter->timeout_ms, NULL);
        if (waiter->result == 0) order[atomic_fetch_add(&served, 1) % 16] = waiter->number;
        if (waiter->result == 0 && waiter->behind) read_queue(waiter->name, waiter->behind);
        if (waiter->result == 0) give_back(lock);
        if (waiter->result != 0) dlock_free(lock);
    }
    return NULL;
}

static void wait_begin(struct waiter *waiter, dlock_client *client, const char *name, int turns, int64_t timeout_ms) {
    waiter->client = client;
    waiter->name = name;
    waiter->turns = turns;
    waiter->timeout_ms = timeout_ms;
    assert_int_equal(pthread_create(&waiter->thread, NULL, wait_in_turn, waiter), 0);
}

static void wait_end(struct waiter *waiter, int result) {
    pthread_join(waiter->thread, NULL);
    assert_int_equal(waiter->result, result);
    dlock_close(waiter->client);
}

static void await_queue(int i, const char *name, int64_t length) {
    for (int64_t until = now_ms() + 30000; ask_number(&member[i], "ZCARD {%s}:dlock:queue", name) != length;
         sleep_ms(2))
        if (now_ms() > until) fail_msg("member %d: not %d in the queue", i, (int)length);
}

static void count_begin(struct monitor *monitors) {
    for (int i = 0; i < 3; i++) monitor_begin(&monitors[i], &member[i]);
}

static int count_end(struct monitor *monitors, int *probes) {
    int all = 0;
    *probes = 0;
    for (int i = 0; i < 3; i++) {
        monitor_end(&monitors[i], &member[i]);
        all += monitors[i].evalsha;
        *probes += monitors[i].requests - monitors[i].evalsha;
    }
    return all;
}

/* How many requests `waiters` may send in this time: each looks at all members twice a second, and releases the votes
 * that it got. */
static int looks(int waiters, int64_t ms) {
    return waiters * (int)(ms / 450 + 1) * 6;
}

/* ---- all members are up ------------------------------------------------------------------------------------------ */

/* One to line up; then its vote at the gate is confirmed, two others are asked, their fences are raised, and three
 * members get the release. */
TEST(a_hand_over_takes_nine_requests) {
    enum { WAITERS = 4, TURNS = 50 };
    struct waiter waiters[WAITERS] = {{0}};
    struct monitor monitors[3];
    SCOPED_CLIENT *client = quorum_of(3, QUIET);
    dlock_lock *lock = take_everywhere(client, "turns", NULL);
    for (int i = 0; i < WAITERS; i++) wait_begin(&waiters[i], quorum_of(3, QUIET), "turns", TURNS, 60000);
    await_queue(0, "turns", WAITERS);
    sleep_ms(1100); /* listening connections are probed after that */
    count_begin(monitors);
    const int64_t begun_ms = now_ms();
    give_back(lock);
    for (int i = 0; i < WAITERS; i++) wait_end(&waiters[i], 0);
    int probes;
    const int all = count_end(monitors, &probes);
    const int64_t ms = now_ms() - begun_ms;
    assert_in_range(all, 0, 10 * WAITERS * TURNS + looks(WAITERS, ms));
    assert_in_range(probes, 0, WAITERS * (2 * ms / 1000 + 4)); /* one a second each; one for each busy answer: 196 */
}

/* Polls would be a hundred times as many. */
TEST(waiting_takes_few_requests) {
    enum { WAITERS = 4 };
    struct waiter waiters[WAITERS] = {{0}};
    struct monitor monitors[3];
    SCOPED_CLIENT *client = quorum_of(3, QUIET);
    dlock_lock *lock = take_everywhere(client, "long", NULL);
    for (int i = 0; i < WAITERS; i++) wait_begin(&waiters[i], quorum_of(3, QUIET), "long", 1, 60000);
    await_queue(0, "long", WAITERS);
    count_begin(monitors);
    const int64_t begun_ms = now_ms();
    sleep_ms(2000);
    int probes;
    const int all = count_end(monitors, &probes);
    assert_in_range(all, 0, looks(WAITERS, now_ms() - begun_ms));
    give_back(lock);
    for (int i = 0; i < WAITERS; i++) wait_end(&waiters[i], 0);
}

/* False: a place was lost, which says nothing about the order: a gate that is silent for 0.1 s loses all of them. */
static bool are_served_in_order(void) {
    enum { WAITERS = 8 };
    struct waiter waiters[WAITERS] = {{0}};
    char queue[QUEUE_MAX] = "", longer[QUEUE_MAX], behind[WAITERS][QUEUE_MAX];
    dlock_client *client = quorum_of(3, QUIET);
    dlock_lock *lock = take_everywhere(client, "ordered", NULL);
    bool kept = true;
    served = 0;
    for (int i = 0; i < WAITERS; i++) {
        waiters[i].number = i;
        waiters[i].behind = behind[i];
        wait_begin(&waiters[i], quorum_of(3, QUIET), "ordered", 1, 60000);
        await_queue(0, "ordered", i + 1);
        read_queue("ordered", longer);
        kept = kept && strlen(longer) > strlen(queue) && strncmp(longer, queue, strlen(queue)) == 0;
        strcpy(queue, longer);
    }
    give_back(lock);
    for (int i = 0; i < WAITERS; i++) wait_end(&waiters[i], 0);
    dlock_close(client);
    const char *left = queue;
    for (int i = 0; i < WAITERS && kept; i++) {
        left = strchr(left, ' ');
        kept = left && strcmp(behind[order[i]], ++left) == 0;
    }
    for (int i = 0; kept && i < WAITERS; i++) assert_int_equal(order[i], i);
    return kept;
}

TEST(waiters_are_served_in_the_order_of_the_gate) {
    for (const int64_t until = now_ms() + 60000; !are_served_in_order();)
        if (now_ms() > until) fail_msg("no queue stayed as it was");
}

TEST(a_wait_that_ends_leaves_no_place) {
    struct waiter waiter = {0};
    SCOPED_CLIENT *client = quorum_of(3, QUIET);
    dlock_lock *lock = take_everywhere(client, "left", NULL);
    wait_begin(&waiter, quorum_of(3, QUIET), "left", 1, 2000);
    await_queue(0, "left", 1);
    wait_end(&waiter, DLOCK_ETIMEDOUT);
    await_queue(0, "left", 0);
    give_back(lock);
    for (int i = 0; i < 3; i++) await_free(i, "left");
}

/* Waits until the same token has had the member's vote in many successive looks: each new try has a new token. If the
 * machine pauses, a gate is considered silent, and then the vote is given back; so one such row is enough. */
static void await_kept(int i, const char *name) {
    char before[DLOCK_TOKEN_MAX + 1] = "";
    const int64_t until = now_ms() + 60000;
    for (int looks = 0; looks < 200; looks++, sleep_ms(2)) {
        const char *token = ask_text(&member[i], "GET %s", name);
        if (!*token || strcmp(token, before) != 0) looks = 0;
        snprintf(before, sizeof before, "%s", token);
        if (now_ms() > until) fail_msg("member %d: nobody keeps %s", i, name);
    }
}

/* Others have the majority, without the gate: the client with the gate's vote keeps it, and so no client behind it is
 * sent to ask for nothing. */
TEST(the_first_keeps_its_vote) {
    struct waiter first = {0}, second = {0};
    for (int i = 1; i < 3; i++) ask_text(&member[i], "SET kept somebody PX 600000");
    wait_begin(&first, quorum_of(3, QUIET), "kept", 1, 60000);
    await_kept(0, "kept");
    wait_begin(&second, quorum_of(3, QUIET), "kept", 1, 60000);
    await_queue(0, "kept", 1);
    await_kept(0, "kept");
    ask_number(&member[2], "DEL kept");
    wait_end(&first, 0);
    wait_end(&second, 0);
}

/* Another client has the gate's vote for long, and no other vote: the others are a majority. */
TEST(a_gate_alone_keeps_nobody_out) {
    struct waiter waiter = {0};
    SCOPED_CLIENT *client = quorum_of(3, QUIET);
    ask_text(&member[0], "SET stuck 0123456789abcdef01234567.stuck PX 600000");
    dlock_lock *lock = take_everywhere(client, "stuck", NULL);
    wait_begin(&waiter, quorum_of(3, QUIET), "stuck", 3, 60000);
    await_queue(0, "stuck", 1);
    give_back(lock);
    wait_end(&waiter, 0);
    assert_int_equal(ask_number(&member[0], "DEL stuck"), 1);
    await_queue(0, "stuck", 0);
}

/* ---- the gate is away -------------------------------------------------------------------------------------------- */

static void a_gate_goes_and_comes(bool by_stopping) {
    enum { WAITERS = 3 };
    struct waiter waiters[WAITERS] = {{0}};
    SCOPED_CLIENT *client = quorum_of(3, QUIET);
    dlock_lock *lock = take_everywhere(client, "moved", NULL);
    for (int i = 0; i < WAITERS; i++) wait_begin(&waiters[i], quorum_of(3, QUIET), "moved", 5, 60000);
    await_queue(0, "moved", WAITERS);
    (by_stopping ? member_stop : member_kill)(0);
    await_queue(1, "moved", WAITERS);
    (by_stopping ? member_continue : member_restart)(0);
    await_queue(0, "moved", by_stopping ? WAITERS : WAITERS - 1); /* a restarted one grants its vote to the first */
    await_queue(1, "moved", 0);
    (by_stopping ? member_stop : member_kill)(0);
    await_queue(1, "moved", WAITERS);
    give_back(lock);
    for (int i = 0; i < WAITERS; i++) wait_end(&waiters[i], 0);
    (by_stopping ? member_continue : member_restart)(0);
    for (int i = 0; i < 3; i++) {
        await_queue(i, "moved", 0);
        await_free(i, "moved");
    }
}

TEST(waiters_go_on_without_a_dead_gate) {
    a_gate_goes_and_comes(false);
}

TEST(waiters_go_on_without_a_silent_gate) {
    a_gate_goes_and_comes(true);
}

static int grants_in(int ms) {
    const int before = served;
    sleep_ms(ms);
    return served - before;
}

/* A gate that hung for longer than a lease grants the tries that were in its socket, which were given up long ago.
 * Those grants are released when it continues, so that no client waits for the ends of their leases: until then there
 * would be a twentieth of the grants, or less. */
TEST(a_gate_that_stood_still_slows_nobody_down) {
    enum { WAITERS = 8, WINDOW_MS = 1500 };
    struct waiter waiters[WAITERS] = {{0}};
    int before = 0, after = 0;
    for (int i = 0; i < WAITERS; i++)
        wait_begin(&waiters[i], quorum_of(3, "quarantine=0&lease=3s"), "crowded", INT_MAX, 20000);
    for (int tries = 0; tries < 3 && after * 6 <= before; tries++) { /* the machine may be busy with something else */
        const int undisturbed = grants_in(WINDOW_MS);                /* but for what an earlier try has left */
        if (undisturbed > before) before = undisturbed;
        member_stop(0);
        sleep_ms(4000);
        member_continue(0);
        after = grants_in(WINDOW_MS);
        print_message("%d grants before, %d after it continued\n", before, after);
    }
    enough = true;
    for (int i = 0; i < WAITERS; i++) wait_end(&waiters[i], 0);
    enough = false;
    assert_true(after * 6 > before);
}

/* A client that does not reach the first member queues at another one: each learns of a release. */
TEST(clients_may_have_different_gates) {
    enum { WAITERS = 4, TURNS = 20 };
    struct waiter waiters[WAITERS] = {{0}};
    char uri[500];
    SCOPED_CLIENT *client = quorum_of(3, QUIET);
    dlock_lock *lock = take_everywhere(client, "cut", NULL);
    for (int i = 0; i < WAITERS; i++) { /* port 9 has no server */
        snprintf(uri, sizeof uri,
                 "quorum:?" QUIET "&of=redis%%3A%%2F%%2F127.0.0.1:%d&of=redis%%3A%%2F%%2F127.0.0.1:%d"
                 "&of=redis%%3A%%2F%%2F127.0.0.1:%d",
                 i % 2 ? 9 : member[0].port, member[1].port, member[2].port);
        wait_begin(&waiters[i], api_client("%s", uri), "cut", TURNS, 60000);
    }
    await_queue(0, "cut", WAITERS / 2);
    await_queue(1, "cut", WAITERS / 2);
    give_back(lock);
    for (int i = 0; i < WAITERS; i++) wait_end(&waiters[i], 0);
}

/* Two of three servers are up, and some clients cannot listen at the first. If both kinds of clients kept a vote where
 * they queue, none would get two. Members behind a relay answer later. */
TEST(clients_that_cannot_listen_keep_nothing) {
    enum { WAITERS = 4, TURNS = 5 };
    struct waiter waiters[WAITERS] = {{0}};
    struct relay *far[2] = {relay_new(member[0].port), relay_new(member[1].port)};
    char uri[500];
    ask_text(&member[0], "ACL SETUSER deaf on nopass ~* &dlock:* +@all -subscribe");
    dlock_client *client = quorum_of(3, QUIET);
    dlock_lock *lock = take_everywhere(client, "deaf", NULL);
    for (int i = 0; i < 2; i++) relay_delay(far[i], 10);
    for (int i = 0; i < WAITERS; i++) {
        snprintf(uri, sizeof uri,
                 "quorum:?" QUIET "&of=redis%%3A%%2F%%2F%s127.0.0.1:%d&of=redis%%3A%%2F%%2F127.0.0.1:%d"
                 "&of=redis%%3A%%2F%%2F127.0.0.1:%d",
                 i % 2 ? "deaf@" : "", i % 2 ? relay_port(far[0]) : member[0].port,
                 i % 2 ? member[1].port : relay_port(far[1]), member[2].port);
        wait_begin(&waiters[i], api_client("%s", uri), "deaf", TURNS, 20000);
    }
    await_queue(0, "deaf", WAITERS / 2);
    member_kill(2);
    sleep_ms(500); /* all have asked */
    give_back(lock);
    for (int i = 0; i < WAITERS; i++) wait_end(&waiters[i], 0);
    dlock_close(client);
    for (int i = 0; i < 2; i++) relay_end(far[i]);
}

TESTS(members_three, members_none, NULL, NULL)
