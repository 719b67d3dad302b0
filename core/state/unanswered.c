/* What requests without an answer may still do at the server. This file alone changes `acq->unanswered`. An acquisition
 * that was ever sent is released until the server certainly keeps nothing of it, which follows from three statements:
 *
 * 1. A request without an answer is executed before `late_until_us`, one lease after it was given up, or never: its
 *    connection was closed by reset. Its effect ends one lease after its execution.
 * 2. An answer to a request sent at `late_until_us` or later follows all that will be executed. But the answer to a
 *    renewal does not tell which grant was renewed. A late acquire, executed after the end of the grant that we know,
 *    has made another one, with a greater fence. So late requests count until their possible effects are over.
 * 3. An acknowledged release ends what was executed before it. A renewal that comes later finds nothing. An acquire
 *    that comes later makes a grant, so the token is released again until a release is acknowledged that was sent when
 *    no acquire could come any more.
 *
 * After dlock_extend leases differ: of those that late requests ask for, the shortest applies to the holder, and the
 * longest to the orphan. Two things end with no lease: a place in the server's queue, which becomes a grant without a
 * request (`queued`), until a release is acknowledged; and what a session keeps, which ends with the session. */
#include "state/client.h"

static uint32_t in_32_bits(int64_t lease_ms) {
    return lease_ms < UINT32_MAX ? (uint32_t)lease_ms : UINT32_MAX;
}

/* ---- what happened ---- */

void dlock__acq_queued(struct dlock__acquisition *acq, bool queued) {
    if (queued && !acq->unanswered.queued) acq->unanswered.untold = true;
    acq->unanswered.queued = queued;
}

void dlock__acq_told(struct dlock__acquisition *acq, bool told) {
    acq->unanswered.untold = acq->unanswered.queued && !told;
}

void dlock__acq_not_answered(struct dlock__acquisition *acq, enum dlock__op_kind kind, int64_t lease_ms) {
    struct dlock__unanswered *late = &acq->unanswered;
    int64_t now = dlock__now(acq->name->client), longest_ms = lease_ms > acq->lease_ms ? lease_ms : acq->lease_ms;
    int64_t until_us = dlock__after(now, dlock__us(longest_ms));
    if (kind == DLOCK__ACQUIRE) late->late_acquire = true;
    if (now >= late->late_until_us || lease_ms < late->shortest_ms) late->shortest_ms = in_32_bits(lease_ms);
    if (longest_ms > late->longest_ms) late->longest_ms = in_32_bits(longest_ms);
    if (until_us > late->late_until_us) late->late_until_us = until_us;
}

void dlock__acq_settle(struct dlock__acquisition *acq, int64_t sent_us) {
    struct dlock__unanswered *late = &acq->unanswered;
    if (sent_us < dlock__acq_late_end_us(acq)) return;
    late->late_until_us = late->shortest_ms = late->longest_ms = 0;
    late->late_acquire = false;
}

void dlock__acq_cut_short(struct dlock__acquisition *acq) {
    int64_t now = dlock__now(acq->name->client);
    if (acq->unanswered.late_until_us < now) acq->unanswered.late_until_us = now;
}

void dlock__acq_given_up(struct dlock__acquisition *acq, int64_t now_us) {
    acq->unanswered.late_acquire = dlock__acq_may_come_late(acq, now_us);
    if (acq->unanswered.late_until_us < now_us) acq->unanswered.late_until_us = now_us;
}

void dlock__acq_session_ended(struct dlock__acquisition *acq) {
    acq->unanswered.queued = acq->unanswered.untold = false;
    dlock__acq_settle(acq, DLOCK__NEVER);
}

/* ---- what follows ---- */

int64_t dlock__acq_late_end_us(const struct dlock__acquisition *acq) {
    const struct dlock__unanswered *late = &acq->unanswered;
    int64_t lease_ms = acq->lease_ms > late->longest_ms ? acq->lease_ms : late->longest_ms;
    return late->late_until_us ? dlock__after(late->late_until_us, dlock__us(lease_ms)) : 0;
}

bool dlock__acq_may_come_late(const struct dlock__acquisition *acq, int64_t us) {
    return acq->unanswered.late_acquire && us < acq->unanswered.late_until_us;
}

bool dlock__acq_may_be_granted_anew(const struct dlock__acquisition *acq) {
    return acq->unanswered.late_acquire && dlock__now(acq->name->client) < dlock__acq_late_end_us(acq);
}

bool dlock__acq_may_remain(const struct dlock__acquisition *acq) {
    if (dlock__acq_died_with_connection(acq)) return false;
    return acq->unanswered.queued || acq->unanswered.late_until_us || acq->backend_state[0] || acq->backend_state[1] ||
           acq->backend_state[2] || acq->backend_state[3] || dlock__can(acq->name->client, DLOCK_CAP_SESSION);
}
