/* Waiters that poll, and learn how long others hold the name: many of them on one lock, with a simulated clock. */
#include "state/client.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>

enum { TRIP_US = 60, PAUSE_MIN_US = 1000, PAUSE_MAX_US = 50000, WAITERS_MAX = 1000 };

/* How long each holds it, of `mean_us` on the average or about. */
enum holders { REGULAR, RANDOM, SOME_FOR_LONG, NOW_THIS_NOW_THAT };

struct scene {
    size_t n;
    enum holders holders;
    int64_t mean_us, rest_us; /* from the release to the next acquire */
    bool learns;
};

struct outcome {
    double in_use;   /* the share of the time in which it was held */
    double asked;    /* questions in a second, of each */
    double fairness; /* the fewest grants of one, as a share of the most */
};

struct worker {
    struct dlock__rhythm *rhythm;
    enum { RESTING, ASKING, HOLDING } does;
    int64_t until_us, pause_us;
    unsigned grants, asked;
};

static struct dlock_client client;

/* In [0, 1). */
static double chance(void) {
    return (double)dlock__jitter(&client, 0, 999999) / 1e6;
}

static int64_t hold_us(const struct scene *scene) {
    const double x = chance();
    switch (scene->holders) {
    case REGULAR: break;
    case RANDOM: return 10 - (int64_t)(log(1 - x) * (double)scene->mean_us);
    case SOME_FOR_LONG: return x < 0.9 ? scene->mean_us : scene->mean_us * 5;
    case NOW_THIS_NOW_THAT: return x < 0.5 ? scene->mean_us : scene->mean_us * 3;
    }
    return scene->mean_us + (int64_t)(x * 100);
}

/* As a waiter of the core does. */
static int64_t ask_again_at(const struct scene *scene, struct worker *worker, int64_t now_us) {
    int64_t due_us = DLOCK__NEVER, most_us;
    if (scene->learns) due_us = dlock__rhythm_next(worker->rhythm, &client, now_us);
    if (scene->learns && dlock__rhythm_is_known(worker->rhythm)) worker->pause_us = PAUSE_MAX_US;
    most_us = (worker->pause_us > PAUSE_MIN_US ? worker->pause_us : PAUSE_MIN_US) * 3;
    worker->pause_us = dlock__jitter(&client, PAUSE_MIN_US, most_us < PAUSE_MAX_US ? most_us : PAUSE_MAX_US);
    return due_us < now_us + worker->pause_us ? due_us : now_us + worker->pause_us;
}

static bool is_before(const struct worker *a, const struct worker *b) {
    return a->until_us < b->until_us || (a->until_us == b->until_us && a < b);
}

/* The first of the heap is due later now: moves it to its place. */
static void heap_sink(struct worker **heap, size_t n) {
    for (size_t at = 0, least; 2 * at + 1 < n; at = least) {
        least = 2 * at + 1;
        if (least + 1 < n && is_before(heap[least + 1], heap[least])) least++;
        if (!is_before(heap[least], heap[at])) return;
        struct worker *sinks = heap[at];
        heap[at] = heap[least];
        heap[least] = sinks;
    }
}

static struct outcome play(const struct scene *scene, int seconds) {
    static struct worker workers[WAITERS_MAX], *heap[WAITERS_MAX]; /* the heap's first is due first */
    const struct worker *holder = NULL;
    int64_t now_us = 0, began_us = 0, used_us = 0, end_us = seconds * INT64_C(1000000);
    uint64_t fence = 0;
    unsigned asked = 0, most = 0, least = UINT32_MAX;
    client.jitter = 88172645463325252;
    for (size_t i = 0; i < scene->n; i++) {
        workers[i] = (struct worker){.does = ASKING, .until_us = 1 + (int64_t)i * PAUSE_MIN_US};
        heap[i] = &workers[i];
    }
    for (struct worker *worker; (worker = heap[0])->until_us < end_us; heap_sink(heap, scene->n)) {
        now_us = worker->until_us;
        if (worker->does == RESTING) {
            worker->does = ASKING;
            worker->pause_us = 0;
        } else if (worker->does == HOLDING) {
            used_us += now_us - began_us;
            holder = NULL;
            dlock__rhythm_released(worker->rhythm, now_us - began_us, now_us);
            worker->does = RESTING;
            worker->until_us = now_us + scene->rest_us;
        } else if (holder) {
            asked++;
            dlock__rhythm_busy(&worker->rhythm, fence, now_us);
            worker->until_us = ask_again_at(scene, worker, now_us) + TRIP_US;
        } else {
            asked++;
            dlock__rhythm_granted(worker->rhythm, now_us);
            holder = worker;
            fence++;
            began_us = now_us;
            worker->grants++;
            worker->does = HOLDING;
            worker->until_us = now_us + hold_us(scene);
        }
    }
    for (size_t i = 0; i < scene->n; i++) {
        if (workers[i].grants > most) most = workers[i].grants;
        if (workers[i].grants < least) least = workers[i].grants;
        free(workers[i].rhythm);
    }
    return (struct outcome){(double)used_us / (double)end_us, (double)asked / seconds / (double)scene->n,
                            (double)least / most};
}

/* The lock is idle for a twentieth of the time at most, and each waiter asks 400 times a second at most. */
TEST(who_holds_it_equally_long_is_followed) {
    static const struct scene scenes[] = {{2, REGULAR, 10000, 10000, true},
                                          {4, REGULAR, 10000, 10000, true},
                                          {8, REGULAR, 10000, 10000, true},
                                          {4, REGULAR, 100000, 10000, true}};
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        const struct outcome outcome = play(&scenes[i], 60);
        assert_true(outcome.in_use > 0.95);
        assert_true(outcome.asked < 400);
        assert_true(outcome.fairness > 0.5);
    }
}

/* Nothing is lost where that cannot be foreseen. */
TEST(it_is_never_worse_than_asking_at_any_time) {
    static const enum holders kinds[] = {REGULAR, RANDOM, SOME_FOR_LONG, NOW_THIS_NOW_THAT};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (size_t n = 2; n <= 16; n *= 2)
            for (int64_t mean_us = 1000; mean_us <= 100000; mean_us *= 10) {
                struct scene scene = {n, kinds[i], mean_us, 10000, true};
                const struct outcome learned = play(&scene, 60);
                scene.learns = false;
                assert_true(learned.in_use > play(&scene, 60).in_use - 0.01);
                assert_true(learned.asked < 450);
            }
}

/* A thousand do not all come for the end of the same grant. */
TEST(a_crowd_does_not_ask_more_for_it) {
    struct scene scene = {WAITERS_MAX, REGULAR, 10000, 10000, true};
    const struct outcome learned = play(&scene, 20);
    scene.learns = false;
    assert_true(learned.asked < 2 * play(&scene, 20).asked);
    assert_true(learned.in_use > 0.95);
}

/* One that stopped holding it for so long, or began to, is understood after a few grants. */
TEST(a_new_rhythm_is_learned) {
    static const int64_t rhythms[] = {10000, 30000, 6000, 300000, 5000};
    struct dlock__rhythm *rhythm = NULL;
    int64_t now_us = 1000000;
    uint64_t fence = 1;
    client.jitter = 1;
    for (size_t i = 0; i < sizeof rhythms / sizeof *rhythms; i++) {
        int64_t idle_us = 0;
        for (int grants = 0; grants < 30; grants++, fence++) {
            int64_t end_us = now_us - idle_us + rhythms[i];
            dlock__rhythm_busy(&rhythm, fence, now_us);
            while (now_us < end_us) {
                dlock__rhythm_busy(&rhythm, fence, now_us);
                int64_t due_us = dlock__rhythm_next(rhythm, &client, now_us);
                now_us += dlock__jitter(&client, PAUSE_MIN_US, PAUSE_MAX_US);
                if (due_us < now_us) now_us = due_us;
            }
            idle_us = now_us - end_us;
            if (grants % 4 > 0) continue;
            dlock__rhythm_granted(rhythm, now_us);
            now_us += rhythms[i];
            dlock__rhythm_released(rhythm, rhythms[i], now_us);
            idle_us = 0;
        }
        assert_in_range(rhythm->hold_us, rhythms[i] - rhythms[i] / 8, rhythms[i] + rhythms[i] / 8);
        assert_true(idle_us < 2000);
    }
    free(rhythm);
}

/* A backend that tells no fences. */
TEST(without_fences_nothing_is_known) {
    struct dlock__rhythm *rhythm = NULL;
    for (int64_t now_us = 1; now_us < 100000; now_us += 1000) {
        dlock__rhythm_busy(&rhythm, 0, now_us);
        assert_false(dlock__rhythm_is_known(rhythm));
        assert_true(dlock__rhythm_next(rhythm, &client, now_us) == DLOCK__NEVER);
    }
}

TESTS(NULL, NULL, NULL, NULL)
