/* bench: a program of its own, dlock-bench, which not everybody installs who installs the command. */
#include "cli.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROGRAM "dlock-bench"

/* Beside this program, else where the shell would look. Returns only when there is none that can be run. */
static void become(char **argv) {
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - sizeof PROGRAM);
    if (length > 0) {
        path[length] = '\0';
        strcpy(strrchr(path, '/') + 1, PROGRAM);
        execv(path, argv);
        if (errno != ENOENT) return;
    }
    execvp(PROGRAM, argv);
}

static int bench_main(int argc, char **argv) {
    (void)argc;
    become(argv);
    if (errno == ENOENT)
        note("'dlock bench' is the program " PROGRAM ", which is not installed: install the package " PROGRAM);
    else
        note("cannot run " PROGRAM ": %s", strerror(errno));
    return STATUS_UNAVAILABLE;
}

const struct command command_bench = {"bench", "compare the speed of lock servers", NULL, bench_main};
