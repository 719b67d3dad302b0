/* Holders in every mode that are killed repeatedly, many of them inside or waiting: survivors never meet a holder that
 * they exclude, and nothing stays taken. */
#include "suite.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { PLACES = 6, KILLS = 12, LIMIT = 2 };

/* In shared memory. A worker's number is that of its place; its successor there has the same number. */
static struct ward {
    _Atomic int64_t until_ms;
    _Atomic int64_t inside[PLACES];      /* 0, or 4 x a number unique to the visit, + its mode */
    _Atomic int64_t valid_until[PLACES]; /* microseconds; a worker that hung for a lease is no longer counted */
    atomic_int doomed[PLACES];           /* is being killed, and no longer counts */
    atomic_int rounds;
    _Atomic uint64_t last_fence; /* the greatest of all that have entered */
} * ward;

struct mortal {
    int place;
    struct dlock_options options;
};

static void look(int64_t *inside) {
    for (int i = 0; i < PLACES; i++) inside[i] = atomic_load(&ward->inside[i]);
}

/* Checks the holders at one moment: those seen by both of two looks. */
static void expect_peace(const struct mortal *me) {
    int64_t inside[PLACES], again[PLACES];
    int living[3] = {0};
    look(again);
    do {
        memcpy(inside, again, sizeof inside);
        look(again);
    } while (memcmp(inside, again, sizeof inside) != 0);
    int64_t now = now_us();
    for (int i = 0; i < PLACES; i++)
        if (inside[i] && !atomic_load(&ward->doomed[i]) && atomic_load(&ward->valid_until[i]) > now)
            living[inside[i] % 4]++;
    int writers = living[DLOCK_EXCLUSIVE], readers = living[DLOCK_SHARED], permits = living[DLOCK_PERMIT];
    if (atomic_load(&ward->doomed[me->place])) return;
    if (writers > 1 || (writers == 1 && readers > 0) || permits > LIMIT)
        FAIL("%d writers, %d readers and %d permits are inside together", writers, readers, permits);
}

/* `before`: the greatest when the asking began. */
static void expect_new_fence(uint64_t before, uint64_t fence) {
    EXPECT(fence > before);
    while (before < fence && !atomic_compare_exchange_weak(&ward->last_fence, &before, fence)) continue;
}

static void live(void *arg) {
    const struct mortal *me = arg;
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &me->options);
    while (now_ms() < atomic_load(&ward->until_ms)) {
        uint64_t before = atomic_load(&ward->last_fence);
        EXPECT_CODE(0, dlock_acquire(lock, PATIENCE_MS, ERR));
        atomic_store(&ward->valid_until[me->place], valid_until_us(lock));
        atomic_store(&ward->inside[me->place],
                     (1 + atomic_fetch_add(&ward->rounds, 1)) * INT64_C(4) + me->options.mode);
        expect_peace(me);
        expect_new_fence(before, dlock_fence(lock));
        sleep_ms(5);
        expect_peace(me);
        atomic_store(&ward->inside[me->place], 0);
        int code = dlock_release(lock, ERR);
        bool late = code == DLOCK_ELOST && now_us() > atomic_load(&ward->valid_until[me->place]);
        expect_code(__FILE__, __LINE__, "dlock_release", late ? DLOCK_ELOST : 0, code);
    }
}

/* The first `n_first` places use one mode, the others another. */
static void live_and_die(enum dlock_mode first, int n_first, enum dlock_mode others) {
    ward = shared_memory(sizeof *ward);
    atomic_store(&ward->until_ms, INT64_MAX);
    struct mortal mortals[PLACES];
    pid_t pids[PLACES];
    for (int i = 0; i < PLACES; i++) {
        enum dlock_mode mode = i < n_first ? first : others;
        mortals[i] = (struct mortal){i, options_for(mode, mode == DLOCK_PERMIT ? LIMIT : 0, LEASE_MS)};
        pids[i] = start_process(live, &mortals[i], sizeof mortals[i]);
    }
    for (int i = 0; i < KILLS; i++) {
        int at = i * 5 % PLACES;
        sleep_ms(150 + i * 7 % 50);
        atomic_store(&ward->doomed[at], 1);
        kill_process(pids[at]);
        atomic_store(&ward->inside[at], 0);
        atomic_store(&ward->doomed[at], 0);
        pids[at] = start_process(live, &mortals[at], sizeof mortals[at]);
    }
    int before = atomic_load(&ward->rounds);
    sleep_ms(LEASE_MS * 3 / 2);
    atomic_store(&ward->until_ms, 0);
    for (int i = 0; i < PLACES; i++) join_process(pids[i]);
    printf("# %d rounds, %d of them after the last of %d deaths\n", atomic_load(&ward->rounds),
           atomic_load(&ward->rounds) - before, KILLS);
    if (atomic_load(&ward->rounds) <= before) FAIL("nobody got the lock after the last kill");
}

void case_exclusion_when_holders_die(void) {
    live_and_die(DLOCK_EXCLUSIVE, PLACES, DLOCK_EXCLUSIVE);
}

void case_readers_and_writers_die(void) {
    live_and_die(DLOCK_EXCLUSIVE, 2, DLOCK_SHARED);
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(lock, LEASE_MS + SLACK_MS, ERR));
}

/* Afterwards all permits are there, and no more. */
void case_permit_holders_die(void) {
    live_and_die(DLOCK_PERMIT, PLACES, DLOCK_PERMIT);
    struct dlock_options permits = options_for(DLOCK_PERMIT, LIMIT, LONG_LEASE_MS);
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &permits);
    for (int i = 0; i < LIMIT; i++) EXPECT_CODE(0, dlock_acquire(lock, LEASE_MS + SLACK_MS, ERR));
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(lock, 0, ERR));
}
