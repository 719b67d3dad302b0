/* A heap whose elements have four children each: LaMarca and Ladner, "The Influence of Caches on the Performance of
 * Heaps", 1996. With 100,000 timers it is half as deep as a binary one. The children of `at` are 4 at + 1 to 4 at + 4. */
#include "base/heap.h"

#include <stdlib.h>

enum { CHILDREN = 4 };

bool dlock__heap_grow(struct dlock__heap *heap, size_t n) {
    size_t room = heap->room ? heap->room * 2 : 64;
    while (room < n) room *= 2;
    struct dlock__heap_entry *entries = realloc(heap->entries, room * sizeof *entries);
    if (!entries) return false;
    heap->entries = entries;
    heap->room = room;
    return true;
}

void dlock__heap_free(struct dlock__heap *heap) {
    free(heap->entries);
}

static void place(struct dlock__heap *heap, struct dlock__heap_entry entry, size_t at) {
    heap->entries[at] = entry;
    entry.timer->place = at;
}

static void sift_up(struct dlock__heap *heap, struct dlock__heap_entry entry, size_t at) {
    const struct dlock__heap_entry *entries = heap->entries;
    for (size_t parent; at > 0 && entries[parent = (at - 1) / CHILDREN].at_us > entry.at_us; at = parent)
        place(heap, entries[parent], at);
    place(heap, entry, at);
}

static void sift_down(struct dlock__heap *heap, struct dlock__heap_entry entry, size_t at) {
    const struct dlock__heap_entry *entries = heap->entries;
    for (size_t first; (first = CHILDREN * at + 1) < heap->n;) {
        size_t end = first + CHILDREN < heap->n ? first + CHILDREN : heap->n, least = first;
        for (size_t child = first + 1; child < end; child++)
            if (entries[child].at_us < entries[least].at_us) least = child;
        if (entries[least].at_us >= entry.at_us) break;
        place(heap, entries[least], at);
        at = least;
    }
    place(heap, entry, at);
}

static void sift(struct dlock__heap *heap, struct dlock__heap_entry entry, size_t at) {
    sift_down(heap, entry, at);
    sift_up(heap, entry, entry.timer->place);
}

void dlock__timer_disarm(struct dlock__timer *timer) {
    struct dlock__heap *heap = timer->heap;
    if (!heap) return;
    timer->heap = NULL;
    struct dlock__heap_entry last = heap->entries[--heap->n];
    if (last.timer != timer) sift(heap, last, timer->place);
}

void dlock__timer_move(struct dlock__timer *timer, struct dlock__heap *heap, int64_t at_us) {
    if (timer->heap != heap || at_us == DLOCK__NEVER) dlock__timer_disarm(timer);
    timer->at_us = at_us;
    if (at_us == DLOCK__NEVER) return;
    struct dlock__heap_entry entry = {at_us, timer};
    if (timer->heap) {
        sift(heap, entry, timer->place);
    } else {
        timer->heap = heap;
        sift_up(heap, entry, heap->n++);
    }
}

struct dlock__timer *dlock__heap_first(const struct dlock__heap *heap) {
    return heap->n > 0 ? heap->entries[0].timer : NULL;
}

int64_t dlock__heap_first_us(const struct dlock__heap *heap) {
    return heap->n > 0 ? heap->entries[0].at_us : DLOCK__NEVER;
}
