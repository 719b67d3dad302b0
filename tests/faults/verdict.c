/* dlock-history FILE [QUERY…]: reads a history (tests/support/history.h), prints every break of a rule, then
 * "grants N", then a line for each query:
 *
 *     TIME/WHO/WHO…    how many ms later one of these processes was granted something that it asked for; without any, one
 *                      of all; "-": never
 *     WHO:TIME         how many ms later all names that this process held exclusively at the time had been granted
 *                      again; "-": it held none, or one never was
 *
 * Exits with 0, 1 (a rule is broken) or 2 (no history). */
#include "support/history.h"

#include <stdlib.h>
#include <string.h>

static void print(const char *what, void *arg) {
    (void)arg;
    printf("violation %s\n", what);
}

/* When the name of holds[0], of which there are n, was granted next; -1: never. */
static int64_t next_grant(const struct history_hold *holds, size_t n, int64_t time) {
    int64_t next = -1;
    for (size_t i = 0; i < n; i++)
        if (holds[i].from >= time && (next < 0 || holds[i].from < next)) next = holds[i].from;
    return next;
}

static bool held_by(const struct history_hold *holds, size_t n, int who, int64_t time) {
    for (size_t i = 0; i < n; i++)
        if (holds[i].who == who && holds[i].mode == 'x' && holds[i].from < time && holds[i].until >= time) return true;
    return false;
}

static void print_ms(int64_t ns) {
    if (ns < 0)
        puts("-");
    else
        printf("%lld\n", (long long)(ns / 1000000));
}

static void answer_held(const struct history *history, int who, int64_t time) {
    int64_t latest = -1;
    bool never = false;
    for (size_t i = 0, end; i < history->n; i = end) {
        const struct history_hold *holds = &history->holds[i];
        for (end = i + 1; end < history->n && strcmp(history->holds[end].name, holds->name) == 0;) end++;
        if (!held_by(holds, end - i, who, time)) continue;
        int64_t next = next_grant(holds, end - i, time);
        if (next < 0) never = true;
        if (next > latest) latest = next;
    }
    print_ms(never || latest < 0 ? -1 : latest - time);
}

static bool one_of(int who, const char *list) {
    if (!*list) return true;
    for (char *end; *list; list = end)
        if (strtol(list + 1, &end, 10) == who) return true;
    return false;
}

static void answer_any(const struct history *history, int64_t time, const char *list) {
    int64_t first = -1;
    for (size_t i = 0; i < history->n; i++) {
        const struct history_hold *hold = &history->holds[i];
        if (hold->from >= time && (first < 0 || hold->from < first) && one_of(hold->who, list)) first = hold->from;
    }
    print_ms(first < 0 ? -1 : first - time);
}

static void answer(const struct history *history, const char *query) {
    char *rest;
    int64_t number = strtoll(query, &rest, 10);
    if (*rest == ':')
        answer_held(history, (int)number, strtoll(rest + 1, NULL, 10));
    else
        answer_any(history, number, rest);
}

int main(int argc, char **argv) {
    struct history history;
    FILE *file = argc > 1 ? fopen(argv[1], "r") : NULL;
    if (!file) {
        fprintf(stderr, "dlock-history FILE [QUERY…]\n");
        return 2;
    }
    size_t bad = history_read(file, &history);
    fclose(file);
    if (bad) {
        fprintf(stderr, "%s: line %zu makes no sense\n", argv[1], bad);
        return 2;
    }
    size_t broken = history_check(&history, print, NULL);
    printf("grants %zu\n", history.n);
    for (int i = 2; i < argc; i++) answer(&history, argv[i]);
    history_free(&history);
    return broken ? 1 : 0;
}
