#include "run_totals.h"

#include "prometheus.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* The counters. Each is a uint64_t in struct totals. */
static const struct {
    const char *family, *help;
    size_t offset;
} counters[] = {
    {"dlock_acquires_total", "Grants of the lock.", offsetof(struct totals, stats.grants)},
    {"dlock_acquire_failures_total",
     "Runs that ended without the lock: it was not free, or its server did not grant it.",
     offsetof(struct totals, failures)},
    {"dlock_losses_total", "Grants that ended before their release.", offsetof(struct totals, stats.losses)},
    {"dlock_renewals_total", "Renewals that the server confirmed.", offsetof(struct totals, stats.renewals)},
    {"dlock_renewal_failures_total", "Renewals that were refused or not answered; they are tried again.",
     offsetof(struct totals, stats.renewal_failures)},
    {"dlock_reconnects_total", "Connections to the server in place of broken ones.",
     offsetof(struct totals, stats.reconnects)},
};
enum { COUNTERS = sizeof counters / sizeof counters[0] };

/* The times, printed in seconds. Each is an int64_t of microseconds in struct totals; 0 is not printed. */
static const struct {
    const char *family, *help;
    size_t offset;
} times[] = {
    {"dlock_run_start_time_seconds", "When the last run got the lock, as Unix time.",
     offsetof(struct totals, began_us)},
    {"dlock_run_duration_seconds", "How long the command of the last run took, or has run so far.",
     offsetof(struct totals, duration_us)},
    {"dlock_run_last_success_time_seconds", "When a run last ended with status 0, as Unix time.",
     offsetof(struct totals, succeeded_us)},
};
enum { TIMES = sizeof times / sizeof times[0] };

#define WAITS "dlock_wait_seconds"
#define BUCKET "dlock_wait_seconds_bucket"
#define WAITING "dlock_run_waiting"
#define HELD "dlock_run_lock_held"
#define STATUS "dlock_run_last_exit_status"
enum { LAST = DLOCK_WAIT_BUCKETS - 1 };

/* After this time without a word from its holder a lock is treated as free: that run was killed. */
#define SILENCE_US (3 * TOTALS_EVERY_MS * INT64_C(1000))

static uint64_t *counter_of(struct totals *totals, size_t i) {
    return (uint64_t *)((char *)totals + counters[i].offset);
}

static int64_t *time_of(struct totals *totals, size_t i) {
    return (int64_t *)((char *)totals + times[i].offset);
}

/* Storage for the labels of one bucket. */
struct labels {
    struct label list[4];
    char bound[SECONDS_MAX]; /* the value of `le` */
};

static const struct label *bucket_labels(struct labels *space, const struct totals_labels *labels, unsigned bucket) {
    if (bucket == LAST)
        strcpy(space->bound, "+Inf");
    else
        seconds_text(space->bound, DLOCK_WAIT_BOUND_US(bucket));
    const struct label list[] = {
        {"server", labels->server}, {"name", labels->name}, {"le", space->bound}, {NULL, NULL}};
    memcpy(space->list, list, sizeof list);
    return space->list;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void write_waits(FILE *out, const struct dlock_stats *stats, const struct totals_labels *labels,
                        const struct label *own) {
    struct labels space;
    uint64_t sum = 0;
    prometheus_family(out, WAITS, "histogram", "How long the runs waited that did not get the lock at once.");
    for (unsigned i = 0; i < DLOCK_WAIT_BUCKETS; i++)
        prometheus_number(out, BUCKET, bucket_labels(&space, labels, i), sum += stats->wait_counts[i]);
    prometheus_seconds(out, WAITS "_sum", own, (int64_t)stats->wait_us);
    prometheus_number(out, WAITS "_count", own, sum);
}

static void write_gauge(FILE *out, const char *family, const char *help, const struct label *own, uint64_t value) {
    prometheus_family(out, family, "gauge", help);
    prometheus_number(out, family, own, value);
}

void totals_write(FILE *out, const struct totals *totals, const struct totals_labels *labels) {
    struct totals copy = *totals;
    const struct label own[] = {{"server", labels->server}, {"name", labels->name}, {NULL, NULL}};
    for (size_t i = 0; i < COUNTERS; i++) {
        prometheus_family(out, counters[i].family, "counter", counters[i].help);
        prometheus_number(out, counters[i].family, own, *counter_of(&copy, i));
    }
    write_waits(out, &totals->stats, labels, own);
    write_gauge(out, WAITING, "Whether a run waits for the lock.", own, totals->waiting);
    write_gauge(out, HELD, "Whether a run holds the lock.", own, totals->held);
    for (size_t i = 0; i < TIMES; i++) {
        if (*time_of(&copy, i) == 0) continue;
        prometheus_family(out, times[i].family, "gauge", times[i].help);
        prometheus_seconds(out, times[i].family, own, *time_of(&copy, i));
    }
    if (totals->ended)
        write_gauge(out, STATUS, "How the last run that had the lock ended.", own, (uint64_t)totals->status);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Returns the place of a sample's value in `text`, or NULL if the sample is not there. */
static const char *find(const char *text, const char *sample, const struct label *labels) {
    char *key = NULL;
    size_t size = 0;
    const char *found = NULL;
    FILE *out = open_memstream(&key, &size);
    if (!out) return NULL;
    fputc('\n', out); /* a sample begins a line; it is never the first one, which is a HELP line */
    prometheus_key(out, sample, labels);
    if (fclose(out) == 0) found = strstr(text, key);
    free(key);
    return found ? found + size : NULL;
}

static uint64_t find_number(const char *text, const char *sample, const struct label *labels) {
    const char *value = find(text, sample, labels);
    return value ? strtoull(value, NULL, 10) : 0;
}

static int64_t find_us(const char *text, const char *sample, const struct label *labels) {
    const char *value = find(text, sample, labels);
    double seconds = value ? strtod(value, NULL) : 0;
    return seconds > 0 && seconds < 1e12 ? (int64_t)(seconds * 1e6 + 0.5) : 0;
}

static void read_waits(const char *text, struct dlock_stats *stats, const struct totals_labels *labels,
                       const struct label *own) {
    struct labels space;
    uint64_t before = 0;
    for (unsigned i = 0; i < DLOCK_WAIT_BUCKETS; i++) {
        uint64_t sum = find_number(text, BUCKET, bucket_labels(&space, labels, i));
        stats->wait_counts[i] = sum > before ? sum - before : 0;
        before = sum > before ? sum : before;
    }
    stats->wait_us = (uint64_t)find_us(text, WAITS "_sum", own);
}

void totals_read(const char *text, struct totals *totals, const struct totals_labels *labels) {
    const struct label own[] = {{"server", labels->server}, {"name", labels->name}, {NULL, NULL}};
    *totals = (struct totals){.stats = DLOCK_STATS_INIT};
    for (size_t i = 0; i < COUNTERS; i++) *counter_of(totals, i) = find_number(text, counters[i].family, own);
    for (size_t i = 0; i < TIMES; i++) *time_of(totals, i) = find_us(text, times[i].family, own);
    read_waits(text, &totals->stats, labels, own);
    totals->waiting = find_number(text, WAITING, own) != 0;
    totals->held = find_number(text, HELD, own) != 0;
    totals->ended = find(text, STATUS, own) != NULL;
    totals->status = (int)(find_number(text, STATUS, own) & 0xff);
}

bool totals_are(const char *text) {
    const char *first = "# HELP dlock_acquires_total ";
    return !*text || strncmp(text, first, strlen(first)) == 0;
}

/* ---- runs at the same time --------------------------------------------------------------------------------------- */

static void add_counters(struct totals *all, const struct totals *run, const struct totals *told) {
    struct totals now = *run, before = *told;
    for (size_t i = 0; i < COUNTERS; i++) *counter_of(all, i) += *counter_of(&now, i) - *counter_of(&before, i);
    all->stats.wait_us += now.stats.wait_us - before.stats.wait_us;
    for (size_t i = 0; i < DLOCK_WAIT_BUCKETS; i++)
        all->stats.wait_counts[i] += now.stats.wait_counts[i] - before.stats.wait_counts[i];
}

void totals_merge(struct totals *all, const struct totals *run, const struct totals *told, int64_t now_us) {
    add_counters(all, run, told);
    if (run->waiting != told->waiting) all->waiting = run->waiting;
    if (all->began_us + all->duration_us + SILENCE_US < now_us) all->held = false;
    if (run->began_us == 0) return; /* it has not had the lock */
    /* A grant in the future is one from before the clock was set back. */
    const bool later = all->began_us > run->began_us && all->began_us <= now_us; /* than ours is the grant of another */
    if (run->ended && (!later || all->held)) {
        all->ended = true;
        all->status = run->status;
    }
    if (run->succeeded_us > all->succeeded_us) all->succeeded_us = run->succeeded_us;
    if (later && (all->held || !run->held)) return;
    all->held = run->held;
    all->began_us = run->began_us;
    all->duration_us = run->duration_us;
}
