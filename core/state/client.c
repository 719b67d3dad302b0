/* What every part of a client needs: random numbers, pauses, and the end of a client. */
#include "state/client.h"

#include <stdlib.h>

void dlock__breathe(struct dlock_client *client) {
    dlock__leave(client);
    dlock__sleep_us(DLOCK__BREATH_US);
    dlock__enter(client);
}

int64_t dlock__jitter(struct dlock_client *client, int64_t low, int64_t high) {
    if (high <= low) return low;
    client->jitter ^= client->jitter << 13; /* xorshift64: Marsaglia, Journal of Statistical Software 8 (14), 2003 */
    client->jitter ^= client->jitter >> 7;
    client->jitter ^= client->jitter << 17;
    return low + (int64_t)(client->jitter % (uint64_t)(high - low + 1));
}

/* ---- closing ---- */

void dlock__client_put(struct dlock_client *client) {
    dlock__enter(client);
    bool last = --client->refs == 0;
    dlock__leave(client);
    if (!last) return;
    while (client->spare) {
        struct dlock__acquisition *acq = client->spare;
        client->spare = acq->all_next;
        free(acq);
    }
    while (client->spare_slots) {
        struct dlock__slot *slot = client->spare_slots;
        client->spare_slots = slot->spare;
        free(slot);
    }
    while (client->pool.conns) {
        struct dlock__conn *conn = client->pool.conns;
        client->pool.conns = conn->all;
        free(conn);
    }
    dlock__heap_free(&client->timers.next);
    dlock__heap_free(&client->timers.due);
    dlock__heap_free(&client->timers.sleeps);
    dlock__heap_free(&client->engine.sleepers);
    dlock__heap_free(&client->engine.orphans);
    free(client->engine.errors);
    dlock__exported_free(client);
    free(client->names);
    dlock__resolver_free(client->resolver);
    dlock__uri_free(client->uri);
    pthread_cond_destroy(&client->engine.cond);
    pthread_cond_destroy(&client->changed);
    pthread_mutex_destroy(&client->mutex);
    free(client);
}
