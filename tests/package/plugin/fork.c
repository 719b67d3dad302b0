/* fork URI: a daemon's way. A parent has a client; its child opens another one and continues when the parent's is
 * closed. The child and a process that comes later must still see the same locks. */
#include <dlock/dlock.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static dlock_client *open_client(const char *uri) {
    dlock_client *client;
    struct dlock_error err;
    if (dlock_open(uri, NULL, &client, &err) == 0) return client;
    fprintf(stderr, "fork: %s\n", err.message);
    exit(1);
}

static void expect(dlock_client *client, const char *name, int wanted) {
    dlock_lock *lock;
    struct dlock_error err;
    if (dlock_new(client, name, NULL, &lock, &err) != 0) exit(1);
    int code = dlock_acquire(lock, 0, NULL);
    if (code == wanted) return;
    fprintf(stderr, "fork: \"%s\" answers \"%s\" instead of \"%s\"\n", name, dlock_strerror(code),
            dlock_strerror(wanted));
    exit(1);
}

static void tell(const int pipe[2]) {
    if (write(pipe[1], "", 1) != 1) exit(1);
}

static void await(const int pipe[2]) {
    char byte;
    if (read(pipe[0], &byte, 1) != 1) exit(1);
}

int main(int argc, char **argv) {
    int to_child[2], to_parent[2], status;
    if (argc != 2 || pipe(to_child) != 0 || pipe(to_parent) != 0) return 2;
    dlock_client *client = open_client(argv[1]);
    expect(client, "parent", 0);
    pid_t child = fork();
    close(child == 0 ? to_child[1] : to_parent[1]); /* so that the end of one is noticed by the other */
    if (child == 0) {
        client = open_client(argv[1]);
        expect(client, "parent", DLOCK_EBUSY);
        expect(client, "first", 0);
        tell(to_parent);
        await(to_child);
        expect(client, "later", DLOCK_EBUSY);
        expect(client, "second", 0);
        tell(to_parent);
        await(to_child);
        return 0;
    }
    await(to_parent);
    dlock_close(client);
    client = open_client(argv[1]);
    expect(client, "first", DLOCK_EBUSY);
    expect(client, "later", 0);
    tell(to_child);
    await(to_parent);
    expect(client, "second", DLOCK_EBUSY);
    tell(to_child);
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
