#include "support/group.h"

#include "support/backend.h"

struct server server;

int group_begin(void **state) {
    backend_load(state);
    server_start(&server, NULL);
    return 0;
}

int group_end(void **state) {
    (void)state;
    server_stop(&server);
    return 0;
}
