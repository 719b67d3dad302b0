#include "run_metrics.h"

#include "cli.h"
#include "loss.h"
#include "prometheus.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    LAST_S = 3,  /* longest wait for the last write: the disk may hang */
    TRIES = 100, /* how often to ask for the file while other runs replace it: for a second */
    TRY_EVERY_MS = 10,
    OLD_SIZE_MAX = 256 * 1024 /* bytes of an existing file that are read */
};

static int64_t wall_clock_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static int write_all(int fd, const char *text, size_t size) {
    while (size > 0) {
        ssize_t n = write(fd, text, size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno;
        text += n;
        size -= (size_t)n;
    }
    return 0;
}

/* Gives the temporary file the name of the metrics file. If `first`, there was none when this run looked: one that
 * another run has written since is not replaced, but EEXIST returned. Returns 0 or an errno. */
static int publish(const struct run_metrics *metrics, bool first) {
    if (first && link(metrics->temporary, metrics->path) == 0) {
        unlink(metrics->temporary);
        return 0;
    }
    if (first && errno == EEXIST) return EEXIST;
    /* Also where link() fails because the file system has no hard links, such as FAT. */
    return rename(metrics->temporary, metrics->path) == 0 ? 0 : errno;
}

/* Writes `text` as the metrics file: see publish(). */
static int replace_file(const struct run_metrics *metrics, const char *text, size_t size, bool first) {
    int fd = open(metrics->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return errno;
    int why = write_all(fd, text, size);
    if (close(fd) != 0 && why == 0) why = errno;
    if (why == 0) why = publish(metrics, first);
    if (why != 0) unlink(metrics->temporary);
    return why;
}

static int write_text(const struct run_metrics *metrics, const struct totals *all, bool first) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return ENOMEM;
    totals_write(out, all, &metrics->labels);
    int why = fclose(out) == 0 ? replace_file(metrics, text, size, first) : ENOMEM;
    free(text);
    return why;
}

/* Opens the file for reading and keeps other runs from replacing it until it is closed. Where that is impossible, or
 * somebody does not let go of it, it is opened nevertheless. Returns a descriptor, or -1 with errno. */
static int open_file(const char *path) {
    const struct timespec pause = {0, TRY_EVERY_MS * 1000000L};
    for (int left = TRIES;; left--) {
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        struct stat ours, named;
        if (fd < 0) return -1;
        bool alone = flock(fd, LOCK_EX | LOCK_NB) == 0;
        bool replaced = fstat(fd, &ours) != 0 || lstat(path, &named) != 0 || ours.st_dev != named.st_dev ||
                        ours.st_ino != named.st_ino;
        if ((alone && !replaced) || left == 0) return fd;
        close(fd);
        if (!alone) nanosleep(&pause, NULL);
    }
}

/* Reads the totals of all runs. Returns 0, an errno, or -1 if `fd` has other things in it. */
static int read_file(struct run_metrics *metrics, int fd) {
    char *text = calloc(1, OLD_SIZE_MAX + 1);
    ssize_t n = text ? read(fd, text, OLD_SIZE_MAX) : -1;
    int why = n >= 0 ? 0 : errno;
    if (why == 0 && !totals_are(text)) why = -1;
    if (why == 0) totals_read(text, &metrics->all, &metrics->labels);
    free(text);
    return why;
}

/* As write_file(), once: EEXIST if there was no file, and another run has written one since. */
static int try_write_file(struct run_metrics *metrics, const struct totals *run) {
    int fd = open_file(metrics->path);
    bool first = fd < 0 && errno == ENOENT;
    if (fd >= 0) read_file(metrics, fd);
    struct totals all = metrics->all;
    totals_merge(&all, run, &metrics->told, wall_clock_us());
    int why = write_text(metrics, &all, first);
    if (why == 0) {
        metrics->all = all;
        metrics->told = *run;
    }
    if (fd >= 0) close(fd);
    return why;
}

/* Brings this run's totals into the file. If it is gone, those of earlier runs come from memory. Returns 0 or an
 * errno. */
static int write_file(struct run_metrics *metrics, const struct totals *run) {
    int why = EEXIST;
    for (int left = TRIES; why == EEXIST && left > 0; left--) why = try_write_file(metrics, run);
    return why;
}

/* Writes the file. Prints a message for the first of successive failures only. */
static void write_or_warn(struct run_metrics *metrics, const struct totals *run) {
    int why = write_file(metrics, run);
    if (why != 0 && !metrics->failed)
        note("cannot write the metrics to \"%s\": %s%s", metrics->path, strerror(why), limit_advice(why));
    metrics->failed = why != 0;
}

static int cannot(const char *what, const char *path, int errnum) {
    note("--metrics: cannot %s \"%s\": %s%s", what, path, strerror(errnum), limit_advice(errnum));
    return STATUS_IO;
}

static int cannot_replace(const char *path, const char *why) {
    note("--metrics: cannot replace \"%s\": %s", path, why);
    return STATUS_IO;
}

/* Reads the totals of earlier runs. Refuses to replace a file that `dlock run --metrics` did not write, so that a
 * mistyped path destroys nothing; and a symbolic link, since rename() would replace the link, not its target. */
static int read_old(struct run_metrics *metrics) {
    struct stat found;
    if (lstat(metrics->path, &found) != 0) return errno == ENOENT ? STATUS_OK : cannot("read", metrics->path, errno);
    if (!S_ISREG(found.st_mode)) return cannot_replace(metrics->path, "it is not a regular file");
    int fd = open_file(metrics->path);
    int why = fd >= 0 ? read_file(metrics, fd) : errno;
    if (fd >= 0) close(fd);
    if (why > 0) return cannot("read", metrics->path, why);
    if (why < 0) return cannot_replace(metrics->path, "it was not written by dlock run --metrics; remove it");
    return STATUS_OK;
}

/* Returns a name beside `path` that no other run has, not even one with the same pid in another container. The caller
 * frees it. */
static char *temporary_name(const char *path) {
    uint32_t chance = (uint32_t)wall_clock_us();
    char *name;
    (void)!getrandom(&chance, sizeof chance, GRND_NONBLOCK);
    return asprintf(&name, "%s.%d.%08" PRIx32, path, (int)getpid(), chance) >= 0 ? name : NULL;
}

static int name_things(struct run_metrics *metrics, const char *path, const char *uri, const char *name) {
    struct dlock_error err = {0, ""};
    metrics->path = path;
    metrics->labels.server = server_label(uri, &err);
    if (!metrics->labels.server) return report(&err);
    metrics->labels.name = label_text(name);
    metrics->temporary = metrics->labels.name ? temporary_name(path) : NULL;
    if (metrics->temporary) return STATUS_OK;
    return no_memory();
}

int run_metrics_open(struct run_metrics *metrics, const char *path, const char *uri, const char *name) {
    if (!path) return STATUS_OK;
    int status = name_things(metrics, path, uri, name);
    if (status == STATUS_OK) status = read_old(metrics);
    if (status != STATUS_OK) return status;
    const struct totals now = {.waiting = true};
    int why = write_file(metrics, &now);
    return why == 0 ? STATUS_OK : cannot("write", path, why);
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

/* Returns this run's totals as of now. */
static struct totals look(const struct run_metrics *metrics, dlock_client *client) {
    struct totals now = {.stats = DLOCK_STATS_INIT};
    if (client) dlock_client_stats(client, &now.stats, NULL);
    if (!metrics->lock) return now;
    now.held = dlock_held(metrics->lock);
    now.began_us = metrics->began_us;
    now.duration_us = (now_ms() - metrics->granted_ms) * 1000;
    return now;
}

/* Runs on its own thread: the disk may hang, and the main thread has to watch the lease meanwhile. The last totals
 * come from the main thread in `last`: a thread that continues after such a hang must not use the lock, which may be
 * freed by then. */
static void *attend(void *arg) {
    struct run_metrics *metrics = arg;
    struct pollfd end = {metrics->end_fd, POLLIN, 0};
    uint64_t once;
    do {
        struct totals now = look(metrics, metrics->client);
        write_or_warn(metrics, &now);
    } while (poll(&end, 1, TOTALS_EVERY_MS) <= 0);
    if (read(metrics->end_fd, &once, sizeof once) == (ssize_t)sizeof once) write_or_warn(metrics, &metrics->last);
    return NULL;
}

/* Starts the thread with all signals blocked: they are for the main thread. Returns 0 or an errno. */
static int start(struct run_metrics *metrics) {
    sigset_t all, before;
    metrics->end_fd = eventfd(0, EFD_CLOEXEC);
    if (metrics->end_fd < 0) return errno;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int why = pthread_create(&metrics->thread, NULL, attend, metrics);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return why;
}

void run_metrics_granted(struct run_metrics *metrics, dlock_client *client, dlock_lock *lock) {
    if (!metrics->path) return;
    metrics->client = client;
    metrics->lock = lock;
    metrics->granted_ms = now_ms();
    metrics->began_us = wall_clock_us();
    int why = start(metrics);
    metrics->attended = why == 0;
    if (why != 0) note("the metrics are written only at the end: %s%s", strerror(why), limit_advice(why));
}

static void finish(struct run_metrics *metrics) {
    const uint64_t one = 1;
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += LAST_S;
    (void)!write(metrics->end_fd, &one, sizeof one);
    metrics->attended = pthread_timedjoin_np(metrics->thread, NULL, &deadline) != 0;
    if (metrics->attended) note("cannot write the metrics to \"%s\": the disk does not answer", metrics->path);
}

void run_metrics_ended(struct run_metrics *metrics, int status, int64_t ended_ms) {
    if (!metrics->path) return;
    metrics->last = look(metrics, metrics->client);
    metrics->last.ended = true;
    metrics->last.status = status;
    if (ended_ms) metrics->last.duration_us = (ended_ms - metrics->granted_ms) * 1000;
    if (status == 0) metrics->last.succeeded_us = wall_clock_us();
    if (metrics->attended)
        finish(metrics);
    else
        write_or_warn(metrics, &metrics->last);
}

void run_metrics_refused(struct run_metrics *metrics, dlock_client *client) {
    if (!metrics->path || metrics->lock) return;
    struct totals now = look(metrics, client);
    now.failures++;
    write_or_warn(metrics, &now);
}

void run_metrics_close(struct run_metrics *metrics) {
    if (metrics->attended) return; /* the thread still hangs in a write and uses all this */
    if (metrics->end_fd >= 0) close(metrics->end_fd);
    free(metrics->temporary);
    free(metrics->labels.server);
    free(metrics->labels.name);
}
