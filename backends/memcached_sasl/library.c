/* Calls of libmemcached (1.1.4, its binary protocol).
 *
 * libmemcached connects silently before any request if it has no connection. A cas id that was seen on the old
 * connection could then be compared with the ids of a restarted server. So the connection that library_log_in() made is
 * the only one: afterwards the library has neither user nor password, and a connect timeout of 0 ms, which makes
 * another connection fail before anything is sent. */
#include "library.h"

#include <libmemcached/memcached.h>
#include <sasl/sasl.h>
#include <stdlib.h>

/* Sets a timeout in ms: at least 1, at most an hour, which the library accepts. */
static void set_time(memcached_st *library, memcached_behavior_t behavior, int64_t left_us) {
    const int64_t ms = left_us / 1000;
    memcached_behavior_set(library, behavior, (uint64_t)(ms < 1 ? 1 : ms > 3600000 ? 3600000 : ms));
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

static int code_of(memcached_return_t rc) {
    switch (rc) {
    case MEMCACHED_AUTH_FAILURE:
    case MEMCACHED_AUTH_PROBLEM: return DLOCK_EAUTH;
    case MEMCACHED_UNKNOWN_READ_FAILURE:
    case MEMCACHED_PROTOCOL_ERROR: return DLOCK_EPROTO;
    default: return DLOCK_EUNAVAILABLE;
    }
}

/* Fills *failure. `rc` may say only that there were errors; the library keeps the last one. */
static enum library_result fail(memcached_st *library, memcached_return_t rc, struct library_failure *failure) {
    const memcached_return_t last = memcached_last_error(library);
    if (last != MEMCACHED_SUCCESS) rc = last;
    failure->code = code_of(rc);
    failure->error = memcached_last_error_errno(library);
    failure->mechanism = rc == MEMCACHED_AUTH_PROBLEM;
    if (rc == MEMCACHED_TIMEOUT)
        snprintf(failure->why, sizeof failure->why, "no answer in time");
    else if (rc == MEMCACHED_MEMORY_ALLOCATION_FAILURE) /* from the server, or of the library itself */
        snprintf(failure->why, sizeof failure->why, "no memory for another item");
    else if (failure->error)
        snprintf(failure->why, sizeof failure->why, "%s%s", strerror(failure->error), dlock_advice(failure->error));
    else if (rc == MEMCACHED_CONNECTION_FAILURE)
        snprintf(failure->why, sizeof failure->why, "the server closed the connection");
    else
        snprintf(failure->why, sizeof failure->why, "libmemcached says %s", memcached_strerror(library, rc));
    return LIBRARY_FAILED;
}

static enum library_result too_late(struct library_failure *failure) {
    failure->code = DLOCK_EUNAVAILABLE;
    failure->error = 0;
    failure->mechanism = false;
    snprintf(failure->why, sizeof failure->why, "no answer in time");
    return LIBRARY_FAILED;
}

/* Sets the timeout of the next call. False: the deadline has passed. */
static bool begin(memcached_st *library, int64_t deadline_us) {
    const int64_t left_us = deadline_us - dlock_now_us();
    if (left_us <= 0) return false;
    set_time(library, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, left_us);
    return true;
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

/* NO_BLOCK also makes the library close connections by reset. */
struct memcached_st *library_new(const char *address, int port) {
    memcached_st *library = memcached_create(NULL);
    if (!library) return NULL;
    memcached_behavior_set(library, MEMCACHED_BEHAVIOR_NO_BLOCK, 1);
    memcached_behavior_set(library, MEMCACHED_BEHAVIOR_TCP_NODELAY, 1);
    memcached_behavior_set(library, MEMCACHED_BEHAVIOR_TCP_KEEPALIVE, 1);
    memcached_behavior_set(library, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL, 1);
    memcached_behavior_set(library, MEMCACHED_BEHAVIOR_SUPPORT_CAS, 1);
    if (memcached_server_add(library, address, (in_port_t)port) == MEMCACHED_SUCCESS) return library;
    memcached_free(library);
    return NULL;
}

/* memcached_free() sends `quit`, which must not wait for room in the socket: hence the timeout of 0. */
void library_end(struct memcached_st *library) {
    set_time(library, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, 0);
    memcached_free(library);
}

/* The answers to libsasl's callbacks. */
struct login {
    memcached_st *library;
    int64_t deadline_us;
    const char *user;
    sasl_secret_t *secret;
};

static int get_user(void *context, int id, const char **result, unsigned *length) {
    const struct login *login = context;
    (void)id;
    *result = login->user;
    if (length) *length = (unsigned)strlen(login->user);
    return SASL_OK;
}

/* libsasl calls this between the server's first answer and the request with the password. Three answers are
 * outstanding, each of which gets a third of the time left. */
static int get_password(sasl_conn_t *conn, void *context, int id, sasl_secret_t **secret) {
    struct login *login = context;
    (void)conn, (void)id;
    set_time(login->library, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, (login->deadline_us - dlock_now_us()) / 3);
    *secret = login->secret;
    return SASL_OK;
}

/* Connects and logs in, which the library does before any request; reading an item is the shortest one. */
static enum library_result connect_by_look(struct login *login, struct library_failure *failure) {
    struct library_item item;
    char value[1];
    const int64_t half_us = (login->deadline_us - dlock_now_us()) / 2;
    set_time(login->library, MEMCACHED_BEHAVIOR_CONNECT_TIMEOUT, half_us);
    return library_look(login->library, "dlock-logs-in", dlock_now_us() + half_us, &item, value, sizeof value, failure);
}

static enum library_result log_in(struct login *login, struct library_failure *failure) {
    typedef int procedure(void);
    const sasl_callback_t callbacks[] = {{SASL_CB_USER, (procedure *)(uintptr_t)get_user, login},
                                         {SASL_CB_AUTHNAME, (procedure *)(uintptr_t)get_user, login},
                                         {SASL_CB_PASS, (procedure *)(uintptr_t)get_password, login},
                                         {SASL_CB_LIST_END, NULL, NULL}};
    enum library_result result;
    memcached_set_sasl_callbacks(login->library, callbacks);
    result = connect_by_look(login, failure);
    memcached_set_sasl_callbacks(login->library, NULL);
    memcached_behavior_set(login->library, MEMCACHED_BEHAVIOR_CONNECT_TIMEOUT, 0);
    return result;
}

enum library_result library_log_in(struct memcached_st *library, const char *user, const char *password,
                                   int64_t deadline_us, struct library_failure *failure) {
    const size_t length = strlen(password);
    struct login login = {library, deadline_us, user, malloc(sizeof *login.secret + length)};
    enum library_result result;
    if (!login.secret) return fail(library, MEMCACHED_MEMORY_ALLOCATION_FAILURE, failure);
    login.secret->len = length;
    memcpy(login.secret->data, password, length + 1);
    result = log_in(&login, failure);
    explicit_bzero(login.secret->data, length);
    free(login.secret);
    return result == LIBRARY_FAILED ? result : LIBRARY_DONE;
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

/* Copies an item. False: it is one of another key. */
static bool copy_item(const memcached_result_st *result, const char *key, struct library_item *item, char *value,
                      size_t size) {
    const size_t length = memcached_result_length(result), kept = length < size ? length : size - 1;
    if (memcached_result_key_length(result) != strlen(key)) return false;
    if (memcmp(memcached_result_key_value(result), key, strlen(key)) != 0) return false;
    item->cas = memcached_result_cas(result);
    item->flags = memcached_result_flags(result);
    item->length = length;
    if (kept) memcpy(value, memcached_result_value(result), kept);
    value[kept] = '\0';
    return true;
}

/* Reads all results of the request. The library also returns NOTFOUND for some answers that it could not read; but then
 * it has noted an error. */
enum library_result library_look(struct memcached_st *library, const char *key, int64_t deadline_us,
                                 struct library_item *item, char *value, size_t size, struct library_failure *failure) {
    const size_t length = strlen(key);
    bool found = false;
    if (!begin(library, deadline_us)) return too_late(failure);
    memcached_return_t rc = memcached_mget(library, &key, &length, 1);
    if (rc != MEMCACHED_SUCCESS) return fail(library, rc, failure);
    for (memcached_result_st *result; (result = memcached_fetch_result(library, NULL, &rc)) != NULL;) {
        const bool fits = !found && copy_item(result, key, item, value, size);
        memcached_result_free(result);
        if (!fits) return fail(library, MEMCACHED_PROTOCOL_ERROR, failure);
        found = true;
    }
    if ((rc != MEMCACHED_END && rc != MEMCACHED_NOTFOUND) || memcached_last_error(library) != MEMCACHED_SUCCESS)
        return fail(library, rc, failure);
    return found ? LIBRARY_DONE : LIBRARY_NOT_FOUND;
}

/* Returns the result of a store. A server without memory for the item replies to an `add` that the item exists. */
static enum library_result stored(memcached_st *library, memcached_return_t rc, struct library_failure *failure) {
    switch (rc) {
    case MEMCACHED_SUCCESS: return LIBRARY_DONE;
    case MEMCACHED_DATA_EXISTS:
    case MEMCACHED_NOTSTORED: return LIBRARY_EXISTS;
    case MEMCACHED_NOTFOUND: return LIBRARY_NOT_FOUND;
    default: return fail(library, rc, failure);
    }
}

enum library_result library_add(struct memcached_st *library, const char *key, uint32_t flags, uint64_t expiry_s,
                                const char *value, int64_t deadline_us, struct library_failure *failure) {
    if (!begin(library, deadline_us)) return too_late(failure);
    return stored(library, memcached_add(library, key, strlen(key), value, strlen(value), (time_t)expiry_s, flags),
                  failure);
}

enum library_result library_swap(struct memcached_st *library, const char *key, uint32_t flags, uint64_t expiry_s,
                                 const char *value, uint64_t cas, int64_t deadline_us,
                                 struct library_failure *failure) {
    if (!begin(library, deadline_us)) return too_late(failure);
    return stored(library, memcached_cas(library, key, strlen(key), value, strlen(value), (time_t)expiry_s, flags, cas),
                  failure);
}

/* ---- stats ------------------------------------------------------------------------------------------------------- */

struct listener {
    void (*each)(const char *name, const char *value, void *arg);
    void *arg;
};

static memcached_return_t hear(const memcached_instance_st *server, const char *name, size_t name_length,
                               const char *value, size_t value_length, void *context) {
    const struct listener *listener = context;
    (void)server, (void)name_length, (void)value_length;
    listener->each(name, value, listener->arg);
    return MEMCACHED_SUCCESS;
}

enum library_result library_stats(struct memcached_st *library, const char *word, int64_t deadline_us,
                                  void (*each)(const char *name, const char *value, void *arg), void *arg,
                                  struct library_failure *failure) {
    struct listener listener = {each, arg};
    if (!begin(library, deadline_us)) return too_late(failure);
    memcached_return_t rc = memcached_stat_execute(library, word, hear, &listener);
    if (rc != MEMCACHED_SUCCESS || memcached_last_error(library) != MEMCACHED_SUCCESS)
        return fail(library, rc, failure);
    return LIBRARY_DONE;
}
