/* dlock-history FILE [NAME QUERY…]: reads a history (tests/support/history.h), and prints a line for every broken rule,
 * then "grants N contended N served N" (history_count), then for each name an "earlier …" line with which the next
 * history begins, then the answer to each query:
 *
 *     TIME/WHO/WHO…    how many ms after TIME one of these processes was granted NAME; "-" if none was
 *     WHO:TIME         how many ms after TIME the lock NAME, which WHO held exclusively then, was granted again; "-" if
 *                      WHO did not hold it, or it was not granted again
 *
 * Exits with 0, 1 (a rule is broken) or 2 (no valid history). */
#include "support/history.h"

#include <stdlib.h>
#include <string.h>

/* Pointers to the holds of a history, sorted by `compare`. */
struct index {
    const struct history_hold **at;
    size_t n;
    int (*compare)(const void *, const void *);
};

static void print(const char *what, void *arg) {
    (void)arg;
    printf("violation %s\n", what);
}

static int by_time(const struct history_hold *a, const struct history_hold *b) {
    return (a->from > b->from) - (a->from < b->from);
}

static int by_name(const void *a, const void *b) {
    const struct history_hold *left = *(const struct history_hold *const *)a,
                              *right = *(const struct history_hold *const *)b;
    int order = left->name == right->name ? 0 : strcmp(left->name, right->name);
    return order ? order : by_time(left, right);
}

static int by_who(const void *a, const void *b) {
    const struct history_hold *left = *(const struct history_hold *const *)a,
                              *right = *(const struct history_hold *const *)b;
    if (left->who != right->who) return left->who < right->who ? -1 : 1;
    return by_time(left, right);
}

static struct index index_of(const struct history *history, int (*compare)(const void *, const void *)) {
    struct index index = {malloc((history->n + 1) * sizeof *index.at), history->n, compare};
    if (!index.at) abort();
    for (size_t i = 0; i < history->n; i++) index.at[i] = &history->holds[i];
    qsort(index.at, index.n, sizeof *index.at, compare);
    return index;
}

/* Returns the position of the first hold that does not sort before `key`. */
static size_t place_of(const struct index *index, const struct history_hold *key) {
    size_t first = 0;
    for (size_t end = index->n; first < end;) {
        size_t middle = first + (end - first) / 2;
        if (index->compare(&index->at[middle], &key) < 0)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

/* Returns the time of the first grant of this name at or after `time`; -1 if there is none. */
static int64_t next_of_name(const struct index *names, const char *name, int64_t time) {
    size_t i = place_of(names, &(struct history_hold){.name = name, .from = time});
    return i < names->n && strcmp(names->at[i]->name, name) == 0 ? names->at[i]->from : -1;
}

/* Returns the time of the first grant of this name to process `who` at or after `time`; -1 if there is none. */
static int64_t next_of_process(const struct index *processes, int who, const char *name, int64_t time) {
    size_t i = place_of(processes, &(struct history_hold){.who = who, .from = time});
    for (; i < processes->n && processes->at[i]->who == who; i++)
        if (strcmp(processes->at[i]->name, name) == 0) return processes->at[i]->from;
    return -1;
}

static void print_ms(int64_t ns) {
    if (ns < 0)
        puts("-");
    else
        printf("%lld\n", (long long)(ns / 1000000));
}

static void answer_held(const struct index *processes, const struct index *names, int who, const char *name,
                        int64_t time) {
    int64_t next = -1;
    size_t i = place_of(processes, &(struct history_hold){.who = who, .from = INT64_MIN});
    for (; i < processes->n && processes->at[i]->who == who && processes->at[i]->from < time; i++) {
        const struct history_hold *hold = processes->at[i];
        if (hold->mode == 'x' && hold->until >= time && strcmp(hold->name, name) == 0)
            next = next_of_name(names, name, time);
    }
    print_ms(next < 0 ? -1 : next - time);
}

static void answer_any(const struct index *processes, const char *name, int64_t time, const char *list) {
    int64_t first = -1;
    for (char *end; *list; list = end) {
        int64_t next = next_of_process(processes, (int)strtol(list + 1, &end, 10), name, time);
        if (next >= 0 && (first < 0 || next < first)) first = next;
    }
    print_ms(first < 0 ? -1 : first - time);
}

static void answer(const struct index *processes, const struct index *names, const char *name, const char *query) {
    char *rest;
    int64_t number = strtoll(query, &rest, 10);
    if (*rest == ':')
        answer_held(processes, names, (int)number, name, strtoll(rest + 1, NULL, 10));
    else
        answer_any(processes, name, number, rest);
}

/* Prints an "earlier" line for each name. The checked history is sorted by fence: the last hold of a name has its
 * greatest fence. */
static void print_last_fences(const struct history *history) {
    for (size_t i = 0; i < history->n;) {
        i = history_name_end(history, i);
        const struct history_hold *last = &history->holds[i - 1];
        printf("earlier 0 0 %lld %llu %s\n", (long long)last->from, (unsigned long long)last->fence, last->name);
    }
}

int main(int argc, char **argv) {
    struct history history;
    FILE *file = argc > 1 ? fopen(argv[1], "r") : NULL;
    if (!file) {
        fprintf(stderr, "dlock-history FILE [NAME QUERY…]\n");
        return 2;
    }
    size_t bad = history_read(file, &history);
    fclose(file);
    if (bad) {
        fprintf(stderr, "%s: line %zu is invalid\n", argv[1], bad);
        return 2;
    }
    size_t broken = history_check(&history, print, NULL);
    struct history_counts counts = history_count(&history);
    printf("grants %zu contended %zu served %zu\n", counts.grants, counts.contended, counts.served);
    print_last_fences(&history);
    struct index processes = index_of(&history, by_who), names = index_of(&history, by_name);
    for (int i = 3; i < argc; i++) answer(&processes, &names, argv[2], argv[i]);
    free(processes.at);
    free(names.at);
    history_free(&history);
    return broken ? 1 : 0;
}
