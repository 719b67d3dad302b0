/* A library to be preloaded into a server or a client. It moves the wall clock of that process ahead by the number of
 * nanoseconds in the first eight bytes of the file DLOCK_TEST_CLOCK, which it maps. Other clocks are not changed. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

static const volatile int64_t *ahead_ns;

__attribute__((constructor)) static void map(void) {
    const char *path = getenv("DLOCK_TEST_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *page = mmap(NULL, sizeof *ahead_ns, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED) ahead_ns = page;
}

typedef int get_time(clockid_t, struct timespec *);

PUBLIC int clock_gettime(clockid_t clock, struct timespec *time) {
    static get_time *next;
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "clock_gettime");
    int rc = next(clock, time);
    if (rc != 0 || !ahead_ns || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return rc;
    int64_t ns = time->tv_sec * INT64_C(1000000000) + time->tv_nsec + *ahead_ns;
    time->tv_sec = ns / 1000000000;
    time->tv_nsec = ns % 1000000000;
    return 0;
}

PUBLIC int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

PUBLIC time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
