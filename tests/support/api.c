#include "support/api.h"

#include "support/test.h"

#include <stdio.h>

dlock_client *api_client(const char *uri, ...) {
    char text[512];
    struct dlock_error err = {0};
    dlock_client *client = NULL;
    va_list args;
    va_start(args, uri);
    vsnprintf(text, sizeof text, uri, args);
    va_end(args);
    if (dlock_open(text, NULL, &client, &err) != 0) fail_msg("%s: %s", text, err.message);
    return client;
}

dlock_lock *api_lock(dlock_client *client, const char *name, const struct dlock_options *options) {
    struct dlock_error err = {0};
    dlock_lock *lock = NULL;
    if (dlock_new(client, name, options, &lock, &err) != 0) fail_msg("%s: %s", name, err.message);
    return lock;
}
