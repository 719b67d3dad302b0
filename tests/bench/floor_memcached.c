/* add, then gets and cas with an expiry in the past: an atomic compare-and-delete. */
#include "floor.h"

#include <libmemcached/memcached.h>
#include <string.h>

enum { LEASE_S = 10, ALREADY_PAST = 2592001 };

static const char key[] = "dlock-bench:floor";
enum { KEY = sizeof key - 1 };
static memcached_st *server;

static void connect_to(const char *uri) {
    struct floor_address address = floor_address(uri, 11211);
    floor_need(!address.has_path);
    server = memcached_create(NULL);
    floor_check(server && memcached_server_add(server, address.host, (in_port_t)address.port) == MEMCACHED_SUCCESS,
                "memcached_server_add");
    memcached_behavior_set(server, MEMCACHED_BEHAVIOR_SUPPORT_CAS, 1);
    memcached_behavior_set(server, MEMCACHED_BEHAVIOR_TCP_NODELAY, 1);
}

static uint64_t gets(void) {
    const char *keys[] = {key};
    size_t lengths[] = {KEY};
    memcached_return_t rc;
    floor_check(memcached_mget(server, keys, lengths, 1) == MEMCACHED_SUCCESS, "gets");
    memcached_result_st *result = memcached_fetch_result(server, NULL, &rc);
    floor_check(result && memcached_result_length(result) == 5, "reading what gets answers");
    uint64_t cas = memcached_result_cas(result);
    memcached_result_free(result);
    floor_check(!memcached_fetch_result(server, NULL, &rc), "the end of what gets answers");
    return cas;
}

static void cycle(void) {
    floor_check(memcached_add(server, key, KEY, "token", 5, LEASE_S, 0) == MEMCACHED_SUCCESS, "add");
    uint64_t cas = gets();
    floor_check(memcached_cas(server, key, KEY, "token", 5, ALREADY_PAST, 0, cas) == MEMCACHED_SUCCESS, "cas");
}

/* A get of what is not there. */
static void round_trip(void) {
    size_t length;
    uint32_t flags;
    memcached_return_t rc;
    floor_check(!memcached_get(server, "dlock-bench:none", 16, &length, &flags, &rc) && rc == MEMCACHED_NOTFOUND,
                "get of nothing");
}

int main(int argc, char **argv) {
    return floor_main(argc, argv, &(struct floor){connect_to, cycle, round_trip});
}
