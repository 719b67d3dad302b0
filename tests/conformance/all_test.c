/* dlock_acquire_all and dlock_release_all. */
#include "actor.h"
#include "thread.h"

#include <stdatomic.h>
#include <stdio.h>

enum { N = 5, BUSY = 2 };

/* Makes handles for the names "<suite.name>-0" and so on. */
static void new_locks(dlock_client *client, dlock_lock **locks, int n, const struct dlock_options *options) {
    for (int i = 0; i < n; i++) locks[i] = numbered_lock(client, i, options);
}

static void free_locks(dlock_lock **locks, int n) {
    for (int i = 0; i < n; i++) dlock_free(locks[i]);
}

/* Fails unless the first n names are taken, all but `free_one` (-1: all), or free, all but `taken_one`. */
static void expect_all(bool taken, int n, int but) {
    for (int i = 0; i < n; i++) {
        char name[DLOCK_NAME_MAX + 1];
        numbered_name(name, i);
        if (taken == (i != but))
            EXPECT_TAKEN(name);
        else
            EXPECT_FREE(name);
    }
}

/* Fails unless the first n names, except `taken_one`, are free in a moment. A call whose time is up ends on time
 * (dlock.h), and locks that a slow server has not released by then are released in the background. */
static void expect_soon_free(int n, int taken_one) {
    SCOPED_CLIENT *client = open_client();
    dlock_lock *locks[N];
    new_locks(client, locks, n, NULL);
    for (int i = 0; i < n; i++)
        EXPECT_CODE(i == taken_one ? DLOCK_EBUSY : 0, dlock_acquire(locks[i], i == taken_one ? 0 : SLACK_MS, ERR));
    free_locks(locks, n);
}

static void expect_held(dlock_lock **locks, int n, bool held) {
    for (int i = 0; i < n; i++) EXPECT(dlock_held(locks[i]) == held && (dlock_fence(locks[i]) > 0) == held);
}

void case_all_of_several(void) {
    SCOPED_CLIENT *client = open_client();
    dlock_lock *locks[N], *backwards[N];
    new_locks(client, locks, N, NULL);
    for (int i = 0; i < N; i++) backwards[i] = locks[N - 1 - i];
    uint64_t fence = 0;
    for (int round = 0; round < 3; round++) {
        EXPECT_CODE(0, dlock_acquire_all(round % 2 ? backwards : locks, N, round == 2 ? DLOCK_FOREVER : 0, ERR));
        expect_held(locks, N, true);
        EXPECT(dlock_fence(locks[0]) > fence);
        fence = dlock_fence(locks[0]);
        expect_all(true, N, -1);
        EXPECT_CODE(0, dlock_release_all(round ? locks : backwards, N, ERR));
        expect_held(locks, N, false);
        expect_all(false, N, -1);
    }
    EXPECT_CODE(0, dlock_acquire_all(locks, 0, 0, ERR));
    EXPECT_CODE(0, dlock_release_all(locks, 0, ERR));
    EXPECT_CODE(0, dlock_acquire_all(locks, 1, 0, ERR));
    EXPECT_CODE(0, dlock_release(locks[0], ERR));
    free_locks(locks, N);
}

/* With one lock busy nothing is left held, neither by a try nor by a wait that ends. */
void case_all_or_nothing(void) {
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    struct dlock_options options = options_with(LONG_LEASE_MS, 0);
    dlock_lock *locks[N], *foreign[N];
    new_locks(client, locks, N, &options);
    new_locks(other, foreign, N, &options);
    for (int busy = 0; busy < N; busy += BUSY) {
        EXPECT_CODE(0, dlock_acquire(foreign[busy], PATIENCE_MS, ERR));
        EXPECT_CODE(DLOCK_EBUSY, dlock_acquire_all(locks, N, 0, ERR));
        expect_held(locks, N, false);
        expect_all(false, N, busy);
        int64_t begun = now_ms();
        EXPECT_CODE(DLOCK_ETIMEDOUT, dlock_acquire_all(locks, N, MOMENT_MS, ERR));
        EXPECT_BETWEEN(MOMENT_MS - 1, MOMENT_MS + SLACK_MS, now_ms() - begun);
        expect_held(locks, N, false);
        expect_soon_free(N, busy);
        EXPECT_CODE(0, dlock_release(foreign[busy], ERR));
    }
    EXPECT_CODE(0, dlock_acquire_all(locks, N, SLACK_MS, ERR));
    free_locks(locks, N);
    expect_all(false, N, -1);
    free_locks(foreign, N);
}

struct call_all {
    dlock_lock **locks;
    size_t n;
    int64_t timeout_ms;
    int code;
    int64_t at_us;
};

static void *acquire_all_here(void *arg) {
    struct call_all *call = arg;
    call->code = dlock_acquire_all(call->locks, call->n, call->timeout_ms, NULL);
    call->at_us = now_us();
    if (call->code == 0) {
        expect_held(call->locks, (int)call->n, true);
        EXPECT_CODE(0, dlock_release_all(call->locks, call->n, ERR));
    }
    return NULL;
}

/* A wait for a busy lock keeps only the locks that come before it in its own order, and gets all when the busy one
 * becomes free. */
void case_all_wait_for_the_busy_one(void) {
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    struct dlock_options options = options_with(LONG_LEASE_MS, 0);
    dlock_lock *locks[N], *foreign[N];
    new_locks(client, locks, N, &options);
    new_locks(other, foreign, N, &options);
    EXPECT_CODE(0, dlock_acquire(foreign[1], 0, ERR));
    EXPECT_CODE(0, dlock_acquire(foreign[3], 0, ERR));
    struct call_all call = {locks, N, PATIENCE_MS, 1, 0};
    pthread_t thread = start_thread(acquire_all_here, &call);
    sleep_ms(300);
    EXPECT_CODE(0, dlock_release(foreign[3], ERR));
    sleep_ms(300);
    EXPECT(dlock_held(foreign[1]));
    int64_t begun_us = now_us();
    EXPECT_CODE(0, dlock_release(foreign[1], ERR));
    pthread_join(thread, NULL);
    EXPECT_CODE(0, call.code);
    EXPECT_BETWEEN(0, SLACK_MS, (call.at_us - begun_us) / 1000);
    expect_all(false, N, -1);
    free_locks(locks, N);
    free_locks(foreign, N);
}

/* The timeout is for all locks together, not for each. */
void case_all_share_the_time(void) {
    SCOPED_ACTOR first;
    char name[DLOCK_NAME_MAX + 1];
    struct dlock_options options = options_with(LONG_LEASE_MS, 0);
    tagged_name(name, "0");
    actor_start(&first, name, &options);
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    dlock_lock *locks[N], *foreign[N];
    new_locks(client, locks, N, &options);
    new_locks(other, foreign, N, &options);
    EXPECT_CODE(0, dlock_acquire(foreign[N - 1], 0, ERR));
    actor_begin(&first, ACTOR_HOLD, 4000);
    await_taken(name);
    int64_t begun = now_ms();
    EXPECT_CODE(DLOCK_ETIMEDOUT, dlock_acquire_all(locks, N, 5000, ERR));
    EXPECT_BETWEEN(4999, 7000, now_ms() - begun); /* 9000 if each had its own */
    ACTOR_FINISH(0, &first);
    expect_held(locks, N, false);
    expect_soon_free(N, N - 1);
    free_locks(locks, N);
    free_locks(foreign, N);
}

void case_all_refused(void) {
    SCOPED_CLIENT *client = open_client();
    struct dlock_options by_handle = DLOCK_OPTIONS_INIT, once = options_with(0, DLOCK_NO_REENTRY);
    by_handle.owner = DLOCK_OWNER_HANDLE;
    dlock_lock *locks[N], *handles[2], *strict[2];
    new_locks(client, locks, N, NULL);
    new_locks(client, handles, 2, &by_handle);
    new_locks(client, strict, 2, &once);
    dlock_lock *twice[] = {locks[0], locks[1], locks[0]};
    EXPECT_CODE(DLOCK_EDEADLK, dlock_acquire_all(twice, 3, DLOCK_FOREVER, ERR));
    expect_all(false, N, -1);
    /* A lock that its owner may not take again. */
    EXPECT_CODE(0, dlock_acquire(handles[1], 0, ERR));
    EXPECT_CODE(DLOCK_EDEADLK, dlock_acquire_all(handles, 2, DLOCK_FOREVER, ERR));
    EXPECT(dlock_held(handles[1]) && !dlock_held(handles[0]));
    expect_all(false, 2, 1);
    EXPECT_CODE(0, dlock_release(handles[1], ERR));
    EXPECT_CODE(0, dlock_acquire(strict[1], 0, ERR));
    EXPECT_CODE(DLOCK_EDEADLK, dlock_acquire_all(strict, 2, 100, ERR));
    EXPECT(dlock_held(strict[1]) && !dlock_held(strict[0]));
    expect_all(false, 2, 1);
    EXPECT_CODE(0, dlock_release(strict[1], ERR));
    free_locks(locks, N);
    free_locks(handles, 2);
    free_locks(strict, 2);
}

/* A lock that the thread already holds is counted once more, and released once. */
void case_all_reenter(void) {
    SCOPED_CLIENT *client = open_client();
    dlock_lock *locks[N];
    new_locks(client, locks, N, NULL);
    EXPECT_CODE(0, dlock_acquire(locks[BUSY], 0, ERR)); /* 1 */
    uint64_t fence = dlock_fence(locks[BUSY]);
    EXPECT_CODE(0, dlock_acquire_all(locks, N, 0, ERR)); /* 2 */
    expect_held(locks, N, true);
    EXPECT(dlock_fence(locks[BUSY]) == fence);
    EXPECT_CODE(0, dlock_release_all(locks, N, ERR)); /* 1 */
    EXPECT(dlock_held(locks[BUSY]));
    expect_all(false, N, BUSY);
    struct call_all call = {locks, N, 0, 1, 0};
    pthread_join(start_thread(acquire_all_here, &call), NULL);
    EXPECT_CODE(DLOCK_EBUSY, call.code); /* another thread's try has taken nothing */
    expect_all(false, N, BUSY);
    EXPECT_CODE(0, dlock_release(locks[BUSY], ERR)); /* 0 */
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(locks[BUSY], ERR));
    expect_all(false, N, -1);
    free_locks(locks, N);
}

/* All are released whatever happens; the first error is returned. */
void case_all_are_released(void) {
    SCOPED_CLIENT *client = open_client();
    struct dlock_options brief = options_with(LEASE_MS / 2, DLOCK_FIXED_LEASE);
    char name[DLOCK_NAME_MAX + 1];
    tagged_name(name, "ends");
    dlock_lock *locks[N + 1];
    new_locks(client, locks, N, NULL);
    locks[N] = locks[BUSY];
    locks[BUSY] = new_lock(client, name, &brief);
    EXPECT_CODE(0, dlock_acquire_all(locks, N + 1, 0, ERR));
    sleep_ms(LEASE_MS);
    EXPECT(!dlock_held(locks[BUSY]) && dlock_held(locks[N]));
    EXPECT_CODE(DLOCK_ELOST, dlock_release_all(locks, N + 1, ERR));
    expect_all(false, N, -1);
    EXPECT_CODE(0, dlock_acquire_all(locks, N + 1, SLACK_MS, ERR));
    EXPECT_CODE(0, dlock_release(locks[1], ERR));
    EXPECT_CODE(DLOCK_EOWNER, dlock_release_all(locks, N + 1, ERR));
    expect_held(locks, N + 1, false);
    expect_all(false, N, -1);
    free_locks(locks, N + 1);
}

/* Handles of two clients of one server, which may have names in common. */
void case_all_of_two_clients(void) {
    dlock_client *clients[2] = {open_client(), open_client()};
    dlock_lock *mine[N], *others[N], *mixed[N];
    new_locks(clients[0], mine, N, NULL);
    new_locks(clients[1], others, N, NULL);
    for (int i = 0; i < N; i++) mixed[i] = i % 2 ? mine[i] : others[i];
    EXPECT_CODE(0, dlock_acquire_all(mixed, N, 0, ERR));
    expect_held(mixed, N, true);
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(others[1], 0, ERR));
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire_all(others, N, 0, ERR)); /* its own count again, and the others are busy */
    EXPECT_CODE(0, dlock_release_all(mixed, N, ERR));
    expect_all(false, N, -1);
    EXPECT_CODE(0, dlock_acquire(others[3], 0, ERR)); /* of the other client: busy for this one */
    EXPECT_CODE(DLOCK_ETIMEDOUT, dlock_acquire_all(mixed, N, MOMENT_MS, ERR));
    expect_soon_free(N, 3);
    EXPECT_CODE(0, dlock_release(others[3], ERR));
    EXPECT_CODE(0, dlock_acquire_all(mixed, N, 0, ERR));
    EXPECT_CODE(0, dlock_release_all(mixed, N, ERR));
    free_locks(mine, N);
    free_locks(others, N);
    for (int i = 0; i < 2; i++) dlock_close(clients[i]);
}

void case_all_cancelled(void) {
    dlock_client *client = open_client(), *other = open_client();
    dlock_lock *locks[N], *foreign[N];
    new_locks(client, locks, N, NULL);
    new_locks(other, foreign, N, NULL);
    EXPECT_CODE(0, dlock_acquire(foreign[BUSY], 0, ERR));
    struct call_all call = {locks, N, DLOCK_FOREVER, 1, 0};
    pthread_t thread = start_thread(acquire_all_here, &call);
    sleep_ms(300);
    int64_t begun_us = now_us();
    EXPECT_CODE(0, dlock_cancel(locks[BUSY]));
    join_cancelled(locks[BUSY], thread);
    EXPECT_CODE(DLOCK_ECANCELED, call.code);
    EXPECT_BETWEEN(0, SLACK_MS, (call.at_us - begun_us) / 1000);
    expect_all(false, N, BUSY);
    thread = start_thread(acquire_all_here, &call);
    sleep_ms(300);
    dlock_close(client);
    pthread_join(thread, NULL);
    EXPECT_CODE(DLOCK_ECANCELED, call.code);
    expect_all(false, N, BUSY);
    free_locks(locks, N);
    free_locks(foreign, N);
    dlock_close(other);
}

/* One lock of each mode. */
void case_all_of_mixed_modes(void) {
    struct dlock_options options[] = {options_with(0, 0), options_for(DLOCK_SHARED, 0, 0),
                                      options_for(DLOCK_PERMIT, 2, 0)};
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    dlock_lock *locks[3], *foreign[3];
    for (int i = 0; i < 3; i++) {
        locks[i] = numbered_lock(client, i, &options[i]);
        foreign[i] = numbered_lock(other, i, &options[i]);
    }
    EXPECT_CODE(0, dlock_acquire(foreign[1], 0, ERR)); /* another reader */
    EXPECT_CODE(0, dlock_acquire(foreign[2], 0, ERR)); /* the other permit */
    EXPECT_CODE(0, dlock_acquire_all(locks, 3, 0, ERR));
    expect_held(locks, 3, true);
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(foreign[2], 0, ERR)); /* a third permit */
    EXPECT_CODE(0, dlock_release_all(locks, 3, ERR));
    EXPECT_CODE(0, dlock_acquire(foreign[0], 0, ERR));
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire_all(locks, 3, 0, ERR));
    EXPECT_CODE(0, dlock_acquire(foreign[2], 0, ERR)); /* nothing was left held */
    EXPECT_CODE(0, dlock_release_all(foreign, 3, ERR));
    EXPECT_CODE(0, dlock_release(foreign[2], ERR));
    EXPECT_CODE(0, dlock_acquire_all(locks, 3, SLACK_MS, ERR));
    free_locks(locks, 3);
    free_locks(foreign, 3);
}

/* ---- all together, in every order -------------------------------------------------------------------------------- */

struct arena {
    _Atomic int64_t until_ms;
    atomic_int inside[N]; /* the worker that holds it, from 1 on */
    _Atomic uint64_t fences[N];
    atomic_int rounds[64];
};
static struct arena *arena;

struct worker {
    dlock_client *client;
    int number;
};

/* Takes some of the names, at least two, beginning anywhere, forwards or backwards. Has a turn however slow the machine
 * is. */
static void *take_some(void *arg) {
    const struct worker *worker = arg;
    dlock_lock *locks[N];
    new_locks(worker->client, locks, N, NULL);
    unsigned turn = (unsigned)worker->number;
    do {
        int first = (int)(turn / 7 % N), step = turn / 3 % 2 ? 1 : N - 1, n = 2 + (int)(turn / 11 % (N - 1));
        dlock_lock *some[N];
        for (int i = 0; i < n; i++) some[i] = locks[(first + i * step) % N];
        EXPECT_CODE(0, dlock_acquire_all(some, (size_t)n, PATIENCE_MS, ERR));
        for (int i = 0; i < n; i++) {
            int at = (first + i * step) % N, found = atomic_exchange(&arena->inside[at], worker->number);
            if (found != 0) FAIL("%d has number %d while %d has it", worker->number, at, found);
            EXPECT(dlock_fence(some[i]) > atomic_exchange(&arena->fences[at], dlock_fence(some[i])));
        }
        atomic_fetch_add(&arena->rounds[worker->number], 1);
        for (int i = 0; i < n; i++) atomic_store(&arena->inside[(first + i * step) % N], 0);
        EXPECT_CODE(0, dlock_release_all(some, (size_t)n, ERR));
        turn = turn * 5 + 3;
    } while (now_ms() < atomic_load(&arena->until_ms));
    free_locks(locks, N);
    return NULL;
}

enum { PROCESSES = 4, THREADS = 2 };

static void taking_process(void *arg) {
    SCOPED_CLIENT *client = open_client();
    struct worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) workers[i] = (struct worker){client, *(int *)arg * THREADS + i + 1};
    run_threads(take_some, workers, sizeof *workers, THREADS);
}

void case_all_in_opposite_orders(void) {
    arena = shared_memory(sizeof *arena);
    atomic_store(&arena->until_ms, now_ms() + RUN_MS);
    int numbers[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) numbers[i] = i;
    run_processes(taking_process, numbers, sizeof *numbers, PROCESSES);
    int rounds = 0;
    for (int i = 1; i <= PROCESSES * THREADS; i++) {
        EXPECT(atomic_load(&arena->rounds[i]) > 0);
        rounds += atomic_load(&arena->rounds[i]);
    }
    printf("# %d rounds of two to %d locks by %d threads\n", rounds, N, PROCESSES * THREADS);
    expect_all(false, N, -1);
}

enum { PERMITS = 4, WANTED = 3 };

/* Several permits in one call, all or none. */
void case_all_permits_of_one_name(void) {
    struct dlock_options options = options_for(DLOCK_PERMIT, PERMITS, LONG_LEASE_MS);
    SCOPED_ACTOR waiter;
    actor_start(&waiter, suite.name, &options);
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    dlock_lock *lock = new_lock(client, suite.name, &options), *theirs = new_lock(other, suite.name, &options);
    dlock_lock *locks[PERMITS + 1];
    for (int i = 0; i <= PERMITS; i++) locks[i] = lock;
    EXPECT_CODE(DLOCK_EDEADLK, dlock_acquire_all(locks, PERMITS + 1, DLOCK_FOREVER, ERR));
    EXPECT_CODE(0, dlock_acquire(theirs, 0, ERR));
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire_all(locks, PERMITS, 0, ERR));
    EXPECT(!dlock_held(lock));
    EXPECT_CODE(DLOCK_ETIMEDOUT, dlock_acquire_all(locks, PERMITS, GIVES_UP_MS, ERR)); /* each asks for itself */
    EXPECT(!dlock_held(lock));
    EXPECT_CODE(0, dlock_acquire_all(locks, WANTED, PATIENCE_MS, ERR)); /* all that are left */
    EXPECT(dlock_held(lock));
    ACTOR_DO(DLOCK_EBUSY, &waiter, ACTOR_ACQUIRE, 0);
    actor_begin(&waiter, ACTOR_ACQUIRE, PATIENCE_MS);
    EXPECT_WAITING(&waiter, 100);
    EXPECT_CODE(0, dlock_release_all(locks, WANTED, ERR));
    EXPECT(!dlock_held(lock));
    ACTOR_FINISH(0, &waiter);
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire_all(locks, WANTED, 0, ERR));
    ACTOR_DO(0, &waiter, ACTOR_RELEASE, 0);
    EXPECT_CODE(0, dlock_acquire_all(locks, WANTED, PATIENCE_MS, ERR));
    EXPECT_CODE(0, dlock_release(theirs, ERR));
    dlock_free(lock); /* releases all of them */
    for (int i = 0; i < PERMITS; i++) locks[i] = theirs;
    EXPECT_CODE(0, dlock_acquire_all(locks, PERMITS, PATIENCE_MS, ERR));
    EXPECT_CODE(0, dlock_release_all(locks, PERMITS, ERR));
    dlock_free(theirs);
}

/* Each worker repeatedly takes more than half of the permits: each gets all of its permits in the end, and no two have
 * them at a time. */
static void take_most(void *arg) {
    atomic_int *inside = arg;
    struct dlock_options options = options_for(DLOCK_PERMIT, PERMITS, LONG_LEASE_MS);
    SCOPED_CLIENT *client = open_client();
    dlock_lock *lock = new_lock(client, suite.name, &options), *locks[WANTED] = {lock, lock, lock};
    for (int round = 0; round < 5; round++) {
        EXPECT_CODE(0, dlock_acquire_all(locks, WANTED, DLOCK_FOREVER, ERR));
        if (atomic_fetch_add(inside, 1) != 0) FAIL("six permits of four");
        sleep_ms(round);
        atomic_fetch_sub(inside, 1);
        EXPECT_CODE(0, dlock_release_all(locks, WANTED, ERR));
    }
    dlock_free(lock);
}

void case_all_permits_for_several_callers(void) {
    enum { CALLERS = 3 };
    atomic_int *inside = shared_memory(sizeof *inside);
    run_processes(take_most, inside, 0, CALLERS);
    EXPECT_FREE(suite.name);
}
