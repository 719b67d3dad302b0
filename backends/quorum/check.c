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

/* Checks a member over a connection of its own: the worker's may be in use for long. */
static void check_member(struct quorum_member *member, struct relay *relay, int timeout_ms) {
    const struct dlock_backend *backend = member->server.backend;
    struct dlock_error why = {0};
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    memset(member->check_conn, 0, backend->conn_size);
    atomic_store(&member->checking, true);
    int rc = member->server.connect(&member->server, member->check_conn, timeout_ms, &why);
    if (rc == 0 && backend->check)
        rc = backend->check(member->check_conn, pass_on, relay, dlock_left_ms(deadline_us), &why);
    backend->disconnect(member->check_conn);
    atomic_store(&member->checking, false);
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

int quorum_check(void *memory, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err) {
    struct quorum *quorum = ((struct quorum_conn *)memory)->quorum;
    struct relay relay = {.report = {each, arg, false}};
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    (void)err;
    check_quorum(quorum, &relay.report);
    for (size_t i = 0; i < quorum->n && !relay.report.ended; i++) {
        const int share_ms = dlock_left_ms(deadline_us) / (int)(quorum->n - i);
        relay.where = quorum->members[i].server.where;
        check_member(&quorum->members[i], &relay, share_ms > 0 ? share_ms : 1);
    }
    return 0;
}
