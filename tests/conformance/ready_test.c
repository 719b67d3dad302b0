/* A recently started server, which may have forgotten grants: it grants nothing during its quarantine, and that does
 * not look like a lock held by another client. With a quarantine of a year any server is young. */
#include "suite.h"

#include <stdlib.h>

#define QUARANTINE_MS (INT64_C(8760) * 3600 * 1000)

static dlock_client *open_young(void) {
    dlock_client *client;
    char *uri = uri_with(suite.uri, "quarantine", "8760h");
    EXPECT_CODE(0, dlock_open(uri, NULL, &client, ERR));
    free(uri);
    return client;
}

static void expect_not_ready(dlock_client *client, const struct dlock_options *options) {
    SCOPED_LOCK *lock = new_lock(client, suite.name, options);
    EXPECT_CODE(0, dlock_ready(lock, ERR)); /* no request was sent */
    EXPECT_CODE(DLOCK_ENOTREADY, dlock_acquire(lock, 0, ERR));
    EXPECT_CODE(DLOCK_ENOTREADY, dlock_acquire_all(&lock, 1, 0, ERR));
    int64_t begun = now_ms();
    EXPECT_CODE(DLOCK_ENOTREADY, dlock_acquire(lock, MOMENT_MS, ERR));
    EXPECT_BETWEEN(MOMENT_MS, MOMENT_MS + SLACK_MS, now_ms() - begun);
    EXPECT_CODE(DLOCK_ENOTREADY, dlock_acquire_all(&lock, 1, MOMENT_MS, ERR));
    EXPECT_CODE(DLOCK_ENOTREADY, dlock_ready(lock, ERR));
    EXPECT(!dlock_held(lock));
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(lock, ERR));
}

void case_quarantine_grants_nothing(void) {
    SCOPED_CLIENT *young = open_young();
    struct dlock_options options = options_for(DLOCK_EXCLUSIVE, 0, LEASE_MS);
    EXPECT(dlock_client_quarantine_ms(young) == QUARANTINE_MS);
    expect_not_ready(young, &options);
    if (suite.caps & DLOCK_CAP_SHARED) {
        options = options_for(DLOCK_SHARED, 0, LEASE_MS);
        expect_not_ready(young, &options);
    }
    if (suite.caps & DLOCK_CAP_PERMIT) {
        options = options_for(DLOCK_PERMIT, 3, LEASE_MS);
        expect_not_ready(young, &options);
    }
    EXPECT_FREE(suite.name); /* the tries and waits have left nothing */
}

/* Another client, for which the server is old enough, is not disturbed by such a client, nor the other way round. */
void case_quarantine_keeps_what_is_granted(void) {
    SCOPED_CLIENT *young = open_young(), *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, NULL), *wanted = new_lock(young, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(lock, PATIENCE_MS, ERR));
    int code = dlock_acquire(wanted, 0, ERR);
    EXPECT(code == DLOCK_EBUSY || code == DLOCK_ENOTREADY); /* it may ask the server, or not */
    EXPECT(dlock_held(lock));
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_CODE(DLOCK_ENOTREADY, dlock_acquire(wanted, MOMENT_MS, ERR));
    EXPECT_CODE(0, dlock_acquire(lock, PATIENCE_MS, ERR));
    EXPECT_CODE(0, dlock_release(lock, ERR));
}
