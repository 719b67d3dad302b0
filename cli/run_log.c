#include "run_log.h"

#include "cli.h"
#include "loss.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Where journald takes entries: its native protocol, https://systemd.io/JOURNAL_NATIVE_PROTOCOL/. */
static int open_journal(void) {
    const struct sockaddr_un journal = {.sun_family = AF_UNIX, .sun_path = "/run/systemd/journal/socket"};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&journal, sizeof journal) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static bool is_journal(const char *path) {
    return strcmp(path, "journal") == 0;
}

size_t utc_text(char text[UTC_MAX], time_t at) {
    struct tm utc;
    gmtime_r(&at, &utc);
    return strftime(text, UTC_MAX, "%Y-%m-%dT%H:%M:%S", &utc);
}

int run_log_open(struct run_log *log, const char *path) {
    struct timespec now;
    log->fd = -1;
    if (!path) return STATUS_OK;
    log->path = path;
    log->fd =
        is_journal(path) ? open_journal() : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
    if (log->fd < 0) {
        note("cannot write the log %s: %s%s", path, strerror(errno), limit_advice(errno));
        return STATUS_IO;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    size_t used = utc_text(log->start, now.tv_sec);
    snprintf(log->start + used, sizeof log->start - used, ".%03dZ", (int)(now.tv_nsec / 1000000));
    log->began_ms = now_ms();
    return STATUS_OK;
}

static void make_line(const struct run_log *log, FILE *out, const char *name, const char *label, int status) {
    struct json json = {.out = out};
    char host[256];
    if (gethostname(host, sizeof host) != 0) host[0] = '\0';
    host[sizeof host - 1] = '\0';
    const int64_t now = now_ms(), end_of_wait = log->granted_ms ? log->granted_ms : now;
    if (is_journal(log->path)) fputs("SYSLOG_IDENTIFIER=dlock\nMESSAGE=", out);
    json_begin(&json, NULL, '{');
    json_string(&json, "start", log->start);
    json_string(&json, "name", name);
    json_string(&json, "label", label);
    json_string(&json, "host", host);
    json_number(&json, "pid", getpid());
    json_bool(&json, "got", log->granted_ms != 0);
    json_number(&json, "waited_ms", end_of_wait - log->began_ms);
    if (log->granted_ms) {
        char fence[24]; /* as a string: JavaScript's numbers have 53 bits */
        snprintf(fence, sizeof fence, "%llu", (unsigned long long)log->fence);
        json_string(&json, "fence", fence);
        json_number(&json, "held_ms", now - log->granted_ms);
        json_bool(&json, "lost", log->lost);
    } else {
        json_string(&json, "why", log->why.message[0] ? log->why.message : NULL);
    }
    json_number(&json, "status", status);
    json_end(&json, '}');
    json_newline(&json);
}

void run_log_close(struct run_log *log, const char *name, const char *label, int status) {
    char *line = NULL;
    size_t size = 0;
    if (log->fd < 0) return;
    FILE *out = open_memstream(&line, &size);
    if (out) make_line(log, out, name, label, status);
    bool made = out && fclose(out) == 0;
    ssize_t written = made ? write(log->fd, line, size) : -1;
    if (written != (ssize_t)size || close(log->fd) != 0)
        note("cannot write the log %s: %s", log->path,
             !made         ? "out of memory"
             : written < 0 ? strerror(errno)
                           : "no space");
    log->fd = -1;
    free(line);
}
