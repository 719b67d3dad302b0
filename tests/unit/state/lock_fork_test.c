/* fork() at any moment: the child's handles answer EFORKED, it closes its copies of the descriptors without a message
 * to the server, and the parent continues as if nothing had happened. The child calls nothing that starts a thread or
 * takes a mutex that another thread may have held. */
#include "fixture.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* The exit status of a child that uses what it inherited; 0: all is as documented. */
static int use_inherited(dlock_client *client, dlock_lock *lock) {
    struct dlock_error err;
    dlock_lock *fresh = NULL;
    char text[DLOCK_TICKET_MAX + 1];
    if (dlock_acquire(lock, -1, &err) != DLOCK_EFORKED || err.code != DLOCK_EFORKED) return 1;
    if (dlock_release(lock, &err) != DLOCK_EFORKED) return 2;
    if (dlock_held(lock) || dlock_fence(lock) || dlock_remaining_ms(lock)) return 3;
    if (dlock_token(lock, text, sizeof text, &err) != DLOCK_EFORKED) return 4;
    if (dlock_cancel(lock) != DLOCK_EFORKED) return 5;
    if (dlock_new(client, "n", NULL, &fresh, &err) != DLOCK_EFORKED) return 6;
    if (dlock_client_fd(client) != DLOCK_EFORKED) return 7;
    if (dlock_acquire_all(&lock, 1, -1, &err) != DLOCK_EFORKED) return 8;
    if (dlock_export(lock, text, sizeof text, &err) != DLOCK_EFORKED) return 9;
    if (strcmp(dlock_name(lock), "n") != 0) return 11;
    dlock_free(lock);
    dlock_close(client);
    return 0;
}

/* Forks now. The child checks that it has dropped `connections` connections, once each, and then uses the handles, if
 * there are any. Fails the test unless all is well there; a child that hangs is ended by its alarm. */
static void fork_now(unsigned connections, dlock_client *client, dlock_lock *lock) {
    int status = -1;
    size_t said = fake_log_size();
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        if (fake_abandoned() != connections) _exit(100 + (int)fake_abandoned());
        int rc = client ? use_inherited(client, lock) : 0;
        if (rc != 0 || fake_log_size() != said) _exit(rc ? rc : 10);
        raise(SIGKILL); /* at a normal exit memcheck would report what other threads' stacks refer to as leaked */
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_int_equal(fake_abandoned(), 0);
}

/* The lock is renewed until long after its first lease. */
static void lives_on(struct actor *holder, dlock_lock *lock) {
    struct fake_grant grant = fake_holder("n");
    uint64_t fence = fence_by(holder, lock);
    fake_advance_ms(3 * LEASE_MS);
    assert_true(held_by(holder, lock));
    assert_int_equal(fence_by(holder, lock), fence);
    assert_string_equal(fake_holder("n").token, grant.token);
    assert_int_equal(release_by(holder, lock), 0);
    assert_string_equal(fake_holder("n").token, "");
}

/* By then the descriptors' numbers may be other files of the child's. */
TEST(a_child_of_a_child_lets_go_of_nothing) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_settle();
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        unsigned once = fake_abandoned();
        int inner = 0;
        pid_t grandchild = fork();
        if (grandchild == 0) _exit(fake_abandoned() == once ? 0 : 1);
        if (waitpid(grandchild, &inner, 0) != grandchild) _exit(2);
        _exit(once == 0 ? 3 : inner != 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(fake_abandoned(), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
}

/* ---- in the middle of a connect ---------------------------------------------------------------------------------- */

static int open_client(void *arg) {
    return dlock_open("fake:", NULL, arg, NULL);
}

/* There is no handle yet, but the connection exists. */
TEST(a_fork_while_a_client_is_opened) {
    dlock_client *client = NULL;
    struct actor *opener = actor_new();
    fake_fault(FAKE_CONNECT, FAKE_SLOW, 1);
    begin_call(opener, open_client, &client);
    assert_int_equal(fake_slow_waiting(), 1);
    fork_now(1, NULL, NULL);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(opener), 0);
    assert_int_equal(fake_calls(FAKE_CONNECT), 1);
    assert_int_equal(fake_calls(FAKE_DISCONNECT), 0);
    dlock_lock *lock = lock_new(client, "n");
    assert_int_equal(acquire_by(opener, lock, 0), 0);
    lives_on(opener, lock);
    lock_end(lock);
    dlock_close(client);
}

/* The connections of the pool and of the listener, and its subscription: an answer after the fork still goes to the
 * parent. */
TEST(a_fork_while_a_thread_connects) {
    static const enum fake_op ops[] = {FAKE_CONNECT, FAKE_LISTEN};
    struct actor *waiter = actor_new(), *holder = actor_new();
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        dlock_client *client = client_new("fake:?connections=1");
        dlock_lock *lock = lock_new(client, "n"), *held = lock_new(client, "held");
        struct fake_grant other = taken("n");
        assert_int_equal(acquire_by(holder, held, 0), 0);
        fake_log_clear();
        fake_fault(ops[i], FAKE_SLOW, 1);
        begin_acquire(waiter, lock, -1); /* it has to queue, and so the keeper opens a listener */
        assert_int_equal(fake_slow_waiting(), 1);
        fork_now(fake_connections(), client, lock);
        fake_slow_go();
        fake_settle();
        assert_int_equal(fake_calls(FAKE_CONNECT), 1);
        assert_int_equal(fake_calls(FAKE_DISCONNECT), 0);
        fake_other_release(&other, "n");
        fake_settle();
        assert_int_equal(result(waiter), 0);
        assert_true(held_by(holder, held));
        lives_on(waiter, lock);
        assert_int_equal(release_by(holder, held), 0);
        lock_end(lock);
        lock_end(held);
        client_end(client);
    }
}

/* A thread that has lost its connection, in the middle of the next one. */
TEST(a_fork_while_a_thread_connects_again) {
    struct actor *actor = actor_new();
    dlock_client *client = client_new("fake:?connections=1");
    dlock_lock *lock = lock_new(client, "n");
    fake_settle();
    fake_server_cut();
    fake_fault(FAKE_CONNECT, FAKE_SLOW, 1);
    begin_acquire(actor, lock, 2000);
    assert_int_equal(fake_slow_waiting(), 1);
    fork_now(fake_connections(), client, lock);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(actor), 0);
    lives_on(actor, lock);
}

/* ---- in the middle of a request ---------------------------------------------------------------------------------- */

/* The answer arrives, or it never does and the keeper repeats the request: the grant survives unless it is tied to that
 * connection. */
TEST(a_fork_while_the_keeper_renews) {
    static const struct {
        const char *uri;
        bool answered;
    } cases[] = {{"fake:", true},  {"fakepoll:", true},  {"fakesession:", true},
                 {"fake:", false}, {"fakepoll:", false}, {"fakesession:", false}};
    struct actor *holder = actor_new();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dlock_client *client = client_new(cases[i].uri);
        dlock_lock *lock = lock_new(client, "n");
        assert_int_equal(acquire_by(holder, lock, 0), 0);
        fake_log_clear();
        fake_fault(FAKE_RENEW, cases[i].answered ? FAKE_SLOW : FAKE_SLOW_AFTER, 1);
        fake_advance_ms(THIRD_MS);
        assert_int_equal(fake_slow_waiting(), 1);
        fork_now(fake_connections(), client, lock);
        assert_int_equal(fake_claims(FAKE_RENEW, "n"), 1);
        if (cases[i].answered) fake_slow_go(); /* else the request ends with its time */
        fake_advance_ms(THIRD_MS);
        assert_true(remaining_by(holder, lock) > LEASE_MS / 2);
        assert_int_equal(fake_calls(FAKE_RELEASE), 0);
        lives_on(holder, lock);
        lock_end(lock);
        client_end(client);
    }
}

/* The answers to an acquire and a release go to the parent only. */
TEST(a_fork_while_a_thread_asks) {
    struct actor *actor = actor_new();
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n");
    fake_fault(FAKE_ACQUIRE, FAKE_SLOW_AFTER, 1);
    begin_acquire(actor, lock, 2000);
    assert_int_equal(fake_slow_waiting(), 1);
    fork_now(fake_connections(), client, lock);
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(actor), 0);
    fake_fault(FAKE_RELEASE, FAKE_SLOW, 1);
    begin_release(actor, lock);
    assert_int_equal(fake_slow_waiting(), 1);
    fork_now(fake_connections(), client, lock);
    assert_string_not_equal(fake_holder("n").token, "");
    fake_slow_go();
    fake_settle();
    assert_int_equal(result(actor), 0);
    assert_string_equal(fake_holder("n").token, "");
    assert_int_equal(acquire_by(actor, lock, 0), 0);
    lives_on(actor, lock);
}

/* ---- in a callback ----------------------------------------------------------------------------------------------- */

/* The call during which the child was forked also returns in the child. */
struct forks {
    pid_t child; /* -1: not forked yet; 0: this is the child */
    size_t said; /* lines of the log before the fork */
    unsigned calls;
};

static void fork_here(struct forks *forks) {
    forks->calls++;
    if (forks->child != -1) return;
    forks->said = fake_log_size();
    forks->child = fork();
    if (forks->child == 0) alarm(20);
}

/* Ends the child, which has to find that `rc` is EFORKED and that nothing was sent; or waits for it. */
static void parent_goes_on(struct forks *forks, int rc) {
    int status = -1;
    if (forks->child == 0)
        _exit(rc != DLOCK_EFORKED ? 1 : forks->calls != 1 ? 2 : fake_log_size() != forks->said ? 3 : 0);
    assert_int_equal(waitpid(forks->child, &status, 0), forks->child);
    assert_int_equal(status, 0);
}

static int each_forks(const struct dlock_info *info, void *arg) {
    (void)info;
    fork_here(arg);
    return 0;
}

TEST(a_fork_while_locks_are_shown) {
    struct forks forks = {.child = -1};
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n");
    struct actor *holder = actor_new();
    assert_int_equal(acquire_by(holder, lock, 0), 0);
    int rc = dlock_inspect(client, "n", each_forks, &forks, NULL);
    parent_goes_on(&forks, rc);
    assert_int_equal(rc, 0);
    lives_on(holder, lock);
}

static void done_forks(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock, (void)err;
    fork_here(arg);
}

/* Two callbacks are due: the child runs only the one that forked it. */
static void two_due(struct forks *forks, dlock_client **client, dlock_lock *locks[2]) {
    struct dlock_client_options manual = DLOCK_CLIENT_OPTIONS_INIT;
    manual.flags = DLOCK_CLIENT_MANUAL;
    assert_int_equal(dlock_open("fake:", &manual, client, NULL), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dlock_new(*client, i ? "m" : "n", &by_handle, &locks[i], NULL), 0);
        assert_int_equal(dlock_acquire_async(locks[i], 0, done_forks, forks), 0);
        fake_settle();
    }
}

TEST(a_fork_while_callbacks_are_dispatched) {
    struct forks forks = {.child = -1};
    dlock_client *client;
    dlock_lock *locks[2];
    two_due(&forks, &client, locks);
    int rc = dlock_client_dispatch(client);
    parent_goes_on(&forks, rc);
    assert_int_equal(rc, 2);
    for (int i = 0; i < 2; i++) dlock_free(locks[i]);
    dlock_close(client);
}

TEST(a_fork_while_a_handle_is_freed) {
    struct forks forks = {.child = -1};
    dlock_client *client;
    dlock_lock *locks[2];
    two_due(&forks, &client, locks);
    dlock_free(locks[0]);
    parent_goes_on(&forks, DLOCK_EFORKED);
    assert_string_equal(fake_holder("n").token, "");
    dlock_free(locks[1]);
    dlock_close(client);
}

TEST(a_fork_while_a_client_is_closed) {
    struct forks forks = {.child = -1};
    dlock_client *client;
    dlock_lock *locks[2];
    two_due(&forks, &client, locks);
    dlock_close(client);
    parent_goes_on(&forks, DLOCK_EFORKED);
    for (int i = 0; i < 2; i++) dlock_free(locks[i]);
    assert_string_equal(fake_holder("n").token, "");
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
