/* The standard streams: opened at the start where they are closed, flushed at the end, left early for a pipe's reader.
 * */
#include "cli.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

void fill_streams(void) {
    int mode = fcntl(STDIN_FILENO, F_GETFD) < 0 ? O_RDWR : O_RDONLY; /* open() fills the lowest gap first */
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
    return status < STATUS_USAGE ? STATUS_IO : status; /* 0 and 1 are answers, which were not delivered */
}

void leave_streams(void) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return;
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    close(null);
}
