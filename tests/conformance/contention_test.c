/* Contention: exclusion, growing fences, and turns. All that is checked is in memory shared by all processes and is
 * only touched by the holder; it is atomic all the same, since a broken lock must show as a failed check. */
#include "census.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WORKERS = 64, NAMES = 8 };

/* A run ends after RUN_MS or, where a server is fast, after this number of rounds: more would not show more. */
enum { RUN_ROUNDS = 5000 };

/* The data that one lock protects. */
struct protected {
    atomic_int owner; /* the worker inside, from 1 on; 0: none */
    _Atomic int64_t counter;
    _Atomic uint64_t fence; /* of the last grant */
};

struct arena {
    struct protected guarded[NAMES];
    _Atomic int64_t rounds[MAX_WORKERS + 1];
    _Atomic int64_t valid_until_us[MAX_WORKERS + 1]; /* of the worker's grant: its process may be stopped for longer */
    _Atomic int64_t until_ms;                        /* when workers stop */
    _Atomic int64_t rounds_left;                     /* … or when none is left */
};
static struct arena *arena;

static bool is_valid(int worker) {
    return now_us() <= atomic_load(&arena->valid_until_us[worker]);
}

/* Enters the critical section: fails the case if another worker is inside or the fence does not grow. */
static void enter(struct protected *place, int worker, dlock_lock *lock) {
    uint64_t fence = dlock_fence(lock);
    atomic_store(&arena->valid_until_us[worker], valid_until_us(lock));
    int before = atomic_exchange(&place->owner, worker);
    if (before != 0 && is_valid(before)) FAIL("%d enters while %d is inside", worker, before);
    uint64_t last = atomic_exchange(&place->fence, fence);
    if (fence <= last) FAIL("fence %llx follows %llx", (unsigned long long)fence, (unsigned long long)last);
    int64_t counter = atomic_load(&place->counter);
    sched_yield();
    atomic_store(&place->counter, counter + 1);
    atomic_fetch_add(&arena->rounds[worker], 1);
    atomic_fetch_sub(&arena->rounds_left, 1);
}

static void leave(struct protected *place, int worker) {
    int inside = worker;
    if (!atomic_compare_exchange_strong(&place->owner, &inside, 0) && is_valid(worker))
        FAIL("%d leaves but %d is inside", worker, inside);
}

struct worker {
    int number; /* from 1 */
    dlock_client *client;
    const struct dlock_options *options;
    int names;       /* how many locks it uses, in turn */
    int64_t hold_ms; /* inside */
};

static bool time_is_up(void) {
    return now_ms() >= atomic_load(&arena->until_ms) || atomic_load(&arena->rounds_left) <= 0;
}

/* However slow the machine is, each worker has a turn. */
static void work(const struct worker *worker) {
    dlock_lock *locks[NAMES];
    for (int i = 0; i < worker->names; i++) locks[i] = numbered_lock(worker->client, i, worker->options);
    unsigned turn = (unsigned)worker->number;
    do {
        int at = (int)(turn / 7 % (unsigned)worker->names);
        turn = turn * 5 + 3;
        EXPECT_CODE(0, dlock_acquire(locks[at], PATIENCE_MS, ERR));
        enter(&arena->guarded[at], worker->number, locks[at]);
        if (worker->hold_ms > 0) sleep_ms(worker->hold_ms);
        leave(&arena->guarded[at], worker->number);
        int code = dlock_release(locks[at], ERR);
        bool late = code == DLOCK_ELOST && !is_valid(worker->number);
        expect_code(__FILE__, __LINE__, "dlock_release", late ? DLOCK_ELOST : 0, code);
    } while (!time_is_up());
    for (int i = 0; i < worker->names; i++) dlock_free(locks[i]);
}

static void *worker_thread(void *arg) {
    work(arg);
    return NULL;
}

/* A process with one client and several worker threads. */
struct crew {
    struct worker first; /* the others' numbers follow */
    int threads;
};

enum { MAX_THREADS = 8 };

static void crew_process(void *arg) {
    const struct crew *crew = arg;
    struct worker workers[MAX_THREADS];
    SCOPED_CLIENT *client = open_client();
    for (int i = 0; i < crew->threads; i++) {
        workers[i] = crew->first;
        workers[i].number += i;
        workers[i].client = client;
    }
    run_threads(worker_thread, workers, sizeof *workers, crew->threads);
}

static void open_arena(int64_t run_ms, int64_t rounds) {
    arena = shared_memory(sizeof *arena);
    atomic_store(&arena->until_ms, now_ms() + run_ms);
    atomic_store(&arena->rounds_left, rounds);
}

/* Checks that no update was lost: every round of every worker is in a counter. */
static int64_t expect_every_round_counted(void) {
    int64_t rounds = 0, counted = 0;
    for (int i = 0; i <= MAX_WORKERS; i++) rounds += atomic_load(&arena->rounds[i]);
    for (int i = 0; i < NAMES; i++) counted += atomic_load(&arena->guarded[i].counter);
    EXPECT_BETWEEN(rounds, rounds, counted);
    EXPECT(rounds > 0);
    return rounds;
}

static void run_crews(int processes, const struct crew *crew) {
    struct crew crews[MAX_THREADS];
    for (int i = 0; i < processes; i++) {
        crews[i] = *crew;
        crews[i].first.number = 1 + i * crew->threads;
    }
    run_processes(crew_process, crews, sizeof *crews, processes);
    printf("# %lld rounds by %d processes of %d threads\n", (long long)expect_every_round_counted(), processes,
           crew->threads);
}

void case_exclusion_among_processes_and_threads(void) {
    struct crew crew = {{1, NULL, NULL, 1, 0}, 3};
    open_arena(RUN_MS, RUN_ROUNDS);
    run_crews(4, &crew);
}

void case_exclusion_with_many_names(void) {
    struct crew crew = {{1, NULL, NULL, NAMES, 0}, 4};
    open_arena(RUN_MS, RUN_ROUNDS);
    run_crews(3, &crew);
}

void case_local_hand_over(void) {
    struct crew crew = {{1, NULL, NULL, 1, 0}, 6};
    open_arena(RUN_MS, RUN_ROUNDS);
    run_crews(1, &crew);
}

void case_exclusion_among_clients_of_one_process(void) {
    enum { CLIENTS = 6 };
    open_arena(RUN_MS, RUN_ROUNDS);
    struct worker workers[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) workers[i] = (struct worker){i + 1, open_client(), NULL, 1, 0};
    run_threads(worker_thread, workers, sizeof *workers, CLIENTS);
    for (int i = 0; i < CLIENTS; i++) dlock_close(workers[i].client);
    expect_every_round_counted();
}

/* Threads of one client that cannot hand over to each other, since leases, owners and flags differ. */
void case_exclusion_with_mixed_options(void) {
    enum { KINDS = 5 };
    struct dlock_options kinds[KINDS];
    kinds[0] = options_with(0, 0);
    kinds[1] = options_with(LONG_LEASE_MS, 0);
    kinds[2] = options_with(LONG_LEASE_MS, DLOCK_FIXED_LEASE);
    kinds[3] = options_with(LONG_LEASE_MS, DLOCK_NO_REENTRY);
    kinds[4] = options_with(LONG_LEASE_MS, 0);
    kinds[4].owner = DLOCK_OWNER_HANDLE;
    open_arena(RUN_MS, RUN_ROUNDS);
    SCOPED_CLIENT *client = open_client();
    struct worker workers[KINDS * 2];
    for (int i = 0; i < KINDS * 2; i++) workers[i] = (struct worker){i + 1, client, &kinds[i % KINDS], 1, 0};
    run_threads(worker_thread, workers, sizeof *workers, KINDS * 2);
    for (int i = 1; i <= KINDS * 2; i++) EXPECT(atomic_load(&arena->rounds[i]) > 0);
    expect_every_round_counted();
}

enum { IMPATIENT_LEASE_MS = 10 * LEASE_MS };

/* memcached cannot be told that a request comes late: an acquire that it executes after its release is a grant that no
 * client knows of. A client that waits gets the lock when that lease is over. */
static void expect_nobody_else_holds_it(void) {
    dlock_client *client = open_client();
    if (strncmp(dlock_client_backend(client)->name, "memcached", 9) == 0) {
        SCOPED_LOCK *lock = new_lock(client, suite.name, NULL);
        EXPECT_CODE(0, dlock_acquire(lock, IMPATIENT_LEASE_MS + SLACK_MS, ERR));
        EXPECT_CODE(0, dlock_release(lock, ERR));
    }
    dlock_close(client);
    EXPECT_FREE(suite.name);
}

/* Grants, time-outs and departures from the queue coincide in every way. */
void case_exclusion_with_impatient_waiters(void) {
    struct dlock_options lease = options_with(IMPATIENT_LEASE_MS, 0), kinds[] = {lease, lease, lease};
    struct census *census = census_open(RUN_MS);
    struct visitors visitors = {census, suite.name, kinds, 3, false};
    census_run(&visitors, 4);
    census_close(census);
    expect_nobody_else_holds_it();
}

enum { MOST_TURNS = 10 };

static int ascending(const void *a, const void *b) {
    const int64_t *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

/* Returns how often `lock` is granted to others between asking and getting it. The median of `turns`, at most MOST_TURNS,
 * because a process that waits for a processor has not asked yet. */
static int64_t usual_wait_in_grants(dlock_lock *lock, int turns, int number) {
    int64_t waits[MOST_TURNS];
    for (int i = 0; i < turns; i++) {
        int64_t before = atomic_load(&arena->guarded[0].counter), begun = now_ms();
        EXPECT_CODE(0, dlock_acquire(lock, PATIENCE_MS, ERR));
        EXPECT_BETWEEN(0, LEASE_MS * 5, now_ms() - begun);
        waits[i] = atomic_load(&arena->guarded[0].counter) - before;
        enter(&arena->guarded[0], number, lock);
        leave(&arena->guarded[0], number);
        EXPECT_CODE(0, dlock_release(lock, ERR));
        sleep_ms(10);
    }
    qsort(waits, (size_t)turns, sizeof *waits, ascending);
    return waits[turns / 2];
}

/* A process whose threads hand over among themselves: another process mostly gets its turn within `bound` of their
 * grants where there is a queue, and soon in any case. */
static void expect_turns(int64_t hold_ms, int64_t lease_ms, int turns, int64_t bound) {
    struct dlock_options options = options_with(lease_ms, 0);
    struct crew crew = {{2, NULL, &options, 1, hold_ms}, 4};
    open_arena(3600000, INT64_MAX);
    pid_t pid = start_process(crew_process, &crew, sizeof crew);
    dlock_client *client = open_client();
    dlock_lock *lock = numbered_lock(client, 0, &options);
    while (atomic_load(&arena->guarded[0].counter) < 3) sleep_ms(1);
    int64_t wait = usual_wait_in_grants(lock, turns, 1);
    atomic_store(&arena->until_ms, 0);
    dlock_free(lock);
    dlock_close(client);
    join_process(pid);
    expect_every_round_counted();
    printf("# mostly %lld grants between asking and getting\n", (long long)wait);
    if (suite.caps & DLOCK_CAP_QUEUE) EXPECT_BETWEEN(0, bound, wait);
}

/* At most 32 hand-overs in a row, during at most one lease. The bounds allow for those that happen before the other
 * process is in the queue. */
void case_other_processes_get_their_turn(void) {
    expect_turns(1, LONG_LEASE_MS, MOST_TURNS, 3 * 32);
    expect_turns(100, LEASE_MS / 2, 3, 2 * 6 + 2);
}

/* Counts how often each process, all acquiring repeatedly, got the lock in this time, once all had begun. */
static void count_turns(int processes, int64_t run_ms, int64_t *turns) {
    for (int i = 1; i <= processes; i++)
        for (int64_t until = now_ms() + PATIENCE_MS; atomic_load(&arena->rounds[i]) == 0; sleep_ms(1))
            if (now_ms() > until) FAIL("process %d never gets the lock", i);
    for (int i = 1; i <= processes; i++) turns[i] = -atomic_load(&arena->rounds[i]);
    sleep_ms(run_ms);
    for (int i = 1; i <= processes; i++) turns[i] += atomic_load(&arena->rounds[i]);
}

/* True if the busiest process had at most a fifth more turns than the idlest. */
static bool is_fair(int processes, int64_t run_ms) {
    int64_t turns[MAX_THREADS + 1], least = INT64_MAX, most = 0;
    count_turns(processes, run_ms, turns);
    for (int i = 1; i <= processes; i++) {
        if (turns[i] < least) least = turns[i];
        if (turns[i] > most) most = turns[i];
    }
    printf("# %d processes, %d ms: the busiest had %lld turns, the idlest %lld (x %.2f)\n", processes, (int)run_ms,
           (long long)most, (long long)least, (double)most / (double)(least ? least : 1));
    return most * 10 <= least * 12;
}

/* Each holds the lock for a while, so that the others have that long to line up again: a busy machine, on which a
 * process does not run for a moment, must not look like an unfair queue. */
void case_fairness(void) {
    enum { PROCESSES = 4, FAIR_RUN_MS = 2500, ROUNDS = 3, HOLD_MS = 10 };
    struct crew crew = {{1, NULL, NULL, 1, HOLD_MS}, 1};
    open_arena(3600000, INT64_MAX);
    pid_t pids[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        crew.first.number = i + 1;
        pids[i] = start_process(crew_process, &crew, sizeof crew);
    }
    bool fair = false;
    for (int round = 0; round < ROUNDS && !fair; round++) fair = is_fair(PROCESSES, FAIR_RUN_MS);
    atomic_store(&arena->until_ms, 0);
    for (int i = 0; i < PROCESSES; i++) join_process(pids[i]);
    expect_every_round_counted();
    EXPECT(fair);
}
