/* The state of a session, and waiting for events from the library's threads. */
#include "zookeeper.h"

#include <time.h>

enum { PAUSE_US = 5000 };

void zookeeper_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* CLOCK_BOOTTIME is not allowed here */
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

bool zookeeper_cond_wait(struct zookeeper *z, pthread_cond_t *cond, int64_t deadline_us) {
    int64_t left_us = deadline_us - dlock_now_us();
    struct timespec t;
    if (left_us <= 0) return false;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t ns = t.tv_nsec + left_us % 1000000 * 1000;
    t.tv_sec += (time_t)(left_us / 1000000 + ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    pthread_cond_timedwait(cond, &z->mutex, &t);
    return true;
}

void zookeeper_pause(struct zookeeper *z) {
    int64_t until_us = dlock_now_us() + PAUSE_US;
    pthread_mutex_lock(&z->mutex);
    zookeeper_cond_wait(z, &z->changed, until_us);
    pthread_mutex_unlock(&z->mutex);
}

bool zookeeper_is_dead(const struct zookeeper *z) {
    return z->state == ZOOKEEPER_EXPIRED || z->state == ZOOKEEPER_NOT_ALLOWED;
}

void zookeeper_died(struct zookeeper *z, enum zookeeper_state how) {
    if (zookeeper_is_dead(z)) return;
    z->state = how;
    zookeeper_wake_queue(z, DLOCK_WAKE_LOST, NULL);
    pthread_cond_broadcast(&z->changed);
}

int zookeeper_ready(struct zookeeper *z, int64_t deadline_us, bool *dead, struct dlock_error *err) {
    enum zookeeper_state state;
    pthread_mutex_lock(&z->mutex);
    while (z->state == ZOOKEEPER_CONNECTING && zookeeper_cond_wait(z, &z->changed, deadline_us)) {
    }
    state = z->state;
    pthread_mutex_unlock(&z->mutex);
    *dead = state == ZOOKEEPER_EXPIRED || state == ZOOKEEPER_NOT_ALLOWED;
    switch (state) {
    case ZOOKEEPER_CONNECTED: return 0;
    case ZOOKEEPER_CONNECTING: return dlock_fail(err, DLOCK_EUNAVAILABLE, "no connection to ZooKeeper at %s", z->where);
    case ZOOKEEPER_EXPIRED: break;
    case ZOOKEEPER_NOT_ALLOWED: return dlock_fail(err, DLOCK_EAUTH, "ZooKeeper at %s refused auth=", z->where);
    }
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "the session with ZooKeeper at %s has expired", z->where);
}
