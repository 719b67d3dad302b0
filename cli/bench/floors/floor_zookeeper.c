/* Locks by the recipe of ZooKeeper's documentation, without competitors: creates a sequential node, lists the nodes,
 * finds its own to be the first, deletes it. */
#include "floor.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#define FOLDER "/dlock-bench-floor"
enum { PATH = 256 };

static struct floor_address address;
static char nodes[FLOOR_WORKERS][PATH]; /* paths of the nodes of the held locks */
static zhandle_t *handle;

static void prepare(struct floor *floor, const char *uri) {
    (void)floor;
    floor_address(uri, 2181, &address);
}

static void leave(void) {
    zookeeper_close(handle);
}

/* Connects without credentials: the nodes are open to all. */
static void *connect_to(void) {
    char hosts[FLOOR_TEXT + 16];
    snprintf(hosts, sizeof hosts, "%s:%d", address.host, address.port);
    zoo_set_debug_level(0);
    handle = zookeeper_init(hosts, NULL, 10000, NULL, NULL, 0);
    for (int i = 0; handle && i < 500 && zoo_state(handle) != ZOO_CONNECTED_STATE; i++) usleep(10000);
    floor_check(handle && zoo_state(handle) == ZOO_CONNECTED_STATE, "connecting");
    atexit(leave);
    return handle;
}

/* Creates the node, and the folder of the lock if it is missing, as most clients do. */
static void create(void *server, const char *folder, char *path) {
    char prefix[PATH];
    snprintf(prefix, sizeof prefix, "%s/lock-", folder);
    int rc = zoo_create(server, prefix, NULL, -1, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL | ZOO_SEQUENCE, path, PATH);
    if (rc == ZNONODE) {
        rc = zoo_create(server, folder, NULL, -1, &ZOO_OPEN_ACL_UNSAFE, ZOO_CONTAINER, NULL, 0);
        floor_check(rc == ZOK || rc == ZNODEEXISTS, "creating the folder");
        rc = zoo_create(server, prefix, NULL, -1, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL | ZOO_SEQUENCE, path, PATH);
    }
    floor_check(rc == ZOK, "create");
}

static void acquire(void *server, int number) {
    char folder[PATH / 2];
    struct String_vector children;
    snprintf(folder, sizeof folder, FOLDER "-%d", number);
    create(server, folder, nodes[number]);
    floor_check(zoo_get_children(server, folder, 0, &children) == ZOK, "list");
    floor_check(children.count == 1 && strcmp(children.data[0], strrchr(nodes[number], '/') + 1) == 0,
                "being the first");
    deallocate_String_vector(&children);
}

static void release(void *server, int number) {
    floor_check(zoo_delete(server, nodes[number], -1) == ZOK, "delete");
}

static void round_trip(void *server) {
    floor_check(zoo_exists(server, "/", 0, NULL) == ZOK, "exists");
}

/* ---- the server's request count ---------------------------------------------------------------------------------- */

static int dial(void) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    char port[16];
    int fd = -1;
    snprintf(port, sizeof port, "%d", address.port);
    floor_check(getaddrinfo(address.host, port, &hints, &found) == 0, "getaddrinfo");
    for (struct addrinfo *at = found; at && fd < 0; at = at->ai_next) {
        fd = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
        if (fd < 0 || connect(fd, at->ai_addr, at->ai_addrlen) == 0) continue;
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    floor_check(fd >= 0, "connecting");
    return fd;
}

/* Returns the number of packets that the server has received, pings included, without this function's: each call uses a
 * connection of its own, which counts as one packet. */
static int64_t commands(void) {
    static const char received[] = "\nReceived: ";
    static int64_t asked;
    char answer[4096];
    size_t length = 0;
    int fd = dial();
    floor_check(write(fd, "srvr", 4) == 4, "srvr");
    for (ssize_t n; (n = read(fd, answer + length, sizeof answer - 1 - length)) > 0;) length += (size_t)n;
    answer[length] = '\0';
    close(fd);
    const char *line = strstr(answer, received);
    floor_need(line != NULL); /* the command may be disabled */
    return atoll(line + sizeof received - 1) - ++asked;
}

struct floor floor_program = {.prepare = prepare,
                              .connect = connect_to,
                              .acquire = acquire,
                              .release = release,
                              .round_trip = round_trip,
                              .commands = commands,
                              .shared = true};
