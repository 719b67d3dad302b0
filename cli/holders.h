/* The holders that an inspection found. All are collected before the first is printed, so that an inspection that fails
 * half way prints nothing. */
#ifndef DLOCK_CLI_HOLDERS_H
#define DLOCK_CLI_HOLDERS_H

#include "text.h"

#include <dlock/dlock.h>

struct holders {
    struct dlock_info *items; /* owned, as are the strings in them */
    size_t n, capacity;
    bool failed; /* out of memory */
};

/* Callback for dlock_inspect and dlock_list: appends a copy of `info` to `arg`, a struct holders. */
int holders_keep(const struct dlock_info *info, void *arg);

void holders_sort(struct holders *holders);                          /* by name, then fence */
void holders_json(const struct holders *holders, struct json *json); /* the member "holders" */

/* Which columns a table has, beside NAME, MODE, HELD BY, FOR, WAITERS and EXPIRES. */
struct holder_view {
    bool rates;     /* GRANTS/S */
    bool wide;      /* FENCE and TOKEN */
    size_t longest; /* most characters of a cell; 0: all */
};
void holder_heading(struct table *table, const struct holder_view *view); /* into an empty table */
void holder_row(struct table *table, const struct holder_view *view, const struct dlock_info *holder, const char *rate);

int holders_table(const struct holders *holders, bool wide); /* 0, or STATUS_OS */
/* The waiters of a lock, in their order, as a table; as the member "queue". */
int waiters_table(const struct holders *waiters, bool wide); /* 0, or STATUS_OS */
void waiters_json(const struct holders *waiters, struct json *json);

void holders_free(struct holders *holders);

/* "exclusive", "shared", "permit" */
const char *mode_word(enum dlock_mode mode);

/* Writes who the holder is and since when, as "nightly.sh on web3, pid 4711, for 9 min". Returns `text`. */
enum { WHO_MAX = 240 };
const char *holder_text(const struct dlock_info *holder, char text[WHO_MAX]);

/* The same of all holders, of which there is one at least: ", and 2 others" follows the first. */
enum { HOLDERS_TEXT_MAX = WHO_MAX + 40 };
const char *holders_text(const struct holders *holders, char text[HOLDERS_TEXT_MAX]);

/* Writes "9.2s", "2m 5s", "3h 10m", "4d 2h", "until released" or "unknown". Returns `text`. */
const char *time_text(int64_t ms, char text[32]);

#endif
