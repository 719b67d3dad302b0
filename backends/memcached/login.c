/* Logs in with user and password over the text protocol. */
#include "memcached.h"

/* memcached takes user and password as the value of a `set`. A server without authentication would store them where
 * every client can read them, so they are sent only after the server has refused a request for lack of a login. Its
 * answer is not repeated in messages: it might contain them. */
int memcached_log_in(struct memcached *memcached, const struct memcached_address *address, int64_t deadline_us,
                     struct dlock_error *err) {
    char *line;
    int rc;
    if (!address->user) return 0;
    memcached_request(memcached, 1, "gets dlock-asks-for-no-password\r\n");
    if ((rc = memcached_line(memcached, deadline_us, &line, err)) != 0) return rc;
    bool asks = strcmp(line, "CLIENT_ERROR unauthenticated") == 0;
    if (!asks && strcmp(line, "END") != 0 && strncmp(line, "VALUE ", 6) != 0)
        return memcached_refused(memcached, line, err);
    if (!asks)
        return dlock_fail(
            err, DLOCK_EAUTH,
            "memcached at %s asks for no password (it runs without -Y); leave user and password out of the "
            "URI",
            memcached->where);
    memcached->wire.unanswered--;
    memcached_request(memcached, 1, "set dlock 0 0 %zu\r\n%s %s\r\n",
                      strlen(address->user) + 1 + strlen(address->password), address->user, address->password);
    if ((rc = memcached_line(memcached, deadline_us, &line, err)) != 0) return rc;
    if (strcmp(line, "STORED") != 0)
        return dlock_fail(err, DLOCK_EAUTH, "memcached at %s refused the user or the password", memcached->where);
    memcached->wire.unanswered--;
    return 0;
}
