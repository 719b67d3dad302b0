/* Preloaded into a command: its first rename() or link(), or its first message if DLOCK_TEST_PAUSE_MESSAGE is set,
 * waits until the FIFO DLOCK_TEST_PAUSE is opened for writing, so that a test can let another process write the same
 * file, or a signal arrive, first. */
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void wait_once(void) {
    static bool waited;
    const char *fifo = getenv("DLOCK_TEST_PAUSE");
    if (!fifo || waited) return;
    waited = true;
    close(open(fifo, O_RDONLY | O_CLOEXEC));
}

/* The command asks whether standard error can be written before each message. */
int poll(struct pollfd *fds, nfds_t n, int timeout_ms) {
    const struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    if (n == 1 && fds->fd == STDERR_FILENO && getenv("DLOCK_TEST_PAUSE_MESSAGE")) wait_once();
    return ppoll(fds, n, timeout_ms < 0 ? NULL : &timeout, NULL);
}

int rename(const char *from, const char *to) {
    wait_once();
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int link(const char *from, const char *to) {
    wait_once();
    return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}
