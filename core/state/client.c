/* What every part of a client needs: the log, random numbers, pauses, and the end of a client. */
#include "state/client.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Lines kept for the callback thread; more are dropped until the application has read some. */
enum { LINES_MAX = 256 };

/* Leaves a line for the callback thread. False: the client ends, and that thread with it. */
static bool leave_line(struct dlock_client *client, int level, const char *text) {
    size_t size = strlen(text) + 1;
    struct dlock__line *line = malloc(sizeof *line + size);
    dlock__enter(client);
    bool left = !client->callback.stop;
    if (left && line && client->callback.n_lines < LINES_MAX) {
        line->next = NULL;
        line->level = level;
        memcpy(line->text, text, size);
        *(client->callback.lines ? &client->callback.last_line->next : &client->callback.lines) = line;
        client->callback.last_line = line;
        client->callback.n_lines++;
        line = NULL;
        dlock__callback_wake(client);
    }
    dlock__leave(client);
    free(line);
    return left;
}

void dlock__log(struct dlock_client *client, int level, const char *format, ...) {
    void (*log)(int, const char *, void *) = client->log;
    if (!log) return;
    char line[600];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (atomic_load(&client->keeper.id) == dlock__thread_id() && leave_line(client, level, line)) return;
    log(level, line, client->log_arg);
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
