/* Showing locks, and breaking them: for operators. */
#include "api/api.h"

#include <string.h>

struct question {
    const struct dlock_client *client;
    enum { INSPECT, LIST, CHECK, BREAK, WAITERS } kind;
    char text[DLOCK_FULL_NAME_MAX + 1]; /* a name or a prefix of names, beginning with the client's prefix */
    char cursor[256];
    size_t prefix;   /* length of the client's prefix, in front of every name */
    dlock_each each; /* the callback; for CHECK each_finding */
    dlock_each_finding each_finding;
    void *arg;
    size_t seen;
    bool ended; /* the callback has ended the walk */
};

/* By question->kind. */
static const struct kind {
    const char *operation; /* the backend's */
    uint32_t cap;
    const char *lacks; /* what a backend without it cannot do */
} kinds[] = {
    [INSPECT] = {"inspect", DLOCK_CAP_INSPECT, "cannot show who holds a lock"},
    [LIST] = {"list", DLOCK_CAP_LIST, "cannot list locks"},
    [CHECK] = {"check", 0, "cannot look at its server's settings"},
    [BREAK] = {"break_lock", DLOCK_CAP_BREAK, "cannot break locks"},
    [WAITERS] = {"waiters", 0, "cannot show who waits"},
};

static int pass_on(const struct dlock_info *info, void *arg) {
    struct question *question = arg;
    if (question->ended) return 1;
    struct dlock_info shown = *info;
    shown.size = sizeof shown;
    if (strlen(shown.name) < question->prefix) return 0;
    shown.name += question->prefix;
    shown.fence <<= 8; /* as dlock_fence shows it; the holder's ordinal is not known here */
    if (!shown.token) shown.token = "";
    struct dlock_face face;
    dlock_token_face(shown.token, &face);
    shown.host = face.host;
    shown.pid = face.pid;
    shown.label = face.label;
    if (shown.held_ms <= 0) shown.held_ms = -1;
    question->seen++;
    question->ended = question->each(&shown, question->arg) != 0 || dlock__forked(question->client);
    return question->ended;
}

static int pass_finding_on(const struct dlock_finding *finding, void *arg) {
    struct question *question = arg;
    if (question->ended) return 1;
    struct dlock_finding shown = *finding;
    shown.size = sizeof shown;
    question->seen++;
    question->ended = question->each_finding(&shown, question->arg) != 0 || dlock__forked(question->client);
    return question->ended;
}

/* Begins the call. Returns 0 with the mutex held, or an error without. */
static int begin(struct dlock_client *client, struct question *question, const char *text, struct dlock_error *err) {
    int rc = dlock__client_begin(client, err);
    if (rc != 0) return rc;
    const struct dlock_backend *backend = client->backend;
    const struct kind *kind = &kinds[question->kind];
    const bool can[] = {backend->inspect, backend->list, backend->check, backend->break_lock, backend->waiters};
    if (!can[question->kind])
        return dlock__client_end(client, dlock__not_supported(client, kind->cap, kind->lacks, err));
    question->client = client;
    question->prefix = strlen(client->uri->prefix);
    stpcpy(stpcpy(question->text, client->uri->prefix), text);
    return 0;
}

/* Sends one request. Without the mutex. */
static int send_question(struct dlock__conn *conn, struct question *question, int64_t deadline_us,
                         struct dlock_error *err) {
    const struct dlock_backend *backend = conn->client->backend;
    int timeout_ms = dlock__timeout_ms(dlock__now_us(), deadline_us);
    switch (question->kind) {
    case INSPECT: return backend->inspect(conn->data, question->text, pass_on, question, timeout_ms, err);
    case LIST: return backend->list(conn->data, question->text, question->cursor, pass_on, question, timeout_ms, err);
    case WAITERS: return backend->waiters(conn->data, question->text, pass_on, question, timeout_ms, err);
    case CHECK: return backend->check(conn->data, pass_finding_on, question, timeout_ms, err);
    case BREAK: break;
    }
    return backend->break_lock(conn->data, question->text, timeout_ms, err);
}

/* As send_question(). A number that is no code is EPROTO, except for 1 after a page that is not the last; so is a page
 * that does not say where the next one begins, or the walk would not end. */
static int put(struct dlock__conn *conn, struct question *question, int64_t deadline_us, struct dlock_error *err) {
    char before[sizeof question->cursor];
    memcpy(before, question->cursor, sizeof before);
    int rc = send_question(conn, question, deadline_us, err);
    if (rc == 1 && question->kind == LIST && memcmp(before, question->cursor, sizeof before) == 0)
        return dlock_fail(err, DLOCK_EPROTO, "backend %s: list gave the same cursor again",
                          conn->client->backend->name);
    if (rc <= (question->kind == LIST) && rc >= DLOCK_ENOTREADY) return rc;
    return dlock_fail(err, DLOCK_EPROTO, "backend %s: %s returned %d", conn->client->backend->name,
                      kinds[question->kind].operation, rc);
}

/* True if the failure ends the connection. The one connection of a THREADSAFE backend does not end while acquisitions
 * depend on it: their own requests find out whether it lives, and a request without an answer does not prove that it is
 * dead. */
static bool shows_end(struct dlock_client *client, int rc) {
    if (rc != DLOCK_EUNAVAILABLE && rc != DLOCK_EPROTO) return false;
    return !dlock__can(client, DLOCK_CAP_THREADSAFE) || !dlock__connection_is_needed(client);
}

/* Asks the server. The caller holds the mutex, which is left in between. An idle connection may have died unnoticed, so
 * the first failure is not final as long as nothing was shown. A break may have been carried out, though: the second
 * one would end the next holder's grant. */
static int ask(struct dlock_client *client, struct question *question, int64_t deadline_us, struct dlock_error *err) {
    for (bool again = true;; again = false) {
        struct dlock__conn *conn;
        struct dlock_error own;
        own.code = 0;
        int rc = dlock__pool_take(client, deadline_us, &conn, &own);
        if (rc == 0) {
            dlock__leave(client);
            rc = put(conn, question, deadline_us, &own);
            dlock__enter(client);
            if (dlock__forked(client)) return dlock__forked_error(err); /* in the callback: `conn` is the parent's */
            if (rc >= 0) dlock__stats_answered(client);
            dlock__pool_give(conn, shows_end(client, rc) ? rc : 0);
            if (rc == DLOCK_EUNAVAILABLE && again && question->seen == 0 && question->kind != BREAK) continue;
        }
        if (rc < 0 && own.code != rc) dlock_fail(&own, rc, "%s", dlock_strerror(rc));
        if (rc < 0 && err) *err = own;
        return rc;
    }
}

static int ask_about(dlock_client *client, struct question *question, const char *name, struct dlock_error *err) {
    int rc = question->each ? dlock__name_check(name, err) : dlock_fail(err, DLOCK_EINVAL, "a callback is needed");
    if (rc == 0) rc = begin(client, question, name, err);
    return rc == 0 ? dlock__client_end(client, ask(client, question, dlock__bounded(client, DLOCK__NEVER), err)) : rc;
}

int dlock_inspect(dlock_client *client, const char *name, dlock_each each, void *arg, struct dlock_error *err) {
    return ask_about(client, &(struct question){.kind = INSPECT, .each = each, .arg = arg}, name, err);
}

int dlock_waiters(dlock_client *client, const char *name, dlock_each each, void *arg, struct dlock_error *err) {
    return ask_about(client, &(struct question){.kind = WAITERS, .each = each, .arg = arg}, name, err);
}

int dlock_list(dlock_client *client, const char *prefix, dlock_each each, void *arg, struct dlock_error *err) {
    struct question question = {.kind = LIST, .each = each, .arg = arg};
    if (!prefix || !each)
        return dlock_fail(err, DLOCK_EINVAL, "dlock_list needs a prefix (\"\" for all) and a callback");
    int rc = *prefix ? dlock__name_check(prefix, err) : 0;
    if (rc == 0) rc = begin(client, &question, prefix, err);
    if (rc != 0) return rc;
    do {
        rc = ask(client, &question, dlock__bounded(client, DLOCK__NEVER), err);
    } while (rc > 0 && !question.ended && !client->closed);
    if (rc > 0) rc = question.ended ? 0 : dlock_fail(err, DLOCK_ECANCELED, "the client was closed during the walk");
    return dlock__client_end(client, rc);
}

static int ignore(const struct dlock_info *info, void *arg) {
    (void)info, (void)arg;
    return 1;
}

/* Replaces an idle connection that has died, by a question that may be repeated. */
static int refresh(struct dlock_client *client, const struct question *question, int64_t deadline_us,
                   struct dlock_error *err) {
    struct question look = *question;
    if (!client->backend->inspect) return 0;
    look.kind = INSPECT;
    look.each = ignore;
    return ask(client, &look, deadline_us, err);
}

int dlock_break(dlock_client *client, const char *name, struct dlock_error *err) {
    struct question question = {.kind = BREAK};
    struct dlock_error why;
    int rc = dlock__name_check(name, err);
    if (rc == 0) rc = begin(client, &question, name, err);
    if (rc != 0) return rc;
    int64_t deadline_us = dlock__bounded(client, DLOCK__NEVER);
    rc = refresh(client, &question, deadline_us, &why);
    if (rc == DLOCK_EUNAVAILABLE) { /* other failures, as of a user who may not look, say nothing about the break */
        if (err) *err = why;
        return dlock__client_end(client, rc);
    }
    rc = ask(client, &question, deadline_us, &why);
    if (rc == DLOCK_ELOST)
        rc = dlock_fail(err, DLOCK_EOWNER, "lock \"%s\" is held by nobody", name);
    else if (rc == DLOCK_EUNAVAILABLE)
        dlock_fail(err, rc, "lock \"%s\" may have been broken, look who holds it before you repeat that: %s", name,
                   why.message);
    else if (rc != 0 && err)
        *err = why;
    return dlock__client_end(client, rc);
}

int dlock_check(dlock_client *client, dlock_each_finding each, void *arg, struct dlock_error *err) {
    struct question question = {.kind = CHECK, .each_finding = each, .arg = arg};
    if (!each) return dlock_fail(err, DLOCK_EINVAL, "dlock_check needs a callback");
    int rc = begin(client, &question, "", err);
    if (rc != 0) return rc;
    rc = ask(client, &question, dlock__bounded(client, DLOCK__NEVER), err);
    if (rc == 0 && !question.ended && client->uri->password_file)
        dlock__password_check(client->uri->password_file, pass_finding_on, &question);
    return dlock__client_end(client, rc);
}
