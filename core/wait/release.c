/* Giving grants back: to another thread of this process, or by a release at the server. A release that a thread waits
 * for is repeated until it is answered or the caller's deadline has come. Then the acquisition is an orphan, which the
 * engine continues to release. */
#include "base/probe.h"
#include "wait/wait.h"

enum { RETRY_MIN_US = 10000, RETRY_MAX_US = 500000 };

int64_t dlock__release_retry_at(struct dlock__acquisition *acq) {
    struct dlock_client *client = acq->name->client;
    acq->pause_us = dlock__longer_pause(acq->pause_us, RETRY_MIN_US, RETRY_MAX_US);
    return dlock__now(client) + dlock__jitter(client, acq->pause_us / 2, acq->pause_us);
}

int64_t dlock__release_again_at(struct dlock__acquisition *acq, int64_t deadline_us) {
    if (acq->op->result != DLOCK_EUNAVAILABLE || acq->op->status == DLOCK__OP_RUNNING) return DLOCK__NEVER;
    int64_t again_us = dlock__release_retry_at(acq);
    return again_us < deadline_us ? again_us : DLOCK__NEVER;
}

void dlock__release_send(struct dlock__acquisition *const *acqs, size_t n, int64_t deadline_us,
                         struct dlock_error *why) {
    for (size_t i = 0; i < n; i++) dlock__op_prepare(acqs[i], DLOCK__RELEASE, 0, deadline_us, i == 0 ? why : NULL);
    dlock__op_send(acqs, n);
}

/* Sends the releases until all are answered or the deadline has come. `why` gets the server's message about the first
 * of the last round. */
static void send_all(struct dlock__acquisition *const *acqs, size_t n, int64_t deadline_us, struct dlock_error *why) {
    struct dlock_client *client = acqs[0]->name->client;
    struct dlock__acquisition *left[DLOCK__BATCH];
    for (;;) {
        int64_t again_us = 0;
        size_t unanswered = 0;
        dlock__release_send(acqs, n, deadline_us, why);
        for (size_t i = 0; i < n; i++) {
            int64_t at_us = dlock__release_again_at(acqs[i], deadline_us);
            if (at_us == DLOCK__NEVER) continue;
            left[unanswered++] = acqs[i];
            again_us = at_us;
        }
        if ((n = unanswered) == 0) return;
        acqs = left;
        while (dlock__now(client) < again_us) dlock__wait(client, &client->changed, again_us);
    }
}

bool dlock__give_back_begin(struct dlock__acquisition *acq) {
    DLOCK__PROBE_GRANT(released, acq);
    dlock__tell_grant(DLOCK_EVENT_RELEASED, acq, -1, "");
    dlock__stats_held(acq);
    if (dlock__hand_over(acq) || dlock__linger_begin(acq)) return true;
    dlock__acq_release(acq);
    dlock__acq_disown(acq);
    return false;
}

int dlock__give_back_end(struct dlock__acquisition *acq, int rc, const struct dlock_error *why,
                         struct dlock_error *err) {
    struct dlock__name *name = acq->name;
    dlock__held_remove(name, acq);
    dlock__back_off(acq);
    if (acq->refs > 1) pthread_cond_broadcast(&name->client->changed); /* dlock__give_back_await may have one of them */
    if (rc == DLOCK_ELOST) {
        dlock__loss_note(acq, dlock__loss_at_server(acq));
        dlock__stats_lost(acq);
        dlock__loss_fail(acq, " before its release", err);
    } else if (rc != 0) {
        dlock__orphan(acq);
        rc = dlock_fail(err, rc, "the release of lock \"%s\" was not confirmed, its lease ends it: %s",
                        dlock__name_shown(name), why && why->code ? why->message : dlock_strerror(rc));
    }
    if ((rc == 0 || rc == DLOCK_ELOST) && dlock__acq_may_come_late(acq, acq->op->sent_us)) dlock__orphan(acq);
    dlock__name_signal(name);
    dlock__acq_put(acq);
    return rc;
}

int dlock__give_back(struct dlock__acquisition *const *acqs, size_t n, int64_t deadline_us, struct dlock_error *err) {
    int first = 0;
    for (size_t some; n > 0; acqs += some, n -= some) {
        struct dlock_error why;
        why.code = 0;
        some = n < DLOCK__BATCH ? n : DLOCK__BATCH;
        send_all(acqs, some, deadline_us, &why);
        for (size_t i = 0; i < some; i++) {
            int rc = acqs[i]->op->result;
            rc = dlock__give_back_end(acqs[i], rc, rc == why.code ? &why : NULL, first == 0 ? err : NULL);
            if (first == 0) first = rc;
        }
    }
    return first;
}

/* True while another thread's release of the acquisition is not over. */
static bool unanswered(const struct dlock__acquisition *acq) {
    const struct dlock__op *op = acq->op;
    if (op->kind == DLOCK__RELEASE && op->status == DLOCK__OP_DONE && op->result == 0) return false;
    return dlock__acq_orphaned(acq) || dlock__name_exclusive(acq->name) == acq;
}

int dlock__give_back_await(struct dlock__acquisition *acq, int64_t deadline_us, struct dlock_error *err) {
    struct dlock__name *name = acq->name;
    struct dlock_client *client = name->client;
    while (unanswered(acq) && !client->closed && dlock__now(client) < deadline_us)
        dlock__wait(client, &client->changed, deadline_us);
    if (unanswered(acq))
        return dlock_fail(err, client->closed ? DLOCK_ECANCELED : DLOCK_EUNAVAILABLE,
                          "the release of lock \"%s\" was not confirmed, its lease ends it: %s",
                          dlock__name_shown(name), client->closed ? "the client is closed" : "no answer in time");
    if (acq->op->kind == DLOCK__RELEASE && acq->op->result == 0) return 0;
    dlock__loss_note(acq, dlock__loss_at_server(acq));
    dlock__stats_lost(acq);
    return dlock__loss_fail(acq, " before its release", err);
}

struct dlock__acquisition *dlock__linger_clear_begin(struct dlock_lock *lock) {
    struct dlock__acquisition *acq = dlock__linger_misfit(lock);
    if (!acq) return NULL;
    dlock__acq_release(acq);
    return acq;
}

void dlock__linger_clear(struct dlock__acquisition *const *acqs, size_t n, int64_t deadline_us) {
    for (size_t from = 0, some; from < n; from += some) {
        some = n - from < DLOCK__BATCH ? n - from : DLOCK__BATCH;
        dlock__release_send(acqs + from, some, deadline_us, NULL);
        for (size_t i = from; i < from + some; i++) {
            int rc = acqs[i]->op->result;
            dlock__give_back_end(acqs[i], rc == DLOCK_ELOST ? 0 : rc, NULL, NULL);
        }
    }
}
