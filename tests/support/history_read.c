/* From lines to holds: the events of a hold, wherever they stand, say together how long its holder believed in it. */
#include "history.h"

#include <stdlib.h>
#include <string.h>

enum kind { HELD, STILL, LOST, FREE, FREED, KILLED, FORGOT, KINDS };

static const char *const words[KINDS] = {"held", "still", "lost", "free", "freed", "killed", "forgot"};
/* How many numbers follow `who` and `id`. */
static const int numbers[KINDS] = {3, 1, 1, 1, 0, 1, 2};

struct event {
    enum kind kind;
    struct history_hold hold; /* who and id; `held`: all of it. The others have what is theirs in `from` and `until` */
};

struct events {
    struct event *at;
    size_t n, room;
};

static bool read_event(const char *line, struct event *event) {
    struct history_hold *hold = &event->hold;
    long long time[3] = {0};
    unsigned long long fence = 0;
    char word[16];
    int used = 0;
    memset(event, 0, sizeof *event);
    int got =
        sscanf(line, "%15s %d %d%n %lld %lld %lld", word, &hold->who, &hold->id, &used, &time[0], &time[1], &time[2]);
    for (event->kind = HELD; event->kind < KINDS && strcmp(word, words[event->kind]) != 0;) event->kind++;
    if (event->kind == KINDS || got != 3 + numbers[event->kind]) return false;
    hold->from = hold->until = time[0];
    if (event->kind == FORGOT) hold->until = time[1];
    if (event->kind != HELD) return true;
    hold->asked = time[1];
    hold->until = time[2];
    got = sscanf(line, "%*s %*d %*d %*d %*d %*d %63s %c %u %llu", hold->name, &hold->mode, &hold->limit, &fence);
    hold->fence = fence;
    return got == 4 && strchr("xsp", hold->mode);
}

static void add(struct events *events, const struct event *event) {
    if (events->n == events->room) {
        events->room = events->room ? 2 * events->room : 1024;
        events->at = realloc(events->at, events->room * sizeof *event);
        if (!events->at) abort();
    }
    events->at[events->n++] = *event;
}

/* The events of a hold in the order of `enum kind`, which is the one in which they count. */
static int by_hold(const void *a, const void *b) {
    const struct event *left = a, *right = b;
    if (left->hold.who != right->hold.who) return left->hold.who < right->hold.who ? -1 : 1;
    if (left->hold.id != right->hold.id) return left->hold.id < right->hold.id ? -1 : 1;
    return (int)left->kind - (int)right->kind;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The end of the hold, of which these are the events, the first `held`. */
static void fold(struct history_hold *hold, const struct event *events, size_t n) {
    int64_t freed = 0;
    for (size_t i = 1; i < n; i++) {
        int64_t time = events[i].hold.from;
        if (events[i].kind == STILL && time > hold->until) hold->until = time;
        if (events[i].kind == FREE) freed = time;
        if (events[i].kind == LOST || events[i].kind == FREE) hold->until = least(hold->until, time);
        if (events[i].kind == FREED && freed) hold->until = freed;
    }
}

/* What happened to all holds of a process, or to those of all. */
static void fold_fault(const struct event *fault, struct history_hold *hold) {
    int64_t from = fault->hold.from;
    if (fault->kind == KILLED && fault->hold.who == hold->who) hold->until = least(hold->until, from);
    if (fault->kind != FORGOT || hold->asked >= fault->hold.until) return;
    hold->until = least(hold->until, from);
    if (hold->from >= from) hold->doubtful = true;
}

static void make_holds(struct events *events, struct history *history) {
    struct events faults = {0};
    history->holds = calloc(events->n + 1, sizeof *history->holds);
    if (!history->holds) abort();
    if (events->n) qsort(events->at, events->n, sizeof *events->at, by_hold);
    for (size_t i = 0, end; i < events->n; i = end) {
        const struct event *event = &events->at[i];
        for (end = i + 1; end < events->n && events->at[end].hold.who == event->hold.who &&
                          events->at[end].hold.id == event->hold.id;)
            end++;
        for (size_t j = i; j < end; j++)
            if (events->at[j].kind >= KILLED) add(&faults, &events->at[j]);
        if (event->kind != HELD) continue; /* its process was killed before it could say more */
        struct history_hold *hold = &history->holds[history->n++];
        *hold = event->hold;
        fold(hold, event, end - i);
    }
    for (size_t i = 0; i < faults.n; i++)
        for (size_t j = 0; j < history->n; j++) fold_fault(&faults.at[i], &history->holds[j]);
    free(faults.at);
}

size_t history_read(FILE *file, struct history *history) {
    struct events events = {0};
    struct event event;
    char line[512];
    size_t bad = 0;
    memset(history, 0, sizeof *history);
    for (size_t n = 1; fgets(line, sizeof line, file) && !bad; n++) {
        if (*line == '#' || *line == '\n') continue;
        if (read_event(line, &event))
            add(&events, &event);
        else
            bad = n;
    }
    if (!bad) make_holds(&events, history);
    free(events.at);
    return bad;
}

void history_free(struct history *history) {
    free(history->holds);
    memset(history, 0, sizeof *history);
}
