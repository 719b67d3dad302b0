/* The URI: which servers are the members. */
#include "quorum.h"

#include <stdlib.h>

static size_t count_members(const struct dlock_uri *uri) {
    size_t n = 0;
    for (size_t i = 0; i < uri->n_params; i++) n += strcmp(uri->params[i].key, QUORUM_KEY) == 0;
    return n;
}

/* Refuses equal members, which would be two votes of one server. */
static int check_twice(const struct dlock_uri *uri, struct dlock_error *err) {
    for (size_t i = 0; i < uri->n_params; i++)
        for (size_t j = i + 1; j < uri->n_params; j++)
            if (strcmp(uri->params[i].value, uri->params[j].value) == 0)
                return dlock_fail(err, DLOCK_EINVAL,
                                  "URI: members %zu and %zu of the quorum are the same: each is a server of its own",
                                  i + 1, j + 1);
    return 0;
}

int quorum_accepts(const struct dlock_uri *uri, struct dlock_error *err) {
    const size_t n = count_members(uri);
    if (uri->n_hosts || uri->user || uri->password || uri->path)
        return dlock_fail(err, DLOCK_EINVAL,
                          "URI: a quorum has no hosts, user, password or path of its own: write "
                          "quorum:?of=URI&of=URI&of=URI, each URI percent-encoded");
    if (n < QUORUM_LEAST)
        return dlock_fail(
            err, DLOCK_EINVAL,
            "URI: a quorum has %d members at least, as in quorum:?of=URI&of=URI&of=URI, and this one %zu: "
            "with two, either failure would stop all locking",
            QUORUM_LEAST, n);
    if (n > QUORUM_MOST)
        return dlock_fail(err, DLOCK_EINVAL, "URI: a quorum has %d members at most, and this one %zu", QUORUM_MOST, n);
    return check_twice(uri, err);
}

/* Checks that this server can be a member: each needs every capability that a quorum offers. */
static int check_member(const struct dlock_member *server, size_t nth, struct dlock_error *err) {
    static const uint32_t needs = DLOCK_CAP_SHARED | DLOCK_CAP_INSPECT | DLOCK_CAP_LIST | DLOCK_CAP_BREAK;
    const uint32_t caps = server->backend->caps;
    if (!(caps & DLOCK_CAP_FLOOR))
        return dlock_fail(err, DLOCK_ENOTSUP,
                          "URI: member %zu of the quorum: %s has no fences that can be raised (dlock backends: floor)",
                          nth, server->backend->name);
    if ((caps & needs) != needs)
        return dlock_fail(err, DLOCK_ENOTSUP, "URI: member %zu of the quorum: %s lacks readers, inspect, list or break",
                          nth, server->backend->name);
    if (caps & DLOCK_CAP_SESSION)
        return dlock_fail(err, DLOCK_ENOTSUP, "URI: member %zu of the quorum: grants of %s live in connections", nth,
                          server->backend->name);
    return 0;
}

static int open_member(struct quorum_member *member, const char *uri, size_t nth, const struct dlock_peer *peer,
                       struct dlock_error *err) {
    struct dlock_error why;
    int rc = peer->open_member(peer, uri, &member->server, &why);
    if (rc != 0) return dlock_fail(err, rc, "member %zu of the quorum: %.200s", nth, why.message);
    return check_member(&member->server, nth, err);
}

static int no_memory(struct dlock_error *err) {
    return dlock_fail(err, DLOCK_ENOMEM, "out of memory for the members of the quorum");
}

int quorum_open_members(struct quorum *quorum, const struct dlock_uri *uri, const struct dlock_peer *peer,
                        struct dlock_error *err) {
    size_t greatest = 0;
    int rc = quorum_accepts(uri, err);
    for (size_t i = 0; rc == 0 && i < uri->n_params; i++) {
        struct quorum_member *member = &quorum->members[quorum->n++];
        rc = open_member(member, uri->params[i].value, i + 1, peer, err);
        if (rc != 0) break;
        const size_t size = member->server.backend->conn_size;
        member->conn = calloc(1, size);
        member->ear = calloc(1, size);
        if (!member->conn || !member->ear) rc = no_memory(err);
        if (size > greatest) greatest = size;
    }
    if (rc == 0 && !(quorum->check_conn = calloc(1, greatest))) rc = no_memory(err);
    quorum->majority = quorum->n / 2 + 1;
    return rc;
}

void quorum_close_members(struct quorum *quorum) {
    for (size_t i = 0; i < quorum->n; i++) {
        struct quorum_member *member = &quorum->members[i];
        if (member->server.opened) member->server.close(&member->server);
        free(member->conn);
        free(member->ear);
    }
    free(quorum->check_conn);
}
