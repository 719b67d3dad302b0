/* Preloaded into a command: its first rename() or link() waits until somebody opens the FIFO DLOCK_TEST_PAUSE for
 * writing, so that a test can let another process write the same file first. */
#include <fcntl.h>
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

int rename(const char *from, const char *to) {
    wait_once();
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int link(const char *from, const char *to) {
    wait_once();
    return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}
