/* What is around a fragment that shows statistics. */
#include <dlock/dlock.h>

#include <stdio.h>

int main(void) {
    dlock_client *client;
    if (dlock_open("file:locks", NULL, &client, NULL) != 0) return 1;
#include BLOCK
    dlock_close(client);
    return 0;
}
