/* Counts the grants that were contended: while the acquire waited, another process that the grant excludes held the
 * name or waited for it. Waits without a grant are not in the history and do not count, so the result is rather too
 * low. */
#include "history.h"

#include <stdlib.h>

enum { ORDINALS = 256 }; /* of hand-overs inside a process: the low byte of a fence */

/* The times when some holds began to be wanted, and when they ended, each sorted. */
struct spans {
    int64_t *begins, *ends;
    size_t n;
};

static int by_value(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static void spans_of(struct spans *spans, const struct history_hold *holds, size_t n, const char *modes) {
    spans->n = 0;
    for (size_t i = 0; i < n; i++) {
        const struct history_hold *hold = &holds[i];
        if (hold->mode != modes[0] && hold->mode != modes[1] && hold->mode != modes[2]) continue;
        spans->begins[spans->n] = hold->asked;
        spans->ends[spans->n++] = hold->until > hold->from ? hold->until : hold->from;
    }
    if (!spans->n) return;
    qsort(spans->begins, spans->n, sizeof *spans->begins, by_value);
    qsort(spans->ends, spans->n, sizeof *spans->ends, by_value);
}

/* Returns how many values are at most `most`; they are sorted. */
static size_t up_to(const int64_t *values, size_t n, int64_t most) {
    size_t first = 0;
    while (first < n) {
        size_t middle = first + (n - first) / 2;
        if (values[middle] <= most)
            first = middle + 1;
        else
            n = middle;
    }
    return first;
}

/* Returns how many of the spans overlap the time in which this hold was waited for. */
static size_t meeting(const struct spans *spans, const struct history_hold *hold) {
    return up_to(spans->begins, spans->n, hold->from - 1) - up_to(spans->ends, spans->n, hold->asked);
}

static void count_name(const struct history_hold *holds, size_t n, struct spans *all, struct spans *writers,
                       struct history_counts *counts) {
    spans_of(all, holds, n, "xsp");
    spans_of(writers, holds, n, "xxx");
    for (size_t i = 0; i < n; i++) {
        const struct history_hold *hold = &holds[i];
        if (hold->mode == HISTORY_EARLIER) continue;
        counts->grants++;
        if (hold->asked >= hold->from) continue;
        size_t others = hold->mode == 's' ? meeting(writers, hold) : meeting(all, hold) - 1;
        if (others < (hold->mode == 'p' ? hold->limit : 1)) continue;
        counts->contended++;
        counts->served += hold->fence % ORDINALS == 0;
    }
}

struct history_counts history_count(const struct history *history) {
    struct history_counts counts = {0};
    int64_t *times = calloc(4 * history->n + 1, sizeof *times);
    if (!times) abort();
    struct spans all = {times, times + history->n, 0}, writers = {times + 2 * history->n, times + 3 * history->n, 0};
    for (size_t i = 0, end; i < history->n; i = end) {
        end = history_name_end(history, i);
        count_name(&history->holds[i], end - i, &all, &writers, &counts);
    }
    free(times);
    return counts;
}
