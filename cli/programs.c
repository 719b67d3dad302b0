/* Subcommands that are programs of their own: bench, since it comes in its own package; and top, so that the other
 * subcommands need not load its libraries. */
#include "cli.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Executes `program` in `folder`, a path relative to the folder of this program. Returns only on failure, with errno.
 * */
static void become_in(const char *folder, const char *program, char **argv) {
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path);
    if (length <= 0 || (size_t)length == sizeof path) return;
    path[length] = '\0';
    char *name = strrchr(path, '/') + 1;
    size_t room = sizeof path - (size_t)(name - path);
    if (snprintf(name, room, "%s%s", folder, program) < (int)room) execv(path, argv);
}

/* Returns why a program was not executed: `errnum` is the error of the last try. */
static const char *reason(int errnum) {
    char path[2];
    if (readlink("/proc/self/exe", path, sizeof path) > 0) return strerror(errnum);
    return "/proc is not mounted, and without it the folder of the program dlock is not known";
}

static int bench_main(int argc, char **argv) {
    (void)argc;
    become_in("", "dlock-bench", argv);
    if (errno == ENOENT) execvp("dlock-bench", argv);
    if (errno == ENOENT && access("/proc/self/exe", F_OK) == 0)
        note("'dlock bench' is the program dlock-bench, which is not installed: install the package dlock-bench");
    else
        note("cannot run dlock-bench: %s", reason(errno));
    return STATUS_UNAVAILABLE;
}

const struct command command_bench = {"bench", "compare the speed of lock servers", NULL, bench_main};

/* Looks first beside this program, where dlock-top is in a build tree, then in the folder where it is installed. */
static int top_main(int argc, char **argv) {
    (void)argc;
    become_in("", "dlock-top", argv);
    if (errno == ENOENT) become_in(DLOCK_LIBEXEC "/", "dlock-top", argv);
    note("cannot run dlock-top, the program of 'dlock top': %s", reason(errno));
    return STATUS_UNAVAILABLE;
}

const struct command command_top = {"top", "watch the locks of a server", NULL, top_main};
