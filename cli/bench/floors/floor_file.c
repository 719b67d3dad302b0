/* open, flock, close: as flock(1) locks. */
#include "floor.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static char folder[3840];
static int held[FLOOR_WORKERS];

/* Sets `folder` to the default folder of dlock's file backend. */
static void default_folder(void) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state && *state == '/')
        snprintf(folder, sizeof folder, "%s/dlock", state);
    else if (home && *home == '/')
        snprintf(folder, sizeof folder, "%s/.local/state/dlock", home);
}

static void prepare(struct floor *floor, const char *uri) {
    const char *begin = strchr(uri, ':');
    (void)floor;
    floor_need(begin != NULL);
    begin += strncmp(begin + 1, "//", 2) == 0 ? 3 : 1;
    floor_decode(begin, begin + strcspn(begin, "?"), folder, sizeof folder);
    if (*folder == '\0') default_folder();
    floor_need(*folder != '\0');
}

static void acquire(void *server, int number) {
    char path[4096];
    (void)server;
    snprintf(path, sizeof path, "%s/dlock-bench:floor-%d", folder, number);
    held[number] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    floor_check(held[number] >= 0, "open");
    floor_check(flock(held[number], LOCK_EX) == 0, "flock");
}

static void release(void *server, int number) {
    (void)server;
    close(held[number]);
}

struct floor floor_program = {
    .prepare = prepare, .acquire = acquire, .release = release, .waits = true, .shared = true};
