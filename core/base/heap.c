/* A binary heap: Knuth, The Art of Computer Programming 3, 5.2.3. Index 0 is not used. */
#include "base/heap.h"

#include <stdlib.h>

bool dlock__heap_grow(struct dlock__heap *heap, size_t n) {
    size_t room = heap->room ? heap->room * 2 : 64;
    while (room <= n) room *= 2;
    struct dlock__timer **timers = realloc(heap->timers, room * sizeof(struct dlock__timer *));
    if (!timers) return false;
    heap->timers = timers;
    heap->room = room;
    return true;
}

void dlock__heap_free(struct dlock__heap *heap) {
    free(heap->timers);
}

static void place(struct dlock__heap *heap, struct dlock__timer *timer, size_t at) {
    heap->timers[at] = timer;
    timer->place = at;
}

static void sift_up(struct dlock__heap *heap, struct dlock__timer *timer, size_t at) {
    struct dlock__timer **timers = heap->timers;
    for (; at > 1 && timers[at / 2]->at_us > timer->at_us; at /= 2) place(heap, timers[at / 2], at);
    place(heap, timer, at);
}

static void sift_down(struct dlock__heap *heap, struct dlock__timer *timer, size_t at) {
    struct dlock__timer **timers = heap->timers;
    for (size_t child; (child = 2 * at) <= heap->n; at = child) {
        if (child < heap->n && timers[child + 1]->at_us < timers[child]->at_us) child++;
        if (timers[child]->at_us >= timer->at_us) break;
        place(heap, timers[child], at);
    }
    place(heap, timer, at);
}

static void sift(struct dlock__heap *heap, struct dlock__timer *timer, size_t at) {
    sift_down(heap, timer, at);
    sift_up(heap, timer, timer->place);
}

void dlock__timer_disarm(struct dlock__timer *timer) {
    struct dlock__heap *heap = timer->heap;
    if (!heap) return;
    timer->heap = NULL;
    struct dlock__timer *last = heap->timers[heap->n--];
    if (last != timer) sift(heap, last, timer->place);
}

void dlock__timer_move(struct dlock__timer *timer, struct dlock__heap *heap, int64_t at_us) {
    if (timer->heap != heap || at_us == DLOCK__NEVER) dlock__timer_disarm(timer);
    timer->at_us = at_us;
    if (at_us == DLOCK__NEVER) return;
    if (timer->heap) {
        sift(heap, timer, timer->place);
    } else {
        timer->heap = heap;
        sift_up(heap, timer, ++heap->n);
    }
}

struct dlock__timer *dlock__heap_first(const struct dlock__heap *heap) {
    return heap->n > 0 ? heap->timers[1] : NULL;
}

int64_t dlock__heap_first_us(const struct dlock__heap *heap) {
    return heap->n > 0 ? heap->timers[1]->at_us : DLOCK__NEVER;
}
