/* Ways in which a grant ends: handed to another thread of this process, released at the server, or lost. */
#include "wait/wait.h"

enum { RETRY_MIN_US = 10000, RETRY_MAX_US = 300000 };

int dlock__release_result(const struct dlock__claim *claim) {
    return claim->op->result == DLOCK_ELOST && claim->op->resent ? 0 : claim->op->result;
}

bool dlock__release_again(const struct dlock__claim *claim, int64_t sent_us) {
    struct dlock_client *client = claim->name->client;
    bool hung = dlock__one_each(client) && dlock__now(client) - sent_us >= dlock__us(client->uri->timeout_ms) / 2;
    return dlock__release_result(claim) == DLOCK_EUNAVAILABLE && claim->op->status != DLOCK__OP_RUNNING && !hung;
}

int dlock__give_back_send(struct dlock__claim *claim, struct dlock_error *err) {
    struct dlock_client *client = claim->name->client;
    int64_t deadline = dlock__bounded(client, DLOCK__NEVER), pause = RETRY_MIN_US;
    pthread_cond_t never;
    for (;;) {
        int64_t sent_us = dlock__now(client);
        dlock__op_run(claim, DLOCK__RELEASE, 0, deadline, err);
        int64_t again = dlock__now(client) + pause;
        if (!dlock__release_again(claim, sent_us) || again >= deadline) return dlock__release_result(claim);
        dlock__cond_init(&never);
        while (dlock__now(client) < again) dlock__wait(client, &never, again);
        pthread_cond_destroy(&never);
        pause = dlock__longer_pause(pause, RETRY_MIN_US, RETRY_MAX_US);
    }
}

bool dlock__give_back_begin(struct dlock__claim *claim) {
    if (dlock__hand_over(claim) || dlock__linger_begin(claim)) return true;
    dlock__claim_release(claim);
    dlock__claim_disown(claim);
    return false;
}

int dlock__give_back_end(struct dlock__claim *claim, int rc, const struct dlock_error *why, struct dlock_error *err) {
    struct dlock__name *name = claim->name;
    const char *shown = dlock__name_shown(name);
    dlock__name_unhold(name, claim);
    dlock__back_off(claim);
    if (rc == DLOCK_ELOST) {
        rc = dlock_fail(err, rc, "lock \"%s\" was lost before its release: the server no longer knew it", shown);
    } else if (rc != 0) {
        dlock__orphan(claim);
        rc = dlock_fail(err, rc, "the release of lock \"%s\" was not confirmed, its lease ends it: %s", shown,
                        why && why->code ? why->message : dlock_strerror(rc));
    }
    dlock__name_signal(name);
    dlock__claim_put(claim);
    return rc;
}

int dlock__give_back(struct dlock__claim *claim, struct dlock_error *err) {
    if (dlock__give_back_begin(claim)) return 0;
    struct dlock_error why;
    why.code = 0;
    int rc = dlock__give_back_send(claim, &why);
    return dlock__give_back_end(claim, rc, &why, err);
}

void dlock__linger_clear(struct dlock_lock *lock, int64_t deadline_us) {
    struct dlock__claim *claim = dlock__name_exclusive(lock->name);
    if (!claim || !dlock__lingers(claim) || dlock__same_terms(claim, lock)) return;
    claim->linger_until_us = DLOCK__NEVER;
    dlock__claim_release(claim);
    int rc = dlock__op_run(claim, DLOCK__RELEASE, 0, deadline_us, NULL);
    dlock__give_back_end(claim, rc == DLOCK_ELOST ? 0 : rc, NULL, NULL);
}
