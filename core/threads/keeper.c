/* The keeper thread: ends what has run out, renews what is due, reads wake-ups. It sleeps on an eventfd (`control`), a
 * timer on CLOCK_BOOTTIME and the listener's descriptor. Nothing in it blocks but renewals, each bounded by the next
 * event that is due, and the loop ends only with the client. */
#include "guardian/guardian.h"
#include "threads/threads.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    RETRY_MIN_US = 50000, /* between tries of a failed renewal */
    RETRY_MAX_US = 1000000,
    TRY_MIN_US = 10000, /* least time for a renewal */
    OTHERS = 32         /* most acquisitions that are looked at for a batch and not taken */
};

/* ---- renewing ---- */

/* How much earlier than due an acquisition may be renewed, so that all locks of a client share one request: half of the
 * time between two renewals by what the server keeps, which can be less than the lease. 0 after a failure: the pause is
 * kept. */
static int64_t earliness(const struct dlock__acquisition *acq) {
    if (acq->pause_us || acq->valid_until_us < acq->renew_at_us) return 0;
    int64_t most = dlock__us(acq->lease_ms) / 6, left = (acq->valid_until_us - acq->renew_at_us) / 4;
    return left < most ? left : most;
}

/* True if the grant may end before the server has answered: that must not make the renewals of other grants fail. */
static bool too_short(const struct dlock__acquisition *acq, int64_t now) {
    return (acq->valid_until_us - now) / 2 < acq->name->client->keeper.patience_us;
}

/* Collects the acquisitions that are due, in the order of their ends; too short ones separately.
 * If all renewals together take longer than the time between two of them, all come late by the same time, instead of
 * the last ones never. Acquisitions that were looked at and not taken are put back. */
static size_t gather(struct dlock_client *client, int64_t now) {
    struct dlock__acquisition *others[OTHERS], *acq;
    size_t n = 0, n_others = 0;
    int64_t until_us = dlock__after(now, dlock__us(client->longest_lease_ms) / 6); /* none is renewed earlier */
    while (n < DLOCK__BATCH && n_others < OTHERS && (acq = dlock__renewal_take(client, until_us))) {
        bool apart = n > 0 && too_short(acq, now) != too_short(client->keeper.batch[0], now);
        if (apart || acq->renew_at_us - earliness(acq) > now) {
            others[n_others++] = acq;
            continue;
        }
        client->keeper.batch[n++] = acq;
    }
    for (size_t i = 0; i < n_others; i++) dlock__acq_renew_at(others[i], others[i]->renew_at_us);
    for (size_t i = 0; i < n; i++) dlock__acq_renewing(client->keeper.batch[i]);
    return n;
}

/* The lease to ask for. By a downgrade a fixed lease becomes no longer, but not shorter either than we trust it. */
static int64_t lease_of(const struct dlock__acquisition *acq) {
    if (acq->op->extension) return acq->op->extension->lease_ms;
    if (!(acq->flags & DLOCK_FIXED_LEASE) || !dlock__acq_held(acq)) return acq->lease_ms;
    return dlock__lease_for_ms(acq->valid_until_us - dlock__now_us());
}

/* Prepares the arguments, sorted by name. They are copies, and not the acquisition's own operation: a release may use that
 * at the same time, and must not wait for a renewal that hangs. */
static void fill(struct dlock_client *client, size_t n) {
    qsort(client->keeper.batch, n, sizeof(struct dlock__acquisition *), dlock__acq_by_name);
    for (size_t i = 0; i < n; i++) {
        const struct dlock__acquisition *acq = client->keeper.batch[i];
        struct dlock_claim *arg = &client->keeper.args[i];
        memset(arg, 0, sizeof *arg);
        arg->name = acq->name->text;
        arg->token = acq->token;
        arg->mode = acq->mode;
        arg->limit = acq->limit;
        arg->lease_ms = lease_of(acq);
        dlock__preset(arg);
        memcpy(arg->state, acq->backend_state, sizeof arg->state);
        client->keeper.arg_pointers[i] = arg;
    }
}

/* Sets the time that the next renewal gets at least: twice what this one took, or more than before if this one was cut
 * short. */
static void learn_patience(struct dlock_client *client, int result, int64_t begun_us, int64_t deadline_us) {
    int64_t now = dlock__now(client), twice = 2 * (now - begun_us);
    bool answered = result != DLOCK_EUNAVAILABLE, cut_short = !answered && now >= deadline_us;
    if (answered || (cut_short && twice > client->keeper.patience_us)) client->keeper.patience_us = twice;
}

/* Sends the renewals on the one connection of a THREADSAFE backend, or on the keeper's own connection. If that cannot
 * be opened, since the server or this process may have no room for one more, borrows an idle one. *sent_us is set if
 * they were sent. Leaves the mutex in between. */
static int send(struct dlock_client *client, size_t n, int64_t deadline_us, int64_t *sent_us, struct dlock_error *err) {
    struct dlock__conn *own = client->keeper.conn, *conn = own;
    int rc = own ? dlock__conn_ready(own, deadline_us, err) : dlock__pool_take(client, deadline_us, &conn, err);
    if (rc != 0 && own && dlock__now(client) < deadline_us) {
        conn = dlock__pool_borrow(client, deadline_us);
        if (conn) rc = 0;
    }
    if (rc != 0) return rc;
    rc = dlock__conn_call(conn, DLOCK__RENEW, client->keeper.arg_pointers, n, deadline_us, sent_us, err);
    if (conn != own)
        dlock__pool_give(conn, rc);
    else if (rc != 0)
        dlock__conn_drop(conn);
    return rc;
}

/* Takes over the answer for one acquisition. False: it is invalid. */
static bool answered(struct dlock__acquisition *acq, const struct dlock_claim *arg, int64_t sent_us) {
    dlock__clock_sample_learn(acq->name->client, sent_us, arg->server_us);
    bool in_time = dlock__acq_renewable(acq); /* else it was released, or lost, in between */
    if (arg->hints & DLOCK_HINT_RESENT || (!in_time && arg->result == 0))
        dlock__acq_not_answered(acq, DLOCK__RENEW, arg->lease_ms);
    if (!in_time) return true;
    if (arg->result == DLOCK_ELOST) {
        dlock__lose(acq, dlock__loss_at_server(acq));
        return true;
    }
    memcpy(acq->backend_state, arg->state, sizeof acq->backend_state);
    dlock__guard_note(acq);
    if (acq->state == DLOCK__DOWNGRADING && arg->mode == DLOCK_SHARED) dlock__acq_downgraded(acq);
    if (!dlock__acq_renewed(acq, sent_us, arg->lease_ms, arg->kept_ms)) return false;
    acq->name->client->stats.renewals++;
    if (arg->hints & DLOCK_HINT_LISTEN) dlock__listener_for_grants(acq->name->client);
    if (acq->state == DLOCK__DOWNGRADING)
        dlock__acq_renew_at(acq, dlock__now(acq->name->client)); /* it was downgraded after this renewal was sent */
    if (!acq->op->extension) {
        if (arg->lease_ms > acq->lease_ms) /* who extended it has left */
            dlock__acq_not_answered(acq, DLOCK__RENEW, arg->lease_ms);
        return true;
    }
    acq->lease_ms = arg->lease_ms;
    acq->op->extension->result = 0;
    acq->op->extension = NULL;
    return true;
}

static void failed(struct dlock__acquisition *acq, const struct dlock_claim *arg, int result, bool sent,
                   int64_t pause_us) {
    if (sent) dlock__acq_not_answered(acq, DLOCK__RENEW, arg->lease_ms);
    if (!dlock__acq_renewable(acq)) return;
    acq->name->client->stats.renewal_failures++;
    if (acq->op->extension) acq->op->extension->result = result != 0 ? result : DLOCK_EPROTO;
    acq->pause_us = pause_us;
    dlock__acq_renew_at(acq, dlock__acq_is_renewed(acq) ? dlock__now_us() + pause_us : DLOCK__NEVER);
}

/* The pause before the next try, the same for the whole batch, so that it stays one batch. */
static int64_t next_pause(struct dlock_client *client) {
    int64_t pause = dlock__longer_pause(client->keeper.batch[0]->pause_us, RETRY_MIN_US, RETRY_MAX_US);
    return dlock__jitter(client, pause / 2, pause);
}

/* The deadline of a renewal: half of the time that is left to the grant in the batch that ends first, so that another
 * try on a new connection is possible. Grants outside the batch, or made since, also need renewals: so it is also
 * no longer than these can wait, unless this server needs longer. */
static int64_t renewal_deadline(const struct dlock_client *client, size_t n, int64_t now, int64_t others_us) {
    int64_t most = dlock__us(client->uri->timeout_ms);
    if (client->keeper.patience_us > others_us) others_us = client->keeper.patience_us;
    if (others_us < most) most = others_us;
    for (size_t i = 0; i < n; i++) {
        int64_t half = (client->keeper.batch[i]->valid_until_us - now) / 2;
        if (half < most) most = half;
    }
    return dlock__after(now, most > TRY_MIN_US ? most : TRY_MIN_US);
}

/* Logs that the call failed, or what it said about its claims: nothing else says why a grant is about to end, or has.
 * `rc` is the call's result, *err its message, which may be about a claim. Leaves the mutex in between. */
static void log_failures(struct dlock_client *client, size_t n, int rc, const struct dlock_error *err) {
    size_t failed = rc != 0 ? n : 0, first = 0;
    for (size_t i = n; rc == 0 && i-- > 0;)
        if (client->keeper.args[i].result != 0) first = i, failed++;
    if (failed == 0) return;
    int code = rc != 0 ? rc : dlock__claim_result(DLOCK__RENEW, client->keeper.args[first].result);
    const char *why = err->message[0] && (rc != 0 || err->code == code) ? err->message
                      : code == DLOCK_ELOST
                          ? "the server no longer has the grant: it was broken, forgotten, or has ended"
                          : dlock_strerror(code);
    for (size_t i = 0; i < n; i++)
        if (rc != 0 || client->keeper.args[i].result != 0)
            dlock__tell_grant(DLOCK_EVENT_LATE, client->keeper.batch[i], -1, why);
    dlock__leave(client);
    dlock__log(client, DLOCK_LOG_WARN, "renewal of %zu lock(s) failed, such as \"%s\": %s", failed,
               client->keeper.batch[first]->name->text, why); /* the batch has a reference, names do not change */
    dlock__enter(client);
}

/* Sends the renewals of the batch. `others_us` is how long acquisitions outside of it can wait. */
static void renew(struct dlock_client *client, size_t n, int64_t now, int64_t others_us) {
    struct dlock_error err;
    int64_t sent_us = 0, deadline_us = renewal_deadline(client, n, now, others_us);
    err.message[0] = '\0';
    err.code = 0;
    fill(client, n);
    int rc = send(client, n, deadline_us, &sent_us, &err);
    bool sent = sent_us > 0, let_others_in = dlock__now(client) - now > DLOCK__BREATH_US;
    log_failures(client, n, rc, &err);
    if (rc != 0) client->clock_sample = (struct dlock__clock_sample){0};
    learn_patience(client, rc != 0 ? rc : client->keeper.args[0].result, now, deadline_us);
    int64_t pause_us = next_pause(client);
    for (size_t i = 0; i < n; i++) {
        struct dlock__acquisition *acq = client->keeper.batch[i];
        const struct dlock_claim *arg = &client->keeper.args[i];
        int result = rc != 0 ? rc : dlock__claim_result(DLOCK__RENEW, arg->result);
        acq->renewing = false;
        if (dlock__acq_lost(acq) && sent && result != DLOCK_ELOST) { /* by our clock: the server may have kept it */
            dlock__acq_not_answered(acq, DLOCK__RENEW, arg->lease_ms);
            dlock__orphan(acq);
        } else if ((result != 0 && result != DLOCK_ELOST) || !answered(acq, arg, sent_us)) {
            failed(acq, arg, result, sent, pause_us);
        }
        dlock__acq_put(acq);
    }
    pthread_cond_broadcast(&client->changed);
    /* There may be hundreds more. A request that took a while has let other threads in already. */
    if (n == DLOCK__BATCH && !let_others_in) dlock__breathe(client);
}

/* ---- the loop ---- */

static void drain(int fd) {
    uint64_t count;
    while (read(fd, &count, sizeof count) > 0) {
    }
}

/* Sleeps until then, if that is not over, or until something has arrived, which it reads. */
static void sleep_until(struct dlock_client *client, int64_t at_us) {
    const int64_t now = dlock__now(client);
    const bool sleeps = at_us > now;
    bool reads = client->listener.keeper_at_us <= now;
    if (!reads && client->listener.keeper_at_us < at_us) at_us = client->listener.keeper_at_us;
    reads = reads && dlock__listener_readable(client);
    if (sleeps && at_us != DLOCK__NEVER) dlock__keeper_arm(client, at_us);
    struct pollfd fds[4] = {{.fd = client->keeper.control, .events = POLLIN},
                            {.fd = client->keeper.timer, .events = POLLIN},
                            {.fd = reads ? client->listener.fd : -1, .events = POLLIN},
                            {.fd = client->guard ? client->guard->end : -1, .events = POLLIN}};
    bool more = reads && client->listener.more;
    client->keeper.asleep_us = now;
    dlock__leave(client);
    poll(fds, 4, more || !sleeps ? 0 : -1);
    if (fds[0].revents) drain(client->keeper.control);
    if (fds[1].revents) drain(client->keeper.timer);
    dlock__enter(client);
    dlock__stall_note(client);
    client->keeper.asleep_us = 0;
    if (fds[1].revents) client->keeper.armed_us = DLOCK__NEVER;
    bool gone = client->pool.shared && !client->pool.shared->connected;
    if (client->listener.state != DLOCK__LISTENER_UP || (!fds[2].revents && !gone && !more)) return;
    if (!gone && (!dlock__listener_readable(client) || client->listener.keeper_at_us > dlock__now(client))) return;
    struct dlock_error err;
    dlock_fail(&err, DLOCK_EUNAVAILABLE, "the connection was dropped");
    int rc = gone ? DLOCK_EUNAVAILABLE : dlock__wakes_read(client, &err);
    if (rc == 0) return;
    err.code = rc;
    dlock__listener_lost(client, &err);
}

/* How long a renewal may delay grants outside of its batch: half of the time that is left to the first of those that
 * are due, or to the next one (which the server may keep for less than its lease), but no more than a third of the
 * shortest lease that may be granted until then: all other grants have that long in any case. */
static int64_t others_can_wait(const struct dlock_client *client, int64_t now) {
    int64_t most = dlock__us(dlock__shortest_lease_ms(client)) / 3,
            first_us = dlock__heap_first_us(&client->timers.due);
    struct dlock__timer *next = dlock__heap_first(&client->timers.next);
    const struct dlock__acquisition *acq = next ? dlock__timer_acq(next) : NULL;
    if (acq && next->at_us == acq->renew_at_us && acq->valid_until_us < first_us) first_us = acq->valid_until_us;
    return (first_us - now) / 2 < most ? (first_us - now) / 2 : most;
}

static void *run(void *arg) {
    struct dlock_client *client = arg;
    bool renews = false; /* in turn with everything else: renewals may be due all the time */
    atomic_store(&client->keeper.id, dlock__thread_id());
    dlock__enter(client);
    while (!client->keeper.stop) {
        dlock__guard_look(client);
        dlock__engine_look(client);
        if (client->callback.lines && !client->callback.stop) dlock__callback_start(client, NULL);
        int64_t next_us = dlock__expire_all(client), sleep_us = dlock__sleeps_end(client), now = dlock__now_us(),
                listener_us = dlock__listener_due(client);
        renews = client->timers.due.n > 0 && !renews;
        if (renews) {
            size_t n = gather(client, now);
            renew(client, n, now, others_can_wait(client, now));
        } else if (listener_us <= now) {
            dlock__listener_look(client, dlock__after(now, others_can_wait(client, now)));
        } else {
            if (listener_us < next_us) next_us = listener_us;
            if (client->timers.due.n > 0) next_us = now;
            sleep_until(client, sleep_us < next_us ? sleep_us : next_us);
        }
    }
    dlock__leave(client);
    return NULL;
}

/* ---- for other threads ---- */

int dlock__keeper_start(struct dlock_client *client, struct dlock_error *err) {
    if (client->keeper.started) return 0;
    if (client->keeper.control < 0) client->keeper.control = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (client->keeper.timer < 0) client->keeper.timer = dlock__timer_open();
    if (client->keeper.control < 0 || client->keeper.timer < 0)
        return dlock_fail(err, DLOCK_ENOMEM, "no descriptors left for the keeper; raise the limit (ulimit -n)");
    if (!dlock__can(client, DLOCK_CAP_THREADSAFE) && !client->keeper.conn) {
        client->keeper.conn = dlock__conn_new(client);
        if (!client->keeper.conn) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for the keeper");
    }
    client->keeper.armed_us = DLOCK__NEVER;
    if (dlock__thread_start(&client->keeper.thread, run, client) != 0)
        return dlock_fail(err, DLOCK_ENOMEM, "no thread for the keeper; raise the limit (ulimit -u, ulimit -v)");
    client->keeper.started = true;
    return 0;
}

static int take_fd(int *fd) {
    int taken = *fd;
    *fd = -1;
    return taken;
}

/* What the close still does afterwards, or a dlock_free, may want to wake the keeper: by then the numbers of its
 * descriptors may belong to other files. */
void dlock__keeper_stop(struct dlock_client *client) {
    dlock__enter(client);
    client->keeper.stop = true;
    dlock__keeper_kick(client);
    dlock__leave(client);
    if (client->keeper.started) pthread_join(client->keeper.thread, NULL);
    dlock__enter(client);
    client->keeper.armed_us = INT64_MIN; /* no timer is earlier, so none is set */
    const int fds[] = {take_fd(&client->keeper.control), take_fd(&client->keeper.timer),
                       take_fd(&client->listener.bell)};
    dlock__leave(client);
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0) close(fds[i]);
}
