/* Tickets: passes arbitrary texts to dlock_import, unchanged and with the right checksum appended. The first byte is
 * the server's answer to the renewal that takes the grant over: g, it is there; l, it has ended; any other, no answer.
 * A grant that was taken over must survive an export and an import. */
#include "operate.h"

#include <stdlib.h>

static char answer;

static int connects(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                    struct dlock_error *err) {
    (void)conn, (void)uri, (void)peer, (void)timeout_ms, (void)err;
    return 0;
}

static void disconnects(void *conn) {
    (void)conn;
}

static int answers(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    (void)conn, (void)timeout_ms;
    if (answer != 'g' && answer != 'l') return dlock_fail(err, DLOCK_EPROTO, "no answer");
    for (size_t i = 0; i < n; i++) {
        fuzz_check_claim(claims[i]);
        claims[i]->result = answer == 'g' ? 0 : DLOCK_ELOST;
    }
    return 0;
}

static const char *const schemes[] = {"fuzz", NULL};
static const struct dlock_backend backend = {.abi = DLOCK_ABI,
                                             .size = sizeof backend,
                                             .name = "fuzz",
                                             .schemes = schemes,
                                             .caps = DLOCK_CAP_FENCE | DLOCK_CAP_SHARED | DLOCK_CAP_PERMIT |
                                                     DLOCK_CAP_EXPORT,
                                             .conn_size = 1,
                                             .connect = connects,
                                             .disconnect = disconnects,
                                             .acquire = answers,
                                             .renew = answers,
                                             .release = answers};

/* Returns the client, the same for all runs, since opening one starts threads. */
static dlock_client *client(void) {
    static dlock_client *one;
    if (!one &&
        (dlock_register(&backend, NULL) != 0 || dlock_open("fuzz:?prefix=a&timeout=100ms", NULL, &one, NULL) != 0))
        abort();
    return one;
}

static dlock_lock *import(const char *ticket) {
    dlock_lock *untouched = (dlock_lock *)&answer, *lock = untouched;
    struct dlock_error err = {0};
    int rc = dlock_import(client(), ticket, NULL, &lock, &err);
    fuzz_require((rc == 0) == (lock != untouched), "an output on success, and none on failure");
    if (rc != 0) fuzz_check_error(rc, &err);
    return rc == 0 ? lock : NULL;
}

static void check(const char *ticket) {
    char again[DLOCK_TICKET_MAX + 1];
    dlock_lock *lock = import(ticket);
    if (!lock) return;
    fuzz_require(answer == 'g', "a grant that the server has");
    uint64_t fence = dlock_fence(lock);
    if (dlock_export(lock, again, sizeof again, NULL) == 0) {
        dlock_lock *second = NULL;
        /* Beside busy processes the client's `timeout` may be over before it has asked. */
        for (int i = 0; i < 100 && !second; i++) second = import(again);
        fuzz_require(second != NULL, "a ticket of ours is taken");
        fuzz_require(dlock_fence(second) > fence, "a fence that grows");
        dlock_free(second);
    }
    dlock_free(lock);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    char text[DLOCK_TICKET_MAX + 100];
    if (size < 1 || size > DLOCK_TICKET_MAX) return 0;
    answer = (char)data[0];
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    check(text);
    size_t length = strlen(text);
    snprintf(text + length, sizeof text - length, "+%016llx",
             (unsigned long long)dlock_hash(text, length, DLOCK_HASH_SEED));
    check(text);
    return 0;
}
