/* Filters and sorts the holders that a look has found, and prints them as a table. */
#ifndef DLOCK_CLI_TOP_ROWS_H
#define DLOCK_CLI_TOP_ROWS_H

#include "top/watch.h"

#include <stdio.h>

enum order { BY_NAME, BY_REMAINING, BY_WAITERS, BY_GRANTS, ORDERS };
extern const char *const order_words[ORDERS];

struct rows_plan {
    enum order order;
    const char *filter; /* shows names, tokens and labels that contain this, in upper or lower case; "": all */
    size_t longest;     /* most characters of a cell; 0: all */
    bool wide;          /* with fences and tokens */
};

/* Writes the table, heading first. Returns the number of holders in it, or -1: out of memory. */
long rows_print(const struct look *look, const struct rows_plan *plan, FILE *out);

/* Writes a summary: "3 locks, 4 holders, 1 waiting, 2.0 grants/s seen". */
void sum_text(const struct look *look, char *text, size_t size);

#endif
