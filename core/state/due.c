/* What is due: grants that end, and grants that have to be renewed. */
#include "state/client.h"

/* Acquisitions handled before other threads get the mutex: 100,000 locks may be due at the same time. */
enum { LOOKS_MAX = 256 };

static struct dlock__timer *first_of(struct dlock_client *client, const struct dlock__heap *heap) {
    if (heap == &client->timers.next) client->timers.looks++;
    return dlock__heap_first(heap);
}

int64_t dlock__expire_all(struct dlock_client *client) {
    struct dlock__heap *next = &client->timers.next, *due = &client->timers.due;
    int64_t now = dlock__now_us();
    for (unsigned n = 1;; n++) {
        int64_t next_us = dlock__heap_first_us(next), due_us = dlock__heap_first_us(due);
        if (next_us > now && due_us > now) return next_us < due_us ? next_us : due_us;
        struct dlock__timer *first = first_of(client, next_us <= now ? next : due);
        int64_t end_us = dlock__acq_end(dlock__timer_acq(first));
        if (end_us <= now)
            dlock__lose(dlock__timer_acq(first), DLOCK_LOSS_EXPIRED); /* or ends its lingering */
        else                                                          /* stays in a heap even if it has no end */
            dlock__timer_arm(first, due, end_us == DLOCK__NEVER ? end_us - 1 : end_us);
        if (n % LOOKS_MAX == 0) dlock__breathe(client);
    }
}

struct dlock__acquisition *dlock__renewal_take(struct dlock_client *client, int64_t until_us) {
    struct dlock__heap *heap = client->timers.due.n > 0 ? &client->timers.due : &client->timers.next;
    if (heap == &client->timers.next && dlock__heap_first_us(heap) > until_us) return NULL;
    struct dlock__timer *first = first_of(client, heap);
    dlock__timer_disarm(first);
    return dlock__timer_acq(first);
}
