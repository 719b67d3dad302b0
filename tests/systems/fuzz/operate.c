#include "operate.h"

#include <dlock/backend_socket.h>
#include <stdio.h>
#include <stdlib.h>

static void no_log(const struct dlock_peer *peer, int level, const char *message) {
    (void)peer;
    (void)level;
    for (const char *p = message; *p; p++) fuzz_require((unsigned char)*p >= 0x20 && *p != 0x7f, "a log of one line");
}

void fuzz_require(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "this must hold, and does not: %s\n", what);
    abort();
}

static void check_text(const char *text, size_t most, const char *what) {
    size_t length = strnlen(text, most + 1);
    fuzz_require(length <= most, what);
    for (size_t i = 0; i < length; i++) fuzz_require((unsigned char)text[i] >= 0x20 && text[i] != 0x7f, what);
}

const struct dlock_uri *fuzz_uri;

/* Every name is 127.0.0.1, and no server moves. */
static int connect_again(const struct dlock_peer *peer, const char *host, int port, dlock_connect *connect, void *conn,
                         int timeout_ms, struct dlock_error *err) {
    union dlock_socket_address unused;
    if (!host) return dlock_fail(err, DLOCK_EUNAVAILABLE, "the servers are where they were");
    const bool is_numeric = dlock_socket_address(NULL, host, 1, &unused) > 0;
    const struct dlock_host announced = {host, is_numeric ? host : "127.0.0.1", port};
    struct dlock_uri uri = *fuzz_uri;
    check_text(host, 255, "an announced host");
    fuzz_require(port > 0 && port < 65536, "its port");
    uri.hosts = &announced;
    uri.n_hosts = 1;
    return connect(conn, &uri, peer, timeout_ms, err);
}

const struct dlock_peer fuzz_peer = {
    .abi = DLOCK_ABI, .client = FUZZ_CLIENT, .log = no_log, .connect_again = connect_again};

void fuzz_check_error(int rc, const struct dlock_error *err) {
    fuzz_require(rc < 0 && strcmp(dlock_strerror(rc), dlock_strerror(-1000)) != 0, "a known code");
    if (err->code != rc) fprintf(stderr, "%d, and the error says: %d %s\n", rc, err->code, err->message);
    fuzz_require(err->code == rc, "an error with the code that was returned");
    fuzz_require(*err->message != '\0', "an error with a message");
    check_text(err->message, sizeof err->message - 1, "an error of one line without control characters");
}

/* ---- claims ------------------------------------------------------------------------------------------------------ */

enum { CLAIMS = 3, FENCE_BITS = 55 };

void fuzz_check_claim(const struct dlock_claim *claim) {
    check_text(claim->name, DLOCK_NAME_MAX + 55, "the name of a claim");
    fuzz_require(*claim->name != '\0', "the name of a claim");
    size_t n = strspn(claim->token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@-");
    fuzz_require(n > 0 && n <= DLOCK_TOKEN_MAX && !claim->token[n], "the token of a claim");
}

struct claims {
    struct dlock_claim claim[CLAIMS];
    struct dlock_claim *list[CLAIMS];
    size_t n;
};

static const char *const names[2][CLAIMS] = {
    {"fuzz", "lock", "some more"},
    {"%{}/*\\ \"", "..",
     "a name of which the bytes \xc3\xa4 \xff are encoded by every server, and that is so long that "
     "some of them cut it, since each such byte then counts three times: \xc3\xa4\xc3\xa4\xc3\xa4"
     "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"}};
static const char *const tokens[CLAIMS] = {FUZZ_CLIENT ".0000000000000001@host:1",
                                           FUZZ_CLIENT ".0000000000000002@host:1",
                                           FUZZ_CLIENT ".0000000000000003@host:1"};

static void claims_begin(struct claims *claims) {
    memset(claims, 0, sizeof *claims);
    claims->n = 1;
    for (size_t i = 0; i < CLAIMS; i++) {
        claims->list[i] = &claims->claim[i];
        claims->claim[i] = (struct dlock_claim){.name = names[0][i], .token = tokens[i], .lease_ms = 10000};
    }
}

static void set_mode(struct claims *claims, enum dlock_mode mode) {
    for (size_t i = 0; i < CLAIMS; i++) {
        claims->claim[i].mode = mode;
        claims->claim[i].limit = mode == DLOCK_PERMIT ? 3 : 0;
    }
}

static void set_names(struct claims *claims) {
    for (size_t i = 0; i < CLAIMS; i++) {
        claims->claim[i].name = names[1][i];
        memset(claims->claim[i].state, 0, sizeof claims->claim[i].state);
    }
}

static void check_result(const struct dlock_claim *claim, char step) {
    fuzz_require(claim->result <= 0, "a result that is no success and no error");
    fuzz_require(claim->server_us >= 0, "the server's clock");
    if (claim->result == 0 && step != 'F') fuzz_require(claim->kept_ms > 0, "how long a grant is kept");
    if (claim->result == 0 && step == 'A')
        fuzz_require(claim->fence > 0 && claim->fence >> FENCE_BITS == 0, "the fence of a grant");
    if (claim->result == DLOCK_EBUSY || claim->result == DLOCK_ENOTREADY)
        fuzz_require(step == 'A' && claim->retry_ms >= -1 && claim->ready_ms >= -1, "when to ask again");
    if (step != 'A') return;
    static const int known[] = {
        0, DLOCK_EBUSY, DLOCK_ENOTREADY, DLOCK_EINVAL, DLOCK_ENOTSUP, DLOCK_EUNAVAILABLE, DLOCK_EPROTO, DLOCK_EAUTH};
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) found = found || claim->result == known[i];
    fuzz_require(found, "a result that acquire may have");
}

/* Runs an operation on all claims. Returns 0, or the error that ends the connection. */
static int run_batch(dlock_batch *batch, void *conn, struct claims *claims, char step) {
    struct dlock_error err = {0};
    for (size_t i = 0; i < claims->n; i++) {
        struct dlock_claim *claim = &claims->claim[i];
        claim->result = DLOCK_EPROTO;
        claim->fence = 0;
        claim->server_us = 0;
        claim->kept_ms = claim->lease_ms;
        claim->retry_ms = claim->ready_ms = -1;
        claim->hints = 0;
    }
    int rc = batch(conn, claims->list, claims->n, FUZZ_TIMEOUT_MS, &err);
    if (rc != 0) {
        fuzz_check_error(rc, &err);
        fuzz_require(rc == DLOCK_EUNAVAILABLE || rc == DLOCK_EPROTO || rc == DLOCK_EAUTH,
                     "a code that speaks of a connection");
        return rc;
    }
    for (size_t i = 0; i < claims->n; i++) check_result(&claims->claim[i], step);
    if (err.code) fuzz_check_error(err.code, &err);
    return 0;
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

static int check_info(const struct dlock_info *info, void *arg) {
    unsigned *shown = arg;
    check_text(info->name, DLOCK_NAME_MAX + 55, "a holder's name");
    fuzz_require(*info->name != '\0', "a holder's name");
    check_text(info->token, DLOCK_TOKEN_MAX, "a holder's token");
    fuzz_require(info->mode >= DLOCK_EXCLUSIVE && info->mode <= DLOCK_PERMIT, "a holder's mode");
    fuzz_require(info->fence >> FENCE_BITS == 0 && info->remaining_ms >= -1, "a holder's numbers");
    return ++*shown == 8; /* 8 are enough */
}

static int check_finding(const struct dlock_finding *finding, void *arg) {
    (void)arg;
    fuzz_require(finding->what && *finding->what, "a finding that says what it is");
    check_text(finding->what, 4096, "a finding of one line");
    if (finding->advice) check_text(finding->advice, 4096, "advice of one line");
    return 0;
}

void fuzz_check_wake(const struct dlock_wake *wake, bool alone) {
    fuzz_require(wake->kind >= DLOCK_WAKE_LOOK && wake->kind <= DLOCK_WAKE_HEARD, "a known kind of wake-up");
    if (wake->name) check_text(wake->name, DLOCK_NAME_MAX + 55, "a wake-up's name");
    if (wake->name) fuzz_require(*wake->name != '\0', "a wake-up's name");
    if (wake->kind != DLOCK_WAKE_GRANTED) return;
    fuzz_require(alone || (wake->name && wake->token), "a grant that says of what");
    if (wake->token) fuzz_require(strlen(wake->token) <= DLOCK_TOKEN_MAX, "a grant's token");
    if (wake->token) fuzz_require(strncmp(wake->token, FUZZ_CLIENT, 24) == 0, "a grant to this client");
    if (wake->fence == 0) return; /* a reason to ask, and no more */
    fuzz_require(wake->fence >> FENCE_BITS == 0, "a grant's fence");
    fuzz_require(wake->kept_ms > 0 && wake->server_us >= 0, "a grant's times");
}

static int listen_and_wake(const struct dlock_backend *backend, void *conn, bool probe) {
    struct dlock_error err = {0};
    struct dlock_wake wake;
    int rc = 0, fd = -1;
    if (probe && backend->probe) rc = backend->probe(conn, &err);
    if (!probe && backend->listen) rc = backend->listen(conn, &fd, FUZZ_TIMEOUT_MS, &err);
    for (int i = 0; rc == 0 && i < 1000 && backend->wake; i++) {
        memset(&wake, 0, sizeof wake);
        rc = backend->wake(conn, &wake, &err);
        if (rc != 1) break;
        fuzz_check_wake(&wake, !(backend->caps & DLOCK_CAP_WAKE));
        rc = 0;
    }
    if (rc != 0) fuzz_check_error(rc, &err);
    return rc;
}

static int list_pages(const struct dlock_backend *backend, void *conn) {
    struct dlock_error err = {0};
    char cursor[256] = "";
    unsigned shown = 0;
    int rc = 1;
    for (int page = 0; rc == 1 && page < 5; page++) {
        rc = backend->list(conn, page % 2 ? "" : "f", cursor, check_info, &shown, FUZZ_TIMEOUT_MS, &err);
        fuzz_require(memchr(cursor, '\0', sizeof cursor) != NULL, "a cursor that ends");
        fuzz_require(rc <= 1, "a page, or an error");
    }
    if (rc < 0) fuzz_check_error(rc, &err);
    return rc < 0 ? rc : 0;
}

/* Runs one of the operations for operators. Returns 0, or the error that ends the connection. */
static int look(const struct dlock_backend *backend, void *conn, const char *name, char step) {
    struct dlock_error err = {0};
    unsigned shown = 0;
    int rc = 0;
    if (step == 'L') return backend->list ? list_pages(backend, conn) : 0;
    if (step == 'I' && backend->inspect) rc = backend->inspect(conn, name, check_info, &shown, FUZZ_TIMEOUT_MS, &err);
    if (step == 'B' && backend->break_lock) rc = backend->break_lock(conn, name, FUZZ_TIMEOUT_MS, &err);
    if (step == 'C' && backend->check) rc = backend->check(conn, check_finding, NULL, FUZZ_TIMEOUT_MS, &err);
    if (rc != 0) fuzz_check_error(rc, &err);
    return rc == DLOCK_EUNAVAILABLE || rc == DLOCK_EPROTO ? rc : 0;
}

size_t fuzz_script(const unsigned char **data, size_t *size, char script[32]) {
    const unsigned char *end = *size ? memchr(*data, '\n', *size < 32 ? *size : 32) : NULL;
    size_t length = end ? (size_t)(end - *data) : 0;
    if (length) memcpy(script, *data, length);
    script[length] = '\0';
    if (!end) return 0;
    *data += length + 1;
    *size -= length + 1;
    return length;
}

void fuzz_operate(const struct dlock_backend *backend, void *conn, const char *script) {
    struct claims claims;
    int rc = 0;
    claims_begin(&claims);
    for (; *script && rc == 0; script++) switch (*script) {
        case 'e': set_mode(&claims, DLOCK_EXCLUSIVE); break;
        case 's': set_mode(&claims, DLOCK_SHARED); break;
        case 'p': set_mode(&claims, DLOCK_PERMIT); break;
        case 'n': set_names(&claims); break;
        case '1':
        case '2':
        case '3': claims.n = (size_t)(*script - '0'); break;
        case 'q':
            for (size_t i = 0; i < CLAIMS; i++) claims.claim[i].flags |= DLOCK_CLAIM_QUEUE | DLOCK_CLAIM_LINGER;
            break;
        case 'A': rc = run_batch(backend->acquire, conn, &claims, 'A'); break;
        case 'R': rc = run_batch(backend->renew, conn, &claims, 'R'); break;
        case 'F': rc = run_batch(backend->release, conn, &claims, 'F'); break;
        case 'W': rc = listen_and_wake(backend, conn, false); break;
        case 'P': rc = listen_and_wake(backend, conn, true); break;
        default: rc = look(backend, conn, claims.claim[0].name, *script);
        }
}

bool fuzz_tells(const unsigned char *data, size_t size) {
    return memmem(data, size, FUZZ_PASSWORD, strlen(FUZZ_PASSWORD)) != NULL;
}

void fuzz_connected(const struct dlock_backend *backend, void *conn, int rc, const struct dlock_error *err, bool told,
                    const char *script) {
    if (rc == 0)
        fuzz_operate(backend, conn, script);
    else
        fuzz_check_error(rc, err);
    fuzz_require(told || !strstr(err->message, FUZZ_PASSWORD), "no password in an error");
    backend->disconnect(conn);
}
