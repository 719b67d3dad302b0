/* open, flock, close: what flock(1) does. */
#include "floor.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static char path[4096];

static void folder(const char *uri) {
    const char *begin = strchr(uri, ':');
    floor_need(begin != NULL);
    begin += strncmp(begin + 1, "//", 2) == 0 ? 3 : 1;
    int length = (int)strcspn(begin, "?");
    floor_need(length > 0 && !memchr(begin, '%', (size_t)length));
    snprintf(path, sizeof path, "%.*s/dlock-bench:floor", length, begin);
}

static void cycle(void) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    floor_check(fd >= 0, "open");
    floor_check(flock(fd, LOCK_EX) == 0, "flock");
    close(fd);
}

int main(int argc, char **argv) {
    return floor_main(argc, argv, &(struct floor){folder, cycle, NULL});
}
