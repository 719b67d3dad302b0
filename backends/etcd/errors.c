/* Refusals and failures as dlock's codes, with advice. */
#include "etcd.h"

/* gRPC's status codes. */
enum { INVALID = 3, NOT_FOUND = 5, DENIED = 7, EXHAUSTED = 8, PRECONDITION = 9, UNKNOWN = 2, UNAUTHENTICATED = 16 };

int etcd_no_memory(struct dlock_error *err) {
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "out of memory for a request to etcd");
}

int etcd_nonsense(const struct etcd *z, const char *what, struct dlock_error *err) {
    dlock_fail(err, DLOCK_EPROTO, "etcd at %s sent an invalid %s", z->address.where, what);
    dlock_doubt(err, "etcd");
    return DLOCK_EPROTO;
}

int etcd_unsettled(const struct etcd *z, struct dlock_error *err) {
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "etcd at %s changes its leader", z->address.where);
}

int etcd_stranger(const struct dlock_http_host *host, struct dlock_error *err) {
    return dlock_fail(
        err, DLOCK_EUNAVAILABLE,
        "etcd at %s is of another cluster than the member before: name the members of one cluster in the URI",
        dlock_http_where(host));
}

int etcd_code(int rc, struct dlock_error *err) {
    if (rc <= 0) return rc;
    if (err) err->code = DLOCK_EPROTO;
    return DLOCK_EPROTO;
}

static bool says(const char *text, const char *words) {
    return strstr(text, words) != NULL;
}

static int judge_precondition(const struct etcd *z, const char *text, struct dlock_error *err) {
    if (says(text, "authentication is not enabled"))
        return dlock_fail(err, DLOCK_EAUTH, "etcd at %s has no users: leave user and password out of the URI",
                          z->address.where);
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "etcd at %s: %.200s", z->address.where, text);
}

static int token_old(const struct etcd *z, struct dlock_error *err) {
    dlock_fail(err, DLOCK_EAUTH, "etcd at %s does not accept this user's token any more", z->address.where);
    return ETCD_TOKEN_OLD;
}

static int judge_argument(const struct etcd *z, const char *text, struct dlock_error *err) {
    if (says(text, "authentication failed"))
        return dlock_fail(err, DLOCK_EAUTH, "etcd at %s refused the user or the password", z->address.where);
    /* The first: users were changed after it had made this token, a JSON Web Token. The second: there was no token. */
    if (says(text, "revision of auth store is old") || says(text, "user name is empty")) return token_old(z, err);
    if (says(text, "too many operations"))
        return dlock_fail(err, DLOCK_EPROTO,
                          "etcd at %s takes too few operations in a transaction: leave --max-txn-ops at 128 or above",
                          z->address.where);
    return dlock_fail(err, DLOCK_EPROTO, "etcd at %s refused a request: %.200s", z->address.where, text);
}

static int judge(const struct etcd *z, int64_t code, const char *text, struct dlock_error *err) {
    const char *where = z->address.where;
    if (code == NOT_FOUND && says(text, "lease not found")) {
        dlock_fail(err, DLOCK_EUNAVAILABLE, "the lease at etcd at %s has ended", where);
        return ETCD_LEASE_GONE;
    }
    if (code == UNAUTHENTICATED) return token_old(z, err);
    if (code == DENIED)
        return dlock_fail(err, DLOCK_EAUTH,
                          "etcd at %s does not let this user work below \"%.100s\": etcdctl role grant-permission ROLE "
                          "--prefix=true readwrite %.100s",
                          where, z->address.base, z->address.base);
    if (code == INVALID) return judge_argument(z, text, err);
    if (code == PRECONDITION) return judge_precondition(z, text, err);
    if (code == EXHAUSTED && says(text, "space exceeded"))
        return dlock_fail(err, DLOCK_EUNAVAILABLE,
                          "etcd at %s has no space left: compact and defragment it, then `etcdctl alarm disarm`",
                          where);
    /* The leader is changing, the member has none, or the server is shutting down: the outcome is unknown. */
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "etcd at %s: %.200s", where, text);
}

bool etcd_settled(const struct etcd_reply *reply) {
    const char *text = etcd_string(reply->root, "error");
    return text && etcd_int(reply->root, "code") == EXHAUSTED &&
           (says(text, "space exceeded") || says(text, "etcdserver: too many requests"));
}

int etcd_refused(const struct etcd *z, long status, const struct etcd_reply *reply, struct dlock_error *err) {
    const json_t *error = json_object_get(reply->root, "error");
    const json_t *body = json_is_object(error) ? error : reply->root; /* an error in a stream is an object */
    const char *text = etcd_string(body, json_is_object(error) ? "message" : "error");
    int64_t code = etcd_int(body, json_is_object(error) ? "grpc_code" : "code");
    if (!text) text = etcd_string(body, "message");
    if (!text || code < 0) {
        /* A proxy says these when it has no answer of a member: the outcome is unknown. */
        int rc = status >= 502 && status <= 504 ? DLOCK_EUNAVAILABLE : DLOCK_EPROTO;
        dlock_fail(err, rc, "etcd at %s answered with HTTP status %ld%s", z->address.where, status,
                   status == 404
                       ? ": there is no JSON gateway, which members have on their clients' port (2379), unless "
                         "--enable-grpc-gateway=false, but neither on their peers' port (2380) nor in a "
                         "grpc-proxy"
                       : "");
        dlock_doubt(err, "etcd");
        return rc;
    }
    return judge(z, code, text, err);
}
