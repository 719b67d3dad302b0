/* A count-down latch: a waiter goes on once N workers, on any hosts, have done their part.
 *
 *     latch URI NAME arm N     starts: prints N tickets, one for each worker
 *     latch URI NAME work      a worker, with its ticket on standard input: works, and counts down
 *     latch URI NAME await     waits until all workers have counted down
 *
 * Every worker holds the name shared; a waiter acquires it exclusively. `arm` acquires the N grants before any worker
 * starts, and prints them as tickets, so that no waiter can pass before the workers have come. `await` must come after
 * `arm`.
 *
 * A worker that dies counts down, too, when its lease ends, and so does a ticket that no worker takes: the latch tells
 * that no worker is working any more, not that the work succeeded. Check the result of the work.
 */
#include <dlock/dlock.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int acquire(dlock_client *client, const char *name, enum dlock_mode mode, dlock_lock **lock,
                   struct dlock_error *err) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.mode = mode;
    options.owner = DLOCK_OWNER_HANDLE; /* so that each handle has a grant of its own */
    int rc = dlock_new(client, name, &options, lock, err);
    return rc != 0 ? rc : dlock_acquire(*lock, DLOCK_FOREVER, err);
}

static int arm(dlock_client *client, const char *name, int n, struct dlock_error *err) {
    char ticket[DLOCK_TICKET_MAX + 1];
    int rc = 0;
    while (rc == 0 && n-- > 0) {
        dlock_lock *lock = NULL;
        rc = acquire(client, name, DLOCK_SHARED, &lock, err);
        if (rc == 0) rc = dlock_export(lock, ticket, sizeof ticket, err);
        if (rc == 0) puts(ticket);
        dlock_free(lock);
    }
    return rc;
}

static int work(dlock_client *client, struct dlock_error *err) {
    char ticket[DLOCK_TICKET_MAX + 2];
    dlock_lock *lock;
    if (!fgets(ticket, sizeof ticket, stdin)) exit(64);
    ticket[strcspn(ticket, "\n")] = '\0';
    int rc = dlock_import(client, ticket, NULL, &lock, err);
    if (rc != 0) return rc;
    sleep(1);
    puts("worked");
    rc = dlock_release(lock, err);
    dlock_free(lock);
    return rc;
}

static int await(dlock_client *client, const char *name, struct dlock_error *err) {
    dlock_lock *lock = NULL;
    int rc = acquire(client, name, DLOCK_EXCLUSIVE, &lock, err);
    if (rc == 0) puts("all have worked");
    dlock_free(lock); /* releases the lock, for other waiters */
    return rc;
}

int main(int argc, char **argv) {
    dlock_client *client;
    struct dlock_error err;
    if (argc < 4) return fprintf(stderr, "usage: %s URI NAME arm N|work|await\n", argv[0]), 64;
    int rc = dlock_open(argv[1], NULL, &client, &err);
    if (rc != 0) return fprintf(stderr, "%s\n", err.message), 1;
    if (strcmp(argv[3], "arm") == 0) rc = arm(client, argv[2], argc > 4 ? atoi(argv[4]) : 1, &err);
    if (strcmp(argv[3], "work") == 0) rc = work(client, &err);
    if (strcmp(argv[3], "await") == 0) rc = await(client, argv[2], &err);
    dlock_close(client);
    if (rc != 0) fprintf(stderr, "%s\n", err.message);
    return rc != 0;
}
