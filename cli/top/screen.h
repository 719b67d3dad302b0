/* `dlock top` on a terminal. */
#ifndef DLOCK_CLI_TOP_SCREEN_H
#define DLOCK_CLI_TOP_SCREEN_H

#include "top/watch.h"

/* True if standard input and output are a terminal that can be drawn on. */
bool screen_usable(void);

/* Blocks signals, which are read from a descriptor from here on. Must be called before there are threads, which inherit
 * the mask. Returns 0 or -1. */
int screen_signals(void);

/* Draws until the user quits or `count` looks have been shown (0: no limit). Closes `watch`. Returns the exit status.
 * If a signal ends it, restores the terminal and dies of that signal. */
int screen_run(struct watch *watch, long count);

#endif
