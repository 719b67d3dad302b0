/* What acquire, renew and release share. */
#include "quorum.h"

int quorum_begin(struct quorum_request *request, void *memory, int verb, struct dlock_claim *const *claims, size_t n,
                 int timeout_ms, struct quorum_round **round, struct dlock_error *err) {
    request->quorum = ((struct quorum_conn *)memory)->quorum;
    request->claims = claims;
    request->n = n;
    request->begun_us = dlock_now_us();
    request->deadline_us = dlock_deadline_us(timeout_ms);
    request->err = err;
    request->explained = false;
    request->n_chosen = 0;
    *round = n <= QUORUM_BATCH ? quorum_round_new(request->quorum, verb, claims, n, request->deadline_us) : NULL;
    const struct quorum_member *first = quorum_first(request->quorum, request->begun_us);
    if (*round && first) (*round)->awaits = 1U << (first - request->quorum->members);
    if (*round) return 0;
    pthread_mutex_unlock(&request->quorum->mutex);
    for (size_t i = 0; i < n; i++) claims[i]->result = DLOCK_EUNAVAILABLE;
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "out of memory for a request to the quorum");
}

void quorum_fail(struct quorum_request *request, const struct quorum_round *round, const struct quorum_votes *votes,
                 struct dlock_claim *claim, int code) {
    claim->result = code;
    if (!request->explained) quorum_explain(round, votes, code, request->err);
    request->explained = true;
}

void quorum_leave_word(struct quorum *quorum, enum dlock_operation verb, struct dlock_claim *const *claims, size_t n,
                       uint32_t mask, int64_t until_us) {
    if (n == 0 || mask == 0) return;
    struct quorum_round *round = quorum_round_new(quorum, verb, claims, n, dlock_now_us());
    if (round) quorum_send_off(round, mask, until_us);
}

void quorum_end(struct quorum_request *request, struct quorum_conn *conn, struct quorum_round *round) {
    struct quorum *quorum = request->quorum;
    char lines[QUORUM_MOST][400];
    int levels[QUORUM_MOST];
    size_t n = 0;
    for (size_t i = 0; i < request->n; i++) quorum_note_resent(round, i, request->claims[i]);
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
