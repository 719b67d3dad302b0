#include "terminal.h"

#include <fcntl.h>
#include <unistd.h>

void terminal_open(struct terminal *terminal) {
    terminal->fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    terminal->job = getpgrp();
}

static bool hand_over(const struct terminal *terminal, pid_t from, pid_t to) {
    return terminal->fd >= 0 && tcgetpgrp(terminal->fd) == from && tcsetpgrp(terminal->fd, to) == 0;
}

bool terminal_give(const struct terminal *terminal, pid_t group) {
    return hand_over(terminal, terminal->job, group);
}

bool terminal_take_back(const struct terminal *terminal, pid_t group) {
    return hand_over(terminal, group, terminal->job);
}

bool terminal_is_wanted(const struct terminal *terminal) {
    return terminal->fd >= 0 && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}
