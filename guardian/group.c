#include "group.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What /proc shows of a process; `group` and `session` by their numbers in our own PID namespace. */
struct process {
    char state;
    int group, session;
    long threads;
};

static ssize_t read_text(int folder, const char *path, char *text, size_t size) {
    int fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t length = read(fd, text, size - 1);
    close(fd);
    if (length > 0) text[length] = '\0';
    return length;
}

static bool read_process(int proc, const char *pid, struct process *process) {
    char path[300], text[1024];
    snprintf(path, sizeof path, "%s/stat", pid);
    if (read_text(proc, path, text, sizeof text) <= 0) return false; /* it has just ended */

    /* The program's name, in brackets before the rest, may contain any character. */
    const char *end = strrchr(text, ')');
    return end && sscanf(end + 1, " %c %*d %d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld",
                         &process->state, &process->group, &process->session, &process->threads) == 4;
}

/* ---- beside the /proc of an outer PID namespace ------------------------------------------------------------------ */

/* Reads up to `most` numbers behind `key` in the text of a status file: one for each PID namespace from that of /proc
 * inwards. Returns how many there are. */
static int read_numbers(const char *text, const char *key, int *numbers, int most) {
    const char *at = strstr(text, key);
    int n = 0;
    if (!at) return 0;
    at += strlen(key);
    for (char *end; n < most; n++, at = end) {
        numbers[n] = (int)strtol(at, &end, 10);
        if (end == at) break;
    }
    return n;
}

enum {
    LEVELS = 32 + 1,    /* that the kernel nests, and the outermost */
    STATUS_MAX = 16384, /* of its text, which has a user's groups before what we look for */
    UNKNOWN = -1        /* the group of a process whose text is longer */
};

/* Returns how many levels our PID namespace is within that of /proc: 0: it is ours. -1: it does not show us. */
static int level_of_ours(void) {
    char self[32], text[STATUS_MAX];
    int numbers[LEVELS];
    ssize_t length = readlink("/proc/self", self, sizeof self - 1);
    if (length <= 0) return -1; /* /proc is not mounted, or shows a namespace that we are not in */
    self[length] = '\0';
    if (strtol(self, NULL, 10) == (long)getpid()) return 0;
    if (read_text(AT_FDCWD, "/proc/self/status", text, sizeof text) <= 0) return -1;
    int n = read_numbers(text, "\nNSpid:", numbers, LEVELS);
    return n > 1 && numbers[n - 1] == getpid() ? n - 1 : -1;
}

/* True if a process at our level is in a namespace that is not ours, so that its numbers there mean others. */
static bool is_elsewhere(int proc, const char *pid) {
    char path[300], its[64], ours[64];
    snprintf(path, sizeof path, "%s/ns/pid", pid);
    ssize_t length = readlinkat(proc, path, its, sizeof its);
    return length > 0 &&
           (readlinkat(proc, "self/ns/pid", ours, sizeof ours) != length || memcmp(its, ours, (size_t)length) != 0);
}

/* Returns false for a process that is not in our namespace, nor in one within it. */
static bool read_inner_process(int proc, const char *pid, int level, struct process *process) {
    char path[300], text[STATUS_MAX];
    int groups[LEVELS], sessions[LEVELS];
    snprintf(path, sizeof path, "%s/status", pid);
    if (read_text(proc, path, text, sizeof text) <= 0) return false;
    const char *state = strstr(text, "\nState:\t"), *threads = strstr(text, "\nThreads:\t");
    int n = read_numbers(text, "\nNSpgid:", groups, LEVELS);
    read_numbers(text, "\nNSsid:", sessions, LEVELS);
    if (threads && (n <= level || (n == level + 1 && is_elsewhere(proc, pid)))) return false;
    *process = (struct process){.group = UNKNOWN, .threads = 2};
    if (state && threads)
        *process = (struct process){state[strlen("\nState:\t")], groups[level], sessions[level],
                                    strtol(threads + strlen("\nThreads:\t"), NULL, 10)};
    return true;
}

/* ---- the group --------------------------------------------------------------------------------------------------- */

/* True if the process runs code. One whose first thread has ended shows as a zombie although other threads continue. */
static bool runs(const struct process *process) {
    return (process->state != 'Z' && process->state != 'X') || process->threads > 1;
}

bool dlock__proc_is_ours(void) {
    return level_of_ours() == 0;
}

bool dlock__group_runs(pid_t group, pid_t session) {
    bool seen = false, running = false;
    struct process process;
    int signalled = kill(-group, 0);
    if (signalled != 0 && errno == ESRCH) return false;
    int level = level_of_ours();
    DIR *proc = level >= 0 ? opendir("/proc") : NULL;
    if (!proc) return true;
    for (const struct dirent *entry; !running && (entry = readdir(proc));) {
        const char *pid = entry->d_name;
        if (!isdigit((unsigned char)*pid)) continue;
        bool shown = level == 0 ? read_process(dirfd(proc), pid, &process)
                                : read_inner_process(dirfd(proc), pid, level, &process);
        if (!shown) continue;
        bool member =
            process.group == UNKNOWN || (process.group == group && (session == 0 || process.session == session));
        seen = seen || member;
        running = member && runs(&process);
    }
    closedir(proc);
    return running || (signalled != 0 && !seen); /* others' processes, which /proc may hide (hidepid) */
}
