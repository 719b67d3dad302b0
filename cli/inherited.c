#include "inherited.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool add(struct inherited *inherited, int fd) {
    int *fds = realloc(inherited->fds, (inherited->n + 1) * sizeof *fds);
    if (!fds) return false;
    inherited->fds = fds;
    fds[inherited->n++] = fd;
    return true;
}

bool inherited_note(struct inherited *inherited) {
    DIR *open = opendir("/proc/self/fd");
    bool noted = true;
    *inherited = (struct inherited){.known = open != NULL};
    if (!open) return true;
    for (const struct dirent *entry; noted && (entry = readdir(open));) {
        int fd = isdigit((unsigned char)*entry->d_name) ? atoi(entry->d_name) : -1;
        if (fd > STDERR_FILENO && fcntl(fd, F_GETFD) == 0) noted = add(inherited, fd);
    }
    closedir(open);
    return noted;
}

void inherited_free(struct inherited *inherited) {
    free(inherited->fds);
    *inherited = (struct inherited){.known = false};
}

void inherited_only(const struct inherited *inherited) {
    if (!inherited->known) return;
    if (syscall(SYS_close_range, STDERR_FILENO + 1, UINT_MAX, CLOSE_RANGE_CLOEXEC) != 0) return;
    for (size_t i = 0; i < inherited->n; i++) fcntl(inherited->fds[i], F_SETFD, 0);
}
