/* Handles wake-ups: messages that the server sends without being asked. All of it is hostile input. */
#include "io/io.h"

#include <string.h>

/* Most messages that are read at once: a server that sends them faster than they can be read must not keep the reader
 * from its deadline, or the keeper from its renewals. */
enum { AT_ONCE = 256 };

/* The pause after DLOCK__IDLE_MAX. */
enum { IDLE_US = 20000 };

/* Most unanswered releases for which grants to unknown tokens are given back. A server that answers no release, but
 * continues to send such grants, could fill the memory; each ends with its lease. */
enum { UNANSWERED_MAX = 1024 };

static bool has_token(const struct dlock__acquisition *acq, const char *token) {
    return acq && strcmp(acq->token, token) == 0;
}

/* Makes the acquisition that waits for the name ask again now. */
static void look(struct dlock__name *name) {
    if (name->asking) dlock__acq_ask_again(name->asking);
}

static void look_everywhere(struct dlock_client *client) {
    for (size_t i = 0; i < client->n_buckets; i++)
        for (struct dlock__name *name = client->names[i]; name; name = name->chain) look(name);
}

/* Releases what was granted to a token of ours without a waiter: a wait that was given up, or a duplicate. */
static void give_back(struct dlock_client *client, const struct dlock_wake *wake) {
    struct dlock__acquisition *acq = dlock__acq_find(client, wake->name, wake->token);
    if (acq) {
        dlock__acq_told(acq, true);
        if (dlock__acq_orphaned(acq)) dlock__orphan(acq);
        return;
    }
    if (dlock__exported(client, wake->token) || client->engine.orphans.n >= UNANSWERED_MAX) return;
    const char *prefix = client->uri->prefix;
    size_t n = strlen(prefix);
    if (strncmp(wake->token, client->id, 24) != 0 || !dlock__token_check(wake->token) ||
        strncmp(wake->name, prefix, n) != 0 || dlock__name_check(wake->name + n, NULL) != 0)
        return;
    struct dlock__name *name = dlock__name_get(client, wake->name);
    if (!name) return;
    acq = dlock__acq_for_token(name, wake->token);
    if (acq) {
        dlock__acq_queued(acq, true);
        dlock__orphan(acq);
        dlock__acq_put(acq);
    }
    dlock__name_put(name);
}

static void granted(struct dlock_client *client, const struct dlock_wake *wake, int64_t received_us) {
    struct dlock__name *name = dlock__name_find(client, wake->name);
    struct dlock__acquisition *acq = name ? name->asking : NULL;
    if (!wake->fence) { /* nothing but a reason to ask: it may come from anybody, so nothing is given back, either */
        if (!has_token(acq, wake->token)) return;
        dlock__acq_told(acq, true);
        look(name);
    } else if (!has_token(acq, wake->token)) {
        give_back(client, wake);
    } else {
        dlock__wake_granted(acq, wake, received_us);
    }
}

static void lose(struct dlock__acquisition *acq, enum dlock_loss why) {
    if (acq->state == DLOCK__ASKING) acq->op->lost = true, acq->op->woken = false;
    if (dlock__acq_renewable(acq)) dlock__lose(acq, why);
}

/* Without a token and a name every grant is lost; a name alone means nothing. What is being asked for may be the grant
 * that is meant, or the next one: it is asked for once more. So is what came by a wake-up before the answer. */
static void lost(struct dlock_client *client, const struct dlock_wake *wake) {
    bool session = dlock__can(client, DLOCK_CAP_SESSION) && !dlock__can(client, DLOCK_CAP_LOCAL);
    if (!wake->token && wake->name) return;
    for (struct dlock__acquisition *acq = dlock__acq_first(client), *next; acq; acq = next) {
        next = acq->all_next;
        if (!wake->token || has_token(acq, wake->token)) lose(acq, session ? DLOCK_LOSS_SESSION : DLOCK_LOSS_BROKEN);
    }
    look_everywhere(client);
}

static void broken(struct dlock_client *client, const struct dlock_wake *wake) {
    struct dlock__name *name = dlock__name_find(client, wake->name);
    for (struct dlock__acquisition *acq = name ? name->held : NULL; acq; acq = acq->next)
        if (!wake->token || has_token(acq, wake->token)) dlock__acq_doubt(acq);
}

/* Handles a WANTED: another client asks for a name that we may have. */
static void wanted(struct dlock__name *name) {
    if (!name) return;
    if (name->asking) dlock__linger_not(name->asking); /* it may have the grant without knowing it yet */
    struct dlock__acquisition *acq = dlock__name_exclusive(name);
    if (acq) dlock__linger_not(acq);
}

static void act(struct dlock_client *client, const struct dlock_wake *wake, int64_t received_us) {
    switch (wake->kind) {
    case DLOCK_WAKE_LOOK:
        if (!wake->name) {
            look_everywhere(client);
        } else {
            struct dlock__name *name = dlock__name_find(client, wake->name);
            if (name) look(name);
        }
        return;
    case DLOCK_WAKE_GRANTED:
        if (wake->name && wake->token) granted(client, wake, received_us);
        return;
    case DLOCK_WAKE_LOST: lost(client, wake); return;
    case DLOCK_WAKE_WANTED:
        if (wake->name) wanted(dlock__name_find(client, wake->name));
        return;
    case DLOCK_WAKE_BROKEN:
        if (wake->name) broken(client, wake);
        return;
    case DLOCK_WAKE_HEARD: return;
    }
}

static int read_all(struct dlock_client *client, struct dlock_error *err) {
    struct dlock__conn *conn = client->listener.conn;
    client->listener.more = false;
    for (int n = 0; n < AT_ONCE; n++) {
        struct dlock_wake wake;
        memset(&wake, 0, sizeof wake);
        dlock__leave(client);
        int64_t received_us = dlock__now_us();
        int rc = client->backend->wake(conn->data, &wake, err);
        dlock__enter(client);
        if (rc == 0 && n == 0) client->listener.idle++;
        if (rc == 0) return 0;
        client->listener.idle = 0;
        if (rc != 1) return rc < 0 ? rc : dlock_fail(err, DLOCK_EPROTO, "the backend's wake returned %d", rc);
        client->listener.answer_by_us = DLOCK__NEVER; /* an answer to the probe, too */
        act(client, &wake, received_us);
    }
    client->listener.more = true;
    return 0;
}

int dlock__wakes_read(struct dlock_client *client, struct dlock_error *err) {
    client->listener.busy = true;
    int rc = read_all(client, err);
    client->listener.busy = false;
    if (client->listener.idle >= DLOCK__IDLE_MAX) client->listener.keeper_at_us = dlock__now(client) + IDLE_US;
    return rc;
}
