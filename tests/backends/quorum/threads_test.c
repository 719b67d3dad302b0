/* An application thread that hangs while it polls for the members' answers. */
#include "servers.h"

#include "support/test.h"

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

static _Thread_local bool stopping; /* this thread hangs in its next poll */
static int stands[2], goes[2];      /* pipes: from a byte of the first until one of the second */

/* Then another function of libc is called instead of ppoll(). */
#if defined __USE_FORTIFY_LEVEL && __USE_FORTIFY_LEVEL > 0
enum { FORTIFIED = true };
#else
enum { FORTIFIED = false };
#endif

typedef int ppoll_like(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);

/* It is in front of libc's for the library and for what it loads. */
DLOCK_EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask) {
    ppoll_like *next;
    void *symbol = dlsym(RTLD_NEXT, "ppoll");
    char byte = 0;
    memcpy(&next, &symbol, sizeof next);
    if (stopping) {
        stopping = false;
        if (write(stands[1], &byte, 1) == 1) (void)!read(goes[0], &byte, 1);
    }
    return next(fds, n, timeout, mask);
}

static int begin(void **state) {
    members_three(state);
    return pipe(stands) || pipe(goes);
}

static int end(void **state) {
    for (int i = 0; i < 2; i++) close(stands[i]), close(goes[i]);
    return members_none(state);
}

/* A client whose members have all scripts, so that callers send their requests themselves. */
static dlock_client *ready_client(void) {
    dlock_client *client = quorum_of(3, "quarantine=0&lease=5m&timeout=20s");
    give_back(take(client, "first", NULL));
    for (int i = 0; i < 3; i++) await_free(i, "first");
    return client;
}

static void *acquire_it(void *lock) {
    stopping = true;
    return (void *)(intptr_t)dlock_acquire(lock, 20000, NULL);
}

/* Begins an acquire in a thread that then hangs. */
static pthread_t acquire_and_stand_still(dlock_lock *lock) {
    struct pollfd stood = {.fd = stands[0], .events = POLLIN};
    pthread_t thread;
    char byte;
    assert_int_equal(pthread_create(&thread, NULL, acquire_it, lock), 0);
    assert_int_equal(poll(&stood, 1, 30000), 1);
    assert_int_equal(read(stands[0], &byte, 1), 1);
    return thread;
}

/* The thread gets its lock when it continues. */
static void go_on(pthread_t thread) {
    void *rc;
    assert_int_equal(write(goes[1], "", 1), 1);
    assert_int_equal(pthread_join(thread, &rc), 0);
    assert_int_equal((intptr_t)rc, 0);
}

static const struct dlock_options by_handle = {.size = sizeof by_handle, .owner = DLOCK_OWNER_HANDLE};

/* The other threads of its client renew, acquire and release in this time. If connections end in it, the one that
 * continues reads nothing of those that have got their descriptors' numbers. */
static void stand_still(bool cut) {
    if (FORTIFIED) skip();
    SCOPED_CLIENT *client = ready_client();
    dlock_lock *held = take_everywhere(client, "held", NULL), *lock = api_lock(client, "standing", &by_handle);
    pthread_t thread = acquire_and_stand_still(lock);
    assert_int_equal(dlock_extend(held, 0, NULL), 0);
    for (int i = 0; i < 3 && cut; i++) ask_number(&member[i], "CLIENT KILL TYPE normal SKIPME yes");
    for (int i = 0; i < 3 && !cut; i++) assert_int_equal(try_once(client, "other", NULL), 0);
    assert_int_equal(dlock_extend(held, 0, NULL), 0);
    go_on(thread);
    assert_int_equal(dlock_extend(held, 0, NULL), 0);
    give_back(lock);
    give_back(held);
    for (int i = 0; i < 3; i++) await_free(i, "standing");
}

TEST(a_thread_that_stands_still_stops_no_other) {
    stand_still(false);
}

TEST(a_thread_that_stood_still_reads_nothing_of_others) {
    stand_still(true);
}

TESTS(begin, end, NULL, NULL)
