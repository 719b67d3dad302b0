/* What dlock.h declares and this version does not do yet: CHANGELOG.md lists it. */
#include "client.h"

static int not_yet(const char *what, struct dlock_error *err) {
    return dlock_fail(err, DLOCK_ENOTSUP, "%s is not there yet", what);
}

int dlock_export(dlock_lock *lock, char *ticket, size_t size, struct dlock_error *err) {
    (void)lock, (void)ticket, (void)size;
    return not_yet("dlock_export", err);
}

int dlock_import(dlock_client *client, const char *ticket, const struct dlock_options *options, dlock_lock **lock,
                 struct dlock_error *err) {
    (void)client, (void)ticket, (void)options, (void)lock;
    return not_yet("dlock_import", err);
}
