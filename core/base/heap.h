/* Timers, in a binary heap that knows the first of them. A timer is a member of what it is about. */
#ifndef DLOCK_CORE_BASE_HEAP_H
#define DLOCK_CORE_BASE_HEAP_H

#include "base/env.h"

struct dlock__heap;

struct dlock__timer {
    int64_t at_us;
    struct dlock__heap *heap; /* that it is in; NULL: it is not set */
    size_t place;             /* in that, from 1 on */
};

struct dlock__heap {
    struct dlock__timer **timers;
    size_t n, room;
};

bool dlock__heap_grow(struct dlock__heap *heap, size_t n);
/* Makes room for n timers at least: setting one then never fails. False: out of memory. Each acquire calls this. */
static inline bool dlock__heap_reserve(struct dlock__heap *heap, size_t n) {
    return n < heap->room || dlock__heap_grow(heap, n);
}
void dlock__heap_free(struct dlock__heap *heap);

void dlock__timer_disarm(struct dlock__timer *timer);

/* As dlock__timer_arm, for a timer that is not set so already. */
void dlock__timer_move(struct dlock__timer *timer, struct dlock__heap *heap, int64_t at_us);

/* Sets the timer in this heap, whether it was set before or not, in this one or another; DLOCK__NEVER: clears it. Each
 * change of an acquisition's state calls this, and mostly there is nothing to do. */
static inline void dlock__timer_arm(struct dlock__timer *timer, struct dlock__heap *heap, int64_t at_us) {
    if (at_us == DLOCK__NEVER ? !timer->heap : timer->heap == heap && timer->at_us == at_us) return;
    dlock__timer_move(timer, heap, at_us);
}

/* The timer that goes off first, or NULL; and when it does, or DLOCK__NEVER. */
struct dlock__timer *dlock__heap_first(const struct dlock__heap *heap);
int64_t dlock__heap_first_us(const struct dlock__heap *heap);

#endif
