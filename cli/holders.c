#include "holders.h"

#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
    item->token = strdup(info->token ? info->token : "");
    if (!item->name || !item->token) {
        free((char *)item->name);
        free((char *)item->token);
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

void remaining_text(int64_t remaining_ms, char *text, size_t size) {
    int64_t seconds = remaining_ms / 1000;
    if (remaining_ms < 0)
        snprintf(text, size, "unknown");
    else if (remaining_ms == DLOCK_FOREVER)
        snprintf(text, size, "until released");
    else if (seconds < 60)
        snprintf(text, size, "%" PRId64 ".%" PRId64 "s", seconds, remaining_ms % 1000 / 100);
    else
        snprintf(text, size, "%" PRId64 "m %" PRId64 "s", seconds / 60, seconds % 60);
}

struct place place_of(const char *token) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    struct place place = {"", ""};
    const char *at = strrchr(token, '@');
    if (!at) return place;
    size_t host = strspn(at + 1, letters);
    const char *pid = at + 1 + host + 1;
    if (host == 0 || host >= sizeof place.host || at[1 + host] != ':') return place;
    size_t digits = strspn(pid, "0123456789");
    if (digits == 0 || digits > 10 || pid[digits]) return place;
    snprintf(place.host, sizeof place.host, "%.*s", (int)host, at + 1);
    snprintf(place.pid, sizeof place.pid, "%s", pid);
    return place;
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
        json_string(json, "token", holder->token);
        struct place place = place_of(holder->token);
        json_string(json, "host", *place.host ? place.host : NULL);
        if (*place.pid)
            json_number(json, "pid", strtoll(place.pid, NULL, 10));
        else
            json_null(json, "pid");
        json_string(json, "mode", mode_word(holder->mode));
        json_string(json, "fence", holder->fence ? fence : NULL);
        if (holder->remaining_ms < 0 || endless)
            json_null(json, "remaining_ms");
        else
            json_number(json, "remaining_ms", holder->remaining_ms);
        json_bool(json, "until_released", endless);
        json_number(json, "waiters", holder->waiters);
        json_number(json, "limit", holder->limit);
        json_end(json, '}');
    }
    json_end(json, ']');
}

void holder_cells(const struct dlock_info *holder, struct holder_cells *cells) {
    *cells = (struct holder_cells){.place = place_of(holder->token), .fence = "unknown"};
    snprintf(cells->mode, sizeof cells->mode, "%s", mode_word(holder->mode));
    if (holder->mode == DLOCK_PERMIT) snprintf(cells->mode, sizeof cells->mode, "permit of %" PRIu32, holder->limit);
    if (holder->fence) snprintf(cells->fence, sizeof cells->fence, "%" PRIu64, holder->fence);
    remaining_text(holder->remaining_ms, cells->remaining, sizeof cells->remaining);
    snprintf(cells->waiters, sizeof cells->waiters, "%" PRIu32, holder->waiters);
    cells->host = *cells->place.host ? cells->place.host : "-";
    cells->pid = *cells->place.pid ? cells->place.pid : "-";
    cells->token = holder->token[0] ? holder->token : "unknown";
}

int holders_table(const struct holders *holders) {
    struct table table = {.columns = 8};
    table_add(&table, (const char *const[]){"NAME", "MODE", "FENCE", "REMAINING", "WAITERS", "HOST", "PID", "TOKEN"});
    for (size_t i = 0; i < holders->n; i++) {
        struct holder_cells cells;
        holder_cells(&holders->items[i], &cells);
        table_add(&table, (const char *const[]){holders->items[i].name, cells.mode, cells.fence, cells.remaining,
                                                cells.waiters, cells.host, cells.pid, cells.token});
    }
    bool failed = table.failed;
    table_print(&table, stdout);
    return failed ? STATUS_OS : STATUS_OK;
}

void holders_free(struct holders *holders) {
    for (size_t i = 0; i < holders->n; i++) {
        free((char *)holders->items[i].name);
        free((char *)holders->items[i].token);
    }
    free(holders->items);
    *holders = (struct holders){0};
}
