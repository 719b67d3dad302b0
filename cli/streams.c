/* The standard streams of a program: its own at the beginning, written to the end, and left for a reader's sake. */
#include "cli.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

void fill_streams(void) {
    int mode = fcntl(STDIN_FILENO, F_GETFD) < 0 ? O_RDWR : O_RDONLY; /* the lowest gap comes first */
    for (;;) {
        int fd = open("/dev/null", mode | O_CLOEXEC);
        if (fd > STDERR_FILENO) close(fd);
        if (fd < 0 || fd > STDERR_FILENO) return;
        mode = fd == STDIN_FILENO ? O_RDONLY : O_RDWR;
    }
}

int finish_streams(int status) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    note("cannot write to standard output");
    return status < STATUS_USAGE ? STATUS_IO : status; /* an answer that nobody got is none */
}

void leave_streams(void) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return;
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    close(null);
}
