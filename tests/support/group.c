#include "support/group.h"

#include "support/backend.h"
#include "support/pair.h"

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

int group_pair(void **state) {
    (void)state;
    link_to(&one, server.port, 'a');
    link_to(&two, server.port, 'b');
    return 0;
}
