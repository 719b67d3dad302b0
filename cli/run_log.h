/* run --log: one line of JSON for each run, from which `dlock log` makes a table. */
#ifndef DLOCK_CLI_RUN_LOG_H
#define DLOCK_CLI_RUN_LOG_H

#include <dlock/dlock.h>

#include <time.h>

/* Writes the time as in the log, without fractions of a second: "2026-12-01T03:00:00", UTC. Returns its length. */
enum { UTC_MAX = 32 };
size_t utc_text(char text[UTC_MAX], time_t at);

struct run_log {
    int fd; /* -1: no log is wanted */
    const char *path;
    char start[UTC_MAX]; /* RFC 3339, UTC */
    int64_t began_ms;    /* all times by now_ms() */
    int64_t granted_ms;  /* 0: it was not granted */
    uint64_t fence;
    bool lost;
    struct dlock_error why; /* why it was not granted: who has it */
};
#define RUN_LOG_INIT \
    { .fd = -1 }

/* Opens the log, a file or "journal"; `path` NULL: none. Returns STATUS_OK, or prints why it cannot be written and
 * returns the exit status. */
int run_log_open(struct run_log *log, const char *path);

/* Writes the line by one write(), so that those of several runs do not mix, and closes the log. A failure is only said. */
void run_log_close(struct run_log *log, const char *name, const char *label, int status);

#endif
