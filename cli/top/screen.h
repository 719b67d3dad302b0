/* `dlock top` on a terminal. */
#ifndef DLOCK_CLI_TOP_SCREEN_H
#define DLOCK_CLI_TOP_SCREEN_H

#include "top/watch.h"

/* Whether there is a terminal that it can draw on. */
bool screen_usable(void);

/* Hears signals from here on, so call it before there are threads. 0 or -1. */
int screen_signals(void);

/* Until somebody wants it to end, or `count` looks have been shown (0: any number). Returns the exit status; dies of a
 * signal that ends it, with the terminal as it was. */
int screen_run(struct watch *watch, long count);

#endif
