/* Options of a client that are refused, and what a backend lacks is reported. */
#include "suite.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void expect_refused(dlock_client *client, int wanted, const struct dlock_options *options) {
    dlock_lock *lock = NULL;
    EXPECT_CODE(wanted, dlock_new(client, suite.name, options, &lock, ERR));
    EXPECT(lock == NULL);
}

void case_client_options_refused(void) {
    SCOPED_CLIENT *client = NULL;
    struct {
        struct dlock_client_options known;
        char later[16];
    } longer = {DLOCK_CLIENT_OPTIONS_INIT, {0}};
    longer.known.size = sizeof longer;
    longer.later[9] = 1;
    EXPECT_CODE(DLOCK_EINVAL, dlock_open(suite.uri, &longer.known, &client, ERR));
    longer.later[9] = 0;
    longer.known.size = sizeof longer.known - 1;
    EXPECT_CODE(DLOCK_EINVAL, dlock_open(suite.uri, &longer.known, &client, ERR));
    longer.known.size = sizeof longer;
    longer.known.flags = 0x40000000u;
    EXPECT_CODE(DLOCK_EINVAL, dlock_open(suite.uri, &longer.known, &client, NULL));
    EXPECT(client == NULL);
    longer.known.flags = DLOCK_CLIENT_LAZY;
    EXPECT_CODE(0, dlock_open(suite.uri, &longer.known, &client, ERR));
    SCOPED_LOCK *lock = new_lock(client, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    EXPECT_CODE(DLOCK_ENOTSUP, dlock_client_fd(client));
    EXPECT_CODE(DLOCK_ENOTSUP, dlock_client_dispatch(client));
    EXPECT_CODE(DLOCK_EINVAL, dlock_client_guard(client, getpgrp(), ERR));
    EXPECT_CODE(DLOCK_EINVAL, dlock_client_guard(client, -1, ERR));
}

static int any_holder(const struct dlock_info *info, void *arg) {
    (void)info, (void)arg;
    return 0;
}

static void expect_operator_calls(dlock_client *client) {
    if (!(suite.caps & DLOCK_CAP_INSPECT))
        EXPECT_CODE(DLOCK_ENOTSUP, dlock_inspect(client, suite.name, any_holder, NULL, ERR));
    if (!(suite.caps & DLOCK_CAP_LIST)) EXPECT_CODE(DLOCK_ENOTSUP, dlock_list(client, "", any_holder, NULL, ERR));
    if (!(suite.caps & DLOCK_CAP_BREAK)) EXPECT_CODE(DLOCK_ENOTSUP, dlock_break(client, suite.name, ERR));
}

/* Options without their capability bit are refused. */
void case_features_absent(void) {
    dlock_client *client = open_client();
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.mode = DLOCK_SHARED;
    if (!(suite.caps & DLOCK_CAP_SHARED)) expect_refused(client, DLOCK_ENOTSUP, &options);
    options.mode = DLOCK_PERMIT;
    options.limit = 2;
    if (!(suite.caps & DLOCK_CAP_PERMIT)) expect_refused(client, DLOCK_ENOTSUP, &options);
    expect_operator_calls(client);

    dlock_lock *lock = new_lock(client, suite.name, NULL), *imported = NULL;
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    char ticket[DLOCK_TICKET_MAX + 1] = "";
    if (!(suite.caps & DLOCK_CAP_EXPORT)) {
        EXPECT_CODE(DLOCK_ENOTSUP, dlock_export(lock, ticket, sizeof ticket, ERR));
        EXPECT(strstr(last_error.message, "dlock run")); /* what to do instead */
        int code = dlock_import(client, "ticket", NULL, &imported, NULL);
        EXPECT(code == DLOCK_ENOTSUP || code == DLOCK_EINVAL);
    }
    if (!(suite.caps & DLOCK_CAP_SHARED)) EXPECT_CODE(DLOCK_ENOTSUP, dlock_downgrade(lock, ERR));
    EXPECT(dlock_held(lock) && !imported && ticket[0] == '\0');
    EXPECT_CODE(0, dlock_release(lock, ERR));
    dlock_free(lock);
    dlock_close(client);
    if (!(suite.caps & DLOCK_CAP_WANTED)) {
        char *uri = uri_with(suite.uri, "linger", "50ms");
        EXPECT_CODE(DLOCK_ENOTSUP, dlock_open(uri, NULL, &client, ERR));
        free(uri);
    }
}
