/* Timers in a heap, whose first element is the timer that goes off first. A timer is a member of the struct that it
 * belongs to. */
#ifndef DLOCK_CORE_BASE_HEAP_H
#define DLOCK_CORE_BASE_HEAP_H

#include "base/env.h"

struct dlock__heap;

struct dlock__timer {
    int64_t at_us;
    struct dlock__heap *heap; /* that the timer is in; NULL while it is not set */
    size_t place;             /* index in heap->entries */
};

/* The time is also here, so that comparing does not touch the timers, each of which is a cache line elsewhere. */
struct dlock__heap_entry {
    int64_t at_us;
    struct dlock__timer *timer;
};

struct dlock__heap {
    struct dlock__heap_entry *entries;
    size_t n, room;
};

bool dlock__heap_grow(struct dlock__heap *heap, size_t n);
/* Makes room for at least n timers, so that setting one never fails. False if out of memory. Inline, since every
 * acquire calls it. */
static inline bool dlock__heap_reserve(struct dlock__heap *heap, size_t n) {
    return n <= heap->room || dlock__heap_grow(heap, n);
}
void dlock__heap_free(struct dlock__heap *heap);

void dlock__timer_disarm(struct dlock__timer *timer);

/* The rest of dlock__timer_arm, for a timer that is not yet set to that time in that heap. */
void dlock__timer_move(struct dlock__timer *timer, struct dlock__heap *heap, int64_t at_us);

/* Sets the timer to `at_us` in this heap, whether or not it was set before, here or in another heap; DLOCK__NEVER
 * clears it. Inline, since each change of an acquisition's state calls it and mostly finds nothing to do. */
static inline void dlock__timer_arm(struct dlock__timer *timer, struct dlock__heap *heap, int64_t at_us) {
    if (at_us == DLOCK__NEVER ? !timer->heap : timer->heap == heap && timer->at_us == at_us) return;
    dlock__timer_move(timer, heap, at_us);
}

/* The timer that goes off first, or NULL; and its time, or DLOCK__NEVER. */
struct dlock__timer *dlock__heap_first(const struct dlock__heap *heap);
int64_t dlock__heap_first_us(const struct dlock__heap *heap);

#endif
