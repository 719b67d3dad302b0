/* When a test that has failed is run again. */
#ifndef DLOCK_TESTS_SUPPORT_STANDSTILL_H
#define DLOCK_TESTS_SUPPORT_STANDSTILL_H

#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

/* A test that fails while the machine stands still for this long says nothing about dlock. */
enum { STOOD_STILL_MS = 300, MOST_RUNS = 3 };

enum { TRY_EVERY_MS = 500 };

struct tried_process {
    pid_t pid; /* 0: none runs */
    int64_t begun_ms;
};

/* Starts a process that ends at once, twice a second. Returns how long the latest one has taken so far. Linux 6.18 with
 * autogroup leaves new processes without a processor for up to 20 s at a load of 45, and most tests start processes;
 * processes that sleep are woken in time there, and vfork(2) is not delayed. */
static inline int64_t try_a_process(struct tried_process *tried, int64_t now_ms) {
    if (tried->pid > 0) {
        if (waitpid(tried->pid, NULL, WNOHANG) != 0) tried->pid = 0;
        return now_ms - tried->begun_ms;
    }
    if (now_ms < tried->begun_ms + TRY_EVERY_MS) return 0;
    tried->begun_ms = now_ms;
    tried->pid = fork();
    if (tried->pid == 0) _exit(0);
    return 0;
}

#endif
