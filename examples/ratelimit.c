/* At most N requests in any WINDOW, by all processes and hosts together.
 *
 *     ratelimit URI NAME N WINDOW-MS REQUESTS
 *
 * Each request takes one of N permits, with a fixed lease as long as the window, and never releases it: the permit
 * becomes free when the lease ends. Waiters come in order if the server has a queue. On Redis the window may be as long
 * as the quarantine, which is the URI's `lease`, 10 s by default. */
#include <dlock/dlock.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void request(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    printf("request at %lld.%03ld\n", (long long)now.tv_sec, now.tv_nsec / 1000000);
    fflush(stdout);
}

/* Exports the grant and drops the ticket: so the handle is free for the next request, and the grant ends with its
 * lease. */
static int leave_to_its_lease(dlock_lock *permit, struct dlock_error *err) {
    char ticket[DLOCK_TICKET_MAX + 1];
    return dlock_export(permit, ticket, sizeof ticket, err);
}

static int run(dlock_lock *permit, int requests, struct dlock_error *err) {
    int rc = 0;
    while (rc == 0 && requests-- > 0) {
        rc = dlock_acquire(permit, DLOCK_FOREVER, err);
        if (rc == 0) {
            request();
            rc = leave_to_its_lease(permit, err);
        }
    }
    return rc;
}

int main(int argc, char **argv) {
    if (argc != 6) return fprintf(stderr, "usage: %s URI NAME N WINDOW-MS REQUESTS\n", argv[0]), 64;
    dlock_client *client;
    dlock_lock *permit;
    struct dlock_error err;
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.mode = DLOCK_PERMIT;
    options.limit = (uint32_t)strtoul(argv[3], NULL, 10);
    options.lease_ms = atol(argv[4]);
    options.flags = DLOCK_FIXED_LEASE;
    int rc = dlock_open(argv[1], NULL, &client, &err);
    if (rc == 0) {
        rc = dlock_new(client, argv[2], &options, &permit, &err);
        if (rc == 0) {
            rc = run(permit, atoi(argv[5]), &err);
            dlock_free(permit);
        }
        dlock_close(client);
    }
    if (rc != 0) fprintf(stderr, "%s\n", err.message);
    return rc != 0;
}
