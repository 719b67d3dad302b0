/* How long the ensemble is sure to keep this client's session, derived from answers.
 *
 * The leader ends a session when the session's timeout has passed since it was last touched at the leader, rounded up
 * to a tick (SessionTrackerImpl.touchSession, ExpiryQueue.roundToNextInterval). A session is touched there
 *   1. when it begins, and when it moves to another connection, before the client gets an answer to that
 *      (PrepRequestProcessor's createSession, Leader.revalidateSession);
 *   2. by every request or ping to the leader itself (ZooKeeperServer.submitRequestNow);
 *   3. for requests and pings to another server, when that server reports them: it collects them
 *      (LearnerSessionTracker) until the leader asks, twice a tick (Leader.lead, Learner.ping). Writes, which the
 *      server passes on to the leader at once, touch nothing there (LeaderZooKeeperServer.submitLearnerRequest);
 *   4. when a new leader begins: it restarts all sessions (SessionTrackerImpl's constructor).
 * And a server that changes its leader ends all its connections (QuorumPeer.closeAllConnections).
 *
 * So no single answer tells how long the session will live, not even the answer to a write. But let a request be sent
 * at s and answered at a, and let a write that was sent at w be committed. The leader that committed it had a majority
 * after w, and had received everything that the client's server had told it before passing on the write, in that order.
 * If a was zookeeper_report_us() or more before w, the leader has asked for signs of life between a and w, and was told
 * of one that reached the server after s. If the session began, or moved to another connection, after a, that has
 * touched it at the leader in any case. Every later leader begins after w. Hence the timeout that ends the session did
 * not start before s: `alive_us`.
 *
 * The client's own clock gives s and a, before a request is passed to the library and after its answer has come from
 * it: s is too early and a too late, which is safe. The library's own pings are invisible here. A request is the more
 * useful the later it was sent; so some of them are remembered until they are old enough, and while there are no other
 * requests the session's thread sends one in each quarter of a session (session.c). */
#include "zookeeper.h"

enum {
    REPORT_MS = 1500, /* one and a half times the leader's half tick at the default tickTime of 2000 */
    REPORT_SHARE = 3, /* for the shortest session that a server allows, two ticks, */
    REPORT_PARTS = 8, /* the same is three eighths of the session */
    TOUCH_SHARE = 4   /* touches closer together than a quarter of the report are not remembered */
};

int64_t zookeeper_report_us(int session_ms) {
    int64_t ms = (int64_t)session_ms * REPORT_SHARE / REPORT_PARTS;
    return (ms < REPORT_MS ? ms : REPORT_MS) * 1000;
}

void zookeeper_began(struct zookeeper *z, int64_t sent_us) {
    z->validity.touches[0] = (struct zookeeper_touch){sent_us, sent_us};
    z->validity.n = 1;
}

void zookeeper_moved(struct zookeeper *z) {
    int64_t now = dlock_now_us();
    for (size_t i = 0; i < z->validity.n; i++)
        if (z->validity.touches[i].ripe_us > now) z->validity.touches[i].ripe_us = now;
}

int64_t zookeeper_last_touch(const struct zookeeper *z) {
    return z->validity.n > 0 ? z->validity.touches[z->validity.n - 1].sent_us : 0;
}

void zookeeper_touched(struct zookeeper *z, int64_t sent_us) {
    struct zookeeper_validity *validity = &z->validity;
    int64_t report_us = zookeeper_report_us(z->session_ms);
    if (sent_us - zookeeper_last_touch(z) < report_us / TOUCH_SHARE) return;
    if (validity->n == ZOOKEEPER_TOUCHES)
        memmove(validity->touches, validity->touches + 1, --validity->n * sizeof validity->touches[0]);
    validity->touches[validity->n++] = (struct zookeeper_touch){sent_us, dlock_now_us() + report_us};
}

void zookeeper_wrote(struct zookeeper *z, int64_t sent_us) {
    pthread_mutex_lock(&z->mutex);
    struct zookeeper_validity *validity = &z->validity;
    if (sent_us > z->wrote_us) z->wrote_us = sent_us;
    for (size_t i = 0; i < validity->n && validity->touches[i].ripe_us <= sent_us; i++)
        if (validity->touches[i].sent_us > validity->alive_us) validity->alive_us = validity->touches[i].sent_us;
    pthread_mutex_unlock(&z->mutex);
}

/* The core takes 1 % off the time that is left, for clocks that run differently; here 1 % is added to the time that has
 * passed. */
int64_t zookeeper_kept_ms(struct zookeeper *z, int64_t from_us) {
    pthread_mutex_lock(&z->mutex);
    int64_t age_us = from_us - z->validity.alive_us, session_ms = z->session_ms;
    pthread_mutex_unlock(&z->mutex);
    return age_us <= 0 ? session_ms : session_ms - (age_us + age_us / 99) / 1000 - 1;
}
