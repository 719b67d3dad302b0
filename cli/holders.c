#include "holders.h"

#include "cli.h"

#include <dlock/backend.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void drop(const struct dlock_info *item) {
    free((char *)item->name);
    free((char *)item->token);
    free((char *)item->host);
    free((char *)item->label);
}

int holders_keep(const struct dlock_info *info, void *arg) {
    struct holders *holders = arg;
    if (holders->n == holders->capacity) {
        size_t capacity = holders->capacity ? 2 * holders->capacity : 16;
        struct dlock_info *more = realloc(holders->items, capacity * sizeof *more);
        if (!more) {
            holders->failed = true;
            return 1;
        }
        holders->items = more;
        holders->capacity = capacity;
    }
    struct dlock_info *item = &holders->items[holders->n];
    *item = *info;
    item->name = strdup(info->name);
    item->token = strdup(info->token);
    item->host = strdup(info->host);
    item->label = strdup(info->label);
    if (!item->name || !item->token || !item->host || !item->label) {
        drop(item);
        holders->failed = true;
        return 1;
    }
    holders->n++;
    return 0;
}

static int compare(const void *left, const void *right) {
    const struct dlock_info *a = left, *b = right;
    int order = strcmp(a->name, b->name);
    return order ? order : (a->fence > b->fence) - (a->fence < b->fence);
}

void holders_sort(struct holders *holders) {
    if (holders->n > 1) qsort(holders->items, holders->n, sizeof *holders->items, compare);
}

const char *mode_word(enum dlock_mode mode) {
    switch (mode) {
    case DLOCK_EXCLUSIVE: return "exclusive";
    case DLOCK_SHARED: return "shared";
    case DLOCK_PERMIT: return "permit";
    }
    return "unknown";
}

/* Writes a time in its two greatest units, of which `units` has the names. */
static void two_units(int64_t seconds, const char *const units[4], char text[32]) {
    static const int64_t lengths[] = {1, 60, 3600, 86400};
    int unit = seconds < 3600 ? 1 : seconds < 86400 ? 2 : 3;
    snprintf(text, 32, "%" PRId64 "%s %" PRId64 "%s", seconds / lengths[unit], units[unit],
             seconds % lengths[unit] / lengths[unit - 1], units[unit - 1]);
}

const char *time_text(int64_t ms, char text[32]) {
    static const char *const units[] = {"s", "m", "h", "d"};
    if (ms < 0 || ms == DLOCK_FOREVER)
        snprintf(text, 32, ms < 0 ? "unknown" : "until released");
    else if (ms < 60000)
        snprintf(text, 32, "%" PRId64 ".%" PRId64 "s", ms / 1000, ms % 1000 / 100);
    else
        two_units(ms / 1000, units, text);
    return text;
}

const char *holder_text(const struct dlock_info *holder, char text[WHO_MAX]) {
    static const char *const units[] = {" s", " min", " h", " d"};
    const int64_t seconds = holder->held_ms / 1000;
    char since[32];
    dlock_holder_text(text, holder->token);
    if (holder->held_ms < 0) return text;
    if (seconds < 3600)
        snprintf(since, sizeof since, "%d%s", (int)(seconds < 60 ? seconds : seconds / 60), units[seconds >= 60]);
    else
        two_units(seconds, units, since);
    size_t used = strlen(text);
    snprintf(text + used, WHO_MAX - used, ", for %s", since);
    return text;
}

const char *holders_text(const struct holders *holders, char text[HOLDERS_TEXT_MAX]) {
    size_t used = strlen(holder_text(&holders->items[0], text));
    if (holders->n > 1)
        snprintf(text + used, HOLDERS_TEXT_MAX - used, ", and %zu other%s", holders->n - 1, holders->n > 2 ? "s" : "");
    return text;
}

static void json_who(struct json *json, const struct dlock_info *holder) {
    json_string(json, "token", holder->token);
    json_string(json, "host", *holder->host ? holder->host : NULL);
    if (holder->pid)
        json_number(json, "pid", holder->pid);
    else
        json_null(json, "pid");
    json_string(json, "label", *holder->label ? holder->label : NULL);
}

static void json_time(struct json *json, const char *key, int64_t ms) {
    if (ms < 0)
        json_null(json, key);
    else
        json_number(json, key, ms);
}

/* The fence is a string: it has 64 bits, and most JSON readers keep only 53 bits of a number. */
void holders_json(const struct holders *holders, struct json *json) {
    json_begin(json, "holders", '[');
    for (size_t i = 0; i < holders->n; i++) {
        const struct dlock_info *holder = &holders->items[i];
        bool endless = holder->remaining_ms == DLOCK_FOREVER;
        char fence[24];
        snprintf(fence, sizeof fence, "%" PRIu64, holder->fence);
        json_begin(json, NULL, '{');
        json_string(json, "name", holder->name);
        json_who(json, holder);
        json_string(json, "mode", mode_word(holder->mode));
        json_string(json, "fence", holder->fence ? fence : NULL);
        json_time(json, "remaining_ms", endless ? -1 : holder->remaining_ms);
        json_bool(json, "until_released", endless);
        json_time(json, "held_ms", holder->held_ms);
        json_number(json, "waiters", holder->waiters);
        json_number(json, "limit", holder->limit);
        json_end(json, '}');
    }
    json_end(json, ']');
}

void waiters_json(const struct holders *waiters, struct json *json) {
    json_begin(json, "queue", '[');
    for (size_t i = 0; i < waiters->n; i++) {
        const struct dlock_info *waiter = &waiters->items[i];
        json_begin(json, NULL, '{');
        json_who(json, waiter);
        json_string(json, "mode", mode_word(waiter->mode));
        json_time(json, "waited_ms", waiter->held_ms);
        json_end(json, '}');
    }
    json_end(json, ']');
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

enum { NAME, MODE, HELD_BY, FOR, WAITERS, EXPIRES, RATE, FENCE, TOKEN, COLUMNS };
_Static_assert((int)COLUMNS <= (int)TABLE_COLUMNS, "a table has room for all columns");

/* Adds a row of those cells that the view shows. */
static void add_shown(struct table *table, const struct holder_view *view, const char *const cells[COLUMNS]) {
    const char *shown[COLUMNS];
    size_t n = 0;
    for (int i = 0; i < COLUMNS; i++)
        if (i < RATE || (i == RATE ? view->rates : view->wide)) shown[n++] = cells[i];
    table->columns = n;
    table_add(table, shown);
}

void holder_heading(struct table *table, const struct holder_view *view) {
    static const char *const words[COLUMNS] = {"NAME",    "MODE",     "HELD BY", "FOR",  "WAITERS",
                                               "EXPIRES", "GRANTS/S", "FENCE",   "TOKEN"};
    add_shown(table, view, words);
}

/* Returns `text`, or, if it has more than `longest` characters (0: no limit), its beginning with "…", in `space`. */
static const char *cut(const char *text, size_t longest, char *space, size_t size) {
    size_t length = strlen(text), first = longest ? first_characters(text, longest) : length;
    if (first == length || first >= size) return text;
    first = first_characters(text, longest - 1);
    snprintf(space, size, "%.*s…", (int)first, text);
    return space;
}

/* Writes "web3[4711] nightly.sh", or the token of another program. */
static void held_by(const struct dlock_info *holder, char text[256]) {
    if (holder->host[0])
        snprintf(text, 256, "%s[%" PRId64 "]%s%s", holder->host, holder->pid, holder->label[0] ? " " : "",
                 holder->label);
    else
        snprintf(text, 256, "%s", holder->token[0] ? holder->token : "unknown");
}

void holder_row(struct table *table, const struct holder_view *view, const struct dlock_info *holder,
                const char *rate) {
    char mode[32], who[256], since[32], left[32], waiters[16], fence[24] = "unknown";
    char cuts[3][1024];
    snprintf(mode, sizeof mode, "%s", mode_word(holder->mode));
    if (holder->mode == DLOCK_PERMIT) snprintf(mode, sizeof mode, "permit of %" PRIu32, holder->limit);
    held_by(holder, who);
    snprintf(waiters, sizeof waiters, "%" PRIu32, holder->waiters);
    if (holder->fence) snprintf(fence, sizeof fence, "%" PRIu64, holder->fence);
    const char *const cells[COLUMNS] = {
        cut(holder->name, view->longest, cuts[0], sizeof cuts[0]),
        mode,
        cut(who, view->longest, cuts[1], sizeof cuts[1]),
        time_text(holder->held_ms, since),
        waiters,
        time_text(holder->remaining_ms, left),
        rate,
        fence,
        cut(holder->token[0] ? holder->token : "unknown", view->longest, cuts[2], sizeof cuts[2]),
    };
    add_shown(table, view, cells);
}

int holders_table(const struct holders *holders, bool wide) {
    const struct holder_view view = {.wide = wide};
    struct table table = {0};
    holder_heading(&table, &view);
    for (size_t i = 0; i < holders->n; i++) holder_row(&table, &view, &holders->items[i], "");
    bool failed = table.failed;
    table_print(&table, stdout);
    return failed ? STATUS_OS : STATUS_OK;
}

int waiters_table(const struct holders *waiters, bool wide) {
    struct table table = {.columns = wide ? 5 : 4};
    table_add(&table, (const char *const[]){"PLACE", "MODE", "WAITER", "FOR", "TOKEN"});
    for (size_t i = 0; i < waiters->n; i++) {
        const struct dlock_info *waiter = &waiters->items[i];
        char place[24], who[256], since[32];
        snprintf(place, sizeof place, "%zu", i + 1);
        held_by(waiter, who);
        table_add(&table, (const char *const[]){place, mode_word(waiter->mode), who, time_text(waiter->held_ms, since),
                                                waiter->token});
    }
    bool failed = table.failed;
    table_print(&table, stdout);
    return failed ? STATUS_OS : STATUS_OK;
}

void holders_free(struct holders *holders) {
    for (size_t i = 0; i < holders->n; i++) drop(&holders->items[i]);
    free(holders->items);
    *holders = (struct holders){0};
}
