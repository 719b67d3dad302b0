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

/* Host and pid of a holder. dlock's tokens end in "@host:pid"; tokens of other programs may end in anything. */
struct place {
    char host[64], pid[16]; /* "": not known */
};
struct place place_of(const char *token);

/* Callback for dlock_inspect and dlock_list: appends a copy of `info` to `arg`, a struct holders. */
int holders_keep(const struct dlock_info *info, void *arg);

void holders_sort(struct holders *holders);                          /* by name, then fence */
void holders_json(const struct holders *holders, struct json *json); /* the member "holders" */
/* The texts that tables show for a holder. They are valid as long as the holder is. */
struct holder_cells {
    char mode[32], fence[24], remaining[32], waiters[16];
    const char *host, *pid, *token;
    struct place place;
};
void holder_cells(const struct dlock_info *holder, struct holder_cells *cells);

int holders_table(const struct holders *holders); /* 0, or STATUS_OS */
void holders_free(struct holders *holders);

/* "exclusive", "shared", "permit" */
const char *mode_word(enum dlock_mode mode);

/* "9.2s", "2m 5s", "until released" or "unknown". */
void remaining_text(int64_t remaining_ms, char *text, size_t size);

#endif
