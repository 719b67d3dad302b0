/* stamps FILE WORD [last]: writes "<nanoseconds> WORD <pid>" into FILE every millisecond, without end. Ignores what it
 * can ignore. With `last` a second thread does it and the first one ends, so that the process looks like a zombie. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char **words;

static void *stamp(void *arg) {
    const struct timespec pause = {0, 1000000};
    int fd = open(words[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    (void)arg;
    for (;;) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (dprintf(fd, "%lld%09ld %s %ld\n", (long long)now.tv_sec, now.tv_nsec, words[2], (long)getpid()) < 0)
            _exit(1);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t thread;
    if (argc < 3 || setuid(geteuid()) != 0) return 64; /* as sudo does: its caller may not kill it then */
    words = argv;
    for (int sig = 1; sig < NSIG; sig++) signal(sig, SIG_IGN);
    if (argc == 3) stamp(NULL);
    if (pthread_create(&thread, NULL, stamp, NULL) != 0) return 1;
    pthread_exit(NULL);
}
