/* The census, and crowds of visitors. */
#include "census.h"

#include <sched.h>
#include <stdio.h>

enum {
    MAX_KINDS = 8,
    MEETING_MS = 30000 /* until when two that may be inside together have been, however busy the machine is */
};

struct census *census_open(int64_t run_ms) {
    struct census *census = shared_memory(sizeof *census);
    atomic_store(&census->until_ms, now_ms() + run_ms);
    return census;
}

static int all_entries(struct census *census) {
    int sum = 0;
    for (int mode = 0; mode < 3; mode++) sum += atomic_load(&census->entries[mode]);
    return sum;
}

/* True also when there is little room left for fences: that many are enough. */
bool census_is_over(struct census *census) {
    const bool met = census->meets == DLOCK_EXCLUSIVE || atomic_load(&census->most[census->meets]) > 1;
    return now_ms() >= atomic_load(&census->until_ms) + (met ? 0 : MEETING_MS) ||
           all_entries(census) > CENSUS_FENCES / 2;
}

uint64_t census_fence(struct census *census) {
    return atomic_load(&census->last_fence);
}

static void note_fence(struct census *census, uint64_t before, uint64_t fence) {
    if (fence <= before)
        FAIL("fence %llx was granted after %llx", (unsigned long long)fence, (unsigned long long)before);
    size_t at = (size_t)((fence * UINT64_C(0x9e3779b97f4a7c15)) >> 44) % CENSUS_FENCES;
    for (;; at = (at + 1) % CENSUS_FENCES) {
        uint64_t found = 0;
        if (atomic_compare_exchange_strong(&census->fences[at], &found, fence)) break;
        if (found == fence) FAIL("fence %llx was granted twice", (unsigned long long)fence);
    }
    uint64_t last = atomic_load(&census->last_fence);
    while (last < fence && !atomic_compare_exchange_weak(&census->last_fence, &last, fence)) continue;
}

/* Counts one more inside, then looks for others: of two that must not meet, one sees the other. */
static void count_in(struct census *census, enum dlock_mode mode) {
    int now = atomic_fetch_add(&census->inside[mode], 1) + 1;
    int most = atomic_load(&census->most[mode]);
    while (most < now && !atomic_compare_exchange_weak(&census->most[mode], &most, now)) continue;
    atomic_fetch_add(&census->entries[mode], 1);
}

void census_enter(struct census *census, enum dlock_mode mode, uint32_t limit, uint64_t before, uint64_t fence) {
    note_fence(census, before, fence);
    count_in(census, mode);
    int writers = atomic_load(&census->inside[DLOCK_EXCLUSIVE]), readers = atomic_load(&census->inside[DLOCK_SHARED]);
    int permits = atomic_load(&census->inside[DLOCK_PERMIT]);
    bool fine = mode == DLOCK_EXCLUSIVE ? writers == 1 && readers + permits == 0
                : mode == DLOCK_SHARED  ? writers + permits == 0
                                        : writers + readers == 0 && permits <= (int)limit;
    if (!fine)
        FAIL("%d writers, %d readers and %d permits (of %u) are inside together", writers, readers, permits,
             (unsigned)limit);
}

void census_enter_downgraded(struct census *census) {
    count_in(census, DLOCK_SHARED);
}

void census_leave(struct census *census, enum dlock_mode mode) {
    int inside = atomic_fetch_sub(&census->inside[mode], 1);
    if (inside <= 0) FAIL("somebody leaves, but nobody is inside");
}

bool census_visit(struct census *census, dlock_lock *lock, const struct dlock_options *options, int64_t timeout_ms,
                  int64_t hold_ms) {
    uint64_t before = census_fence(census);
    int code = dlock_acquire(lock, timeout_ms, ERR);
    bool gives_up =
        timeout_ms < PATIENCE_MS && (code == DLOCK_EBUSY || code == DLOCK_ETIMEDOUT || code == DLOCK_EUNAVAILABLE);
    expect_code(__FILE__, __LINE__, "dlock_acquire", gives_up ? code : 0, code);
    if (gives_up) return false;
    census_enter(census, options->mode, options->limit, before, dlock_fence(lock));
    int64_t counter = atomic_load(&census->counter);
    sched_yield();
    if (hold_ms > 0) sleep_ms(hold_ms);
    if (options->mode == DLOCK_EXCLUSIVE)
        atomic_store(&census->counter, counter + 1);
    else if (atomic_load(&census->counter) != counter)
        FAIL("somebody wrote while a reader was inside");
    census_leave(census, options->mode);
    EXPECT_CODE(0, dlock_release(lock, ERR));
    return true;
}

struct visitor {
    const struct visitors *among;
    int kind;
    dlock_client *client;
};

static void *visit(void *arg) {
    const struct visitor *visitor = arg;
    const struct visitors *among = visitor->among;
    const struct dlock_options *options = &among->kinds[visitor->kind];
    dlock_lock *lock = new_lock(visitor->client, among->name, options);
    bool was_inside = false;
    for (unsigned turn = (unsigned)visitor->kind; !was_inside || !census_is_over(among->census); turn = turn * 5 + 3) {
        int64_t timeout_ms = among->patient ? PATIENCE_MS : impatience_ms(turn);
        if (census_visit(among->census, lock, options, timeout_ms, turn / 7 % 4)) was_inside = true;
    }
    dlock_free(lock);
    return NULL;
}

static void visitors_process(void *arg) {
    const struct visitors *visitors = arg;
    struct visitor each[MAX_KINDS];
    SCOPED_CLIENT *client = open_client();
    for (int i = 0; i < visitors->n_kinds; i++) each[i] = (struct visitor){visitors, i, client};
    run_threads(visit, each, sizeof *each, visitors->n_kinds);
}

void census_run(const struct visitors *visitors, int processes) {
    struct visitors mine = *visitors;
    run_processes(visitors_process, &mine, 0, processes);
}

void census_close(struct census *census) {
    int writers = atomic_load(&census->entries[DLOCK_EXCLUSIVE]), readers = atomic_load(&census->entries[DLOCK_SHARED]);
    printf("# %d writers, %d readers, %d permits; at most %d readers, %d permits at once\n", writers, readers,
           atomic_load(&census->entries[DLOCK_PERMIT]), atomic_load(&census->most[DLOCK_SHARED]),
           atomic_load(&census->most[DLOCK_PERMIT]));
    EXPECT(writers == atomic_load(&census->counter));
    for (int mode = 0; mode < 3; mode++) EXPECT(atomic_load(&census->inside[mode]) == 0);
}
