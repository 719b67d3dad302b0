/* Calls of libmemcached (1.1.4, its binary protocol).
 *
 * It connects whenever it has no connection, before any request, and nothing tells. Then a comparison with an id that was
 * seen on the old connection would be made on another server's ids. So the connection that library_log_in() made is the
 * only one: after it there is neither a user nor a password, and 0 ms for another connection, which is an error there
 * before anything is sent. */
#include "library.h"

#include <libmemcached/memcached.h>
#include <sasl/sasl.h>
#include <stdlib.h>

/* At least one, and no more than it takes. */
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

/* `rc` may be no more than that there were errors: the library keeps the last one. */
static enum library_result fail(memcached_st *library, memcached_return_t rc, struct library_failure *failure) {
    const memcached_return_t last = memcached_last_error(library);
    char reason[128];
    if (last != MEMCACHED_SUCCESS) rc = last;
    failure->code = code_of(rc);
    failure->error = memcached_last_error_errno(library);
    failure->mechanism = rc == MEMCACHED_AUTH_PROBLEM;
    if (rc == MEMCACHED_TIMEOUT)
        snprintf(failure->why, sizeof failure->why, "no answer in time");
    else if (rc == MEMCACHED_MEMORY_ALLOCATION_FAILURE) /* the server's answer, and the library's own */
        snprintf(failure->why, sizeof failure->why, "no memory for another item");
    else if (failure->error)
        snprintf(failure->why, sizeof failure->why, "%s", strerror_r(failure->error, reason, sizeof reason));
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

/* False: the time is over. */
static bool begin(memcached_st *library, int64_t deadline_us) {
    const int64_t left_us = deadline_us - dlock_now_us();
    if (left_us <= 0) return false;
    set_time(library, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, left_us);
    return true;
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

/* NO_BLOCK makes it close by reset, too. */
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

/* It says `quit`, which must not wait for room. */
void library_end(struct memcached_st *library) {
    set_time(library, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, 0);
    memcached_free(library);
}

/* What libsasl asks for. */
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

/* Between the server's first answer and the request with the password: three answers are still to come. */
static int get_password(sasl_conn_t *conn, void *context, int id, sasl_secret_t **secret) {
    struct login *login = context;
    (void)conn, (void)id;
    set_time(login->library, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, (login->deadline_us - dlock_now_us()) / 3);
    *secret = login->secret;
    return SASL_OK;
}

/* Any request connects first. That for an item has the least to say. */
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

/* False: another key's. */
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

/* Reads up to the end of what was asked for. That it has found nothing is what the library says of many an answer that
 * it could not read, too; but then it has noted an error. */
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

/* What a store came to. A server without memory for an item says to an `add` that the item exists. */
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
