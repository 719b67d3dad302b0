/* The way into and out of every call of the API. */
#include "state/client.h"

#include <stdlib.h>

int dlock__client_begin(struct dlock_client *client, struct dlock_error *err) {
    if (!client) return dlock_fail(err, DLOCK_EINVAL, "the client is NULL");
    if (dlock__forked(client)) return dlock__forked_error(err);
    dlock__enter(client);
    if (client->closed) {
        dlock__leave(client);
        return dlock_fail(err, DLOCK_ECANCELED, "the client is closed");
    }
    client->inside++;
    return 0;
}

int dlock__client_end(struct dlock_client *client, int rc) {
    client->inside--;
    if (client->closed) pthread_cond_broadcast(&client->changed);
    dlock__leave(client);
    return rc;
}

int dlock__lock_begin(struct dlock_lock *lock, struct dlock_error *err) {
    if (!lock) return dlock_fail(err, DLOCK_EINVAL, "the lock is NULL");
    int rc = dlock__client_begin(lock->client, err);
    if (rc == 0) lock->inside++;
    return rc;
}

int dlock__lock_end(struct dlock_lock *lock, int rc) {
    struct dlock_client *client = lock->client;
    lock->inside--;
    if (lock->freed) pthread_cond_broadcast(&client->changed);
    if (lock->over) dlock__lock_destroy(lock);
    return dlock__client_end(client, rc);
}

void dlock__lock_count(const struct dlock_lock *lock, int difference) {
    size_t at = 0;
    if (lock->flags & DLOCK_FIXED_LEASE) return;
    while (lock->lease_ms >> at >= 2 * DLOCK_LEASE_MIN_MS) at++;
    lock->client->leases[at] += (uint32_t)difference;
    if (lock->lease_ms > lock->client->longest_lease_ms) lock->client->longest_lease_ms = lock->lease_ms;
}

int64_t dlock__shortest_lease_ms(const struct dlock_client *client) {
    size_t at = 0;
    while (at < DLOCK__LEASES && client->leases[at] == 0) at++;
    return (int64_t)DLOCK_LEASE_MIN_MS << at;
}

void dlock__lock_destroy(struct dlock_lock *lock) {
    if (lock->inside > 0 || lock->client->callback.running == lock) return;
    while (lock->holds) dlock__hold_set(lock->holds, NULL);
    dlock__name_put(lock->name);
    free(lock);
}
