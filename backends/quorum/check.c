/* The `check` operation: every member's findings, and those about the quorum itself. */
#include "quorum.h"

struct relay {
    struct dlock_report report;
    const char *where;
};

static int pass_on(const struct dlock_finding *finding, void *arg) {
    struct relay *relay = arg;
    const char *advice = finding->health == DLOCK_FINE ? NULL : finding->advice ? finding->advice : "";
    dlock_find(&relay->report, advice, "%.100s: %.400s", relay->where, finding->what);
    return relay->report.ended;
}

/* Checks a member over a separate connection: the worker's may be in use for a long time. */
static void check_member(struct quorum_member *member, struct relay *relay, int timeout_ms) {
    const struct dlock_backend *backend = member->server.backend;
    struct dlock_error why = {0};
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    void *conn = member->quorum->check_conn;
    memset(conn, 0, backend->conn_size);
    atomic_store(&member->quorum->checked, member);
    int rc = member->server.connect(&member->server, conn, timeout_ms, &why);
    if (rc == 0 && backend->check) rc = backend->check(conn, pass_on, relay, dlock_left_ms(deadline_us), &why);
    backend->disconnect(conn);
    atomic_store(&member->quorum->checked, NULL);
    if (rc != 0)
        dlock_find(&relay->report, "each missing member leaves one fewer that may fail: bring it back",
                   "%.100s: %.300s", relay->where, why.message);
}

static void check_quorum(const struct quorum *quorum, struct dlock_report *report) {
    const size_t spare = quorum->n - quorum->majority;
    dlock_find(report,
               quorum->n % 2 == 0
                   ? "an even number of members survives no more failures than one fewer: add or remove one"
                   : NULL,
               "%zu members, of which %zu may fail at a time", quorum->n, spare);
    for (size_t i = 0; i < quorum->n; i++)
        for (size_t j = i + 1; j < quorum->n; j++)
            if (strcmp(quorum->members[i].server.where, quorum->members[j].server.where) == 0)
                dlock_find(report, "both members fail with this server: name another one",
                           "members %zu and %zu are both at %.100s", i + 1, j + 1, quorum->members[i].server.where);
    for (size_t i = 0; i < quorum->n; i++) {
        const struct dlock_member *server = &quorum->members[i].server;
        if (server->backend->caps & DLOCK_CAP_PRIVATE)
            dlock_find(report, "use it only in a program's own tests", "%.100s: its locks are this process's own",
                       server->where);
    }
}

/* Waits until no other thread checks. EBUSY: one is still checking at until_us, after which too little time would
 * remain for the members' answers. */
static int begin(struct quorum *quorum, int64_t until_us, struct dlock_error *err) {
    pthread_mutex_lock(&quorum->mutex);
    while (quorum->checking && dlock_now_us() < until_us) quorum_wait(&quorum->changed, &quorum->mutex, until_us);
    const bool taken = quorum->checking;
    quorum->checking = true;
    pthread_mutex_unlock(&quorum->mutex);
    return taken ? dlock_fail(err, DLOCK_EBUSY, "another thread is checking the quorum") : 0;
}

static void end(struct quorum *quorum) {
    pthread_mutex_lock(&quorum->mutex);
    quorum->checking = false;
    pthread_cond_broadcast(&quorum->changed);
    pthread_mutex_unlock(&quorum->mutex);
}

int quorum_check(void *memory, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err) {
    struct quorum *quorum = ((struct quorum_conn *)memory)->quorum;
    struct relay relay = {.report = {each, arg, false}};
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    int rc = begin(quorum, dlock_deadline_us(timeout_ms / 2), err);
    if (rc != 0) return rc;
    check_quorum(quorum, &relay.report);
    for (size_t i = 0; i < quorum->n && !relay.report.ended; i++) {
        const int share_ms = dlock_left_ms(deadline_us) / (int)(quorum->n - i);
        relay.where = quorum->members[i].server.where;
        check_member(&quorum->members[i], &relay, share_ms > 0 ? share_ms : 1);
    }
    end(quorum);
    return 0;
}
