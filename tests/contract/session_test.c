/* What a connection's end does to its grants, and who may log in. */
#include "contract/contract.h"

#include <stdlib.h>

/* SESSION: its end frees all that was granted over it. */
static void ending_the_connection_frees(void) {
    struct grant mine, theirs;
    grant_new(&mine, 3, suite.name);
    grant_new(&theirs, 1, suite.name);
    GRANTED(acquire(&mine));
    BUSY(acquire(&theirs));
    client_dies(3);
    for (int64_t until = now_ms() + PATIENCE_MS / 2; acquire(&theirs) == DLOCK_EBUSY; sleep_ms(20))
        EXPECT(now_ms() < until);
    EXPECT_CODE(0, theirs.claim.result);
    EXPECT(theirs.claim.fence > mine.claim.fence);
    GRANTED(release(&theirs));
}

/* Not SESSION: it frees nothing; another connection renews and releases. */
static void ending_the_connection_frees_nothing(void) {
    struct grant mine, theirs;
    grant_new(&mine, 3, suite.name);
    grant_new(&theirs, 1, suite.name);
    GRANTED(acquire(&mine));
    client_dies(3);
    BUSY(acquire(&theirs));
    GRANTED(renew(&mine));
    GRANTED(release(&mine));
    GRANTED(acquire(&theirs));
    GRANTED(release(&theirs));
}

/* A connection may be all zeros, or its `connect` may have failed: ending it does no harm. */
static void ending_what_never_began(void) {
    void *conn = calloc(1, backend->conn_size);
    EXPECT(conn);
    if (backend->abandon) backend->abandon(conn);
    backend->disconnect(conn);
    free(conn);
}

/* The process that made the claim is dead: freed by name and token, where that is possible. */
static void of_the_dead(void) {
    struct grant mine, dead, theirs;
    if (can(DLOCK_CAP_LOCAL)) return; /* there the end of its connection frees it */
    grant_new(&mine, 0, suite.name);
    grant_new(&theirs, 1, suite.name);
    GRANTED(acquire(&mine));
    grant_copy(&dead, &mine, false);
    if (request_on(line_of(1), DLOCK_RELEASE, &dead, DLOCK_CLAIM_DEAD) == DLOCK_ENOTSUP) { /* the kernel frees it */
        GRANTED(release(&mine));
        return;
    }
    EXPECT_CODE(0, dead.claim.result);
    GRANTED(await_free(&theirs));
    LOST(renew(&mine));
    LOST(release(&mine));
    GRANTED(renew(&theirs));
    GRANTED(release(&theirs));
}

static void a_connection_serves_one_after_the_other(void) {
    struct grant grant;
    for (int i = 0; i < 5; i++) {
        grant_new(&grant, 0, suite.name);
        GRANTED(acquire(&grant));
        GRANTED(renew(&grant));
        GRANTED(release(&grant));
    }
}

/* Two claims of one client. */
static void connections_exclude_each_other(void) {
    struct grant one, two, other;
    char name[DLOCK_NAME_MAX + 1];
    tagged_name(name, "other");
    grant_new(&one, 0, suite.name);
    grant_new(&two, 0, suite.name);
    grant_new(&other, 0, name);
    GRANTED(acquire(&one));
    BUSY(acquire(&two));
    GRANTED(acquire(&other));
    GRANTED(renew(&one));
    GRANTED(renew(&other));
    GRANTED(release(&one));
    GRANTED(acquire(&two));
    GRANTED(release(&other));
    GRANTED(release(&two));
}

/* The URI's password, if it has one, with more to it. */
static void a_wrong_password_is_told(void) {
    const char *authority = strstr(suite.uri, "://"), *at = authority ? strpbrk(authority + 3, "@/?") : NULL;
    const char *colon = authority ? strchr(authority + 3, ':') : NULL;
    if (!at || *at != '@' || !colon || colon > at) return;
    char *uri = malloc(strlen(suite.uri) + 10);
    dlock_client *client;
    EXPECT(uri);
    sprintf(uri, "%.*swrong%s", (int)(at - suite.uri), suite.uri, at);
    EXPECT_CODE(DLOCK_EAUTH, dlock_open(uri, NULL, &client, ERR));
    if (strstr(last_error.message, "wrong@")) FAIL("the password is shown: %s", last_error.message);
    free(uri);
}

const struct contract_case contract_session[] = {
    PROMISE(ending_the_connection_frees, DLOCK_CAP_SESSION),
    PROMISE(ending_the_connection_frees_nothing, NEEDS_LEASES),
    PROMISE(ending_what_never_began, 0),
    PROMISE(of_the_dead, DLOCK_CAP_SESSION),
    PROMISE(a_connection_serves_one_after_the_other, 0),
    PROMISE(connections_exclude_each_other, 0),
    PROMISE(a_wrong_password_is_told, 0),
    {0},
};
