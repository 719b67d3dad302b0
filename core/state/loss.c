/* Why a grant was lost, and how that is said. */
#include "state/client.h"

#include <stdio.h>

/* A process that does not run for less than this is merely slow. */
enum { STALL_MIN_US = 100000 };

void dlock__stall_note(struct dlock_client *client) {
    struct dlock__keeper *keeper = &client->keeper;
    int64_t now = dlock__now(client),
            from_us = keeper->armed_us > keeper->asleep_us ? keeper->armed_us : keeper->asleep_us;
    if (!keeper->asleep_us || from_us > now - STALL_MIN_US) return;
    keeper->stalled_us = from_us;
    keeper->continued_us = now;
}

/* For how long this process did not run, at least, since then. */
static int64_t stalled_since(struct dlock_client *client, int64_t since_us) {
    dlock__stall_note(client); /* another thread may be awake before the keeper */
    int64_t from_us = client->keeper.stalled_us > since_us ? client->keeper.stalled_us : since_us;
    int64_t us = client->keeper.continued_us - from_us;
    return us >= STALL_MIN_US ? us : 0;
}

void dlock__loss_note(struct dlock__acquisition *acq, enum dlock_loss why) {
    struct dlock_client *client = acq->name->client;
    struct dlock__loss *loss = &acq->op->loss;
    loss->why = why == DLOCK_LOSS_EXPIRED && acq->flags & DLOCK_FIXED_LEASE ? DLOCK_LOSS_FIXED_END : why;
    loss->unconfirmed_us = dlock__now(client) - loss->confirmed_us;
    loss->stalled_us = stalled_since(client, loss->confirmed_us);
}

enum dlock_loss dlock__loss_at_server(const struct dlock__acquisition *acq) {
    if (acq->op->loss.why != DLOCK_NOT_LOST) return acq->op->loss.why;
    return dlock__can(acq->name->client, DLOCK_CAP_LOCAL) ? DLOCK_LOSS_BROKEN : DLOCK_LOSS_FORGOTTEN;
}

static const char *text_of(const struct dlock__acquisition *acq) {
    const struct dlock_client *client = acq->name->client;
    switch (acq->op->loss.why) {
    case DLOCK_LOSS_FIXED_END: return "its fixed lease has ended";
    case DLOCK_LOSS_BROKEN:
        if (!dlock__can(client, DLOCK_CAP_LOCAL) || dlock__can(client, DLOCK_CAP_PRIVATE)) return "somebody broke it";
        return "somebody broke it, or removed its file or directory";
    case DLOCK_LOSS_SESSION: return "its connection to the server, or its session there, has ended";
    default: return "somebody broke it, or the server forgot it";
    }
}

int dlock__loss_fail(const struct dlock__acquisition *acq, const char *before, struct dlock_error *err) {
    const struct dlock__loss *loss = &acq->op->loss;
    const char *shown = dlock__name_shown(acq->name);
    char stalled[64] = "";
    if (loss->why != DLOCK_LOSS_EXPIRED)
        return dlock_fail(err, DLOCK_ELOST, "lock \"%s\" was lost%s: %s", shown, before, text_of(acq));
    if (loss->stalled_us > 0)
        snprintf(stalled, sizeof stalled, "; this process did not run for %.1f s of it",
                 (double)loss->stalled_us / 1000000);
    return dlock_fail(err, DLOCK_ELOST, "lock \"%s\" was lost%s: not renewed for %.1f s (lease %g s)%s", shown, before,
                      (double)loss->unconfirmed_us / 1000000, (double)acq->lease_ms / 1000, stalled);
}
