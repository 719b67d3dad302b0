#include "loss.h"

#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void loss_log(int level, const char *message, void *arg) {
    struct loss *loss = arg;
    if (level > DLOCK_LOG_WARN) return;
    pthread_mutex_lock(&loss->mutex);
    snprintf(loss->trouble, sizeof loss->trouble, "%s", message);
    loss->trouble_ms = now_ms();
    pthread_mutex_unlock(&loss->mutex);
}

int loss_open(struct loss *loss) {
    loss->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return loss->fd < 0 ? -1 : 0;
}

void loss_close(struct loss *loss) {
    if (loss->fd >= 0) close(loss->fd);
}

/* The eventfd counts losses in its lower half and wishes in its upper one. */
static void count(const struct loss *loss, uint64_t what) {
    (void)!write(loss->fd, &what, sizeof what);
}

void loss_happened(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock, (void)err;
    count(arg, 1);
}

void loss_wanted(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock, (void)err;
    count(arg, UINT64_C(1) << 32);
}

struct loss_news loss_read(const struct loss *loss) {
    uint64_t count;
    if (read(loss->fd, &count, sizeof count) != (ssize_t)sizeof count) return (struct loss_news){false, false};
    return (struct loss_news){(uint32_t)count > 0, count >> 32 > 0};
}

int64_t lease_look(struct lease *lease, dlock_lock *lock) {
    int64_t now = now_ms(); /* read first: if this process is stopped here, valid_until_ms is too early, not too late */
    int64_t remaining = dlock_remaining_ms(lock);
    if (remaining == DLOCK_FOREVER || remaining <= 0) return remaining;
    if (remaining > lease->longest_ms) lease->longest_ms = remaining;
    lease->valid_until_ms = now + remaining;
    return remaining;
}

/* The renewal that set the lease was sent one lease before the lease's end. longest_ms, the longest remaining time that
 * was read, is somewhat shorter than the lease: a twentieth is added for that. */
bool lease_confirmed_since(const struct lease *lease, int64_t then_ms) {
    return lease->longest_ms > 0 && lease->valid_until_ms - lease->longest_ms >= then_ms + lease->longest_ms / 20;
}

bool lease_ended(const struct lease *lease) {
    return lease->longest_ms > 0 && now_ms() >= lease->valid_until_ms;
}

/* Appends to `reason` the last logged trouble, which is why the lock could not be renewed. Leaves out a message that
 * was logged before the last renewal. */
static void add_trouble(struct loss *loss, const struct lease *lease, char *reason) {
    size_t used = strlen(reason);
    pthread_mutex_lock(&loss->mutex);
    if (loss->trouble[0] && loss->trouble_ms >= lease->valid_until_ms - lease->longest_ms)
        snprintf(reason + used, LOSS_REASON_MAX - used, " (%s)", loss->trouble);
    pthread_mutex_unlock(&loss->mutex);
}

const char *loss_reason(struct loss *loss, const struct lease *lease, dlock_lock *lock, char reason[LOSS_REASON_MAX],
                        int64_t remaining_ms) {
    const size_t before = strlen("lock \"\" was lost: ") + strlen(dlock_name(lock));
    struct dlock_error err;
    int why = remaining_ms > 0 ? DLOCK_NOT_LOST : dlock_lost(lock, &err);
    if (why > 0 && strlen(err.message) > before)
        snprintf(reason, LOSS_REASON_MAX, "%s", err.message + before);
    else
        strcpy(reason, "its lease could not be renewed in time");
    if (why <= 0 || why == DLOCK_LOSS_EXPIRED) add_trouble(loss, lease, reason);
    return reason;
}
