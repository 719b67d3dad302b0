/* How long the ensemble is sure to keep our session, reckoned from what it has done.
 *
 * The leader ends a session when its whole timeout has passed since it was last touched at the leader, rounded up to a
 * tick (SessionTrackerImpl.touchSession, ExpiryQueue.roundToNextInterval). A session is touched there
 *   1. when it begins, and when it moves to another connection, before we get an answer to that
 *      (PrepRequestProcessor's createSession, Leader.revalidateSession);
 *   2. with every request or ping to the leader itself (ZooKeeperServer.submitRequestNow);
 *   3. for requests and pings to another server when that reports them: it collects them (LearnerSessionTracker) until
 *      the leader asks, twice a tick (Leader.lead, Learner.ping). Our writes, which it passes on to the leader at once,
 *      touch nothing there (LeaderZooKeeperServer.submitLearnerRequest);
 *   4. when a new leader begins: all sessions start anew (SessionTrackerImpl's constructor).
 * And a server that changes its leader ends all its connections (QuorumPeer.closeAllConnections).
 *
 * So no answer alone tells how long the session will live, not even to a write. But let a write, sent at w, be
 * committed after a request was sent at s and answered at a. The leader that committed it had a majority after w, and
 * had got everything that our server had told it before it passed the write on, in that order. Where the request was
 * answered zookeeper_report_us() before w, the leader has asked for signs of life in between, and was told of ours,
 * which reached our server after s. The session's beginning, and a move to another connection after a, has touched it
 * there without that. Every later leader begins after w. Hence the clock that ends our session did not begin
 * before s: `alive_us`.
 *
 * We know s and a from our own clock, before a request is handed to the library and after its answer has come from it:
 * the one is too early and the other too late, which is safe. The library's own pings are not seen. A request is the
 * more useful the later it was sent; so some of them are remembered until they are old enough, and where nothing else
 * is asked the session's thread asks something in each quarter of a session (session.c). */
#include "zookeeper.h"

enum {
    REPORT_MS = 1500, /* half as much again as the leader's half tick, where tickTime is 2000, the default */
    REPORT_SHARE = 3, /* … and where the session is as short as the server lets it be, two ticks: */
    REPORT_PARTS = 8, /* as much, three eighths of it */
    TOUCH_SHARE = 4   /* touches this part of a report apart are enough */
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
    for (size_t i = 0; i < validity->n && validity->touches[i].ripe_us <= sent_us; i++)
        if (validity->touches[i].sent_us > validity->alive_us) validity->alive_us = validity->touches[i].sent_us;
    pthread_mutex_unlock(&z->mutex);
}

/* For clocks that run differently the core takes 1 % off the time that is left; here 1 % is taken off the time that has
 * passed. */
int64_t zookeeper_kept_ms(struct zookeeper *z, int64_t from_us) {
    pthread_mutex_lock(&z->mutex);
    int64_t age_us = from_us - z->validity.alive_us, session_ms = z->session_ms;
    pthread_mutex_unlock(&z->mutex);
    return age_us <= 0 ? session_ms : session_ms - (age_us + age_us / 99) / 1000 - 1;
}
