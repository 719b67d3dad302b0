/* Checks the rules, each in one sweep over the holds of one name, sorted by fence or by time. */
#include "history.h"

#include <stdlib.h>
#include <string.h>

struct report {
    history_wrong *wrong;
    void *arg;
    size_t n;
};

static void report(struct report *report, const char *what, const struct history_hold *a,
                   const struct history_hold *b) {
    char line[512];
    snprintf(line, sizeof line, "%s: %s: %c fence %llu of %d.%d [%lld, %lld], %c fence %llu of %d.%d [%lld, %lld]",
             a->name, what, a->mode, (unsigned long long)a->fence, a->who, a->id, (long long)a->from,
             (long long)a->until, b->mode, (unsigned long long)b->fence, b->who, b->id, (long long)b->from,
             (long long)b->until);
    report->wrong(line, report->arg);
    report->n++;
}

static int by_fence(const void *a, const void *b) {
    const struct history_hold *left = a, *right = b;
    int order = left->name == right->name ? 0 : strcmp(left->name, right->name);
    if (order) return order;
    if (left->fence != right->fence) return left->fence < right->fence ? -1 : 1;
    return (left->from > right->from) - (left->from < right->from);
}

static bool exclude(const struct history_hold *a, const struct history_hold *b) {
    return a->mode == 'x' || b->mode == 'x';
}

static bool overlap(const struct history_hold *a, const struct history_hold *b) {
    return a->from < b->until && b->from < a->until;
}

/* True if the hold is known to have lasted for some time; otherwise it excludes no other. */
static bool lasted(const struct history_hold *hold) {
    return hold->from < hold->until;
}

/* Checks that a hold that is excluded by one with a lower fence begins after that one's end. */
static void check_exclusion(struct history_hold *holds, size_t n, struct report *to) {
    const struct history_hold *last = NULL, *last_exclusive = NULL; /* those whose end is latest */
    for (size_t i = 0; i < n; i++) {
        const struct history_hold *hold = &holds[i], *before = hold->mode == 'x' ? last : last_exclusive;
        if (!lasted(hold)) continue;
        if (before && exclude(before, hold) && hold->from < before->until)
            report(to, overlap(before, hold) ? "two holders" : "fences go back", before, hold);
        if (!last || hold->until > last->until) last = hold;
        if (hold->mode == 'x' && (!last_exclusive || hold->until > last_exclusive->until)) last_exclusive = hold;
    }
}

/* Checks that no fence occurs twice, and that an acquire that was called after another grant was made got a greater
 * fence. */
static void check_fences(struct history_hold *holds, size_t n, struct report *to) {
    const struct history_hold *first = NULL; /* the earliest of those with greater fences */
    for (size_t i = n; i-- > 0;) {
        const struct history_hold *hold = &holds[i];
        if (!hold->fence) report(to, "no fence", hold, hold);
        if (i + 1 < n && holds[i + 1].fence == hold->fence) report(to, "one fence twice", hold, &holds[i + 1]);
        if (first && first->from < hold->asked && !hold->doubtful) report(to, "fences go back", first, hold);
        if (!first || hold->from < first->from) first = hold;
    }
}

struct edge {
    int64_t time;
    int change;
    const struct history_hold *hold;
};

static int by_time(const void *a, const void *b) {
    const struct edge *left = a, *right = b;
    if (left->time != right->time) return left->time < right->time ? -1 : 1;
    return left->change - right->change; /* ends first */
}

static bool is_permit(const struct history_hold *hold) {
    return hold->mode == 'p' && lasted(hold);
}

static void check_permits(struct history_hold *holds, size_t n, struct report *to) {
    size_t permits = 0, n_edges = 0;
    uint32_t held = 0;
    for (size_t i = 0; i < n; i++) permits += is_permit(&holds[i]);
    if (!permits) return;
    struct edge *edges = calloc(2 * permits, sizeof *edges);
    if (!edges) abort();
    for (size_t i = 0; i < n; i++) {
        if (!is_permit(&holds[i])) continue;
        edges[n_edges++] = (struct edge){holds[i].from, 1, &holds[i]};
        edges[n_edges++] = (struct edge){holds[i].until, -1, &holds[i]};
    }
    qsort(edges, n_edges, sizeof *edges, by_time);
    for (size_t i = 0; i < n_edges; i++) {
        held += (uint32_t)edges[i].change;
        if (edges[i].change > 0 && held > edges[i].hold->limit)
            report(to, "more permits than there are", edges[i].hold, edges[i ? i - 1 : 0].hold);
    }
    free(edges);
}

size_t history_name_end(const struct history *history, size_t i) {
    const char *name = history->holds[i].name;
    while (i < history->n && (history->holds[i].name == name || strcmp(history->holds[i].name, name) == 0)) i++;
    return i;
}

size_t history_check(struct history *history, history_wrong *wrong, void *arg) {
    struct report to = {wrong, arg, 0};
    if (history->n) qsort(history->holds, history->n, sizeof *history->holds, by_fence);
    for (size_t i = 0, end; i < history->n; i = end) {
        struct history_hold *holds = &history->holds[i];
        end = history_name_end(history, i);
        check_fences(holds, end - i, &to);
        check_exclusion(holds, end - i, &to);
        check_permits(holds, end - i, &to);
    }
    return to.n;
}
