/* The cost of an uncontended lock: two requests and nothing else. */
#include "fixture.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
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

/* Does something else run beneath this program, which sleeps, wakes and calls the system as it likes? */
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

static void a_steady_state_allocates_nothing(void **state) {
    (void)state;
    cycles_do_not_allocate("fake:");
}

static void nor_does_it_on_one_shared_connection(void **state) {
    (void)state;
    cycles_do_not_allocate("fakesession:");
}

static void a_lock_object_is_small(void **state) {
    (void)state;
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

static void renewal_allocates_nothing(void **state) {
    (void)state;
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

static void a_cycle_is_two_requests_and_wakes_no_thread(void **state) {
    (void)state;
    dlock_lock *lock = lock_new(client_new("fake:"), "n");
    assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
    fake_settle();
    fake_log_clear();
    unsigned threads = fake_threads_started();
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
        assert_int_equal(dlock_release(lock, NULL), 0);
    }
    getrusage(RUSAGE_SELF, &after);
    assert_int_equal(fake_log_size(), 200);
    assert_int_equal(fake_threads_started(), threads);
    /* A thread that is woken goes back to sleep, which the kernel counts. */
    if (!instrumented()) assert_true(after.ru_nvcsw - before.ru_nvcsw < 50);
    assert_true(threads <= 1); /* the keeper, perhaps */
}

static void a_handle_without_a_callback_needs_no_thread_for_them(void **state) {
    (void)state;
    dlock_client *client = client_new("fake:");
    assert_int_equal(fake_threads_started(), 0);
    dlock_lock *lock = lock_new(client, "n");
    assert_int_equal(fake_threads_started(), 0);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(fake_threads_started(), 1);
}

/* Any system call but read, write and exit ends a thread in this mode, and only that thread. */
struct strict {
    dlock_lock *lock;
    bool also_call;
    bool lingers;      /* released before, instead of held */
    int go[2];         /* a pipe: the keeper, which the first acquire starts, must be at rest before */
    _Atomic int state; /* 1: in the mode, 2: came to its end, 3: came to its end, but something failed */
};

static void *strict_run(void *arg) {
    struct strict *strict = arg;
    bool failed = dlock_acquire(strict->lock, 0, NULL) != 0;
    if (strict->lingers) failed = dlock_release(strict->lock, NULL) != 0 || failed;
    uint64_t last = 0;
    char byte;
    if (read(strict->go[0], &byte, 1) != 1) return NULL;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) return NULL;
    atomic_store(&strict->state, 1);
    for (int i = 0; i < (strict->lingers ? 150 : 1000); i++) { /* what lingers goes back to the server at times */
        failed = failed || dlock_acquire(strict->lock, 1000, NULL) != 0;
        failed = failed || !dlock_held(strict->lock) || dlock_fence(strict->lock) < (strict->lingers ? last + 1 : 1);
        last = dlock_fence(strict->lock);
        failed = failed || dlock_remaining_ms(strict->lock) == 0;
        failed = failed || dlock_release(strict->lock, NULL) != 0;
    }
    if (strict->also_call) syscall(SYS_getppid);
    atomic_store(&strict->state, failed ? 3 : 2);
    syscall(SYS_exit, 0);
    return NULL;
}

static int state_of_strict(const char *uri, bool also_call, bool lingers) {
    struct strict strict = {lock_new(client_new(uri), also_call ? "control" : "n"), also_call, lingers, {-1, -1}, 0};
    pthread_t thread;
    assert_int_equal(pipe(strict.go), 0);
    assert_int_equal(fake_thread_start(&thread, strict_run, &strict), 0);
    fake_settle();
    fake_log_clear();
    assert_int_equal(write(strict.go[1], "", 1), 1);
    fake_thread_join(thread);
    close(strict.go[0]);
    close(strict.go[1]);
    assert_int_not_equal(strict.state, 0);
    assert_int_equal(fake_log_size(), 0);
    return strict.state;
}

static void taking_again_makes_no_system_call(void **state) {
    (void)state;
    if (instrumented()) skip(); /* sanitizers add system calls */
    assert_int_equal(state_of_strict("fake:", true, false), 1);
    assert_int_equal(state_of_strict("fake:", false, false), 2);
}

static void nor_does_taking_what_lingers(void **state) {
    (void)state;
    if (instrumented()) skip();
    assert_int_equal(state_of_strict("fakefull:?linger=60s", true, true), 1);
    assert_int_equal(state_of_strict("fakefull:?linger=60s", false, true), 2);
}

enum { PERMITS = 1000, TIMES = 200, BEST_OF = 50 };

static int64_t real_us(void);

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
static void the_oldest_is_found_as_fast_as_the_youngest(void **state) {
    (void)state;
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
};

static void *take_turns(void *arg) {
    struct turns *turns = arg;
    for (int i = 0; i < turns->turns; i++) {
        turns->failures += dlock_acquire(turns->lock, -1, NULL) != 0;
        turns->failures += dlock_release(turns->lock, NULL) != 0;
    }
    return NULL;
}

static int64_t real_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* How long the threads take for this many turns each: enough threads that one is always waiting, however busy the
 * machine is. */
static int64_t all_take_turns(dlock_lock *const locks[CROWD], int n) {
    struct turns turns[CROWD];
    pthread_t threads[CROWD];
    int64_t began = real_us();
    for (int i = 0; i < CROWD; i++) {
        turns[i] = (struct turns){locks[i], n, 0};
        assert_int_equal(fake_thread_start(&threads[i], take_turns, &turns[i]), 0);
    }
    for (int i = 0; i < CROWD; i++) {
        fake_thread_join(threads[i]);
        assert_int_equal(turns[i].failures, 0);
    }
    return real_us() - began;
}

/* The clock does not move, so both threads stay within one lease: 32 turns in a row, then others get theirs. */
static void two_threads_hand_over_without_a_command(void **state) {
    (void)state;
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

/* Counts the system calls of one release, by a thread whose every call is shown to the test's own. */
struct counted {
    dlock_lock *lock;
    int go[2];
    _Atomic int listener; /* of the calls; -1: not yet, -2: there is none */
    _Atomic int failures;
};

static void *counted_run(void *arg) {
    struct counted *counted = arg;
    struct sock_filter tell = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    struct sock_fprog program = {1, &tell};
    char byte;
    counted->failures += dlock_acquire(counted->lock, 0, NULL) != 0;
    if (read(counted->go[0], &byte, 1) != 1) return NULL;
    counted->failures += prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0;
    long listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    counted->listener = listener < 0 ? -2 : (int)listener;
    counted->failures += dlock_release(counted->lock, NULL) != 0;
    syscall(SYS_getppid); /* that was all */
    return NULL;
}

/* Lets every call continue. Counts the calls before getppid, and how many of them were futex. */
static int count_calls(int listener, int *futexes) {
    int calls = 0;
    *futexes = 0;
    for (bool over = false;;) {
        struct seccomp_notif call;
        memset(&call, 0, sizeof call);
        struct pollfd ready = {.fd = listener, .events = POLLIN};
        if (poll(&ready, 1, 10000) != 1 || ready.revents & POLLHUP) return calls; /* the thread has ended */
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) continue;
        over = over || call.data.nr == SYS_getppid;
        calls += !over;
        *futexes += !over && call.data.nr == SYS_futex;
        struct seccomp_notif_resp answer = {.id = call.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
}

static int calls_of_a_hand_over(bool looks_out, int *futexes) {
    dlock_client *client = client_new("fake:");
    struct counted counted = {lock_new(client, "n"), {-1, -1}, -1, 0};
    struct turns next = {lock_new(client, "n"), 1, 0};
    pthread_t from, to;
    assert_int_equal(pipe(counted.go), 0);
    assert_int_equal(fake_thread_start(&from, counted_run, &counted), 0);
    fake_settle();
    fake_log_clear();
    if (looks_out) fake_spin_us(10000000);
    assert_int_equal(fake_thread_start(&to, take_turns, &next), 0);
    if (looks_out)
        while (fake_spinning() == 0) nanosleep(&(struct timespec){0, 100000}, NULL);
    else
        fake_settle();
    assert_int_equal(write(counted.go[1], "", 1), 1);
    while (counted.listener == -1) nanosleep(&(struct timespec){0, 100000}, NULL);
    int calls = counted.listener < 0 ? -1 : count_calls(counted.listener, futexes);
    fake_thread_join(from);
    fake_spin_us(0);
    fake_thread_join(to);
    close(counted.go[0]);
    close(counted.go[1]);
    if (counted.listener >= 0) close(counted.listener);
    assert_int_equal(counted.failures + next.failures, 0);
    assert_int_equal(fake_calls(FAKE_RELEASE), 1); /* the other thread's */
    assert_int_equal(fake_calls(FAKE_ACQUIRE), 0);
    return calls;
}

/* Repeats: if a thread is preempted while it has the mutex, there is one more futex call. */
static void expect_calls_of_a_hand_over(bool looks_out, int expected) {
    int calls, tries = 0;
    do {
        int futexes;
        calls = calls_of_a_hand_over(looks_out, &futexes);
        assert_int_equal(calls, futexes);
    } while (calls != expected && ++tries < 10);
    assert_int_equal(calls, expected);
}

/* To a thread that looks out: none. To one that sleeps: one, which wakes it. */
static void handing_over_makes_no_system_call_or_one(void **state) {
    (void)state;
    if (instrumented()) skip();
    expect_calls_of_a_hand_over(true, 0);
    expect_calls_of_a_hand_over(false, 1);
}

static _Atomic int requests;

static void on_the_way(struct dlock_claim *claim) {
    (void)claim;
    requests++;
    nanosleep(&(struct timespec){0, ROUND_TRIP_US * 1000}, NULL);
}

/* Against a server that is a real round trip away, beside the same threads when their leases differ. Every 33rd turn
 * goes through the server all the same, so it cannot be more than 33 times as fast. */
static void a_hand_over_saves_the_way_to_the_server(void **state) {
    (void)state;
    if (instrumented()) skip();
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
    assert_true(sent_us > 10 * handed_us); /* 20 to 25 on a machine that has nothing else to do */
}

int main(int argc, char **argv) {
    only(argc, argv);
    const struct CMUnitTest tests[] = {
        LOCK_TEST(a_steady_state_allocates_nothing),
        LOCK_TEST(nor_does_it_on_one_shared_connection),
        LOCK_TEST(a_lock_object_is_small),
        LOCK_TEST(renewal_allocates_nothing),
        LOCK_TEST(a_cycle_is_two_requests_and_wakes_no_thread),
        LOCK_TEST(a_handle_without_a_callback_needs_no_thread_for_them),
        LOCK_TEST(taking_again_makes_no_system_call),
        LOCK_TEST(nor_does_taking_what_lingers),
        LOCK_TEST(the_oldest_is_found_as_fast_as_the_youngest),
        LOCK_TEST(two_threads_hand_over_without_a_command),
        LOCK_TEST(handing_over_makes_no_system_call_or_one),
        LOCK_TEST(a_hand_over_saves_the_way_to_the_server),
    };
    return cmocka_run_group_tests_name("cost", tests, NULL, NULL);
}
