/* What a program is told beside the results of its calls: lines of the log, and events. The callback thread passes both
 * on, so that a slow program delays no renewal. */
#include "state/client.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lines and events kept for the callback thread; more are dropped until the application has read some. */
enum { LINES_MAX = 256 };

/* Leaves the line (NULL: there was no memory for it) for the callback thread. False: it was dropped, and freed. */
static bool leave(struct dlock_client *client, struct dlock__line *line) {
    if (!line || client->callback.stop || client->callback.n_lines >= LINES_MAX) {
        free(line);
        return false;
    }
    line->next = NULL;
    *(client->callback.lines ? &client->callback.last_line->next : &client->callback.lines) = line;
    client->callback.last_line = line;
    client->callback.n_lines++;
    dlock__callback_wake(client);
    return true;
}

void dlock__log(struct dlock_client *client, int level, const char *format, ...) {
    void (*log)(int, const char *, void *) = client->log;
    if (!log) return;
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (atomic_load(&client->keeper.id) == dlock__thread_id()) {
        const size_t size = strlen(text) + 1;
        struct dlock__line *line = calloc(1, sizeof *line + size);
        dlock__enter(client);
        const bool ends = client->callback.stop; /* and the callback thread with it */
        if (line) line->level = level;
        if (line) memcpy(line->text, text, size);
        leave(client, line);
        dlock__leave(client);
        if (!ends) return;
    }
    log(level, text, client->log_arg);
}

/* Leaves the event, with copies of its strings. */
static void tell(struct dlock_client *client, struct dlock_event event) {
    const char *const from[] = {event.name, event.token, event.text};
    size_t sizes[3], whole = 0;
    for (int i = 0; i < 3; i++) whole += sizes[i] = strlen(from[i]) + 1;
    struct dlock__line *line = calloc(1, sizeof *line + whole);
    if (line) {
        const char **const to[] = {&line->event.name, &line->event.token, &line->event.text};
        char *at = line->text;
        line->event = event;
        line->event.size = sizeof event;
        line->event.dropped = client->callback.dropped;
        for (int i = 0; i < 3; at += sizes[i++]) *to[i] = memcpy(at, from[i], sizes[i]);
    }
    client->callback.dropped = leave(client, line) ? 0 : client->callback.dropped + 1;
}

void dlock__tell(struct dlock_client *client, enum dlock_event_kind kind) {
    if (!client->event) return;
    tell(client,
         (struct dlock_event){.kind = kind, .name = "", .token = "", .text = "", .waited_us = -1, .held_us = -1});
}

void dlock__tell_grant(enum dlock_event_kind kind, const struct dlock__acquisition *acq, int64_t waited_us,
                       const char *text) {
    struct dlock_client *client = acq->name->client;
    if (!client->event) return;
    const bool over = kind == DLOCK_EVENT_RELEASED || kind == DLOCK_EVENT_LOST;
    tell(client, (struct dlock_event){.kind = kind,
                                      .name = dlock__name_shown(acq->name),
                                      .token = acq->token,
                                      .text = text,
                                      .fence = dlock__acq_fence(acq),
                                      .waited_us = waited_us,
                                      .held_us = over ? dlock__now(client) - acq->hold->since_us : -1});
}

void dlock__tell_wait(enum dlock_event_kind kind, const struct dlock__waiter *waiter) {
    struct dlock_client *client = waiter->lock->client;
    if (!client->event) return;
    tell(client, (struct dlock_event){.kind = kind,
                                      .name = dlock__name_shown(waiter->lock->name),
                                      .token = "",
                                      .text = waiter->why ? waiter->why->message : "",
                                      .waited_us = dlock__now(client) - waiter->began_us,
                                      .held_us = -1});
}
