/* What is around a fragment that acquires two locks. */
#include <dlock/dlock.h>

int main(void) {
    dlock_client *client;
    dlock_lock *from, *to;
    struct dlock_error err;
    if (dlock_open("file:locks", NULL, &client, &err) != 0 || dlock_new(client, "from", NULL, &from, &err) != 0 ||
        dlock_new(client, "to", NULL, &to, &err) != 0)
        return 1;
#include BLOCK
    if (rc != 0 || !dlock_held(from) || !dlock_held(to)) return 1;
    dlock_free(from);
    dlock_free(to);
    dlock_close(client);
    return 0;
}
