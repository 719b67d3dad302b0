/* Looking at locks, and breaking them: for operators. */
#include "api/api.h"

#include <string.h>

struct walk {
    dlock_each each; /* or */
    dlock_each_finding each_finding;
    void *arg;
    size_t prefix; /* bytes of the client's prefix in front of every name */
    size_t seen;
    bool ended; /* by the caller */
};

static int pass_on(const struct dlock_info *info, void *arg) {
    struct walk *walk = arg;
    if (walk->ended) return 1;
    struct dlock_info shown = *info;
    shown.size = sizeof shown;
    if (strlen(shown.name) < walk->prefix) return 0;
    shown.name += walk->prefix;
    shown.fence <<= 8; /* as dlock_fence shows it; the hand-overs inside the holder are its own affair */
    walk->seen++;
    walk->ended = walk->each(&shown, walk->arg) != 0;
    return walk->ended;
}

static int pass_finding_on(const struct dlock_finding *finding, void *arg) {
    struct walk *walk = arg;
    if (walk->ended) return 1;
    struct dlock_finding shown = *finding;
    shown.size = sizeof shown;
    walk->seen++;
    walk->ended = walk->each_finding(&shown, walk->arg) != 0;
    return walk->ended;
}

static void full_name(const struct dlock_client *client, const char *name, char out[DLOCK__FULL_NAME_MAX + 1]) {
    size_t prefix = strlen(client->uri->prefix);
    memcpy(out, client->uri->prefix, prefix);
    memcpy(out + prefix, name, strlen(name) + 1);
}

enum question { INSPECT, LIST, CHECK, BREAK };

/* One request to the backend, without the mutex. */
static int put(struct dlock__conn *conn, enum question question, const char *text, char *cursor, struct walk *walk,
               int64_t deadline_us, struct dlock_error *err) {
    const struct dlock_backend *backend = conn->client->backend;
    int timeout_ms = dlock__timeout_ms(dlock__now_us(), deadline_us);
    switch (question) {
    case INSPECT: return backend->inspect(conn->data, text, pass_on, walk, timeout_ms, err);
    case LIST: return backend->list(conn->data, text, cursor, pass_on, walk, timeout_ms, err);
    case CHECK: return backend->check(conn->data, pass_finding_on, walk, timeout_ms, err);
    case BREAK: break;
    }
    return backend->break_lock(conn->data, text, timeout_ms, err);
}

/* With the mutex, which it leaves. An idle connection may have died unnoticed, so the first failure is not the last
 * word as long as nothing was shown. */
static int ask(struct dlock_client *client, enum question question, const char *text, char *cursor, struct walk *walk,
               struct dlock_error *err) {
    int64_t deadline_us = dlock__after(dlock__now_us(), dlock__us(client->uri->timeout_ms));
    for (bool again = true;; again = false) {
        struct dlock__conn *conn;
        struct dlock_error own;
        own.code = 0;
        int rc = dlock__pool_take(client, deadline_us, &conn, &own);
        if (rc == 0) {
            dlock__leave(client);
            rc = put(conn, question, text, cursor, walk, deadline_us, &own);
            dlock__enter(client);
            dlock__pool_give(conn, rc == DLOCK_EUNAVAILABLE || rc == DLOCK_EPROTO ? rc : 0);
            if (rc == DLOCK_EUNAVAILABLE && again && (!walk || walk->seen == 0)) continue;
        }
        if (rc < 0 && err) *err = own;
        return rc;
    }
}

static int unsupported(struct dlock_client *client, const char *what, struct dlock_error *err) {
    return dlock_fail(err, DLOCK_ENOTSUP, "backend %s cannot %s", client->backend->name, what);
}

int dlock_inspect(dlock_client *client, const char *name, dlock_each each, void *arg, struct dlock_error *err) {
    int rc = each ? dlock__name_check(name, err) : dlock_fail(err, DLOCK_EINVAL, "dlock_inspect needs a callback");
    if (rc == 0) rc = dlock__client_begin(client, err);
    if (rc != 0) return rc;
    char full[DLOCK__FULL_NAME_MAX + 1];
    struct walk walk = {.each = each, .arg = arg, .prefix = strlen(client->uri->prefix)};
    full_name(client, name, full);
    rc = client->backend->inspect ? ask(client, INSPECT, full, NULL, &walk, err)
                                  : unsupported(client, "show who holds a lock", err);
    return dlock__client_end(client, rc);
}

int dlock_list(dlock_client *client, const char *prefix, dlock_each each, void *arg, struct dlock_error *err) {
    if (!prefix || !each)
        return dlock_fail(err, DLOCK_EINVAL, "dlock_list needs a prefix (\"\" for all) and a callback");
    int rc = *prefix ? dlock__name_check(prefix, err) : 0;
    if (rc == 0) rc = dlock__client_begin(client, err);
    if (rc != 0) return rc;
    char full[DLOCK__FULL_NAME_MAX + 1], cursor[256] = "";
    struct walk walk = {.each = each, .arg = arg, .prefix = strlen(client->uri->prefix)};
    full_name(client, prefix, full);
    if (!client->backend->list) {
        rc = unsupported(client, "list locks", err);
    } else {
        do {
            rc = ask(client, LIST, full, cursor, &walk, err);
        } while (rc > 0 && !walk.ended && !client->closed);
        if (rc > 0) rc = walk.ended ? 0 : dlock_fail(err, DLOCK_ECANCELED, "the client was closed during the walk");
    }
    return dlock__client_end(client, rc);
}

int dlock_break(dlock_client *client, const char *name, struct dlock_error *err) {
    int rc = dlock__name_check(name, err);
    if (rc == 0) rc = dlock__client_begin(client, err);
    if (rc != 0) return rc;
    char full[DLOCK__FULL_NAME_MAX + 1];
    full_name(client, name, full);
    if (!client->backend->break_lock)
        rc = unsupported(client, "break locks", err);
    else if ((rc = ask(client, BREAK, full, NULL, NULL, err)) == DLOCK_ELOST)
        rc = dlock_fail(err, DLOCK_EOWNER, "lock \"%s\" is held by nobody", name);
    return dlock__client_end(client, rc);
}

int dlock_check(dlock_client *client, dlock_each_finding each, void *arg, struct dlock_error *err) {
    int rc = each ? dlock__client_begin(client, err) : dlock_fail(err, DLOCK_EINVAL, "dlock_check needs a callback");
    if (rc != 0) return rc;
    struct walk walk = {.each_finding = each, .arg = arg};
    rc = client->backend->check ? ask(client, CHECK, NULL, NULL, &walk, err)
                                : unsupported(client, "look at its server's settings", err);
    if (rc == 0 && !walk.ended && client->uri->password_file)
        dlock__password_check(client->uri->password_file, pass_finding_on, &walk);
    return dlock__client_end(client, rc);
}
