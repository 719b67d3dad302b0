/* `dlock top` without a terminal: prints lines for people, or JSON, one line for each look. */
#ifndef DLOCK_CLI_TOP_LINES_H
#define DLOCK_CLI_TOP_LINES_H

#include "top/watch.h"

struct lines_plan {
    long count; /* number of looks; 0: without end */
    bool json;
};

/* Prints `count` looks; blocks until then. Closes `watch`. Returns the exit status, that of the last look. */
int lines_run(struct watch *watch, const struct lines_plan *plan);

#endif
