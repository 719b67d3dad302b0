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

/* The members of interest from /proc/<pid>/stat. */
struct process {
    char state;
    int group, session;
    long threads;
};

static bool read_process(int proc, const char *pid, struct process *process) {
    char path[300], text[1024];
    snprintf(path, sizeof path, "%s/stat", pid);
    int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0) return false; /* it has just ended */
    text[length] = '\0';
    const char *end = strrchr(text, ')'); /* the program's name may contain any character */
    return end && sscanf(end + 1, " %c %*d %d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld",
                         &process->state, &process->group, &process->session, &process->threads) == 4;
}

/* True if the process runs code. One whose first thread has ended shows as a zombie although other threads go on. */
static bool runs(const struct process *process) {
    return (process->state != 'Z' && process->state != 'X') || process->threads > 1;
}

bool dlock__proc_is_ours(void) {
    char self[32];
    ssize_t length = readlink("/proc/self", self, sizeof self - 1);
    if (length <= 0) return false; /* /proc is not mounted, or shows a namespace that we are not in */
    self[length] = '\0';
    return strtol(self, NULL, 10) == (long)getpid();
}

bool dlock__group_runs(pid_t group, pid_t session) {
    bool seen = false, running = false;
    struct process process;
    int signalled = kill(-group, 0);
    if (signalled != 0 && errno == ESRCH) return false;
    DIR *proc = dlock__proc_is_ours() ? opendir("/proc") : NULL;
    if (!proc) return true;
    for (const struct dirent *entry; !running && (entry = readdir(proc));) {
        if (!isdigit((unsigned char)*entry->d_name) || !read_process(dirfd(proc), entry->d_name, &process)) continue;
        bool member = process.group == group && (session == 0 || process.session == session);
        seen = seen || member;
        running = member && runs(&process);
    }
    closedir(proc);
    return running || (signalled != 0 && !seen); /* others' processes, which /proc may hide (hidepid) */
}
