/* Opening and closing a client. */
#include "api/api.h"
#include "plugin/server.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int name_client(struct dlock_client *client, const char *label, struct dlock_error *err) {
    unsigned char bytes[20 + sizeof client->token_key];
    if (dlock__random(bytes, sizeof bytes) != 0)
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "the kernel has no random numbers yet: try again");
    for (size_t i = 0; i < 12; i++) snprintf(client->id + 2 * i, 3, "%02x", bytes[i]);
    memcpy(&client->jitter, bytes + 12, sizeof client->jitter);
    client->jitter |= 1;
    memcpy(client->token_key, bytes + 20, sizeof client->token_key);
    char host[41];
    if (!label) label = client->uri->label;
    if (gethostname(host, sizeof host) != 0) host[0] = '\0';
    host[sizeof host - 1] = '\0';
    for (char *p = host; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '.' && *p != '-') *p = '_';
    dlock__token_tail(client, host, (long)getpid(), label);
    return 0;
}

static int check_options(const struct dlock_client_options *options, struct dlock_error *err) {
    if (!options) return 0;
    if (options->size < sizeof *options)
        return dlock_fail(err, DLOCK_EINVAL, "client options: size is %zu, use DLOCK_CLIENT_OPTIONS_INIT",
                          options->size);
    for (size_t i = sizeof *options; i < options->size; i++)
        if (((const char *)options)[i] != 0)
            return dlock_fail(err, DLOCK_EINVAL, "client options: made for a newer dlock than this one (%s)",
                              dlock_version());
    if (options->flags &
        ~(uint32_t)(DLOCK_CLIENT_LAZY | DLOCK_CLIENT_MANUAL | DLOCK_CLIENT_GUARDIAN | DLOCK_CLIENT_SPARE_GROUP))
        return dlock_fail(err, DLOCK_EINVAL, "client options: unknown flags 0x%x", (unsigned)options->flags);
    return dlock__label_check(options->label ? options->label : "", "the label", err);
}

static int fill(struct dlock_client *client, const char *uri, const char *label, struct dlock_error *err) {
    struct dlock__server server = {0};
    int rc = dlock__server_open(uri, &server, err);
    client->uri = server.uri;
    client->module = server.module;
    client->resolver = server.resolver;
    client->base_caps = server.base_caps;
    if (rc != 0) return rc;
    client->backend = &client->module->ops;
    rc = name_client(client, label, err);
    if (rc == 0 && client->backend->caps & DLOCK_CAP_VOLATILE)
        client->quarantine_ms = client->uri->quarantine_ms < 0 ? client->uri->lease_ms : client->uri->quarantine_ms;
    return rc;
}

/* Connects once, so that an unreachable server, or refused credentials, are noticed now and not at the first lock. */
static int try_connect(struct dlock_client *client, int64_t deadline_us, struct dlock_error *err) {
    struct dlock__conn *conn;
    dlock__enter(client);
    int rc = dlock__pool_take(client, deadline_us, &conn, err);
    if (rc == 0) dlock__pool_give(conn, 0);
    dlock__leave(client);
    return rc;
}

int dlock_open(const char *uri, const struct dlock_client_options *options, dlock_client **out,
               struct dlock_error *err) {
    if (!uri || !out) return dlock_fail(err, DLOCK_EINVAL, "dlock_open needs a URI and a place for the client");
    int rc = check_options(options, err);
    if (rc == 0) rc = dlock__fork_prepare(err);
    if (rc != 0) return rc;
    struct dlock_client *client = calloc(1, sizeof *client);
    if (!client) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for a client");
    client->refs = 1;
    client->listener.probe_at_us = client->listener.answer_by_us = client->listener.for_grants_us = DLOCK__NEVER;
    client->listener.fd = client->listener.bell = client->keeper.control = client->keeper.timer = client->callback.fd =
        client->callback.timer = -1;
    if (options) {
        client->log = options->log;
        client->log_arg = options->log_arg;
        client->event = options->event;
        client->event_arg = options->event_arg;
    }
    dlock__mutex_init(&client->mutex);
    dlock__cond_init(&client->changed);
    dlock__cond_init(&client->engine.cond);
    rc = fill(client, uri, options ? options->label : NULL, err);
    if (rc == 0 && options && options->flags & DLOCK_CLIENT_MANUAL) rc = dlock__callback_manual(client, err);
    if (rc != 0) {
        dlock__client_put(client);
        return rc;
    }
    dlock__fork_watch(client);
    if (client->event) rc = dlock__callback_start(client, err);
    uint32_t flags = options ? options->flags : 0;
    int64_t deadline_us = dlock__after(dlock__now_us(), dlock__us(client->uri->timeout_ms));
    if (rc == 0) rc = dlock__guard_open(client, uri, flags, deadline_us, err);
    if (rc == 0 && !(flags & DLOCK_CLIENT_LAZY)) rc = try_connect(client, deadline_us, err);
    if (rc != 0) {
        dlock_close(client);
        return rc;
    }
    if (dlock__can(client, DLOCK_CAP_PRIVATE))
        dlock__log(client, DLOCK_LOG_WARN, "the locks of %s: exclude the threads of this process only: for tests",
                   client->backend->name);
    *out = client;
    return 0;
}

static void cancel_waiters(struct dlock_client *client) {
    dlock__parts_cancel(client, NULL);
    for (size_t i = 0; i < client->n_buckets; i++)
        for (struct dlock__name *name = client->names[i]; name; name = name->chain)
            for (struct dlock__waiter *waiter = name->head; waiter; waiter = waiter->next) dlock__waiter_cancel(waiter);
}

/* Makes orphans of all that is held or lingers. Lost acquisitions that were not released yet are forgotten. */
static void let_go(struct dlock_client *client) {
    for (struct dlock__acquisition *acq = dlock__acq_first(client), *next; acq; acq = next) {
        next = acq->all_next;
        bool listed = dlock__acq_lost(acq) && acq->count > 0;
        bool held = dlock__held_remove(acq->name, acq);
        if (!listed && !held) continue;
        dlock__acq_disown(acq);
        if (listed) dlock__lost_remove(acq);
        if (held) dlock__orphan(acq);
        dlock__acq_put(acq);
    }
}

/* Waits until no call is in progress, and no callback runs or will ever run. The time that callbacks take does not count:
 * client->closed is later by that. A call that a backend holds up is left alone, and so it is by the engine, which ends
 * the asynchronous ones. */
static void await_calls(struct dlock_client *client) {
    const int64_t deadline_us = client->closed;
    client->callback.begun_us = dlock__now(client);
    client->callback.spent_us = 0;
    while (client->inside > 0 || client->engine.n > 0) {
        int64_t now = dlock__now(client), from_us = dlock__after(deadline_us, client->callback.spent_us);
        if (client->callback.calls > 0 && from_us < now) from_us = now;
        int64_t until_us = client->engine.n > 0 ? DLOCK__NEVER : dlock__after(from_us, DLOCK__LATE_US);
        if (now >= until_us) break;
        dlock__wait(client, &client->changed, until_us);
    }
    dlock__leave(client);
    dlock__callback_stop(client);
    dlock__enter(client);
    client->closed = dlock__after(deadline_us, client->callback.spent_us);
}

/* The rest of the close. A backend's call that does not return holds up this thread, which has a reference. */
static void *end(void *arg) {
    struct dlock_client *client = arg;
    dlock__enter(client);
    while (client->inside > 0) dlock__wait(client, &client->changed, DLOCK__NEVER);
    client->engine.stop = true; /* this thread releases what is left, in full batches */
    let_go(client);
    dlock__leave(client);
    dlock__engine_stop(client);
    dlock__keeper_stop(client);
    dlock__engine_stop(client); /* orphans of the keeper's last renewal */
    dlock__guard_close(client);
    dlock__enter(client);
    for (struct dlock__conn *conn = client->pool.conns; conn; conn = conn->all) dlock__conn_close(conn);
    client->ended = true;
    pthread_cond_broadcast(&client->changed);
    dlock__leave(client);
    dlock__fork_unwatch(client);
    dlock__client_put(client);
    return NULL;
}

/* Has a thread end the client, and waits for it until client->closed. */
static void end_in_time(struct dlock_client *client) {
    pthread_t thread;
    client->refs++;
    if (dlock__thread_start(&thread, end, client) != 0) {
        dlock__leave(client);
        end(client);
        return;
    }
    while (!client->ended && dlock__now(client) < client->closed) dlock__wait(client, &client->changed, client->closed);
    int64_t until_us = dlock__after(dlock__now(client), DLOCK__LATE_US); /* also if this process was stopped */
    while (!client->ended && dlock__now(client) < until_us) dlock__wait(client, &client->changed, until_us);
    bool ended = client->ended;
    if (!ended) client->log = (void (*)(int, const char *, void *))NULL; /* it may be gone when the call returns */
    dlock__leave(client);
    if (ended)
        pthread_join(thread, NULL);
    else
        pthread_detach(thread);
}

/* True unless all that the server may keep are orphans whose last request it has not answered. */
static bool worth_waiting(struct dlock_client *client) {
    if (client->inside > 0 || client->engine.n > 0 || client->engine.bare) return true;
    for (const struct dlock__acquisition *acq = dlock__acq_first(client); acq; acq = acq->all_next)
        if (acq->state <= DLOCK__RELEASING ||
            (dlock__acq_orphaned(acq) && (!acq->op || acq->op->result != DLOCK_EUNAVAILABLE)))
            return true;
    return false;
}

void dlock_close_within(dlock_client *client, int64_t timeout_ms) {
    if (!client || dlock__forked(client)) return;
    dlock__enter(client);
    int64_t most_us = timeout_ms < 0 ? DLOCK__NEVER : dlock__us(timeout_ms);
    if (!worth_waiting(client) && most_us > DLOCK__LATE_US) most_us = DLOCK__LATE_US;
    client->closed = dlock__bounded(client, dlock__after(dlock__now(client), most_us));
    client->stopped = client->keeper.stop = true; /* no new requests except the last releases */
    dlock__keeper_kick(client);
    cancel_waiters(client);
    pthread_cond_broadcast(&client->changed);
    await_calls(client);
    if (dlock__forked(client)) { /* in a callback: nothing here is the child's */
        dlock__leave(client);
        return;
    }
    end_in_time(client);
    dlock__client_put(client);
}

void dlock_close(dlock_client *client) {
    dlock_close_within(client, DLOCK_FOREVER);
}

int dlock_client_stop(dlock_client *client) {
    int rc = dlock__client_begin(client, NULL);
    if (rc != 0) return rc;
    client->stopped = true;
    cancel_waiters(client);
    return dlock__client_end(client, 0);
}

int64_t dlock_client_quarantine_ms(dlock_client *client) {
    return client->quarantine_ms;
}

const struct dlock_backend_info *dlock_client_backend(dlock_client *client) {
    return &client->module->info;
}
