/* Makes holds from lines: all events of a hold, in any order, together say how long its holder believed in it. */
#include "history.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

enum kind { STILL, LOST, FREE, FREED, KILLED, FORGOT, EARLIER, HELD, KINDS };

static const char *const words[KINDS] = {"still", "lost", "free", "freed", "killed", "forgot", "earlier", "held"};
/* How many numbers follow `who` and `id`. */
static const int numbers[KINDS] = {1, 1, 1, 0, 1, 2, 2, 3};

struct line {
    enum kind kind;
    int who, id;
    long long number[3];
    const char *rest;
};

/* An event of a hold, or of a process; not FORGOT, HELD or EARLIER. */
struct event {
    int who, id;
    int64_t time;
    enum kind kind;
};

struct forgotten {
    int64_t from, until;
};

struct list {
    void *at;
    size_t n, room;
};

struct reading {
    struct list events, forgotten, holds;
    void *names;
};

/* Appends one zeroed element. */
static void *add(struct list *list, size_t size) {
    if (list->n == list->room) {
        list->room = list->room ? 2 * list->room : 1024;
        list->at = realloc(list->at, list->room * size);
        if (!list->at) abort();
    }
    return memset((char *)list->at + size * list->n++, 0, size);
}

static void sort(struct list *list, size_t size, int (*compare)(const void *, const void *)) {
    if (list->n) qsort(list->at, list->n, size, compare);
}

static int by_text(const void *a, const void *b) {
    return strcmp(a, b);
}

/* Returns the single copy of this name. */
static const char *name_of(struct reading *reading, const char *text) {
    char *const *known = tfind(text, &reading->names, by_text);
    if (known) return *known;
    char *copy = strdup(text);
    if (!copy || !tsearch(copy, &reading->names, by_text)) abort();
    return copy;
}

static bool split(const char *text, struct line *line) {
    char word[16];
    int used = 0;
    if (sscanf(text, "%15s %d %d%n", word, &line->who, &line->id, &used) != 3) return false;
    for (line->kind = 0; line->kind < KINDS && strcmp(word, words[line->kind]) != 0;) line->kind++;
    if (line->kind == KINDS) return false;
    line->rest = text + used;
    for (int i = 0; i < numbers[line->kind]; i++) {
        char *end;
        line->number[i] = strtoll(line->rest, &end, 10);
        if (end == line->rest) return false;
        line->rest = end;
    }
    return true;
}

static bool read_held(struct reading *reading, const struct line *line) {
    char name[HISTORY_NAME], mode;
    unsigned limit;
    unsigned long long fence;
    if (sscanf(line->rest, "%63s %c %u %llu", name, &mode, &limit, &fence) != 4 || !strchr("xsp", mode)) return false;
    struct history_hold *hold = add(&reading->holds, sizeof *hold);
    *hold = (struct history_hold){.name = name_of(reading, name),
                                  .fence = fence,
                                  .asked = line->number[1],
                                  .from = line->number[0],
                                  .until = line->number[2],
                                  .who = line->who,
                                  .id = line->id,
                                  .limit = limit,
                                  .mode = mode};
    return true;
}

static bool read_earlier(struct reading *reading, const struct line *line) {
    char name[HISTORY_NAME];
    int64_t time = line->number[0];
    if (sscanf(line->rest, "%63s", name) != 1) return false;
    struct history_hold *hold = add(&reading->holds, sizeof *hold);
    *hold = (struct history_hold){.name = name_of(reading, name),
                                  .fence = (uint64_t)line->number[1],
                                  .asked = time,
                                  .from = time,
                                  .until = time,
                                  .mode = HISTORY_EARLIER};
    return true;
}

static bool read_line(struct reading *reading, const char *text) {
    struct line line;
    if (!split(text, &line)) return false;
    if (line.kind == HELD) return read_held(reading, &line);
    if (line.kind == EARLIER) return read_earlier(reading, &line);
    if (line.kind == FORGOT) {
        struct forgotten *forgotten = add(&reading->forgotten, sizeof *forgotten);
        *forgotten = (struct forgotten){line.number[0], line.number[1]};
        return true;
    }
    struct event *event = add(&reading->events, sizeof *event);
    *event = (struct event){line.who, line.id, numbers[line.kind] ? line.number[0] : 0, line.kind};
    return true;
}

static int in_order(int who, int id, int other_who, int other_id) {
    if (who != other_who) return who < other_who ? -1 : 1;
    return (id > other_id) - (id < other_id);
}

static int by_hold(const void *a, const void *b) {
    const struct history_hold *left = a, *right = b;
    return in_order(left->who, left->id, right->who, right->id);
}

/* Orders the events of a hold as in `enum kind`, the order in which they take effect. */
static int by_event(const void *a, const void *b) {
    const struct event *left = a, *right = b;
    int order = in_order(left->who, left->id, right->who, right->id);
    return order ? order : (int)left->kind - (int)right->kind;
}

static int by_end(const void *a, const void *b) {
    const struct forgotten *left = a, *right = b;
    return (left->until > right->until) - (left->until < right->until);
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Determines the end of a hold from its events. */
static void fold(struct history_hold *hold, const struct event *events, size_t n) {
    int64_t freed = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t time = events[i].time;
        if (events[i].kind == STILL && time > hold->until) hold->until = time;
        if (events[i].kind == FREE) freed = time;
        if (events[i].kind == LOST || events[i].kind == FREE) hold->until = least(hold->until, time);
        if (events[i].kind == FREED && freed) hold->until = freed;
    }
}

/* Sorts by end; each fault's beginning becomes the earliest of all faults that end no earlier. */
static void sort_forgotten(struct list *list) {
    struct forgotten *forgotten = list->at;
    sort(list, sizeof *forgotten, by_end);
    for (size_t i = list->n; i-- > 1;) forgotten[i - 1].from = least(forgotten[i - 1].from, forgotten[i].from);
}

/* Shortens a hold that was asked for before the end of a fault. */
static void forget(const struct list *list, struct history_hold *hold) {
    const struct forgotten *forgotten = list->at;
    size_t first = 0;
    for (size_t end = list->n; first < end;) {
        size_t middle = first + (end - first) / 2;
        if (forgotten[middle].until > hold->asked)
            end = middle;
        else
            first = middle + 1;
    }
    if (first == list->n) return;
    hold->until = least(hold->until, forgotten[first].from);
    hold->doubtful = hold->from >= forgotten[first].from;
}

static void make_holds(struct reading *reading) {
    const struct event *event = reading->events.at, *end = event + reading->events.n, *first;
    struct history_hold *holds = reading->holds.at;
    int64_t killed = INT64_MAX;
    for (size_t i = 0; i < reading->holds.n; i++) {
        struct history_hold *hold = &holds[i];
        if (i == 0 || hold->who != holds[i - 1].who) killed = INT64_MAX;
        for (; event < end && in_order(event->who, event->id, hold->who, hold->id) < 0; event++)
            if (event->kind == KILLED && event->who == hold->who) killed = event->time;
        for (first = event; event < end && in_order(event->who, event->id, hold->who, hold->id) == 0;) event++;
        if (hold->mode == HISTORY_EARLIER) continue;
        fold(hold, first, (size_t)(event - first));
        hold->until = least(hold->until, killed);
        forget(&reading->forgotten, hold);
    }
}

size_t history_read(FILE *file, struct history *history) {
    struct reading reading = {0};
    char text[512];
    size_t bad = 0;
    for (size_t n = 1; fgets(text, sizeof text, file) && !bad; n++)
        if (*text != '#' && *text != '\n' && !read_line(&reading, text)) bad = n;
    sort(&reading.holds, sizeof(struct history_hold), by_hold);
    sort(&reading.events, sizeof(struct event), by_event);
    sort_forgotten(&reading.forgotten);
    if (!bad) make_holds(&reading);
    free(reading.events.at);
    free(reading.forgotten.at);
    *history = (struct history){reading.holds.at, reading.holds.n, reading.names};
    return bad;
}

void history_free(struct history *history) {
    free(history->holds);
    tdestroy(history->names, free);
    memset(history, 0, sizeof *history);
}
