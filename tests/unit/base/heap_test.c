/* Timers in heaps: whatever is set, moved and cleared, the first is the first. */
#include "base/env.h"
#include "base/heap.h"
#include "support/test.h"

#include <stdlib.h>

enum { TIMERS = 200, STEPS = 20000, TIMES = 500 };

static int64_t first_of(const struct dlock__timer *timers, const struct dlock__heap *heap) {
    int64_t first_us = DLOCK__NEVER;
    for (size_t i = 0; i < TIMERS; i++)
        if (timers[i].heap == heap && timers[i].at_us < first_us) first_us = timers[i].at_us;
    return first_us;
}

TEST(the_first_timer_is_always_the_first) {
    struct dlock__timer timers[TIMERS] = {{0}};
    struct dlock__heap heaps[2] = {{0}};
    assert_true(dlock__heap_reserve(&heaps[0], TIMERS) && dlock__heap_reserve(&heaps[1], TIMERS));
    srand(1);
    for (int i = 0; i < STEPS; i++) {
        struct dlock__timer *timer = &timers[rand() % TIMERS];
        struct dlock__heap *heap = &heaps[rand() % 2];
        switch (rand() % 4) {
        case 0: dlock__timer_disarm(timer); break;
        case 1: dlock__timer_arm(timer, heap, DLOCK__NEVER); break;
        default: dlock__timer_arm(timer, heap, rand() % TIMES); break;
        }
        for (size_t h = 0; h < 2; h++) assert_int_equal(dlock__heap_first_us(&heaps[h]), first_of(timers, &heaps[h]));
    }
    for (size_t h = 0; h < 2; h++) {
        int64_t last_us = 0;
        for (struct dlock__timer *first; (first = dlock__heap_first(&heaps[h]));) {
            assert_true(first->at_us >= last_us);
            last_us = first->at_us;
            dlock__timer_disarm(first);
        }
        assert_int_equal(heaps[h].n, 0);
        dlock__heap_free(&heaps[h]);
    }
}

TESTS(NULL, NULL, NULL, NULL)
