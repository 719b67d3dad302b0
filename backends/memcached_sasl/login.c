/* Logs in, with the first request, which also makes the connection. */
#include "memcached.h"

/* Sets the message for a failed login; libmemcached distinguishes the causes only by its code. */
static int refused(struct memcached *memcached, const struct library_failure *failure, struct dlock_error *err) {
    if (failure->code == DLOCK_EAUTH && failure->mechanism)
        return dlock_fail(err, DLOCK_EAUTH,
                          "cannot log in to memcached at %s: it offers no SASL mechanism that this host has (PLAIN "
                          "is in the package libsasl2-modules)",
                          memcached->where);
    if (failure->code == DLOCK_EAUTH)
        return dlock_fail(err, DLOCK_EAUTH,
                          "memcached at %s refused the user or the password; a user whose realm is not the server's "
                          "host name is written user%%40realm",
                          memcached->where);
    if (failure->code == DLOCK_EPROTO)
        return dlock_fail(err, DLOCK_EPROTO, "the server at %s does not know SASL logins", memcached->where);
    return dlock_fail(err, failure->code, "cannot connect to memcached at %s: %s", memcached->where, failure->why);
}

int memcached_log_in(struct memcached *memcached, const struct memcached_address *address, int64_t deadline_us,
                     struct dlock_error *err) {
    struct library_failure failure;
    if (library_log_in(memcached->wire.library, address->user, address->password, deadline_us, &failure) ==
        LIBRARY_DONE) {
        memcached->wire.heard = true;
        return 0;
    }
    memcached->wire.heard = failure.code == DLOCK_EAUTH || failure.error; /* it is clear what is there */
    return refused(memcached, &failure, err);
}
