/* Renew and release by majority. */
#include "quorum.h"

/* For so long renewals leave members alone that have lost the grant. A break reaches a majority within that time; an
 * acquire in between would undo it at the first of them. */
static int64_t retake_us(const struct dlock_claim *claim) {
    return claim->lease_ms < 6000 ? claim->lease_ms * 1000 / 6 : 1000000;
}

/* ---- renew ------------------------------------------------------------------------------------------------------- */

static bool is_shared(const struct quorum_round *round, size_t claim) {
    return round->parts[0].claims[claim].mode == DLOCK_SHARED;
}

/* True if, for each claim, a majority has renewed it, or so many members have lost it that no majority can, or no
 * further answer is worth waiting for: a majority has answered, and those that have lost it were given their time; or
 * the silent members are too few to show either. After a downgrade readers come, and they need the first member's vote. */
static bool renew_decided(const struct quorum_round *round, int64_t now_us) {
    const unsigned majority = (unsigned)round->quorum->majority, rest = (unsigned)round->quorum->n - majority;
    for (size_t i = 0; i < round->n; i++) {
        const struct quorum_votes votes = quorum_count(round, i, now_us);
        const bool vain = votes.yes + votes.silent < majority && votes.lost + votes.silent <= rest;
        const bool enough = quorum_answered(&votes) >= majority && (votes.lost == 0 || now_us >= round->patience_us);
        const bool over = votes.open == 0 && (vain || enough);
        const bool kept = votes.yes >= majority && !(votes.first_open && is_shared(round, i));
        if (!kept && votes.lost <= rest && !over) return false;
    }
    return true;
}

static void renewal_begins(struct quorum_request *request) {
    memset(request->released, 0, sizeof request->released);
    request->next = request->quorum->renewals;
    request->quorum->renewals = request;
}

static void renewal_ends(struct quorum_request *request) {
    struct quorum_request **at = &request->quorum->renewals;
    while (*at != request) at = &(*at)->next;
    *at = request->next;
}

/* True if a member has been without the claim's grant for long enough. */
static bool is_retaken(const struct quorum_request *request, struct dlock_claim *claim) {
    const uint64_t begun_ms = (uint64_t)request->begun_us / 1000;
    uint64_t *since_ms = &claim->state[QUORUM_LOOKED];
    if (*since_ms == 0 || *since_ms > begun_ms) *since_ms = begun_ms;
    return dlock_now_us() >= (int64_t)*since_ms * 1000 + retake_us(claim);
}

/* Sets the result of the i-th claim. True: members that have lost it, stored in *missing, are to grant it again. */
static bool settle(struct quorum_request *request, const struct quorum_round *round, size_t i, uint32_t *missing) {
    const unsigned n = (unsigned)request->quorum->n, majority = (unsigned)request->quorum->majority;
    const struct quorum_votes votes = quorum_count(round, i, dlock_now_us());
    struct dlock_claim *claim = request->claims[i];
    if (votes.yes >= majority) {
        claim->result = 0;
        claim->kept_ms = quorum_kept_ms(round, i, majority);
    } else if (votes.lost > n - majority) {
        claim->result = DLOCK_ELOST;
        return false;
    } else {
        quorum_fail(request, round, &votes, claim, DLOCK_EUNAVAILABLE);
    }
    if (!votes.said_lost) claim->state[QUORUM_LOOKED] = 0;
    if (!votes.said_lost || !is_retaken(request, claim) || request->released[i]) return false;
    *missing |= votes.said_lost;
    return true;
}

int quorum_renew(void *memory, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct quorum_request request;
    struct quorum_round *round;
    for (size_t i = 0; i < n; i++) claims[i]->floor = claims[i]->state[QUORUM_FENCE];
    pthread_mutex_lock(&((struct quorum_conn *)memory)->quorum->mutex);
    int rc = quorum_begin(&request, memory, DLOCK_RENEW, claims, n, timeout_ms, &round, err);
    for (size_t i = 0; i < n; i++) claims[i]->floor = 0;
    if (rc != 0) return 0;
    uint32_t missing = 0;
    for (size_t i = 0; i < n; i++)
        if (round->patience_us < request.begun_us + retake_us(claims[i]))
            round->patience_us = request.begun_us + retake_us(claims[i]);
    renewal_begins(&request);
    quorum_ask(round, quorum_everybody(request.quorum), renew_decided);
    renewal_ends(&request);
    for (size_t i = 0; i < n; i++)
        if (settle(&request, round, i, &missing)) request.chosen[request.n_chosen++] = claims[i];
    /* Members that have lost a claim are asked to grant it again: they were restarted and their quarantine has ended,
     * or another client briefly had the lock there when this one asked. The next renewal tells them the fence. Without
     * such a member there may be no majority when the next member fails. A claim that is being released would stay
     * there for a whole lease: its release was sent before this. An acquire has no name twice. */
    for (size_t i = 0, end; i < request.n_chosen; i = end) {
        for (end = i + 1; end < request.n_chosen; end++)
            if (strcmp(request.chosen[end - 1]->name, request.chosen[end]->name) == 0) break;
        quorum_leave_word(request.quorum, DLOCK_ACQUIRE, request.chosen + i, end - i, missing,
                          dlock_deadline_us(timeout_ms));
    }
    quorum_end(&request, memory, round);
    return 0;
}

/* ---- release ----------------------------------------------------------------------------------------------------- */

/* The first member's answer is awaited, since a reader may come next. */
static bool release_decided(const struct quorum_round *round, int64_t now_us) {
    for (size_t i = 0; i < round->n; i++) {
        const struct quorum_votes votes = quorum_count(round, i, now_us);
        const bool enough = quorum_answered(&votes) >= round->quorum->majority && !votes.first_open;
        if (!enough && votes.open + votes.silent > 0) return false;
    }
    return true;
}

/* Tells the renewals under way which of their claims are being released. */
static void tell_renewals(struct quorum *quorum, struct dlock_claim *const *claims, size_t n) {
    for (struct quorum_request *renewal = quorum->renewals; renewal; renewal = renewal->next)
        for (size_t i = 0; i < renewal->n; i++)
            for (size_t j = 0; j < n && !renewal->released[i]; j++)
                renewal->released[i] = strcmp(renewal->claims[i]->token, claims[j]->token) == 0;
}

/* Sets all results, also after a failure. */
static void release(void *memory, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                    struct dlock_error *err) {
    struct quorum_request request;
    struct quorum_round *round;
    pthread_mutex_lock(&((struct quorum_conn *)memory)->quorum->mutex);
    if (quorum_begin(&request, memory, DLOCK_RELEASE, claims, n, timeout_ms, &round, err) != 0) return;
    const unsigned majority = (unsigned)request.quorum->majority;
    round->until_us = INT64_MAX;
    tell_renewals(request.quorum, claims, n);
    quorum_ask(round, quorum_everybody(request.quorum), release_decided);
    for (size_t i = 0; i < n; i++) {
        const struct quorum_votes votes = quorum_count(round, i, dlock_now_us());
        if (quorum_answered(&votes) < majority)
            quorum_fail(&request, round, &votes, claims[i], DLOCK_EUNAVAILABLE);
        else
            claims[i]->result = votes.lost > request.quorum->n - majority ? DLOCK_ELOST : 0;
        if (dlock_now_us() >= request.quorum->contended_until_us) claims[i]->retry_ms = 0; /* no waiters are known */
    }
    quorum_end(&request, memory, round);
}

/* The guardian of a dead process knows one try, and the process may already have been in the next one. */
static void release_next_try(void *memory, struct dlock_claim *claim, int64_t deadline_us) {
    const int result = claim->result;
    const int left_ms = dlock_left_ms(deadline_us);
    const uint64_t place = claim->state[QUORUM_PLACE];
    claim->state[QUORUM_PLACE] = 0;
    if (claim->state[QUORUM_TRIES] == 0) claim->state[QUORUM_TRIES] = 1; /* its first try has this token, too */
    claim->state[QUORUM_TRIES]++;
    release(memory, &claim, 1, left_ms, NULL);
    claim->state[QUORUM_TRIES]--;
    claim->state[QUORUM_PLACE] = place;
    if (claim->result == DLOCK_ELOST) claim->result = result;
}

int quorum_release(void *memory, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    release(memory, claims, n, timeout_ms, err);
    for (size_t i = 0; i < n; i++)
        if (claims[i]->flags & DLOCK_CLAIM_DEAD && claims[i]->result != DLOCK_EUNAVAILABLE)
            release_next_try(memory, claims[i], deadline_us);
    return 0;
}
