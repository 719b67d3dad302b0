/* The cost of an uncontended lock: two requests and nothing else. */
#include "fixture.h"

#include "support/scheduler.h"

#include <linux/seccomp.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* Does something else run beneath this program, which calls the system as it likes? */
static bool instrumented(void) {
    const char *preload = getenv("LD_PRELOAD");
    return SANITIZED || (preload && strstr(preload, "vgpreload"));
}

/* The linker sends every allocation of this program's own objects, the core's among them, through here (--wrap). */
static _Atomic unsigned allocations;
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *memory, size_t size);

void *__wrap_malloc(size_t size) {
    atomic_fetch_add(&allocations, 1);
    return __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size) {
    atomic_fetch_add(&allocations, 1);
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *memory, size_t size) {
    atomic_fetch_add(&allocations, 1);
    return __real_realloc(memory, size);
}

static void cycles_do_not_allocate(const char *uri) {
    dlock_client *client = client_new(uri);
    atomic_store(&allocations, 0);
    dlock_lock *lock = lock_new(client, "n");
    assert_true(allocations > 0); /* this counter counts */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
        assert_int_equal(dlock_release(lock, NULL), 0);
    }
    fake_settle();
    unsigned before = allocations;
    for (int i = 0; i < 500; i++) {
        assert_int_equal(dlock_acquire(lock, i % 2 ? 0 : 1000, NULL), 0);
        assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
        assert_int_equal(dlock_release(lock, NULL), 0);
        assert_int_equal(dlock_release(lock, NULL), 0);
    }
    assert_int_equal(allocations, before);
}

TEST(a_steady_state_allocates_nothing) {
    cycles_do_not_allocate("fake:");
}

TEST(nor_does_it_on_one_shared_connection) {
    cycles_do_not_allocate("fakesession:");
}

TEST(a_lock_object_is_small) {
    enum { N = 100000 };
    static dlock_lock *locks[N];
    dlock_client *client = client_new("fake:");
    size_t used = mallinfo2().uordblks;
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "lock-%d", i);
        assert_int_equal(dlock_new(client, name, NULL, &locks[i], NULL), 0);
    }
    size_t each = (mallinfo2().uordblks - used) / N;
    for (int i = 0; i < N; i++) dlock_free(locks[i]);
    print_message("a lock object: %zu bytes\n", each);
    assert_true(each < 300); /* under a sanitizer: 0 */
}

TEST(renewal_allocates_nothing) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_advance_ms(LEASE_MS);
    fake_settle();
    struct fake_command renewed;
    fake_log_clear();
    unsigned before = allocations;
    fake_advance_ms(4 * LEASE_MS);
    assert_int_equal(allocations, before);
    assert_true(fake_last(FAKE_RENEW, "n", &renewed));
}

TEST(a_cycle_is_two_requests_and_wakes_no_thread) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
    fake_settle();
    assert_int_equal(fake_log_size(), 3); /* with the connection of the dlock_open */
    fake_log_clear();
    unsigned threads = fake_threads_started();
    unsigned long calls = sim_calls();
    for (int i = 0; i < 100; i++) {
        assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
        assert_int_equal(dlock_release(lock, NULL), 0);
    }
    assert_int_equal(fake_log_size(), 200);
    assert_int_equal(fake_threads_started(), threads);
    assert_int_equal(sim_calls(), calls); /* to wake a thread is one */
    assert_true(threads <= 1);            /* the keeper, perhaps */
}

TEST(a_handle_without_a_callback_needs_no_thread_for_them) {
    dlock_client *client = client_new("fake:");
    assert_int_equal(fake_threads_started(), 0);
    dlock_lock *lock = lock_new(client, "n");
    assert_int_equal(fake_threads_started(), 0);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(fake_threads_started(), 1);
}

/* What a child does, which the kernel kills at any system call but exit. Calls that the fibers spare it are counted:
 * tests/support/environment.c. */
static void no_system_calls_from_here(void) {
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) _exit(98);
}

/* Its exit status; -1: the kernel killed it. */
static int status_of(pid_t child) {
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool takes_again(dlock_lock *lock, bool lingers) {
    uint64_t last = 0;
    bool failed = false;
    for (int i = 0; i < (lingers ? 150 : 1000); i++) { /* what lingers goes back to the server at times */
        failed = failed || dlock_acquire(lock, 1000, NULL) != 0;
        failed = failed || !dlock_held(lock) || dlock_fence(lock) < (lingers ? last + 1 : 1);
        last = dlock_fence(lock);
        failed = failed || dlock_remaining_ms(lock) == 0;
        failed = failed || dlock_release(lock, NULL) != 0;
    }
    return !failed;
}

/* Takes the lock many times; 0: without any system call. `lingers`: it was released before, instead of held. */
static int calls_of_taking_again(const char *uri, bool also_call, bool lingers) {
    pid_t child = fork();
    if (child != 0) return status_of(child);
    dlock_lock *lock = lock_new(client_new(uri), "n");
    if (dlock_acquire(lock, 0, NULL) != 0 || (lingers && dlock_release(lock, NULL) != 0)) _exit(97);
    fake_settle(); /* the keeper, which the first acquire starts, must be at rest */
    fake_log_clear();
    unsigned long before = sim_calls();
    if (!instrumented()) no_system_calls_from_here(); /* sanitizers add some */
    bool taken_again = takes_again(lock, lingers) && fake_log_size() == 0;
    if (also_call) syscall(SYS_getppid);
    int status = taken_again ? (int)(sim_calls() - before) : 96;
    if (instrumented()) _exit(status);
    return (int)syscall(SYS_exit, status);
}

TEST(taking_again_makes_no_system_call) {
    if (!instrumented()) assert_int_equal(calls_of_taking_again("fake:", true, false), -1);
    assert_int_equal(calls_of_taking_again("fake:", false, false), 0);
}

TEST(nor_does_taking_what_lingers) {
    if (!instrumented()) assert_int_equal(calls_of_taking_again("fakefull:?linger=60s", true, true), -1);
    assert_int_equal(calls_of_taking_again("fakefull:?linger=60s", false, true), 0);
}

enum { PERMITS = 1000, TIMES = 200, BEST_OF = 50 };

static int64_t real_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* The shortest of several tries: whatever else the machine does only makes it longer. */
static int64_t search_costs(dlock_lock *lock) {
    int64_t best_us = INT64_MAX;
    for (int i = 0; i < BEST_OF; i++) {
        int64_t began = real_us();
        for (int j = 0; j < TIMES; j++) assert_true(dlock_fence(lock) > 0);
        if (real_us() - began < best_us) best_us = real_us() - began;
    }
    return best_us;
}

/* Of many permits of one name. */
TEST(the_oldest_is_found_as_fast_as_the_youngest) {
    if (instrumented()) skip();
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    dlock_client *client = client_new("fakefull:");
    dlock_lock *oldest = NULL, *youngest = NULL;
    options.mode = DLOCK_PERMIT;
    options.limit = PERMITS;
    for (int i = 0; i < PERMITS; i++) {
        youngest = lock_new_with(client, "n", &options);
        if (!oldest) oldest = youngest;
        assert_int_equal(dlock_acquire(youngest, 0, NULL), 0);
    }
    int64_t young_us = search_costs(youngest), old_us = search_costs(oldest);
    print_message("dlock_fence of the youngest: %lld us, of the oldest: %lld us\n", (long long)young_us,
                  (long long)old_us);
    assert_true(old_us <= 4 * young_us + 10);
}

/* ---- hand-over between threads ---- */

enum { CROWD = 12, TURNS = 400, ROUND_TRIP_US = 400 };

struct turns {
    dlock_lock *lock;
    int turns;
    int failures;
    _Atomic bool over;
};

static void *take_turns(void *arg) {
    struct turns *turns = arg;
    for (int i = 0; i < turns->turns; i++) {
        turns->failures += dlock_acquire(turns->lock, -1, NULL) != 0;
        turns->failures += dlock_release(turns->lock, NULL) != 0;
    }
    turns->over = true;
    return NULL;
}

/* How long the threads take for this many turns each. */
static int64_t all_take_turns(dlock_lock *const locks[CROWD], int n) {
    struct turns turns[CROWD];
    pthread_t threads[CROWD];
    int64_t began = dlock__now_us();
    for (int i = 0; i < CROWD; i++) {
        turns[i] = (struct turns){locks[i], n, 0, false};
        assert_int_equal(fake_thread_start(&threads[i], take_turns, &turns[i]), 0);
    }
    fake_settle();
    for (int i = 0; i < CROWD; i++) {
        while (!turns[i].over) assert_true(fake_advance_next());
        fake_thread_join(threads[i]);
        assert_int_equal(turns[i].failures, 0);
    }
    return dlock__now_us() - began;
}

/* The clock does not move, so both threads stay within one lease: 32 turns in a row, then others get theirs. */
TEST(two_threads_hand_over_without_a_command) {
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    struct actor *holder = actor_new(), *next = actor_new(), *swap;
    assert_int_equal(acquire_by(holder, lock, 0), 0);
    fake_log_clear();
    for (int i = 0; i < 32; i++) {
        begin_acquire(next, lock, -1);
        uint64_t fence = fence_by(holder, lock);
        assert_int_equal(release_by(holder, lock), 0);
        fake_settle();
        assert_int_equal(result(next), 0);
        assert_true(fence_by(next, lock) > fence);
        swap = holder, holder = next, next = swap;
    }
    assert_int_equal(fake_log_size(), 0);
    begin_acquire(next, lock, -1);
    assert_int_equal(release_by(holder, lock), 0);
    fake_settle();
    assert_int_equal(result(next), 0);
    assert_int_equal(fake_calls(FAKE_RELEASE), 1);
    assert_int_equal(fake_calls(FAKE_ACQUIRE), 1);
    assert_int_equal(release_by(next, lock), 0);
}

/* Counts the calls of one release, after which another thread of this process has the lock. That thread is stopped in
 * the meantime: it could have the mutex otherwise. `strict`: in a child that ends with the count. */
static int calls_of_a_hand_over(bool looks_out, bool strict) {
    dlock_client *client = client_new("fake:");
    dlock_lock *lock = lock_new(client, "n");
    struct turns next = {lock_new(client, "n"), 1, 0, false};
    pthread_t to;
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    if (looks_out) fake_spin_us(100);
    assert_int_equal(fake_thread_start(&to, take_turns, &next), 0);
    fake_settle();
    assert_int_equal(fake_spinning(), looks_out);
    fake_log_clear();
    fake_thread_stop(to);
    unsigned long before = sim_calls();
    if (strict) no_system_calls_from_here();
    int failures = dlock_release(lock, NULL) != 0;
    int calls = (int)(sim_calls() - before);
    if (strict) syscall(SYS_exit, failures ? 96 : calls);
    fake_spin_us(0);
    fake_thread_continue();
    fake_thread_join(to);
    assert_int_equal(failures + next.failures, 0);
    assert_int_equal(fake_calls(FAKE_RELEASE), 1); /* the other thread's */
    assert_int_equal(fake_calls(FAKE_ACQUIRE), 0);
    return calls;
}

static void expect_calls_of_a_hand_over(bool looks_out, int expected) {
    if (!instrumented()) {
        pid_t child = fork();
        if (child == 0) calls_of_a_hand_over(looks_out, true);
        assert_int_equal(status_of(child), expected);
    }
    assert_int_equal(calls_of_a_hand_over(looks_out, false), expected);
}

/* To a thread that looks out: none. To one that sleeps: one, which wakes it. */
TEST(handing_over_makes_no_system_call_or_one) {
    expect_calls_of_a_hand_over(true, 0);
    expect_calls_of_a_hand_over(false, 1);
}

static _Atomic int requests;

static void on_the_way(struct dlock_claim *claim) {
    (void)claim;
    requests++;
    sim_sleep_us(ROUND_TRIP_US);
}

/* Against a server that is a real round trip away, beside the same threads when their leases differ. Every 33rd turn
 * goes through the server all the same, so it cannot be more than 33 times as fast. */
TEST(a_hand_over_saves_the_way_to_the_server) {
    dlock_client *client = client_new("fake:");
    dlock_lock *alike[CROWD], *unlike[CROWD];
    for (int i = 0; i < CROWD; i++) {
        struct dlock_options options = {.size = sizeof options, .lease_ms = LEASE_MS + i};
        alike[i] = lock_new(client, "n");
        unlike[i] = lock_new_with(client, "n", &options);
    }
    fake_edit(FAKE_ACQUIRE, on_the_way, 1000000);
    fake_edit(FAKE_RELEASE, on_the_way, 1000000);
    requests = 0;
    int64_t handed_us = all_take_turns(alike, TURNS) * 1000 / TURNS / CROWD;
    fake_log_clear();
    assert_true(requests * 20 < 2 * TURNS * CROWD);
    int64_t sent_us = all_take_turns(unlike, TURNS / 10) * 10000 / TURNS / CROWD;
    print_message("a turn: %lld ns handed over, %lld ns through the server\n", (long long)handed_us,
                  (long long)sent_us);
    assert_true(sent_us > 30 * handed_us);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
