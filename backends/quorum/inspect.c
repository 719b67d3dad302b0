/* Inspecting, listing and breaking locks.
 *
 * A lock is held by the token that a majority of the members show. Fewer are a try, or what a client has left behind:
 * that excludes nobody, and is not shown. While members are away, a token that would have a majority with them may be in
 * force, and is shown; of several exclusive ones, that which more members show. */
#include "quorum.h"

enum {
    PATIENCE_US = 1000000, /* how long a silent member is waited for */
    LIST_MOST = 4000000    /* most holders that a list keeps, of all members together */
};

/* ---- asking ------------------------------------------------------------------------------------------------------ */

/* What the members have shown, and the state of the walk through their pages. */
struct view {
    struct quorum_look all;
    uint32_t more, away; /* bits of members: those with more pages, and those whose answers are missing */
    char cursors[QUORUM_MOST][256];
    struct quorum_votes votes; /* the last answers */
};

static unsigned count_bits(uint32_t bits) {
    return (unsigned)__builtin_popcount(bits);
}

/* True if every member that was asked has answered, or if those that are silent have had their time and enough of the
 * others have. */
static bool have_looked(const struct quorum_round *round, int64_t now_us) {
    const struct quorum_votes votes = quorum_count(round, 0, now_us);
    if (votes.open > 0) return false;
    return votes.silent == 0 || (now_us >= round->patience_us && quorum_answered(&votes) >= round->needed);
}

static void take_answers(struct quorum_round *round, uint32_t mask, struct view *view) {
    view->more = 0;
    for (size_t i = 0; i < round->quorum->n; i++) {
        struct quorum_part *part = &round->parts[i];
        if (!(mask & 1U << i)) continue;
        if (part->state != QUORUM_DONE || part->rc != 0 || part->claims[0].result != 0) {
            view->away |= 1U << i;
            continue;
        }
        quorum_gather(part->look, &view->all);
        memcpy(view->cursors[i], part->look->cursor, sizeof part->look->cursor);
        if (part->look->more) view->more |= 1U << i;
    }
}

/* Asks these members; the others have answered before. Returns 0, EUNAVAILABLE (too few answer), or the error of so many
 * that the others are no majority. */
static int ask(struct quorum_conn *conn, int verb, const char *name, uint32_t mask, struct view *view,
               int64_t deadline_us, struct dlock_error *err) {
    struct dlock_claim claim = {.name = name, .token = ""}, *const claims[] = {&claim};
    struct quorum *quorum = conn->quorum;
    const unsigned majority = (unsigned)quorum->majority;
    const unsigned answered = (unsigned)quorum->n - count_bits(mask | view->away);
    struct quorum_request request;
    struct quorum_round *round;
    pthread_mutex_lock(&quorum->mutex);
    int rc = quorum_begin(&request, conn, verb, claims, 1, dlock_left_ms(deadline_us), &round, err);
    if (rc != 0) return rc;
    round->needed = majority > answered ? majority - answered : 0;
    round->patience_us = dlock_now_us() + PATIENCE_US;
    for (size_t i = 0; i < quorum->n; i++) {
        round->parts[i].again = verb == QUORUM_BREAK; /* a second one would end the next holder's grant */
        memcpy(round->parts[i].look->cursor, view->cursors[i], sizeof view->cursors[i]);
    }
    quorum_ask(round, mask, have_looked);
    view->votes = quorum_count(round, 0, dlock_now_us());
    claim.result = 0;
    if (view->votes.refused > quorum->n - majority)
        quorum_fail(&request, round, &view->votes, &claim, view->votes.refusal);
    else if (quorum_answered(&view->votes) < round->needed)
        quorum_fail(&request, round, &view->votes, &claim, DLOCK_EUNAVAILABLE);
    take_answers(round, mask, view);
    rc = claim.result;
    quorum_end(&request, conn, round);
    return rc;
}

/* ---- inspect and list -------------------------------------------------------------------------------------------- */

/* Members list names in different orders, so all of their pages are read before the first holder is shown. Between two
 * pages they serve other requests. */
static int look(struct quorum_conn *conn, int verb, const char *name, dlock_each each, void *arg, int64_t deadline_us,
                struct dlock_error *err) {
    struct view view = {.more = quorum_everybody(conn->quorum)};
    int rc = 0;
    while (rc == 0 && view.more) {
        rc = ask(conn, verb, name, view.more, &view, deadline_us, err);
        if (view.all.n > LIST_MOST) rc = dlock_fail(err, DLOCK_ENOMEM, "more than %d holders in a list", LIST_MOST);
    }
    if (rc == 0) rc = quorum_show(&view.all, conn->quorum->majority, count_bits(view.away), each, arg, err);
    quorum_forget(&view.all);
    return rc;
}

int quorum_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err) {
    return look(conn, QUORUM_INSPECT, name, each, arg, dlock_deadline_us(timeout_ms), err);
}

int quorum_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
                struct dlock_error *err) {
    (void)cursor; /* it is one page */
    return look(conn, QUORUM_LIST, prefix, each, arg, dlock_deadline_us(timeout_ms), err);
}

/* ---- break ------------------------------------------------------------------------------------------------------- */

/* A holder notices when a majority has ended its grant. It does not get it back from the first of them before the others
 * have ended it, too: see claims.c. */
int quorum_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err) {
    const struct quorum *quorum = ((struct quorum_conn *)conn)->quorum;
    struct view view = {.more = 0};
    const struct quorum_votes *votes = &view.votes;
    int rc = ask(conn, QUORUM_BREAK, name, quorum_everybody(quorum), &view, dlock_deadline_us(timeout_ms), err);
    if (rc != 0) return rc;
    if (votes->yes > 0 && votes->yes + votes->failed + votes->silent + votes->open >= quorum->majority) return 0;
    return dlock_fail(err, DLOCK_ELOST, "nobody holds the lock");
}
