/* The `check` operation: how this server's settings strengthen or weaken locks.
 *
 * Facts that a session cannot see are read over a separate connection, with a four-letter word. Servers allow only some
 * of these words (4lw.commands.whitelist), by default `srvr` alone. A forked child does not close this connection,
 * which is harmless: it is short-lived, and no lock depends on it. */
#include "zookeeper.h"

#include <stdlib.h>

enum {
    ANSWER_MAX = 8192, /* answers are cut at this length */
    CONTAINERS_SINCE = 30503,
    RECONNECT_MS = 1000,
    CONNECTIONS = 60, /* the server's default limit */
    LOGS_MB = 1024    /* three logs and snapshots, which autopurge keeps at least, are smaller */
};

/* ---- four letters ------------------------------------------------------------------------------------------------ */

/* Sends the word and reads until the server closes the connection or ANSWER_MAX is reached. False: no answer. */
static bool exchange(int fd, const char *word, char answer[ANSWER_MAX], int64_t deadline_us) {
    size_t used = 0;
    if (!dlock_wait_fd(fd, POLLOUT, deadline_us) || send(fd, word, 4, MSG_NOSIGNAL) != 4) return false;
    while (used < ANSWER_MAX - 1 && dlock_wait_fd(fd, POLLIN, deadline_us)) {
        ssize_t n = recv(fd, answer + used, ANSWER_MAX - 1 - used, 0);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n <= 0) break;
        used += (size_t)n;
    }
    for (size_t i = 0; i < used; i++)
        if (answer[i] == '\0') answer[i] = ' ';
    answer[used] = '\0';
    return used > 0;
}

/* Asks the server that the session is connected to. False, with the answer "": it did not answer, or does not allow the
 * word. */
static bool ask(struct zookeeper *z, const char *word, char answer[ANSWER_MAX], int64_t deadline_us) {
    struct sockaddr_storage to;
    socklen_t length = sizeof to;
    bool answered = false;
    answer[0] = '\0';
    if (!zookeeper_get_connected_host(z->handle, (struct sockaddr *)&to, &length)) return false;
    int fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    if (connect(fd, (struct sockaddr *)&to, length) == 0 || errno == EINPROGRESS)
        answered = exchange(fd, word, answer, deadline_us);
    close(fd);
    if (answered && !strstr(answer, "not in the whitelist")) return true;
    answer[0] = '\0';
    return false;
}

/* Copies the text that follows `key`, at the beginning of a line, up to the line's end. False: there is none. */
static bool value_of(const char *answer, const char *key, char *out, size_t size) {
    size_t length = strlen(key), n;
    for (const char *line = answer; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, key, length) != 0) continue;
        n = strcspn(line + length, "\r\n");
        if (n >= size) n = size - 1;
        memcpy(out, line + length, n);
        out[n] = '\0';
        return n > 0;
    }
    return false;
}

static int number_of(const char *answer, const char *key) {
    char text[16];
    return value_of(answer, key, text, sizeof text) ? atoi(text) : 0;
}

/* ---- each subject ------------------------------------------------------------------------------------------------ */

static void check_version(struct dlock_report *report, const char *srvr) {
    char version[64] = "";
    int major = 0, minor = 0, patch = 0;
    value_of(srvr, "Zookeeper version: ", version, sizeof version);
    if (sscanf(version, "%d.%d.%d", &major, &minor, &patch) != 3) {
        dlock_find(report, "allow these commands: 4lw.commands.whitelist=srvr,conf", "ZooKeeper of unknown version");
        return;
    }
    bool old = major * 10000 + minor * 100 + patch < CONTAINERS_SINCE;
    dlock_find(report, old ? "dlock needs 3.5.3 or newer" : NULL, "ZooKeeper %d.%d.%d", major, minor, patch);
}

/* Returns the number of voting servers; `conf` shows them as configuration files do. Stores the number of all. */
static int voters(const char *conf, size_t *all) {
    int n = 0;
    *all = 0;
    for (const char *line = conf; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, "server.", 7) != 0) continue;
        ++*all;
        if (!memmem(line, strcspn(line, "\n"), ":observer", 9)) n++;
    }
    return n;
}

static void check_ensemble(struct dlock_report *report, const struct zookeeper *z, const char *srvr, const char *conf) {
    char mode[32];
    size_t all;
    int servers = voters(conf, &all);
    if (!value_of(srvr, "Mode: ", mode, sizeof mode)) return; /* reported by check_version() */
    if (strcmp(mode, "read-only") == 0)
        dlock_find(report, "it has no majority, and grants nothing: look at the other servers", "mode read-only");
    else if (servers == 2)
        dlock_find(report, "when either is away there are no locks at all: make it one, or three", "ensemble of 2");
    else if (servers > 1)
        dlock_find(report, NULL, "ensemble of %d, this is a %s", servers, mode);
    else
        dlock_find(report, NULL, "mode %s", mode);
    if (*conf && z->address.n > (all ? all : 1))
        dlock_find(report, "servers of different ensembles grant the same lock twice: name those of one ensemble",
                   "the URI names %zu hosts, and this ensemble has %zu", z->address.n, all ? all : 1);
}

/* A silent connection is given up after an eighth of a session (session.c), a second one within a session by the library,
 * after two thirds. The last third has to suffice for the age that a proof of the session has by then (the report of
 * validity.c and the time between two signs of life) and for connecting again. */
static const char *advice_on_session(int session_ms, int tick_ms) {
    if (session_ms < 2 * tick_ms)
        return "a moment's silence ends the session, and all locks in it: set session= to two ticks or more";
    if (session_ms / 3 < zookeeper_report_us(session_ms) / 1000 + RECONNECT_MS)
        return "a connection that a firewall silently drops costs all locks before another server is tried: set "
               "session= to 10s";
    return NULL;
}

/* The leader asks its followers every half tick which sessions are alive; validity.c allows for zookeeper_report_us()
 * at most. */
static void check_ticks(struct dlock_report *report, struct zookeeper *z, const char *conf) {
    int tick_ms = number_of(conf, "tickTime="), least_ms = number_of(conf, "minSessionTimeout="),
        most_ms = number_of(conf, "maxSessionTimeout=");
    pthread_mutex_lock(&z->mutex);
    int session_ms = z->session_ms;
    pthread_mutex_unlock(&z->mutex);
    const char *advice = advice_on_session(session_ms, tick_ms);
    if (tick_ms <= 0) {
        dlock_find(report, "allow these commands: 4lw.commands.whitelist=srvr,conf; it should be at most 2000",
                   "tickTime cannot be looked at");
        dlock_find(report, advice, "session timeout %d ms, as negotiated", session_ms);
        return;
    }
    dlock_find(report,
               tick_ms / 2 > zookeeper_report_us(session_ms) / 1000
                   ? "a session may end unnoticed: set tickTime to 2000 or less, and session= to more "
                     "ticks"
                   : NULL,
               "tickTime %d ms", tick_ms);
    dlock_find(report, advice, "session timeout %d ms; the server allows %d to %d", session_ms, least_ms, most_ms);
}

/* The limit applies to each address, and each client has one connection. The server closes connections above the limit
 * without a message. */
static void check_connections(struct dlock_report *report, const char *srvr, const char *conf) {
    int most = number_of(conf, "maxClientCnxns="), open = number_of(srvr, "Connections: ");
    char text[16];
    if (!value_of(conf, "maxClientCnxns=", text, sizeof text)) return; /* reported by check_ticks() */
    if (most <= 0)
        dlock_find(report, NULL, "no limit to the connections from one address");
    else
        dlock_find(report,
                   most < CONNECTIONS || open > most / 4 * 3
                       ? "each client and each `dlock run` needs one; the server closes further connections from one "
                         "address without an answer: raise maxClientCnxns"
                       : NULL,
                   "maxClientCnxns %d; %d connection%s from all addresses now", most, open, open == 1 ? "" : "s");
}

/* Reports nothing unless `mntr` is allowed. */
static void check_disk(struct dlock_report *report, const char *mntr) {
    int slow = number_of(mntr, "zk_fsync_threshold_exceed_count\t");
    if (slow > 0)
        dlock_find(report, "while it waits for its disk sessions may expire: give its dataLogDir a disk of its own",
                   "fsync took too long %d time%s", slow, slow == 1 ? "" : "s");
}

/* The server does not say whether it deletes old logs. */
static void check_logs(struct dlock_report *report, const char *conf) {
    char bytes[24];
    if (!value_of(conf, "dataLogSize=", bytes, sizeof bytes)) return;
    const long long mb = strtoll(bytes, NULL, 10) >> 20;
    dlock_find(report,
               mb > LOGS_MB ? "they fill the disk, since by default none is ever deleted: set autopurge.purgeInterval=1"
                            : NULL,
               "transaction logs: %lld MB", mb);
}

int zookeeper_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct zookeeper *z = zookeeper_of(conn);
    struct dlock_report report = {each, arg, false};
    bool dead;
    int rc = zookeeper_ready(z, deadline_us, &dead, err);
    if (rc != 0) return rc;
    char *answers = malloc(3 * ANSWER_MAX);
    if (!answers) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for the server's answers");
    char *srvr = answers, *conf = answers + ANSWER_MAX, *mntr = answers + 2 * ANSWER_MAX;
    ask(z, "srvr", srvr, deadline_us);
    ask(z, "conf", conf, deadline_us);
    ask(z, "mntr", mntr, deadline_us);
    check_version(&report, srvr);
    check_ensemble(&report, z, srvr, conf);
    check_ticks(&report, z, conf);
    check_connections(&report, srvr, conf);
    check_disk(&report, mntr);
    check_logs(&report, conf);
    free(answers);
    return 0;
}
