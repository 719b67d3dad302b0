/* The worker thread that calls the application: never the keeper, which has leases to look after and may be in the
 * middle of a renewal that hangs. For the same reason this thread watches the ends of the grants that have an on_lost:
 * the word comes in time whatever the network does. */
#include "client.h"

static struct dlock__hold *pop(struct dlock_client *client) {
    struct dlock__hold *hold = client->callback.first;
    client->callback.first = hold->callback_next;
    return hold;
}

static bool wants_word(const struct dlock__hold *hold) {
    return hold->count > 0 && hold->handle && hold->handle->on_lost && !hold->handle->freed;
}

/* Ends what has run out; the earliest end to come of a grant whose holder wants to be told. */
static int64_t look_around(struct dlock_client *client) {
    int64_t end_us = DLOCK__NEVER;
    for (struct dlock__claim *claim = client->claims, *next; claim; claim = next) {
        next = claim->all_next;
        dlock__settle(claim);
        if (claim->phase != DLOCK__HELD || claim->valid_until_us >= end_us) continue;
        for (const struct dlock__hold *hold = &claim->hold; hold; hold = hold->next)
            if (wants_word(hold)) end_us = claim->valid_until_us;
    }
    return end_us;
}

static void call(struct dlock_client *client, struct dlock__hold *hold) {
    struct dlock__claim *claim = hold->claim;
    struct dlock_lock *lock = hold->handle;
    dlock_callback on_lost = lock->on_lost;
    void *arg = lock->on_lost_arg;
    struct dlock_error err;
    dlock_fail(&err, DLOCK_ELOST, "lock \"%s\" was lost", dlock__name_shown(claim->name));
    client->callback.running = lock;
    dlock__leave(client);
    on_lost(lock, &err, arg);
    dlock__enter(client);
    client->callback.running = NULL;
    pthread_cond_broadcast(&client->changed);
    dlock__claim_put(claim);
    if (lock->freed_inside) dlock__lock_destroy(lock);
}

static void *run(void *arg) {
    struct dlock_client *client = arg;
    dlock__enter(client);
    while (!client->callback.stop) {
        int64_t end_us = look_around(client);
        if (client->callback.first) {
            call(client, pop(client));
            continue;
        }
        client->callback.armed_us = end_us;
        dlock__cond_wait(&client->callback.cond, &client->mutex, end_us);
    }
    dlock__leave(client);
    return NULL;
}

int dlock__callback_start(struct dlock_client *client, struct dlock_error *err) {
    if (client->callback.started) return 0;
    client->callback.armed_us = DLOCK__NEVER;
    if (dlock__thread_start(&client->callback.thread, run, client) != 0)
        return dlock_fail(err, DLOCK_ENOMEM, "no thread for callbacks; raise the limit (ulimit -u)");
    client->callback.started = true;
    return 0;
}

void dlock__callback_arm(struct dlock_client *client, int64_t at_us) {
    if (at_us >= client->callback.armed_us) return;
    client->callback.armed_us = at_us;
    pthread_cond_signal(&client->callback.cond);
}

void dlock__callback_lost(struct dlock__claim *claim) {
    struct dlock_client *client = claim->name->client;
    struct dlock__hold **at = &client->callback.first;
    if (client->callback.stop) return;
    while (*at) at = &(*at)->callback_next;
    for (struct dlock__hold *hold = &claim->hold; hold; hold = hold->next) {
        if (!wants_word(hold)) continue;
        *at = hold;
        at = &hold->callback_next;
        *at = NULL;
        claim->refs++;
    }
    pthread_cond_signal(&client->callback.cond);
}

void dlock__callback_forget(struct dlock_lock *lock) {
    struct dlock_client *client = lock->client;
    for (struct dlock__hold **at = &client->callback.first; *at;) {
        struct dlock__hold *hold = *at;
        if (hold->handle != lock) {
            at = &hold->callback_next;
            continue;
        }
        *at = hold->callback_next;
        dlock__claim_put(hold->claim);
    }
    if (client->callback.started && pthread_equal(pthread_self(), client->callback.thread)) return;
    while (client->callback.running == lock) dlock__cond_wait(&client->changed, &client->mutex, DLOCK__NEVER);
}

void dlock__callback_stop(struct dlock_client *client) {
    dlock__enter(client);
    client->callback.stop = true;
    pthread_cond_signal(&client->callback.cond);
    dlock__leave(client);
    if (client->callback.started) pthread_join(client->callback.thread, NULL);
    dlock__enter(client);
    client->callback.started = false;
    while (client->callback.first) dlock__claim_put(pop(client)->claim);
    dlock__leave(client);
}
