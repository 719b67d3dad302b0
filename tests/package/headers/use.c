/* Uses of the public headers by an application and a backend, in C and in C++. It does not link dlock. */
#include "use.h"

#include <dlock/backend.h>

/* Included twice, in this order: neither needs something before it, both are guarded. */
#include <dlock/backend.h>
#include <dlock/dlock.h>

#define CHECK(condition) \
    if (!(condition)) return __LINE__

static int use_inits(void) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    struct dlock_client_options client = DLOCK_CLIENT_OPTIONS_INIT;
    CHECK(options.size == sizeof(struct dlock_options));
    CHECK(options.mode == DLOCK_EXCLUSIVE && options.owner == DLOCK_OWNER_THREAD);
    CHECK(options.limit == 0 && options.flags == 0 && options.lease_ms == 0);
    CHECK(options.on_lost == NULL && options.on_lost_arg == NULL);
    CHECK(client.size == sizeof(struct dlock_client_options));
    CHECK(client.flags == 0 && client.log == NULL && client.log_arg == NULL);
    return 0;
}

static int use_fail(void) {
    struct dlock_error err;
    CHECK(dlock_fail(&err, DLOCK_EPROTO, "%s %d", "answer", 7) == DLOCK_EPROTO);
    CHECK(err.code == DLOCK_EPROTO && strcmp(err.message, "answer 7") == 0);
    CHECK(dlock_fail(NULL, DLOCK_EAUTH, "nobody reads this") == DLOCK_EAUTH);
    CHECK(dlock_fail(&err, DLOCK_EINVAL, "%600s", "cut") == DLOCK_EINVAL);
    CHECK(strlen(err.message) == sizeof err.message - 1);
    return 0;
}

static int use_uri(void) {
    const struct dlock_param params[] = {{"a", "1"}, {"b", ""}, {"a", "2"}};
    struct dlock_uri uri;
    memset(&uri, 0, sizeof uri);
    uri.params = params;
    uri.n_params = 3;
    CHECK(strcmp(dlock_uri_get(&uri, "a"), "1") == 0);
    CHECK(strcmp(dlock_uri_get(&uri, "b"), "") == 0);
    CHECK(dlock_uri_get(&uri, "c") == NULL);
    return 0;
}

static int use_encode_name(void) {
    char a[64], b[64], shorter[96];
    char name[201];
    dlock_encode_name(a, sizeof a, "a/b%\n{x}", "/{}", false);
    CHECK(strcmp(a, "a%2Fb%25%0A%7Bx%7D") == 0);
    dlock_encode_name(a, sizeof a, "\xc3\xbc", "", false);
    CHECK(strcmp(a, "\xc3\xbc") == 0);
    dlock_encode_name(a, sizeof a, "\xc3\xbc", "", true);
    CHECK(strcmp(a, "%C3%BC") == 0);
    memset(name, 'x', 200);
    name[63] = '\0';
    dlock_encode_name(a, sizeof a, name, "", false);
    CHECK(strcmp(a, name) == 0);
    /* One byte too long: cut, and distinct from another one that is cut at the same place. */
    name[63] = 'x';
    name[64] = '\0';
    dlock_encode_name(a, sizeof a, name, "", false);
    name[63] = 'y';
    dlock_encode_name(b, sizeof b, name, "", false);
    CHECK(strlen(a) == 63 && a[46] == '~' && strlen(b) == 63 && memcmp(a, b, 47) == 0 && strcmp(a, b) != 0);
    /* Never in the middle of an encoded byte. */
    memset(name, '\x01', 200);
    name[200] = '\0';
    dlock_encode_name(shorter, sizeof shorter, name, "", false);
    CHECK(strlen(shorter) < sizeof shorter && strchr(shorter, '~') == shorter + 78);
    return 0;
}

int use_all(void) {
    int line = use_inits();
    if (!line) line = use_fail();
    if (!line) line = use_uri();
    if (!line) line = use_encode_name();
    return line;
}

/* ---- a backend, declared and defined ----------------------------------------------------------------------------- */

static int nil_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                       struct dlock_error *err) {
    (void)conn, (void)uri, (void)peer, (void)timeout_ms;
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "there is no server");
}

static void nil_disconnect(void *conn) {
    (void)conn;
}

static int nil_batch(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    (void)conn, (void)timeout_ms, (void)err;
    for (size_t i = 0; i < n; i++) claims[i]->result = DLOCK_ELOST;
    return DLOCK_OK;
}

static const char *const nil_schemes[] = {"nil", NULL};

DLOCK_BACKEND(nil) = {DLOCK_ABI,
                      sizeof(struct dlock_backend),
                      "nil",
                      nil_schemes,
                      NULL,
                      0,
                      1,
                      nil_connect,
                      nil_disconnect,
                      nil_batch,
                      nil_batch,
                      nil_batch,
                      NULL,
                      NULL,
                      NULL,
                      NULL,
                      NULL,
                      NULL,
                      NULL,
                      NULL,
                      NULL,
                      NULL,
                      NULL,
                      NULL,
                      NULL,
                      NULL};
