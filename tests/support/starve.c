#include "support/starve.h"

#include "support/test.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LIMIT = 256, MOST = 64 };

/* Calls it while exactly n descriptors are free. */
static int with_free(int n, connects *connect, void *arg, struct dlock_error *err) {
    int fds[LIMIT], used = 0, fd;
    while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) fds[used++] = fd;
    assert_true(used >= n);
    for (int i = 0; i < n; i++) close(fds[--used]);
    int rc = connect(arg, err);
    while (used > 0) close(fds[--used]);
    return rc;
}

int starve(connects *connect, void *arg, int code, struct dlock_error *err) {
    struct dlock_error now = {0};
    struct rlimit before, low;
    int n = 0, expected = connect(arg, &now), rc = 0;
    getrlimit(RLIMIT_NOFILE, &before);
    low = before;
    low.rlim_cur = LIMIT;
    setrlimit(RLIMIT_NOFILE, &low);
    for (; n < MOST && (rc = with_free(n, connect, arg, &now)) == code; n++) {
        *err = now;
        print_message("%d free: %s\n", n, now.message);
    }
    setrlimit(RLIMIT_NOFILE, &before);
    if (rc != expected) fail_msg("with %d free descriptors %d, with all %d: %s", n, rc, expected, now.message);
    return n;
}
