/* Counting the members' answers. */
#include "quorum.h"

static void count_answer(struct quorum_votes *votes, const struct quorum_part *part, size_t claim, uint32_t bit) {
    const struct dlock_claim *answer = &part->claims[claim];
    const int result = part->rc != 0 ? DLOCK_EUNAVAILABLE : answer->result;
    switch (result) {
    case DLOCK_OK:
        votes->yes++;
        votes->said_yes |= bit;
        if (answer->fence > votes->fence) votes->with_fence = votes->have_fence = 0;
        if (answer->fence >= votes->fence) {
            votes->fence = answer->fence;
            votes->with_fence++;
            votes->have_fence |= bit;
        }
        return;
    case DLOCK_EBUSY: votes->busy++; return;
    case DLOCK_ENOTREADY: votes->not_ready++; return;
    case DLOCK_ELOST:
        votes->lost++;
        votes->said_lost |= bit;
        return;
    case DLOCK_EUNAVAILABLE:
    case DLOCK_EPROTO:
        votes->failed++;
        if (part->sent) votes->unsure |= bit;
        break;
    default: votes->refused++;
    }
    if (votes->refusal == 0 || votes->refusal == DLOCK_EUNAVAILABLE) {
        votes->refusal = part->rc != 0 ? part->rc : answer->result;
        votes->refuser = part;
    }
}

struct quorum_votes quorum_count(const struct quorum_round *round, size_t claim, int64_t now_us) {
    struct quorum_votes votes = {0};
    for (size_t i = 0; i < round->quorum->n; i++) {
        const struct quorum_part *part = &round->parts[i];
        const uint32_t bit = 1U << i;
        int64_t ignored = INT64_MAX;
        if (round->counted[claim] & bit) {
            votes.yes++;
        } else if (part->state == QUORUM_DONE) {
            count_answer(&votes, part, claim, bit);
        } else if (part->state == QUORUM_UNUSED) {
            votes.failed++;
        } else {
            if (quorum_is_silent(&round->quorum->members[i], now_us, &ignored))
                votes.silent++;
            else
                votes.open++, votes.first_open = votes.first_open || round->awaits & bit;
            if (part->sent || !round->given_up) votes.unsure |= bit;
        }
    }
    return votes;
}

unsigned quorum_answered(const struct quorum_votes *votes) {
    return votes->yes + votes->busy + votes->lost + votes->not_ready + votes->refused;
}

/* Returns a member that has not answered this request, and why. */
static const struct quorum_member *silent_member(const struct quorum_round *round, const char **why) {
    for (size_t i = 0; i < round->quorum->n; i++) {
        const struct quorum_member *member = &round->quorum->members[i];
        const enum quorum_part_state state = round->parts[i].state;
        if (state != QUORUM_LINED_UP && state != QUORUM_RUNNING) continue;
        *why = *member->why.message ? member->why.message : "no answer in time";
        return member;
    }
    return NULL;
}

int quorum_explain(const struct quorum_round *round, const struct quorum_votes *votes, int code,
                   struct dlock_error *err) {
    const struct quorum *quorum = round->quorum;
    const struct quorum_part *part = votes->refuser;
    const char *why = part ? part->err.message : "no answer in time";
    const struct quorum_member *member = part ? &quorum->members[part - round->parts] : silent_member(round, &why);
    const char *where = member ? member->server.where : "";
    const bool late = dlock_now_us() >= round->deadline_us;
    if (code != DLOCK_EUNAVAILABLE) return dlock_fail(err, code, "member %.100s of the quorum: %.300s", where, why);
    return dlock_fail(err, code, "%u of %zu members of the quorum are away, and %zu have to answer; %.100s: %.300s",
                      votes->failed + votes->silent + (late ? votes->open : 0), quorum->n, quorum->majority, where,
                      why);
}

int64_t quorum_kept_ms(const struct quorum_round *round, size_t claim, unsigned k) {
    int64_t kept[QUORUM_MOST];
    size_t n = 0;
    for (size_t i = 0; i < round->quorum->n; i++) {
        const struct quorum_part *part = &round->parts[i];
        if (part->state == QUORUM_DONE && part->rc == 0 && part->claims[claim].result == 0)
            kept[n++] = part->claims[claim].kept_ms;
    }
    return n < k ? 0 : quorum_kth(kept, n, n - k);
}

int64_t quorum_ready_ms(const struct quorum_round *round, size_t claim, unsigned k) {
    int64_t ready[QUORUM_MOST];
    size_t n = 0;
    for (size_t i = 0; i < round->quorum->n; i++) {
        const struct quorum_part *part = &round->parts[i];
        if (part->state != QUORUM_DONE || part->rc != 0 || part->claims[claim].result != DLOCK_ENOTREADY) continue;
        ready[n++] = part->claims[claim].ready_ms < 0 ? INT64_MAX : part->claims[claim].ready_ms;
    }
    int64_t at = n < k ? INT64_MAX : quorum_kth(ready, n, k - 1);
    return at == INT64_MAX ? -1 : at;
}

void quorum_note_resent(const struct quorum_round *round, size_t number, struct dlock_claim *claim) {
    const size_t n = round->quorum->n, majority = round->quorum->majority;
    const size_t needed = claim->result == DLOCK_ELOST ? n - majority + 1 : majority;
    size_t sure = 0;
    if (claim->result != 0 && claim->result != DLOCK_ELOST) return;
    for (size_t i = 0; i < n; i++) {
        const struct quorum_part *part = &round->parts[i];
        const struct dlock_claim *answer = &part->claims[number];
        const bool answered = part->state == QUORUM_DONE && part->rc == 0 && answer->result == claim->result;
        if (round->counted[number] & 1U << i || (answered && !part->again && !(answer->hints & DLOCK_HINT_RESENT)))
            sure++;
    }
    if (sure < needed) claim->hints |= DLOCK_HINT_RESENT;
}
