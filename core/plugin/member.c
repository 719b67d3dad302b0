/* Servers that a backend uses through other backends. A member may outlive the client, since a thread of the using
 * backend may be in a request while the client is closed. So nothing here refers to a client. */
#include "base/env.h"
#include "plugin/server.h"

#include <stdlib.h>

struct member {
    struct dlock__server server;
    struct dlock_peer peer;
    char client[25], prefix[DLOCK_FULL_NAME_MAX + 1];
    char where[200];
};

/* Drops what the member's backend logs: it is meant for the administrator of a single server. The backend that uses the
 * member reports the member's state itself. */
static void no_log(const struct dlock_peer *peer, int level, const char *message) {
    (void)peer, (void)level, (void)message;
}

/* Refuses keys that concern the client as a whole: in a member's URI they would be silently ignored. */
static int check_keys(const struct dlock__uri *uri, struct dlock_error *err) {
    static const char *const kept[] = {"quarantine", "password_file", NULL};
    for (size_t i = 0; dlock__uri_common_keys[i]; i++) {
        const char *key = dlock__uri_common_keys[i];
        bool allowed = strcmp(key, kept[0]) == 0 || strcmp(key, kept[1]) == 0;
        if (!allowed && uri->common_seen & 1U << i)
            return dlock_fail(
                err, DLOCK_EINVAL,
                "\"%s\" is not a key of a member's URI: write it at the end of the whole URI, for all members", key);
    }
    return 0;
}

/* Refuses a quarantine that is shorter than the leases, which the whole's covers: the member would vote anew while a
 * grant that it has forgotten goes on. 0 says that it forgets none. */
static int check_quarantine(const struct dlock__server *server, int64_t whole_ms, struct dlock_error *err) {
    char own[32], whole[32];
    int64_t own_ms = server->uri->quarantine_ms;
    if (own_ms <= 0 || own_ms >= whole_ms || !(server->module->ops.caps & DLOCK_CAP_VOLATILE)) return 0;
    return dlock_fail(
        err, DLOCK_EINVAL,
        "quarantine=%s in a member's URI is shorter than that of the whole, %s: leave it out, or write 0 if "
        "this server forgets nothing",
        dlock_duration_text(own, own_ms), dlock_duration_text(whole, whole_ms));
}

/* Refuses passwords in a member's URI: the client's URI is shown, and passed to other processes, with only its own
 * secrets removed, not those of its members. */
static int check_secrets(const char *text, struct dlock_error *err) {
    size_t size = strlen(text) + 1;
    char *bare = malloc(size);
    if (!bare) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for a member");
    int rc = dlock_uri_without_secrets(text, bare, size, err);
    if (rc == 0 && strcmp(bare, text) != 0)
        rc = dlock_fail(err, DLOCK_EINVAL, "a member's password must be in a file: write password_file=/path");
    explicit_bzero(bare, size);
    free(bare);
    return rc;
}

static int connect_to(const struct member *member, const char *host, int port, dlock_connect *connect, void *conn,
                      int timeout_ms, struct dlock_error *err) {
    int64_t deadline_us = dlock__now_us() + (int64_t)timeout_ms * 1000;
    return dlock__server_connect(&member->server, host, port, true, connect, &member->peer, conn, deadline_us, err);
}

static int member_connect(const struct dlock_member *out, void *conn, int timeout_ms, struct dlock_error *err) {
    const struct member *member = out->opened;
    return connect_to(member, NULL, 0, member->server.module->ops.connect, conn, timeout_ms, err);
}

static int connect_again(const struct dlock_peer *peer, const char *host, int port, dlock_connect *connect, void *conn,
                         int timeout_ms, struct dlock_error *err) {
    const struct member *member =
        (const struct member *)(const void *)((const char *)peer - offsetof(struct member, peer));
    return connect_to(member, host, port, connect, conn, timeout_ms, err);
}

static void member_close(struct dlock_member *out) {
    struct member *member = out->opened;
    if (!member) return;
    dlock__server_close(&member->server);
    free(member);
    out->opened = NULL;
}

int dlock__member_open(const struct dlock_peer *peer, const char *uri, struct dlock_member *out,
                       struct dlock_error *err) {
    struct member *member = calloc(1, sizeof *member);
    if (!member) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for a member");
    int rc = dlock__server_open(uri, &member->server, err);
    if (rc == 0) rc = check_keys(member->server.uri, err);
    if (rc == 0) rc = check_secrets(uri, err);
    if (rc == 0) rc = check_quarantine(&member->server, peer->quarantine_ms, err);
    *out = (struct dlock_member){.opened = member, .connect = member_connect, .close = member_close};
    if (rc != 0) {
        member_close(out);
        return rc;
    }
    snprintf(member->client, sizeof member->client, "%s", peer->client);
    snprintf(member->prefix, sizeof member->prefix, "%s", peer->prefix);
    int64_t own_ms = member->server.uri->quarantine_ms;
    member->peer = (struct dlock_peer){.abi = DLOCK_ABI,
                                       .client = member->client,
                                       .quarantine_ms = own_ms < 0 ? peer->quarantine_ms : own_ms,
                                       .prefix = member->prefix,
                                       .log = no_log,
                                       .open_member = dlock__member_open,
                                       .connect_again = connect_again};
    dlock__uri_where(member->server.uri, member->where, sizeof member->where);
    out->backend = &member->server.module->ops;
    out->where = member->where;
    return 0;
}
