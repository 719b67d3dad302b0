/* Counts durations in buckets that are no wider than 1/128 of the duration: takes constant memory, needs no sorting,
 * and is merged by addition. Depends on libc only, since the floor programs also use it. */
#ifndef DLOCK_CLI_BENCH_HISTOGRAM_H
#define DLOCK_CLI_BENCH_HISTOGRAM_H

#include <stdint.h>
#include <time.h>

enum {
    HISTOGRAM_FINE = 128,   /* buckets in each power of two */
    HISTOGRAM_OCTAVES = 34, /* up to 2^41 ns, half an hour; longer durations go into the last bucket */
    HISTOGRAM_BUCKETS = HISTOGRAM_FINE * (HISTOGRAM_OCTAVES + 1)
};

struct histogram {
    uint64_t n;
    int64_t longest_ns;
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

/* Adds `n` durations of `ns` each; a negative one counts as 0. */
void histogram_add(struct histogram *histogram, int64_t ns, uint64_t n);
void histogram_merge(struct histogram *into, const struct histogram *from);

/* Returns the duration that a `share` (0 to 1) of all durations do not exceed; -1 if there are none. */
int64_t histogram_at(const struct histogram *histogram, double share);

/* Returns the shortest duration of bucket `index`. */
int64_t histogram_lowest(int index);

static inline int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

#endif
