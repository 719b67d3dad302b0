/* Acquire, renew and release by majority. */
#include "quorum.h"

enum { BATCH = 256, RETRY_MIN_MS = 5, RETRY_MAX_MS = 50 };

/* What an operation is at. */
struct request {
    struct quorum *quorum;
    struct dlock_claim *const *claims;
    size_t n;
    int64_t deadline_us;
    struct dlock_error *err;
    bool explained;                    /* `err` speaks of a claim */
    struct dlock_claim *chosen[BATCH]; /* of the claims: for a second round */
    size_t n_chosen;
};

static uint32_t everybody(const struct quorum *quorum) {
    return (1U << quorum->n) - 1;
}

static int64_t between(struct quorum *quorum, int64_t low, int64_t high) {
    quorum->random ^= quorum->random << 13; /* xorshift64: Marsaglia, Journal of Statistical Software 8 (14), 2003 */
    quorum->random ^= quorum->random >> 7;
    quorum->random ^= quorum->random << 17;
    return low + (int64_t)(quorum->random % (uint64_t)(high - low + 1));
}

/* Begins an operation, with the mutex and the first round in *round. */
static int begin(struct request *request, void *memory, enum quorum_verb verb, struct dlock_claim *const *claims,
                 size_t n, int timeout_ms, struct quorum_round **round, struct dlock_error *err) {
    request->quorum = ((struct quorum_conn *)memory)->quorum;
    request->claims = claims;
    request->n = n;
    request->deadline_us = dlock_deadline_us(timeout_ms);
    request->err = err;
    request->explained = false;
    request->n_chosen = 0;
    *round = n <= BATCH ? quorum_round_new(request->quorum, verb, claims, n, request->deadline_us) : NULL;
    if (!*round) return dlock_fail(err, DLOCK_EUNAVAILABLE, "out of memory for a request to the quorum");
    pthread_mutex_lock(&request->quorum->mutex);
    return 0;
}

/* A claim's result that wants an explanation: the first one of a batch gets it. */
static void fail(struct request *request, const struct quorum_round *round, const struct quorum_votes *votes,
                 struct dlock_claim *claim, int code) {
    claim->result = code;
    if (!request->explained) quorum_explain(round, votes, code, request->err);
    request->explained = true;
}

static int64_t longest_lease_us(const struct request *request) {
    int64_t longest_ms = 0;
    for (size_t i = 0; i < request->n; i++)
        if (request->claims[i]->lease_ms > longest_ms) longest_ms = request->claims[i]->lease_ms;
    return longest_ms < INT64_C(86400000) ? longest_ms * 1000 : INT64_C(86400000000);
}

/* A request about the chosen claims that nobody waits for: what has no memory is what leases end. */
static void send_off(const struct request *request, enum quorum_verb verb, uint32_t mask, int64_t for_us) {
    if (request->n_chosen == 0 || mask == 0) return;
    struct quorum_round *round =
        quorum_round_new(request->quorum, verb, request->chosen, request->n_chosen, dlock_now_us());
    if (round) quorum_send_off(round, mask, dlock_now_us() + for_us);
}

/* What members that are away are to the log. Ends the operation: leaves the mutex. */
static void end(struct request *request, struct quorum_conn *conn, struct quorum_round *round) {
    struct quorum *quorum = request->quorum;
    char lines[QUORUM_MOST][400];
    int levels[QUORUM_MOST];
    size_t n = 0;
    quorum_round_put(round);
    for (size_t i = 0; i < quorum->n; i++) {
        struct quorum_member *member = &quorum->members[i];
        bool down = member->state == QUORUM_DOWN;
        if (down == member->told_down || (!down && member->state != QUORUM_UP)) continue;
        member->told_down = down;
        levels[n] = down ? DLOCK_LOG_WARN : DLOCK_LOG_INFO;
        snprintf(lines[n++], sizeof lines[0],
                 down ? "member %.100s of the quorum is away: %.250s" : "member %.100s of the quorum is back",
                 member->server.where, member->why.message);
    }
    pthread_mutex_unlock(&quorum->mutex);
    for (size_t i = 0; i < n; i++) conn->peer->log(conn->peer, levels[i], lines[i]);
}

/* ---- acquire ----------------------------------------------------------------------------------------------------- */

static bool acquire_decided(const struct quorum_round *round, int64_t now_us) {
    const unsigned majority = (unsigned)round->quorum->majority;
    for (size_t i = 0; i < round->n; i++) {
        const struct quorum_votes votes = quorum_count(round, i, now_us);
        const bool granted = votes.yes >= majority, impossible = votes.yes + votes.open + votes.silent < majority;
        const bool hopeless = votes.open == 0 && quorum_answered(&votes) >= majority;
        if (!granted && !impossible && !hopeless) return false;
    }
    return true;
}

/* The result of a claim that no majority has granted. */
static void refuse(struct request *request, const struct quorum_round *round, const struct quorum_votes *votes,
                   size_t i) {
    struct quorum *quorum = request->quorum;
    struct dlock_claim *claim = request->claims[i];
    const unsigned majority = (unsigned)quorum->majority;
    if (votes->refused > quorum->n - majority) {
        fail(request, round, votes, claim, votes->refusal);
    } else if (votes->busy == 0 && votes->not_ready > 0 && votes->yes + votes->not_ready >= majority) {
        claim->result = DLOCK_ENOTREADY;
        claim->ready_ms = quorum_ready_ms(round, i, majority - votes->yes);
    } else if (quorum_answered(votes) >= majority) {
        claim->result = DLOCK_EBUSY;
        /* Those who have split the votes must not meet again. */
        if (votes->yes > 0) claim->retry_ms = between(quorum, RETRY_MIN_MS, RETRY_MAX_MS);
    } else {
        fail(request, round, votes, claim, DLOCK_EUNAVAILABLE);
    }
}

/* Every claim's grants are given back where there are, or may be, some. */
static void give_back(struct request *request, struct dlock_claim *claim, uint32_t where, uint32_t *mask) {
    if (where) request->chosen[request->n_chosen++] = claim;
    *mask |= where;
}

static void grant(struct dlock_claim *claim, uint64_t fence, int64_t kept_ms) {
    claim->result = 0;
    claim->fence = claim->state[QUORUM_FENCE] = fence;
    claim->kept_ms = kept_ms;
}

/* The fence of a grant is the greatest of its members'. It counts once a majority has stored it, or a greater one, so
 * that each later majority has met it. Members that are behind it are told; with what they give back. */
static void raise_fences(struct request *request, const struct quorum_round *first) {
    struct quorum *quorum = request->quorum;
    struct quorum_votes votes[BATCH];
    const int64_t now_us = dlock_now_us();
    uint32_t ask = 0, back = 0;
    request->n_chosen = 0;
    for (size_t i = 0; i < request->n; i++) {
        struct dlock_claim *claim = request->claims[i];
        if (claim->result != 0) continue;
        const size_t k = request->n_chosen;
        votes[k] = quorum_count(first, i, now_us);
        if (votes[k].with_fence >= quorum->majority) continue;
        request->chosen[request->n_chosen++] = claim;
        claim->floor = claim->fence;
        ask |= everybody(quorum) & ~votes[k].have_fence;
    }
    if (request->n_chosen == 0) return;
    struct quorum_round *round =
        quorum_round_new(quorum, QUORUM_RENEW, request->chosen, request->n_chosen, request->deadline_us);
    for (size_t k = 0; round && k < request->n_chosen; k++) round->counted[k] = votes[k].have_fence;
    if (round) quorum_ask(round, ask, acquire_decided);
    const size_t n = request->n_chosen;
    request->n_chosen = 0;
    for (size_t k = 0; k < n; k++) {
        struct dlock_claim *claim = request->chosen[k];
        claim->floor = 0;
        if (round) votes[k] = quorum_count(round, k, dlock_now_us());
        if (round && votes[k].yes >= quorum->majority) continue;
        claim->result = round && quorum_answered(&votes[k]) >= quorum->majority ? DLOCK_EBUSY : DLOCK_EUNAVAILABLE;
        if (claim->result == DLOCK_EUNAVAILABLE && round) fail(request, round, &votes[k], claim, claim->result);
        give_back(request, claim, everybody(quorum), &back);
    }
    send_off(request, QUORUM_RELEASE, back, longest_lease_us(request));
    if (round) quorum_round_put(round);
}

/* A claim that was granted, to no use, gives that back first. */
static void begin_tries(struct quorum_conn *conn, struct dlock_claim *const *claims, size_t n) {
    struct request request = {.quorum = conn->quorum, .claims = claims, .n = n};
    for (size_t i = 0; i < n && n <= BATCH; i++)
        if (claims[i]->state[QUORUM_FENCE]) request.chosen[request.n_chosen++] = claims[i];
    if (request.n_chosen > 0) {
        pthread_mutex_lock(&conn->quorum->mutex);
        send_off(&request, QUORUM_RELEASE, everybody(conn->quorum), longest_lease_us(&request));
        pthread_mutex_unlock(&conn->quorum->mutex);
    }
    for (size_t i = 0; i < n; i++) {
        claims[i]->state[QUORUM_FENCE] = 0;
        claims[i]->state[QUORUM_TRIES]++;
    }
}

int quorum_acquire(void *memory, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct request request;
    struct quorum_round *round;
    begin_tries(memory, claims, n);
    int rc = begin(&request, memory, QUORUM_ACQUIRE, claims, n, timeout_ms, &round, err);
    if (rc != 0) return rc;
    const unsigned majority = (unsigned)request.quorum->majority;
    quorum_ask(round, everybody(request.quorum), acquire_decided);
    const int64_t now_us = dlock_now_us();
    uint32_t back = 0;
    bool any = false;
    for (size_t i = 0; i < n; i++) any = any || quorum_count(round, i, now_us).yes >= majority;
    round->given_up = !any;
    for (size_t i = 0; i < n; i++) {
        const struct quorum_votes votes = quorum_count(round, i, now_us);
        if (votes.yes >= majority) {
            grant(claims[i], votes.fence, quorum_kept_ms(round, i, majority));
            continue;
        }
        refuse(&request, round, &votes, i);
        give_back(&request, claims[i], votes.said_yes | votes.unsure, &back);
    }
    send_off(&request, QUORUM_RELEASE, back, longest_lease_us(&request));
    if (any) raise_fences(&request, round);
    end(&request, memory, round);
    return 0;
}

/* ---- renew ------------------------------------------------------------------------------------------------------- */

/* Enough have it, or enough have said that they have lost it, or nobody is left to be waited for. */
static bool renew_decided(const struct quorum_round *round, int64_t now_us) {
    const unsigned majority = (unsigned)round->quorum->majority, rest = (unsigned)round->quorum->n - majority;
    for (size_t i = 0; i < round->n; i++) {
        const struct quorum_votes votes = quorum_count(round, i, now_us);
        const bool over = votes.open == 0 && (votes.silent == 0 || quorum_answered(&votes) >= majority);
        if (votes.yes < majority && votes.lost <= rest && !over) return false;
    }
    return true;
}

int quorum_renew(void *memory, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct request request;
    struct quorum_round *round;
    for (size_t i = 0; i < n; i++) claims[i]->floor = claims[i]->state[QUORUM_FENCE];
    int rc = begin(&request, memory, QUORUM_RENEW, claims, n, timeout_ms, &round, err);
    for (size_t i = 0; i < n; i++) claims[i]->floor = 0;
    if (rc != 0) return rc;
    const unsigned majority = (unsigned)request.quorum->majority;
    uint32_t missing = 0;
    quorum_ask(round, everybody(request.quorum), renew_decided);
    for (size_t i = 0; i < n; i++) {
        const struct quorum_votes votes = quorum_count(round, i, dlock_now_us());
        if (votes.yes >= majority) {
            claims[i]->result = 0;
            claims[i]->kept_ms = quorum_kept_ms(round, i, majority);
        } else if (votes.lost > request.quorum->n - majority) {
            claims[i]->result = DLOCK_ELOST;
            continue;
        } else {
            fail(&request, round, &votes, claims[i], DLOCK_EUNAVAILABLE);
        }
        if (votes.said_lost) request.chosen[request.n_chosen++] = claims[i];
        missing |= votes.said_lost;
    }
    /* A member that was restarted, and whose quarantine is over, gets to know the holders again, and so does one that was
     * another's for a moment when they asked; the next renewal tells it their fences. It may be the one that is missing to
     * a majority when the next member fails. */
    send_off(&request, QUORUM_ACQUIRE, missing, (int64_t)timeout_ms * 1000);
    end(&request, memory, round);
    return 0;
}

/* ---- release ----------------------------------------------------------------------------------------------------- */

static bool release_decided(const struct quorum_round *round, int64_t now_us) {
    for (size_t i = 0; i < round->n; i++) {
        const struct quorum_votes votes = quorum_count(round, i, now_us);
        if (quorum_answered(&votes) < round->quorum->majority && votes.open + votes.silent > 0) return false;
    }
    return true;
}

static int release(void *memory, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct request request;
    struct quorum_round *round;
    int rc = begin(&request, memory, QUORUM_RELEASE, claims, n, timeout_ms, &round, err);
    if (rc != 0) return rc;
    const unsigned majority = (unsigned)request.quorum->majority;
    round->until_us = dlock_now_us() + longest_lease_us(&request);
    quorum_ask(round, everybody(request.quorum), release_decided);
    for (size_t i = 0; i < n; i++) {
        const struct quorum_votes votes = quorum_count(round, i, dlock_now_us());
        if (quorum_answered(&votes) < majority)
            fail(&request, round, &votes, claims[i], DLOCK_EUNAVAILABLE);
        else
            claims[i]->result = votes.lost > request.quorum->n - majority ? DLOCK_ELOST : 0;
    }
    end(&request, memory, round);
    return 0;
}

/* A process that has died may have been in a further try, of which its guardian knows nothing. */
static void release_next_try(void *memory, struct dlock_claim *claim, int64_t deadline_us) {
    const int result = claim->result;
    const int64_t left_ms = (deadline_us - dlock_now_us()) / 1000;
    if (claim->state[QUORUM_TRIES] == 0) claim->state[QUORUM_TRIES] = 1; /* its first one has this token, too */
    claim->state[QUORUM_TRIES]++;
    if (release(memory, &claim, 1, left_ms > 0 ? (int)left_ms : 1, NULL) != 0) claim->result = DLOCK_EUNAVAILABLE;
    claim->state[QUORUM_TRIES]--;
    if (claim->result == DLOCK_ELOST) claim->result = result;
}

int quorum_release(void *memory, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    int rc = release(memory, claims, n, timeout_ms, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (claims[i]->flags & DLOCK_CLAIM_DEAD && claims[i]->result != DLOCK_EUNAVAILABLE)
            release_next_try(memory, claims[i], deadline_us);
    return rc;
}
