/* Acquire by majority: votes, fences, and waiting at the gate. */
#include "quorum.h"

enum {
    RETRY_MIN_MS = 5, /* pause of a client that got some of the votes */
    RETRY_MAX_MS = 50,
    LOOK_MS = 500,          /* interval at which a waiter asks all members */
    SOON_MS = LOOK_MS - 50, /* a waiter that asks anyway asks all members after this time */
    CONTENDED_US = 10000000 /* for this long after a lock was found busy, locks are asked for at the gate first */
};

static int64_t between(struct quorum *quorum, int64_t low, int64_t high) {
    quorum->random ^= quorum->random << 13; /* xorshift64: Marsaglia, Journal of Statistical Software 8 (14), 2003 */
    quorum->random ^= quorum->random >> 7;
    quorum->random ^= quorum->random << 17;
    return low + (int64_t)(quorum->random % (uint64_t)(high - low + 1));
}

/* ---- the members' votes ------------------------------------------------------------------------------------------ */

static bool is_decided(const struct quorum_round *round, int64_t now_us) {
    const unsigned majority = (unsigned)round->quorum->majority;
    for (size_t i = 0; i < round->n; i++) {
        const struct quorum_votes votes = quorum_count(round, i, now_us);
        const bool waits = votes.first_open && round->parts[0].claims[i].mode == DLOCK_SHARED;
        const bool granted = votes.yes >= majority && !waits,
                   impossible = votes.yes + votes.open + votes.silent < majority;
        const bool hopeless = votes.open == 0 && quorum_answered(&votes) >= majority;
        if (!granted && !impossible && !hopeless) return false;
    }
    return true;
}

/* Sets the result of a claim that no majority has granted. */
static void refuse(struct quorum_request *request, const struct quorum_round *round, const struct quorum_votes *votes,
                   size_t i) {
    struct quorum *quorum = request->quorum;
    struct dlock_claim *claim = request->claims[i];
    const unsigned majority = (unsigned)quorum->majority;
    if (votes->refused > quorum->n - majority) {
        quorum_fail(request, round, votes, claim, votes->refusal);
    } else if (votes->busy == 0 && votes->not_ready > 0 && votes->yes + votes->not_ready >= majority) {
        claim->result = DLOCK_ENOTREADY;
        claim->ready_ms = quorum_ready_ms(round, i, majority - votes->yes);
    } else if (quorum_answered(votes) >= majority) {
        claim->result = DLOCK_EBUSY;
        /* Clients that have split the votes must not collide again. */
        if (votes->yes > 0) claim->retry_ms = between(quorum, RETRY_MIN_MS, RETRY_MAX_MS);
    } else {
        quorum_fail(request, round, votes, claim, DLOCK_EUNAVAILABLE);
    }
}

static void grant(struct dlock_claim *claim, uint64_t fence, int64_t kept_ms) {
    claim->result = 0;
    claim->fence = claim->state[QUORUM_FENCE] = fence;
    claim->state[QUORUM_LOOKED] = 0;
    claim->kept_ms = kept_ms;
}

static void give_back(struct quorum *quorum, struct dlock_claim *claim, uint32_t mask) {
    quorum_leave_word(quorum, DLOCK_RELEASE, &claim, 1, mask, INT64_MAX);
}

/* ---- the fence --------------------------------------------------------------------------------------------------- */

/* Returns the fence of a grant, the greatest one of its members. Two readers that come at the same time may have the same
 * one from different members, which DLOCK_JOINT_STEP leaves room for. */
static uint64_t fence_of(const struct dlock_claim *claim, const struct quorum_votes *votes) {
    return votes->fence - (claim->mode == DLOCK_SHARED ? (uint64_t)__builtin_ctz(votes->have_fence) : 0);
}

/* Makes the fences of grants count. A grant's fence counts once a majority has
 * stored it, or a greater one, so that every later majority includes a member that knows it. Members that are behind it
 * are told. A grant whose fence cannot be stored by a majority is given back. */
static void raise_fences(struct quorum_request *request, const struct quorum_round *first) {
    struct quorum *quorum = request->quorum;
    struct quorum_votes votes[QUORUM_BATCH];
    const int64_t now_us = dlock_now_us();
    uint32_t ask = 0;
    request->n_chosen = 0;
    for (size_t i = 0; i < request->n; i++) {
        struct dlock_claim *claim = request->claims[i];
        if (claim->result != 0) continue;
        const size_t k = request->n_chosen;
        votes[k] = quorum_count(first, i, now_us);
        if (claim->fence != votes[k].fence) votes[k].with_fence = votes[k].have_fence = 0;
        if (votes[k].with_fence >= quorum->majority) continue;
        request->chosen[request->n_chosen++] = claim;
        claim->floor = claim->fence;
        ask |= quorum_everybody(quorum) & ~votes[k].have_fence;
    }
    if (request->n_chosen == 0) return;
    struct quorum_round *round =
        quorum_round_new(quorum, DLOCK_RENEW, request->chosen, request->n_chosen, request->deadline_us);
    for (size_t k = 0; round && k < request->n_chosen; k++) round->counted[k] = votes[k].have_fence;
    if (round) quorum_ask(round, ask, is_decided);
    for (size_t k = 0; k < request->n_chosen; k++) {
        struct dlock_claim *claim = request->chosen[k];
        claim->floor = 0;
        if (round) votes[k] = quorum_count(round, k, dlock_now_us());
        if (round && votes[k].yes >= quorum->majority) {
            quorum_note_resent(round, k, claim);
            continue;
        }
        claim->result = round && quorum_answered(&votes[k]) >= quorum->majority ? DLOCK_EBUSY : DLOCK_EUNAVAILABLE;
        if (claim->result == DLOCK_EUNAVAILABLE && round) quorum_fail(request, round, &votes[k], claim, claim->result);
        give_back(quorum, claim, quorum_everybody(quorum));
        claim->state[QUORUM_FENCE] = claim->state[QUORUM_PLACE] = 0;
    }
    if (round) quorum_round_put(round);
}

/* ---- waiting at the gate ----------------------------------------------------------------------------------------- */

static size_t index_of(const struct quorum_member *member) {
    return (size_t)(member - member->quorum->members);
}

/* Begins a new try of a claim, after giving back what it has from earlier tries, except its place at the gate. */
static void begin_try(struct quorum *quorum, const struct quorum_member *gate, struct dlock_claim *claim) {
    const uint64_t place = claim->state[QUORUM_PLACE];
    if (claim->state[QUORUM_FENCE]) { /* the grant is lost */
        give_back(quorum, claim, quorum_everybody(quorum));
        claim->state[QUORUM_FENCE] = claim->state[QUORUM_PLACE] = 0;
    } else if (place != 0 && (!gate || quorum_place_at(place) != index_of(gate))) {
        give_back(quorum, claim, 1U << quorum_place_at(place));
        claim->state[QUORUM_PLACE] = 0;
    }
    claim->state[QUORUM_TRIES]++;
}

/* True if the gate alone should be asked first. False if there was no recent contention, or if it is time for a writer to
 * check with the other members. */
static bool asks_gate_first(const struct quorum *quorum, const struct dlock_claim *claim, int64_t now_us) {
    if (claim->state[QUORUM_PLACE] == 0) return now_us < quorum->contended_until_us;
    return claim->mode == DLOCK_SHARED || (uint64_t)now_us / 1000 - claim->state[QUORUM_LOOKED] < SOON_MS;
}

/* Returns the gate's answer about a claim; NULL: there is none yet, or the gate is away. */
static const struct dlock_claim *answer_of(const struct quorum_round *round, const struct quorum_member *gate,
                                           size_t i) {
    const struct quorum_part *part = gate ? &round->parts[index_of(gate)] : NULL;
    return part && part->state == QUORUM_DONE && part->rc == 0 ? &part->claims[i] : NULL;
}

static bool gate_has_answered(const struct quorum_round *round, int64_t now_us) {
    return quorum_count(round, 0, now_us).open == 0;
}

/* True if each claim has a place in the gate's queue, behind holders that will hand over. */
static bool all_queue(const struct quorum_round *round, const struct quorum_member *gate) {
    for (size_t i = 0; i < round->n; i++) {
        const struct dlock_claim *answer = answer_of(round, gate, i);
        if (!answer || answer->result != DLOCK_EBUSY || answer->retry_ms < 0) return false;
    }
    return true;
}

/* Lets a busy claim keep its place at the gate, or its vote there, so that no other waiter is sent to the other members
 * for nothing; sets the time of its next try. Returns that place; 0: it keeps nothing. */
static uint64_t keep_place(struct quorum *quorum, const struct quorum_member *gate, const struct dlock_claim *answer,
                           struct dlock_claim *claim, bool handed) {
    if (!answer || claim->result != DLOCK_EBUSY || (answer->result != DLOCK_EBUSY && answer->result != 0)) return 0;
    if (answer->result == 0)
        claim->retry_ms = handed ? 1 : between(quorum, RETRY_MIN_MS, RETRY_MAX_MS); /* the release may be under way */
    else
        claim->retry_ms = answer->retry_ms < LOOK_MS ? answer->retry_ms : LOOK_MS;
    const uint64_t place = claim->state[QUORUM_PLACE];
    return place ? place : quorum_place(index_of(gate), claim->state[QUORUM_TRIES]);
}

/* Evaluates what an answer of the gate says about the gate itself. */
static void judge(struct quorum_member *gate, const struct dlock_claim *answer, int64_t now_us) {
    if (!answer) return;
    if (answer->hints & DLOCK_HINT_UNHEARD) quorum_unheard(gate, now_us);
    if (answer->result == DLOCK_EBUSY) quorum_probe_gate(gate, now_us);
    if (answer->result != DLOCK_ENOTREADY) return;
    gate->unready_until_us = now_us + (answer->ready_ms > 0 ? answer->ready_ms : 1000) * 1000;
    quorum_gate_moved(gate->quorum);
}

/* ---- acquire ----------------------------------------------------------------------------------------------------- */

struct question {
    struct quorum_member *gate;  /* NULL: no claim is to queue */
    struct quorum_member *first; /* the one whose vote readers need; or NULL */
    bool gate_first;             /* the others are asked only if the gate's answer does not suffice */
    bool handed;                 /* the gate has just granted one of the names to a waiter: all members are asked */
    bool all_queue;              /* set before the claims are settled: each has a place in the gate's queue */
};

static struct question prepare(struct quorum *quorum, struct dlock_claim *const *claims, size_t n) {
    const int64_t now_us = dlock_now_us();
    struct question question = {.first = quorum_first(quorum, now_us)};
    bool queues = true, first = true;
    for (size_t i = 0; i < n; i++) queues = queues && claims[i]->flags & DLOCK_CLAIM_QUEUE;
    if (queues) question.gate = quorum_gate(quorum, now_us);
    for (size_t i = 0; i < n; i++) {
        begin_try(quorum, question.gate, claims[i]);
        if (!question.gate) continue;
        if (quorum_was_handed(quorum, claims[i]->name)) question.handed = true;
        first = first && asks_gate_first(quorum, claims[i], now_us);
    }
    question.gate_first = question.gate && first && !question.handed;
    for (size_t i = 0; i < n; i++)
        if (!question.gate_first || claims[i]->state[QUORUM_PLACE] == 0)
            claims[i]->state[QUORUM_LOOKED] = (uint64_t)now_us / 1000;
    return question;
}

static void ask(struct quorum_round *round, const struct question *question) {
    const size_t gate = question->gate ? index_of(question->gate) : 0;
    const uint32_t all = quorum_everybody(round->quorum);
    for (size_t i = 0; question->gate && i < round->n; i++) round->parts[gate].claims[i].flags |= DLOCK_CLAIM_QUEUE;
    if (!question->gate_first) {
        quorum_ask(round, all, is_decided);
        return;
    }
    quorum_ask(round, 1U << gate, gate_has_answered);
    if (!all_queue(round, question->gate)) quorum_ask(round, all & ~(1U << gate), is_decided);
}

/* True if a reader has to wait for its turn at the first member. It does not wait behind another program's client, which
 * hands over to nobody and which a place in the queue outlasts. */
static bool waits_its_turn(const struct quorum_round *round, const struct question *question, size_t i) {
    const struct dlock_claim *answer = answer_of(round, question->first, i);
    return answer && answer->mode == DLOCK_SHARED && answer->result == DLOCK_EBUSY &&
           !(answer->flags & DLOCK_CLAIM_QUEUE && answer->retry_ms < 0);
}

/* Sets the result of the i-th claim. */
static void settle(struct quorum_request *request, const struct quorum_round *round, const struct question *question,
                   size_t i, int64_t now_us) {
    struct quorum *quorum = request->quorum;
    struct dlock_claim *claim = request->claims[i];
    const struct dlock_claim *answer = answer_of(round, question->gate, i);
    const struct quorum_votes votes = quorum_count(round, i, now_us);
    const uint32_t at_gate = question->gate ? 1U << index_of(question->gate) : 0;
    const uint32_t back = votes.said_yes | votes.unsure;
    if (votes.busy > 0) quorum->contended_until_us = now_us + CONTENDED_US;
    if (votes.yes >= quorum->majority && !waits_its_turn(round, question, i)) {
        grant(claim, fence_of(claim, &votes), quorum_kept_ms(round, i, (unsigned)quorum->majority));
        return;
    }
    if (question->all_queue)
        claim->result = DLOCK_EBUSY;
    else
        refuse(request, round, &votes, i);
    const uint64_t place = keep_place(quorum, question->gate, answer, claim, question->handed);
    give_back(quorum, claim, place ? back & ~at_gate : back | at_gate);
    claim->state[QUORUM_PLACE] = place; /* last: the grants given back have the tokens of this round */
}

/* Begins and ends one try of each claim. */
static void try(void *memory, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct quorum *quorum = ((struct quorum_conn *)memory)->quorum;
    struct quorum_request request;
    struct quorum_round *round;
    pthread_mutex_lock(&quorum->mutex);
    struct question question = prepare(quorum, claims, n);
    if (quorum_begin(&request, memory, DLOCK_ACQUIRE, claims, n, timeout_ms, &round, err) != 0) return;
    ask(round, &question);
    const int64_t now_us = dlock_now_us();
    bool any = false;
    for (size_t i = 0; i < n; i++) any = any || quorum_count(round, i, now_us).yes >= quorum->majority;
    round->given_up = !any;
    question.all_queue = all_queue(round, question.gate);
    for (size_t i = 0; i < n; i++) settle(&request, round, &question, i, now_us);
    if (question.gate) judge(question.gate, answer_of(round, question.gate, 0), now_us);
    if (any) raise_fences(&request, round);
    quorum_end(&request, memory, round);
}

/* Requests claims that were granted before: each has its grant, with its fence, until a majority has lost it. True: one
 * has an error, which `err` explains. */
static bool grant_again(void *memory, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                        struct dlock_error *err) {
    bool failed = false;
    quorum_renew(memory, claims, n, timeout_ms, err);
    for (size_t i = 0; i < n; i++) {
        claims[i]->fence = claims[i]->result == 0 ? claims[i]->state[QUORUM_FENCE] : 0;
        failed = failed || (claims[i]->result != 0 && claims[i]->result != DLOCK_ELOST);
    }
    return failed;
}

int quorum_acquire(void *memory, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct dlock_claim *again[QUORUM_BATCH], *rest[QUORUM_BATCH];
    size_t n_again = 0, n_rest = 0;
    for (size_t i = 0; i < n; i++) {
        if (claims[i]->mode != DLOCK_PERMIT && claims[i]->state[QUORUM_FENCE]) again[n_again++] = claims[i];
        if (claims[i]->mode != DLOCK_PERMIT) continue;
        claims[i]->result = dlock_fail(err, DLOCK_ENOTSUP, "a quorum has no permits");
        err = NULL; /* it explains one claim */
    }
    if (n_again > 0 && grant_again(memory, again, n_again, timeout_ms, err)) err = NULL;
    for (size_t i = 0; i < n; i++)
        if (claims[i]->mode != DLOCK_PERMIT && (!claims[i]->state[QUORUM_FENCE] || claims[i]->result == DLOCK_ELOST))
            rest[n_rest++] = claims[i];
    if (n_rest > 0) try(memory, rest, n_rest, dlock_left_ms(deadline_us), err);
    return 0;
}
