/* Moves money between accounts, which are files, each under a lock of its own: acquires both locks at once, or none.
 *
 *     transfer URI FOLDER FROM TO ROUNDS      moves 1 from account FROM to account TO, ROUNDS times
 *
 * A process that moves money the other way names the two locks in the other order. Here that is no deadlock.
 */
#include <dlock/dlock.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct account {
    char path[4096];
    dlock_lock *lock;
};

/* Adds to the number in the file; this is not atomic. */
static int add(const struct account *account, long amount) {
    long balance = 0;
    FILE *file = fopen(account->path, "r");
    if (!file || fscanf(file, "%ld", &balance) != 1) return perror(account->path), -1;
    fclose(file);
    file = fopen(account->path, "w");
    if (!file || fprintf(file, "%ld\n", balance + amount) < 0 || fclose(file) != 0) return perror(account->path), -1;
    return 0;
}

static int move(const struct account *from, const struct account *to, struct dlock_error *err) {
    dlock_lock *const both[] = {from->lock, to->lock};
    int rc = dlock_acquire_all(both, 2, 30000, err); /* the timeout is for both together */
    if (rc != 0) return rc;
    if (add(from, -1) != 0 || add(to, 1) != 0) exit(1);
    usleep(500);                            /* makes the others wait */
    return dlock_release_all(both, 2, err); /* the second is released even if the first fails */
}

static int open_account(dlock_client *client, const char *folder, const char *name, struct account *account,
                        struct dlock_error *err) {
    snprintf(account->path, sizeof account->path, "%s/%s", folder, name);
    return dlock_new(client, name, NULL, &account->lock, err);
}

int main(int argc, char **argv) {
    if (argc != 6) return fprintf(stderr, "usage: %s URI FOLDER FROM TO ROUNDS\n", argv[0]), 64;
    dlock_client *client;
    struct account from = {.lock = NULL}, to = {.lock = NULL};
    struct dlock_error err;
    int rc = dlock_open(argv[1], NULL, &client, &err);
    if (rc == 0) {
        rc = open_account(client, argv[2], argv[3], &from, &err);
        if (rc == 0) rc = open_account(client, argv[2], argv[4], &to, &err);
        for (int i = atoi(argv[5]); rc == 0 && i > 0; i--) rc = move(&from, &to, &err);
        dlock_free(from.lock);
        dlock_free(to.lock);
        dlock_close(client);
    }
    if (rc != 0) fprintf(stderr, "%s\n", err.message);
    return rc != 0;
}
