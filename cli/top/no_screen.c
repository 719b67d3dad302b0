/* Replaces screen.c in a build without curses: dlock top prints lines only. */
#include "top/screen.h"

#include "cli.h"

bool screen_usable(void) {
    return false;
}

int screen_signals(void) {
    return -1;
}

int screen_run(struct watch *watch, long count) {
    (void)count;
    return watch_close(watch, STATUS_SOFTWARE);
}
