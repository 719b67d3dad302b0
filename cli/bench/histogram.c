#include "bench/histogram.h"

/* Returns the bucket of a duration. Below HISTOGRAM_FINE each ns has its own bucket; above, each power of two has
 * HISTOGRAM_FINE buckets. */
static int bucket_of(int64_t ns) {
    if (ns < HISTOGRAM_FINE) return ns < 0 ? 0 : (int)ns;
    int octave = 63 - __builtin_clzll((uint64_t)ns) - 6; /* is 1 from HISTOGRAM_FINE to 2 * HISTOGRAM_FINE - 1 */
    if (octave > HISTOGRAM_OCTAVES) return HISTOGRAM_BUCKETS - 1;
    return octave * HISTOGRAM_FINE + (int)((ns >> (octave - 1)) - HISTOGRAM_FINE);
}

int64_t histogram_lowest(int index) {
    int octave = index / HISTOGRAM_FINE;
    if (octave == 0) return index;
    return (int64_t)(HISTOGRAM_FINE + index % HISTOGRAM_FINE) << (octave - 1);
}

void histogram_add(struct histogram *histogram, int64_t ns, uint64_t n) {
    histogram->n += n;
    histogram->buckets[bucket_of(ns)] += n;
    if (ns > histogram->longest_ns) histogram->longest_ns = ns;
}

void histogram_merge(struct histogram *into, const struct histogram *from) {
    into->n += from->n;
    if (from->longest_ns > into->longest_ns) into->longest_ns = from->longest_ns;
    for (int i = 0; i < HISTOGRAM_BUCKETS; i++) into->buckets[i] += from->buckets[i];
}

int64_t histogram_at(const struct histogram *histogram, double share) {
    if (histogram->n == 0) return -1;
    uint64_t wanted = (uint64_t)(share * (double)histogram->n + 0.5), seen = 0;
    if (wanted == 0) wanted = 1;
    for (int i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen < wanted) continue;
        int64_t width = i + 1 < HISTOGRAM_BUCKETS ? histogram_lowest(i + 1) - histogram_lowest(i) : 1;
        int64_t middle = histogram_lowest(i) + width / 2;
        return middle < histogram->longest_ns ? middle : histogram->longest_ns;
    }
    return histogram->longest_ns;
}
