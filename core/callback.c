/* The worker thread that calls the application: never the keeper, which has leases to look after. */
#include "client.h"

static void finish(struct dlock_lock *lock, struct dlock__claim *claim) {
    struct dlock_client *client = lock->client;
    lock->callbacks--;
    pthread_cond_broadcast(&client->changed);
    dlock__claim_put(claim);
}

static void *run(void *arg) {
    struct dlock_client *client = arg;
    dlock__enter(client);
    while (!client->callback.stop) {
        struct dlock__claim *claim = client->callback.first;
        if (!claim) {
            dlock__cond_wait(&client->callback.cond, &client->mutex, DLOCK__NEVER);
            continue;
        }
        client->callback.first = claim->callback_next;
        struct dlock_lock *lock = claim->callback_handle;
        dlock_callback on_lost = lock->on_lost;
        void *on_lost_arg = lock->on_lost_arg;
        struct dlock_error err;
        dlock_fail(&err, DLOCK_ELOST, "lock \"%s\" was lost", dlock__name_shown(claim->name));
        client->callback.running = lock;
        dlock__leave(client);
        on_lost(lock, &err, on_lost_arg);
        dlock__enter(client);
        client->callback.running = NULL;
        finish(lock, claim);
        if (lock->freed_inside) dlock__lock_destroy(lock);
    }
    dlock__leave(client);
    return NULL;
}

int dlock__callback_start(struct dlock_client *client, struct dlock_error *err) {
    if (client->callback.started) return 0;
    if (dlock__thread_start(&client->callback.thread, run, client) != 0)
        return dlock_fail(err, DLOCK_ENOMEM, "no thread for callbacks; raise the limit (ulimit -u)");
    client->callback.started = true;
    return 0;
}

void dlock__callback_lost(struct dlock__claim *claim) {
    struct dlock_lock *lock = claim->handle;
    if (!lock || !lock->on_lost || lock->freed) return;
    struct dlock_client *client = lock->client;
    struct dlock__claim **at = &client->callback.first;
    while (*at) at = &(*at)->callback_next;
    *at = claim;
    claim->callback_next = NULL;
    claim->callback_handle = lock;
    claim->refs++;
    lock->callbacks++;
    pthread_cond_signal(&client->callback.cond);
}

void dlock__callback_forget(struct dlock_lock *lock) {
    struct dlock_client *client = lock->client;
    for (struct dlock__claim **at = &client->callback.first; *at;) {
        struct dlock__claim *claim = *at;
        if (claim->callback_handle != lock) {
            at = &claim->callback_next;
            continue;
        }
        *at = claim->callback_next;
        finish(lock, claim);
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
    while (client->callback.first) {
        struct dlock__claim *claim = client->callback.first;
        client->callback.first = claim->callback_next;
        finish(claim->callback_handle, claim);
    }
    dlock__leave(client);
}
