/* The connection, and the requests that have not been sent yet. */
#include "memcached.h"

/* ---- connections ------------------------------------------------------------------------------------------------- */

int wire_accepts(const struct dlock_uri *uri, struct dlock_error *err) {
    (void)uri, (void)err;
    return 0;
}

int memcached_dial(struct memcached *memcached, const struct memcached_address *address, int64_t deadline_us,
                   struct dlock_error *err) {
    struct memcached_wire *wire = &memcached->wire;
    (void)deadline_us; /* login.c connects */
    snprintf(memcached->where, sizeof memcached->where, strchr(address->host->address, ':') ? "[%s]:%d" : "%s:%d",
             address->host->address, address->port);
    wire->library = library_new(address->host->address, address->port);
    wire->heard = wire->broken = false;
    wire->requests = NULL;
    wire->asked_at = wire->asked_end = 0;
    return wire->library ? 0 : dlock_fail(err, DLOCK_ENOMEM, "no memory for a connection to memcached");
}

void memcached_hang_up(struct memcached *memcached) {
    struct memcached_st *library = memcached->wire.library;
    memcached->wire.library = NULL;
    if (library) library_end(library);
}

/* Does nothing, since libmemcached does not reveal its descriptor. The child's copy does no harm: it is closed at exec,
 * nothing is ever written to it, and there is no unsent request in the child. */
void memcached_abandon(void *conn) {
    (void)conn;
}

void memcached_doubt(const struct memcached_address *address, struct dlock_error *err) {
    (void)address;
    dlock_doubt(err, "memcached");
    if (!err) return;
    size_t used = strlen(err->message);
    snprintf(err->message + used, sizeof err->message - used, " Without SASL (-S) it is memcached://");
}

void memcached_report(const struct memcached *memcached, struct dlock_report *report) {
    (void)memcached;
    dlock_find(report, NULL, "logged in over SASL; the password and all else travel in clear text");
}

int memcached_dead(struct memcached *memcached, const char *why, struct dlock_error *err) {
    memcached->wire.broken = true;
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "memcached at %s: %s", memcached->where, why);
}

int memcached_nonsense(struct memcached *memcached, const char *what, struct dlock_error *err) {
    memcached->wire.broken = true;
    return dlock_fail(err, DLOCK_EPROTO, "memcached at %s sent an invalid answer: %s", memcached->where, what);
}

/* Ends the library's handle: with another call it might connect again. */
int wire_failed(struct memcached *memcached, const struct library_failure *failure, struct dlock_error *err) {
    memcached_hang_up(memcached);
    memcached->wire.broken = true;
    return dlock_fail(err, failure->code, "memcached at %s: %s", memcached->where, failure->why);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

void memcached_write(struct memcached *memcached, struct memcached_requests *requests) {
    memcached->wire.requests = requests;
}

void wire_ask(struct memcached *memcached, const struct wire_request *request, const char *value) {
    struct memcached_wire *wire = &memcached->wire;
    if (wire->asked_at == wire->asked_end) wire->asked_at = wire->asked_end = 0;
    if (wire->asked_end == WIRE_REQUESTS_MAX || (value && strlen(value) >= sizeof wire->value)) {
        wire->broken = true; /* an incomplete request must not be sent */
        return;
    }
    wire->asked[wire->asked_end++] = *request;
    if (value) memcpy(wire->value, value, strlen(value) + 1);
}

const struct wire_request *wire_next(struct memcached *memcached, enum wire_kind kind, int *rc,
                                     struct dlock_error *err) {
    struct memcached_wire *wire = &memcached->wire;
    if (wire->asked_at == wire->asked_end && wire->requests && wire->requests->next < wire->requests->count)
        wire->requests->write(memcached, wire->requests->next++, wire->requests->arg);
    const struct wire_request *request = &wire->asked[wire->asked_at];
    if (wire->library && !wire->broken && wire->asked_at < wire->asked_end && request->kind == kind) {
        wire->asked_at++;
        return request;
    }
    *rc = memcached_dead(memcached, "the connection is broken", err);
    return NULL;
}
