/* When a test that has failed is run again. */
#ifndef DLOCK_TESTS_SUPPORT_STANDSTILL_H
#define DLOCK_TESTS_SUPPORT_STANDSTILL_H

#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* A test that fails while the machine stands still for this long says nothing about dlock. */
enum { STOOD_STILL_MS = 300, MOST_RUNS = 3 };

enum { TRY_EVERY_MS = 1000 };

struct tried_process {
    pid_t pid; /* 0: none runs */
    int64_t begun_ms;
};

static inline int end_at_once(void *arg) {
    (void)arg;
    syscall(SYS_exit_group, 0); /* not _exit(), which a sanitizer replaces */
    return 0;
}

/* Starts a process that ends at once, once a second. Returns how long the latest one has taken so far. Linux 6.18 with
 * autogroup leaves new processes without a processor for up to 20 s at a load of 45, and most tests start processes;
 * processes that sleep are woken in time there, and vfork(2) is not delayed: so fork(2), not posix_spawn, or what is
 * fork(2) but for the descriptors, which end_trying() needs. */
static inline int64_t try_a_process(struct tried_process *tried, int64_t now_ms) {
    if (tried->pid > 0) {
        if (waitpid(tried->pid, NULL, WNOHANG) != 0) tried->pid = 0;
        return now_ms - tried->begun_ms;
    }
    if (now_ms < tried->begun_ms + TRY_EVERY_MS) return 0;
    tried->begun_ms = now_ms;
    static char stack[1 << 16] __attribute__((aligned(16))); /* the process gets a copy */
    tried->pid = clone(end_at_once, stack + sizeof stack, CLONE_FILES | SIGCHLD, NULL);
    return 0;
}

/* To be called before the program ends. A process that gets no processor cannot be killed either, and would keep the
 * output open, for whose end CTest waits. Since it has no descriptors of its own, ours can be closed for it. */
static inline void end_trying(struct tried_process *tried) {
    if (tried->pid <= 0 || waitpid(tried->pid, NULL, WNOHANG) != 0) return;
    fflush(stdout);
    close(STDOUT_FILENO);
    close(STDERR_FILENO);
}

#endif
