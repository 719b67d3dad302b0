/* Sessions in this process that connect, answer and end as each test says, behind <dlock/backend_sessions.h>. */
#include "support/api.h"
#include "support/clock.h"
#include "support/test.h"

#include <dlock/backend_sessions.h>

#include <stdatomic.h>
#include <sys/eventfd.h>

enum { MANY = 60, FOR_EVER_MS = 120000 };

/* ---- the server -------------------------------------------------------------------------------------------------- */

static struct {
    atomic_int connects, acquires, renews, releases, open; /* how many there were; how many sessions are open */
    atomic_int slow;        /* the number of the session that hangs when it connects; 0: none */
    atomic_bool all_slow;   /* they all do */
    atomic_int hanging;     /* … that hangs when it is renewed or released */
    atomic_int stuck;       /* … that hangs when it is asked for a lock */
    atomic_int forgetful;   /* … that says that the lock it is to renew or release was lost, and keeps it */
    atomic_int noisy;       /* … whose descriptor stays readable */
    atomic_int reading;     /* how many threads began to read a wake-up that hangs: each, while `hanging` is -1 */
    atomic_bool over;       /* what hangs goes on */
    atomic_bool busy;       /* acquires wait in the queue */
    atomic_int logged;      /* lines */
    atomic_int left_ms;     /* the time that the last release had */
    atomic_int broken;      /* the number of the session that ends at its next request; 0: none */
    _Atomic uint64_t fence; /* the last one */
    atomic_int granted;     /* the descriptor, plus 1, of the last session that waits */
} server;

struct toy {
    int number;
    int event; /* plus 1; readable when a waiting request was granted, or the session has ended */
    uint64_t fence;
    bool waits;
};

static void hang(int timeout_ms) {
    for (int64_t until = now_ms() + timeout_ms; !server.over && now_ms() < until;) sleep_ms(1);
}

static int toy_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                       struct dlock_error *err) {
    struct toy *toy = conn;
    (void)uri, (void)peer;
    toy->number = ++server.connects;
    if (toy->number == server.slow || server.all_slow) hang(timeout_ms);
    toy->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) + 1;
    server.open++;
    return (toy->number == server.slow || server.all_slow) && !server.over
               ? dlock_fail(err, DLOCK_EUNAVAILABLE, "it hung")
               : 0;
}

static void toy_disconnect(void *conn) {
    struct toy *toy = conn;
    if (toy->event) close(toy->event - 1), server.open--;
    toy->event = 0;
}

static void toy_abandon(void *conn) {
    const struct toy *toy = conn;
    if (toy->event) close(toy->event - 1);
}

static int toy_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err) {
    const struct toy *toy = conn;
    (void)timeout_ms, (void)err;
    *fd = toy->event - 1;
    return 0;
}

static int ends(const struct toy *toy, struct dlock_error *err) {
    return toy->number == server.broken ? dlock_fail(err, DLOCK_EUNAVAILABLE, "the session has ended") : 0;
}

static int toy_acquire(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                       struct dlock_error *err) {
    struct toy *toy = conn;
    assert_int_equal(n, 1);
    server.acquires++;
    if (toy->number == server.stuck) {
        hang(timeout_ms + 1);
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "it hung");
    }
    toy->waits = server.busy && !toy->fence;
    if (!toy->fence && !toy->waits) toy->fence = ++server.fence;
    claims[0]->result = toy->waits ? DLOCK_EBUSY : 0;
    claims[0]->fence = toy->fence;
    if (toy->waits && claims[0]->flags & DLOCK_CLAIM_QUEUE) claims[0]->retry_ms = DLOCK_FOREVER;
    if (toy->waits) server.granted = toy->event;
    return ends(toy, err);
}

static int toy_renew(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct toy *toy = conn;
    (void)n;
    server.renews++;
    claims[0]->result = toy->fence && toy->number != server.forgetful ? 0 : DLOCK_ELOST;
    if (server.hanging && toy->number == server.hanging) {
        hang(timeout_ms);
        claims[0]->result = DLOCK_EUNAVAILABLE;
    }
    return ends(toy, err);
}

static int toy_release(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                       struct dlock_error *err) {
    struct toy *toy = conn;
    (void)n;
    server.releases++;
    server.left_ms = timeout_ms;
    if (server.hanging && toy->number == server.hanging) {
        hang(timeout_ms);
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "it hung");
    }
    claims[0]->result = toy->fence && toy->number != server.forgetful ? 0 : DLOCK_ELOST;
    if (toy->number == server.forgetful) return 0;
    toy->fence = 0;
    toy->waits = false;
    return ends(toy, err);
}

static int toy_wake(void *conn, struct dlock_wake *out, struct dlock_error *err) {
    struct toy *toy = conn;
    uint64_t count;
    if (server.hanging == -1) {
        server.reading++;
        hang(FOR_EVER_MS);
    }
    if (toy->number == server.noisy) return 0;
    if (read(toy->event - 1, &count, sizeof count) < 0) return 0;
    if (!toy->waits || ends(toy, err) != 0) return dlock_fail(err, DLOCK_EUNAVAILABLE, "the session has ended");
    toy->waits = false;
    toy->fence = ++server.fence;
    out->kind = DLOCK_WAKE_GRANTED;
    return 1;
}

static const struct dlock_backend one = {
    .conn_size = sizeof(struct toy),
    .connect = toy_connect,
    .disconnect = toy_disconnect,
    .abandon = toy_abandon,
    .listen = toy_listen,
    .acquire = toy_acquire,
    .renew = toy_renew,
    .release = toy_release,
    .wake = toy_wake,
};

static int sessions_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                            struct dlock_error *err) {
    return dlock_sessions_connect(conn, &one, uri, peer, timeout_ms, err);
}

static const char *const schemes[] = {"toys", NULL};

DLOCK_BACKEND(toys) = {
    .abi = DLOCK_ABI,
    .size = sizeof(struct dlock_backend),
    .name = "toys",
    .schemes = schemes,
    .caps = DLOCK_CAP_SESSION | DLOCK_CAP_THREADSAFE | DLOCK_CAP_FENCE | DLOCK_CAP_QUEUE | DLOCK_CAP_WAKE,
    DLOCK_SESSIONS_OPERATIONS,
    .connect = sessions_connect,
};

/* ---- the clients ------------------------------------------------------------------------------------------------- */

static dlock_client *client;
static dlock_lock *locks[MANY];
static atomic_int granted, refused, lost;

static int begin(void **state) {
    struct dlock_error err;
    (void)state;
    return dlock_register(&dlock_backend_toys, &err);
}

static void count_lost(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock, (void)err, (void)arg;
    lost++;
}

static int setup(void **state) {
    (void)state;
    memset(&server, 0, sizeof server);
    granted = refused = lost = 0;
    struct dlock_error err;
    if (dlock_open("toys://127.0.0.1?timeout=60s&lease=3s", NULL, &client, &err) != 0) return -1;
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.owner = DLOCK_OWNER_HANDLE;
    options.on_lost = count_lost;
    for (int i = 0; i < MANY; i++) {
        char name[20];
        snprintf(name, sizeof name, "lock-%d", i);
        if (dlock_new(client, name, &options, &locks[i], &err) != 0) return -1;
    }
    return 0;
}

static int teardown(void **state) {
    (void)state;
    server.over = true;
    for (int i = 0; i < MANY; i++) dlock_free(locks[i]);
    dlock_close(client);
    assert_int_equal(server.open, 0);
    return 0;
}

static void count(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock, (void)arg;
    ++*(err ? &refused : &granted);
}

/* Waits until at least `n` are counted. */
static void expect_soon(const atomic_int *counted, int n) {
    for (int64_t until = now_ms() + FOR_EVER_MS / 4; *counted < n; sleep_ms(1)) assert_true(now_ms() < until);
}

static void acquire_all_async(int n) {
    for (int i = 0; i < n; i++) assert_int_equal(dlock_acquire_async(locks[i], FOR_EVER_MS, count, NULL), 0);
}

static int number_of_lock(int i) { /* of the session that carries it: sessions are opened in any order */
    struct dlock_error err;
    assert_int_equal(dlock_acquire(locks[i], FOR_EVER_MS, &err), 0);
    return server.connects;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* A session that hangs when it is opened delays the wait that needs it, and no other. */
TEST(asynchronous_waits_do_not_wait_for_each_other) {
    server.slow = 5;
    acquire_all_async(MANY);
    expect_soon(&granted, MANY - 1);
    server.over = true;
    expect_soon(&granted, MANY);
    assert_int_equal(refused, 0);
    assert_int_equal(server.connects, MANY);
    for (int i = 0; i < MANY; i++) assert_int_equal(dlock_release(locks[i], NULL), 0);
}

/* A wake-up is for the claim whose session has it. */
TEST(a_waiting_request_is_answered_by_a_wake_up) {
    server.busy = true;
    assert_int_equal(dlock_acquire_async(locks[0], FOR_EVER_MS, count, NULL), 0);
    while (!server.granted) sleep_ms(1);
    sleep_ms(20);
    assert_int_equal(granted, 0);
    assert_int_equal(eventfd_write(server.granted - 1, 1), 0);
    expect_soon(&granted, 1);
    assert_int_equal(dlock_release(locks[0], NULL), 0);
}

/* A wait whose session ends asks again in another one. */
TEST(a_wait_outlives_its_session) {
    server.busy = true;
    assert_int_equal(dlock_acquire_async(locks[0], FOR_EVER_MS, count, NULL), 0);
    while (!server.granted) sleep_ms(1);
    sleep_ms(20);
    server.broken = server.connects;
    server.busy = false;
    assert_int_equal(eventfd_write(server.granted - 1, 1), 0);
    expect_soon(&granted, 1);
    assert_int_equal(server.connects, server.broken + 1);
    assert_int_equal(dlock_release(locks[0], NULL), 0);
}

/* The end of the session that carries a grant is the loss of that grant, and of no other. */
TEST(the_end_of_a_session_loses_its_grant) {
    assert_int_equal(number_of_lock(0), 1);
    assert_int_equal(number_of_lock(1), 2);
    server.broken = 1;
    expect_soon(&server.renews, 1);
    expect_soon(&lost, 1);
    assert_false(dlock_held(locks[0]));
    assert_true(dlock_held(locks[1]));
    assert_int_equal(dlock_release(locks[0], NULL), DLOCK_ELOST);
    assert_int_equal(dlock_release(locks[1], NULL), 0);
}

/* An idle session that has died unnoticed costs nothing but another one. */
TEST(an_idle_session_may_have_died) {
    assert_int_equal(number_of_lock(0), 1);
    assert_int_equal(dlock_release(locks[0], NULL), 0);
    server.broken = 1;
    assert_int_equal(number_of_lock(1), 2);
    assert_int_equal(dlock_release(locks[1], NULL), 0);
}

/* Sessions are used again, and those that are left over are closed. */
TEST(idle_sessions_are_used_again_and_closed) {
    for (int i = 0; i < 5; i++) assert_int_equal(number_of_lock(i), i + 1);
    for (int i = 0; i < 5; i++) assert_int_equal(dlock_release(locks[i], NULL), 0);
    assert_int_equal(number_of_lock(5), 5);
    for (int64_t until = now_ms() + FOR_EVER_MS / 4; server.open > 1; sleep_ms(5)) assert_true(now_ms() < until);
    assert_true(dlock_held(locks[5]));
    assert_int_equal(dlock_release(locks[5], NULL), 0);
}

/* A close is over in spite of a session that hangs, at the time that its request was given. */
TEST(a_close_does_not_wait_longer_than_a_request) {
    server.slow = 2;
    acquire_all_async(2);
    expect_soon(&server.connects, 2);
    expect_soon(&granted, 1);
}

/* ---- the operations, without the core ---------------------------------------------------------------------------- */

static const char *const tokens[] = {"a.1", "b.2"}; /* any will do */

static struct dlock_claim claim_of(size_t i) {
    return (struct dlock_claim){.name = i % 2 ? "odd" : "even",
                                .token = tokens[i],
                                .mode = DLOCK_EXCLUSIVE,
                                .flags = DLOCK_CLAIM_QUEUE,
                                .lease_ms = 900,
                                .retry_ms = -1};
}

static int ask(struct dlock_sessions *all, size_t i, int timeout_ms, struct dlock_claim *claim) {
    *claim = claim_of(i);
    assert_int_equal(dlock_sessions_acquire(all, &claim, 1, timeout_ms, NULL), 0);
    return claim->result;
}

/* The same, without a place in the queue: the answer is awaited. */
static int take(struct dlock_sessions *all, size_t i, struct dlock_claim *claim) {
    *claim = claim_of(i);
    claim->flags = 0;
    assert_int_equal(dlock_sessions_acquire(all, &claim, 1, FOR_EVER_MS, NULL), 0);
    return claim->result;
}

static int release(struct dlock_sessions *all, struct dlock_claim *claim) {
    assert_int_equal(dlock_sessions_release(all, &claim, 1, 1000, NULL), 0);
    return claim->result;
}

static int connect_again(const struct dlock_peer *peer, const char *host, int port, dlock_connect *connect, void *conn,
                         int timeout_ms, struct dlock_error *err) {
    (void)host, (void)port;
    return connect(conn, NULL, peer, timeout_ms, err);
}

static void log_line(const struct dlock_peer *peer, int level, const char *message) {
    (void)peer;
    assert_int_equal(level, DLOCK_LOG_WARN);
    assert_string_equal(message, "lock \"even\" is lost: the session has ended");
    server.logged++;
}

/* Opens them; returns the number of the first one. */
static int open_sessions(struct dlock_sessions *all) {
    static const struct dlock_peer peer = {.connect_again = connect_again, .log = log_line};
    memset(all, 0, sizeof *all);
    assert_int_equal(dlock_sessions_connect(all, &one, NULL, &peer, 1000, NULL), 0);
    return server.connects;
}

/* Has the claim asked for by a thread whose answer nobody collects, in the session after `first`. */
static void ask_in_vain(struct dlock_sessions *all, int first, struct dlock_claim *claim) {
    struct dlock_claim other;
    assert_int_equal(ask(all, 0, 1000, &other), 0); /* takes the session that is open */
    server.busy = true;
    server.slow = first + 1;
    assert_int_equal(ask(all, 1, FOR_EVER_MS, claim), DLOCK_EBUSY);
    const int before = server.acquires;
    server.over = true;
    expect_soon(&server.acquires, before + 1);
    pthread_mutex_lock(&all->mutex);
    while (all->n_threads > 0) pthread_cond_wait(&all->changed, &all->mutex);
    pthread_mutex_unlock(&all->mutex);
}

/* A thread's answer that nobody collected is over once another one came: it would free a session that has the lock. */
TEST(an_old_answer_is_not_delivered_after_a_newer_one) {
    struct dlock_sessions all;
    struct dlock_claim claim;
    const int first = open_sessions(&all);
    ask_in_vain(&all, first, &claim);
    server.busy = false;
    assert_int_equal(eventfd_write(server.granted - 1, 1), 0);
    assert_int_equal(ask(&all, 1, 1000, &claim), 0);
    const uint64_t fence = claim.fence;
    assert_int_equal(ask(&all, 1, 1000, &claim), 0);
    assert_int_equal(claim.fence, fence);
    assert_int_equal(release(&all, &claim), 0);
    dlock_sessions_disconnect(&all);
}

/* A session that says that the lock which it is to release was lost may have it still: nothing else is asked of it. */
TEST(a_session_without_its_lock_is_not_used_again) {
    struct dlock_sessions all;
    struct dlock_claim claim;
    server.forgetful = open_sessions(&all);
    assert_int_equal(ask(&all, 0, 1000, &claim), 0);
    assert_int_equal(release(&all, &claim), DLOCK_ELOST);
    assert_int_equal(take(&all, 1, &claim), 0);
    assert_int_equal(server.connects, server.forgetful + 1);
    dlock_sessions_disconnect(&all);
}

TEST(a_session_without_its_lock_at_its_renewal_is_not_used_again) {
    struct dlock_sessions all;
    struct dlock_claim claim, *renewed = &claim;
    server.forgetful = open_sessions(&all);
    assert_int_equal(ask(&all, 0, 1000, &claim), 0);
    assert_int_equal(dlock_sessions_renew(&all, &renewed, 1, 1000, NULL), 0);
    assert_int_equal(claim.result, DLOCK_ELOST);
    assert_int_equal(take(&all, 1, &claim), 0);
    assert_int_equal(server.connects, server.forgetful + 1);
    dlock_sessions_disconnect(&all);
}

/* A session that hangs when it is released leaves time for the next ones. */
TEST(a_release_that_hangs_does_not_take_all_the_time) {
    struct dlock_sessions all;
    struct dlock_claim claims[2], *each[] = {&claims[0], &claims[1]};
    server.hanging = open_sessions(&all);
    assert_int_equal(ask(&all, 0, 1000, &claims[0]), 0);
    assert_int_equal(take(&all, 1, &claims[1]), 0);
    const int open = server.open;
    assert_int_equal(dlock_sessions_release(&all, each, 2, 1000, NULL), 0);
    assert_int_equal(claims[0].result, DLOCK_EUNAVAILABLE);
    assert_int_equal(claims[1].result, 0);
    assert_in_range(server.left_ms, 2, 999);
    assert_int_equal(server.open, open - 1); /* the one that hung is closed, and its lock with it */
    dlock_sessions_disconnect(&all);
}

/* An idle session that hangs costs a part of the time, and another session answers. */
TEST(an_idle_session_may_hang) {
    struct dlock_sessions all;
    struct dlock_claim claim;
    server.stuck = open_sessions(&all);
    assert_int_equal(ask(&all, 0, 1000, &claim), 0);
    assert_int_equal(server.connects, server.stuck + 1);
    dlock_sessions_disconnect(&all);
}

static void *read_wake(void *all) {
    static struct dlock_wake wake;
    return dlock_sessions_wake(all, &wake, NULL) == 1 ? &wake : NULL;
}

static void *renew(void *args) {
    struct dlock_claim *claim = ((void **)args)[1];
    assert_int_equal(dlock_sessions_renew(((void **)args)[0], &claim, 1, FOR_EVER_MS, NULL), 0);
    return NULL;
}

/* Waits until a thread waits for a session, or until *result is not 0; returns how many do. */
static unsigned waiting_threads(struct dlock_sessions *all, const int *result) {
    for (;; sleep_ms(1)) {
        pthread_mutex_lock(&all->mutex);
        const unsigned n = all->n_waiting;
        const bool over = *result != 0;
        pthread_mutex_unlock(&all->mutex);
        if (n > 0 || over) return n;
    }
}

/* While a wake-up is read from a session, its renewal waits. */
TEST(a_renewal_waits_for_its_session) {
    struct dlock_sessions all;
    struct dlock_claim claim;
    pthread_t reader, renewer;
    open_sessions(&all);
    assert_int_equal(ask(&all, 0, 1000, &claim), 0);
    void *args[] = {&all, &claim};
    renew(args); /* from now on the session is watched */
    assert_int_equal(claim.result, 0);
    server.hanging = -1;
    assert_int_equal(eventfd_write(dlock_session_descriptor(all.first), 1), 0);
    assert_int_equal(pthread_create(&reader, NULL, read_wake, &all), 0);
    expect_soon(&server.reading, 1);
    assert_int_equal(pthread_create(&renewer, NULL, renew, args), 0);
    const unsigned waiting = waiting_threads(&all, &claim.result);
    server.over = true;
    pthread_join(reader, NULL);
    pthread_join(renewer, NULL);
    assert_int_equal(waiting, 1);
    dlock_sessions_disconnect(&all);
}

/* An acquire that came while a wake-up was read, which took long, is asked for again when that is over. */
TEST(an_acquire_that_found_its_session_in_use_is_looked_at_again) {
    struct dlock_sessions all;
    struct dlock_claim claim, *renewed = &claim;
    void *wake;
    pthread_t reader;
    server.noisy = open_sessions(&all);
    assert_int_equal(ask(&all, 0, 1000, &claim), 0);
    assert_int_equal(dlock_sessions_renew(&all, &renewed, 1, 1000, NULL), 0); /* from now on it is watched */
    server.hanging = -1;
    assert_int_equal(eventfd_write(dlock_session_descriptor(all.first), 1), 0);
    assert_int_equal(pthread_create(&reader, NULL, read_wake, &all), 0);
    expect_soon(&server.reading, 1);
    assert_int_equal(dlock_sessions_acquire(&all, &renewed, 1, FOR_EVER_MS, NULL), 0);
    assert_int_equal(claim.result, DLOCK_EBUSY);
    assert_int_equal(claim.retry_ms, DLOCK_FOREVER);
    server.over = true;
    pthread_join(reader, &wake);
    for (int64_t until = now_ms() + FOR_EVER_MS / 4; !wake && now_ms() < until; sleep_ms(1)) wake = read_wake(&all);
    assert_non_null(wake);
    assert_int_equal(((struct dlock_wake *)wake)->kind, DLOCK_WAKE_LOOK);
    dlock_sessions_disconnect(&all);
}

static void *ask_for_odd(void *args) {
    struct dlock_claim *claim = ((void **)args)[1];
    assert_int_equal(dlock_sessions_acquire(((void **)args)[0], &claim, 1, FOR_EVER_MS, NULL), 0);
    return NULL;
}

/* The lease of a grant counts from the request that it answers, which a later call has not sent. */
TEST(a_grant_to_an_earlier_request_is_proved) {
    struct dlock_sessions all;
    struct dlock_claim claim, other;
    pthread_t asker;
    server.slow = open_sessions(&all) + 1;
    assert_int_equal(ask(&all, 0, 1000, &other), 0); /* takes the session that is open */
    assert_int_equal(ask(&all, 1, FOR_EVER_MS, &claim), DLOCK_EBUSY);
    claim = claim_of(1);
    claim.flags = 0;
    void *args[] = {&all, &claim};
    assert_int_equal(pthread_create(&asker, NULL, ask_for_odd, args), 0);
    assert_int_equal(waiting_threads(&all, &claim.result), 1);
    server.over = true;
    pthread_join(asker, NULL);
    assert_int_equal(claim.result, DLOCK_EUNAVAILABLE);
    assert_int_equal(ask(&all, 1, 1000, &claim), 0);
    dlock_sessions_disconnect(&all);
}

/* A session whose server never stops sending keeps nobody from his deadline. */
TEST(a_session_that_never_falls_silent_is_left_after_a_while) {
    struct dlock_sessions all;
    struct dlock_claim claim;
    struct dlock_wake wake = {0};
    server.noisy = open_sessions(&all);
    server.busy = true;
    assert_int_equal(ask(&all, 0, 1000, &claim), DLOCK_EBUSY);
    assert_int_equal(eventfd_write(server.granted - 1, 1), 0);
    assert_int_equal(dlock_sessions_wake(&all, &wake, NULL), 0);
    dlock_sessions_disconnect(&all);
}

/* The loss of a lock is told first; then its session is closed, without the pause that an idle one is given. */
TEST(a_lost_session_is_closed_soon) {
    struct dlock_sessions all;
    struct dlock_claim claim, *renewed = &claim;
    const int first = open_sessions(&all);
    assert_int_equal(ask(&all, 0, 1000, &claim), 0);
    server.broken = first;
    all.alarm_us = 0; /* as if it had come */
    assert_int_equal(dlock_sessions_renew(&all, &renewed, 1, 1000, NULL), 0);
    assert_int_equal(claim.result, DLOCK_ELOST);
    assert_in_range(all.alarm_us, 1, all.first->since_us + DLOCK_SESSIONS_WATCH_US);
    dlock_sessions_disconnect(&all);
}

/* Only the session's end says why. */
TEST(the_reason_of_a_loss_is_logged) {
    struct dlock_sessions all;
    struct dlock_claim claim, *renewed = &claim;
    struct dlock_wake wake;
    const int first = open_sessions(&all);
    assert_int_equal(ask(&all, 0, 1000, &claim), 0);
    assert_int_equal(dlock_sessions_renew(&all, &renewed, 1, 1000, NULL), 0); /* from now on it is watched */
    server.broken = first;
    assert_int_equal(eventfd_write(dlock_session_descriptor(all.first), 1), 0);
    assert_int_equal(dlock_sessions_wake(&all, &wake, NULL), 1);
    assert_int_equal(wake.kind, DLOCK_WAKE_LOST);
    assert_int_equal(server.logged, 1);
    dlock_sessions_disconnect(&all);
}

/* Sessions that hang while they are opened cost a batch of waits the same time as one. */
TEST(the_patience_with_a_batch_is_that_with_one) {
    enum { BATCH = 200, PATIENCE_MS = DLOCK_SESSIONS_PATIENCE_US / 1000 };
    struct dlock_sessions all;
    struct dlock_claim claims[BATCH], *each[BATCH];
    char token[BATCH][8];
    open_sessions(&all);
    server.all_slow = true;
    for (int i = 0; i < BATCH; i++) {
        snprintf(token[i], sizeof token[i], "t.%d", i);
        claims[i] = claim_of(0);
        claims[i].token = token[i];
        each[i] = &claims[i];
    }
    const int64_t begin_ms = now_ms();
    assert_int_equal(dlock_sessions_acquire(&all, each, BATCH, FOR_EVER_MS, NULL), 0);
    assert_true(now_ms() - begin_ms < PATIENCE_MS * BATCH);
    server.over = true;
    dlock_sessions_disconnect(&all);
}

TESTS(setup, teardown, begin, NULL)
