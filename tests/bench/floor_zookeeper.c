/* The recipe of ZooKeeper's documentation, unopposed: create a sequential node, list, find it to be the first, delete.
 */
#include "floor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#define FOLDER "/dlock-bench-floor"

static zhandle_t *server;

static void leave(void) {
    zoo_delete(server, FOLDER, -1);
    zookeeper_close(server);
}

static void connect_to(const char *uri) {
    struct floor_address address = floor_address(uri, 2181);
    char hosts[300];
    snprintf(hosts, sizeof hosts, "%s:%d", address.host, address.port);
    zoo_set_debug_level(0);
    server = zookeeper_init(hosts, NULL, 10000, NULL, NULL, 0);
    for (int i = 0; server && i < 500 && zoo_state(server) != ZOO_CONNECTED_STATE; i++) usleep(10000);
    floor_check(server && zoo_state(server) == ZOO_CONNECTED_STATE, "connecting");
    int rc = zoo_create(server, FOLDER, NULL, -1, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
    floor_check(rc == ZOK || rc == ZNODEEXISTS, "creating " FOLDER);
    atexit(leave);
}

static void cycle(void) {
    char path[256];
    struct String_vector children;
    floor_check(zoo_create(server, FOLDER "/lock-", NULL, -1, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL | ZOO_SEQUENCE, path,
                           sizeof path) == ZOK,
                "create");
    floor_check(zoo_get_children(server, FOLDER, 0, &children) == ZOK, "list");
    floor_check(children.count == 1 && strcmp(children.data[0], strrchr(path, '/') + 1) == 0, "being the first");
    deallocate_String_vector(&children);
    floor_check(zoo_delete(server, path, -1) == ZOK, "delete");
}

static void round_trip(void) {
    floor_check(zoo_exists(server, FOLDER, 0, NULL) == ZOK, "exists");
}

int main(int argc, char **argv) {
    return floor_main(argc, argv, &(struct floor){connect_to, cycle, round_trip});
}
