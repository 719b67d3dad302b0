/* The client's cost of a cycle: system calls and allocations. This program's own functions override libc's, for
 * everything that is loaded into it. */
#include "api.h"
#include "support/group.h"

#include <dlfcn.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_ALLOCATIONS 0 /* the sanitizer replaces these functions */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTS_ALLOCATIONS 0
#endif
#endif
#ifndef COUNTS_ALLOCATIONS
#define COUNTS_ALLOCATIONS 1
#endif

enum { SENDS, RECEIVES, POLLS, READS, WRITES, ALLOCATIONS, KINDS };
static const char *const kinds[KINDS] = {"send", "recv", "poll", "read", "write", "allocation"};
static atomic_int counts[KINDS];

/* ---- in front of libc -------------------------------------------------------------------------------------------- */

/* Object pointers and function pointers are the same here (POSIX). */
#define NEXT(type, name)         \
    static _Atomic(type *) next; \
    if (!atomic_load(&next)) atomic_store(&next, (type *)dlsym(RTLD_NEXT, name))

typedef ssize_t send_like(int, const void *, size_t, int);
typedef ssize_t recv_like(int, void *, size_t, int);
typedef int poll_like(struct pollfd *, nfds_t, int);
typedef ssize_t read_like(int, void *, size_t);
typedef ssize_t write_like(int, const void *, size_t);

DLOCK_EXPORT ssize_t send(int fd, const void *data, size_t n, int flags) {
    NEXT(send_like, "send");
    atomic_fetch_add(&counts[SENDS], 1);
    return atomic_load(&next)(fd, data, n, flags);
}

DLOCK_EXPORT ssize_t recv(int fd, void *data, size_t n, int flags) {
    NEXT(recv_like, "recv");
    atomic_fetch_add(&counts[RECEIVES], 1);
    return atomic_load(&next)(fd, data, n, flags);
}

DLOCK_EXPORT int poll(struct pollfd *fds, nfds_t n, int timeout_ms) {
    NEXT(poll_like, "poll");
    atomic_fetch_add(&counts[POLLS], 1);
    return atomic_load(&next)(fds, n, timeout_ms);
}

DLOCK_EXPORT ssize_t read(int fd, void *data, size_t n) {
    NEXT(read_like, "read");
    atomic_fetch_add(&counts[READS], 1);
    return atomic_load(&next)(fd, data, n);
}

DLOCK_EXPORT ssize_t write(int fd, const void *data, size_t n) {
    NEXT(write_like, "write");
    atomic_fetch_add(&counts[WRITES], 1);
    return atomic_load(&next)(fd, data, n);
}

#if COUNTS_ALLOCATIONS
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);

DLOCK_EXPORT void *malloc(size_t size) {
    atomic_fetch_add(&counts[ALLOCATIONS], 1);
    return __libc_malloc(size);
}

DLOCK_EXPORT void *calloc(size_t n, size_t size) {
    atomic_fetch_add(&counts[ALLOCATIONS], 1);
    return __libc_calloc(n, size);
}

DLOCK_EXPORT void *realloc(void *old, size_t size) {
    atomic_fetch_add(&counts[ALLOCATIONS], 1);
    return __libc_realloc(old, size);
}
#endif

/* ---- counting ---------------------------------------------------------------------------------------------------- */

static int cycles = 100;

static void begin_count(void) {
    for (int i = 0; i < KINDS; i++) atomic_store(&counts[i], 0);
}

static void assert_counts(const int expected[KINDS]) {
    int found[KINDS];
    for (int i = 0; i < KINDS; i++) found[i] = atomic_load(&counts[i]);
    for (int i = 0; i < KINDS; i++) print_message("%s %d  ", kinds[i], found[i]);
    print_message("in %d cycles\n", cycles);
    for (int i = 0; i < KINDS; i++)
        if (found[i] > expected[i]) fail_msg("%s: %d instead of %d", kinds[i], found[i], expected[i]);
    assert_int_equal(found[SENDS], expected[SENDS]); /* they are seen */
}

TEST(a_cycle) {
    /* The keeper may wake once in a while, and a reply on a busy machine be late. hiredis makes an object of each
     * reply, and that is all. */
    const int some = cycles / 10, two = 2 * cycles;
    const int expected[KINDS] = {[SENDS] = two,  [RECEIVES] = two + some, [POLLS] = some,
                                 [READS] = some, [WRITES] = some,         [ALLOCATIONS] = two + some};
    dlock_client *client = api_open(&server, "quarantine=0");
    dlock_lock *lock = api_lock(client, "counted", NULL);
    for (int i = -2; i < cycles; i++) {
        if (i == 0) begin_count();
        assert_int_equal(dlock_acquire(lock, -1, NULL), 0);
        assert_int_equal(dlock_release(lock, NULL), 0);
    }
    assert_counts(expected);
    dlock_free(lock);
    dlock_close(client);
}

/* Many locks in one call are one request and one answer, which may come in pieces. */
TEST(many_at_once) {
    enum { MANY = 50, PIECES = 4 };
    const int some = cycles / 10;
    const int expected[KINDS] = {
        [SENDS] = 2 * cycles, [RECEIVES] = 2 * cycles * PIECES,        [POLLS] = some, [READS] = some,
        [WRITES] = some,      [ALLOCATIONS] = (2 * MANY + 20) * cycles}; /* two for each array of replies */
    dlock_client *client = api_open(&server, "quarantine=0");
    dlock_lock *locks[MANY];
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "counted-%d", i);
        locks[i] = api_lock(client, name, NULL);
    }
    for (int i = -2; i < cycles; i++) {
        if (i == 0) begin_count();
        assert_int_equal(dlock_acquire_all(locks, MANY, -1, NULL), 0);
        assert_int_equal(dlock_release_all(locks, MANY, NULL), 0);
    }
    assert_counts(expected);
    for (int i = 0; i < MANY; i++) dlock_free(locks[i]);
    dlock_close(client);
}

static int begin(void **state) {
    const char *number = getenv("DLOCK_TEST_CYCLES");
    if (number) cycles = atoi(number);
    return group_begin(state);
}

TESTS(NULL, NULL, begin, group_end)
