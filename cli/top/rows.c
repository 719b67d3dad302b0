#include "top/rows.h"

#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *const order_words[ORDERS] = {"name", "remaining lease", "waiters", "grants"};

struct row {
    const struct dlock_info *holder;
    uint64_t grants;
    size_t place; /* its index in the look */
};

static int descending(uint64_t a, uint64_t b) {
    return (a < b) - (a > b);
}

static int by_place(const struct row *a, const struct row *b) {
    return descending(b->place, a->place);
}

static int by_name(const void *a, const void *b) {
    return by_place(a, b);
}

/* Puts the lease that ends first at the top. An unknown one, -1, becomes the greatest uint64_t and thus the last. */
static int by_remaining(const void *left, const void *right) {
    const struct row *a = left, *b = right;
    int order = descending((uint64_t)b->holder->remaining_ms, (uint64_t)a->holder->remaining_ms);
    return order ? order : by_place(a, b);
}

static int by_waiters(const void *left, const void *right) {
    const struct row *a = left, *b = right;
    int order = descending(a->holder->waiters, b->holder->waiters);
    return order ? order : by_place(a, b);
}

static int by_grants(const void *left, const void *right) {
    const struct row *a = left, *b = right;
    int order = descending(a->grants, b->grants);
    return order ? order : by_place(a, b);
}

static int (*const orders[ORDERS])(const void *, const void *) = {by_name, by_remaining, by_waiters, by_grants};

static bool passes(const struct dlock_info *holder, const char *filter) {
    return strcasestr(holder->name, filter) || strcasestr(holder->token, filter) || strcasestr(holder->label, filter);
}

long rows_print(const struct look *look, const struct rows_plan *plan, FILE *out) {
    const struct holders *holders = &look->holders;
    struct row *rows = calloc(holders->n + 1, sizeof *rows);
    struct table table = {0};
    const struct holder_view view = {.rates = true, .wide = plan->wide, .longest = plan->longest};
    size_t n = 0;
    if (!rows) return -1;
    for (size_t i = 0; i < holders->n; i++)
        if (passes(&holders->items[i], plan->filter))
            rows[n++] = (struct row){&holders->items[i], look->grants ? look->grants[i] : 0, i};
    qsort(rows, n, sizeof *rows, orders[plan->order]);
    holder_heading(&table, &view);
    for (size_t i = 0; i < n; i++) {
        char rate[RATE_MAX];
        rate_text(look, rows[i].grants, rate);
        holder_row(&table, &view, rows[i].holder, rate);
    }
    bool failed = table.failed;
    table_print(&table, out);
    free(rows);
    return failed ? -1 : (long)n;
}

void sum_text(const struct look *look, char *text, size_t size) {
    char rate[RATE_MAX];
    rate_text(look, look->all_grants, rate);
    snprintf(text, size, "%zu %s, %zu %s, %zu waiting, %s grants/s", look->locks, look->locks == 1 ? "lock" : "locks",
             look->holders.n, look->holders.n == 1 ? "holder" : "holders", look->waiters, rate);
}
