/* Acquires with add. Releases with gets and a cas whose expiry is in the past: an atomic compare-and-delete. */
#include "floor.h"

#include <libmemcached/memcached.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEASE_S = 10, ALREADY_PAST = 2592001, KEY = 32 };

static struct floor_address address;

static void prepare(struct floor *floor, const char *uri) {
    (void)floor;
#ifdef FLOOR_SASL
    static const char scheme[] = "memcached+sasl";
    floor_need(strncmp(uri, scheme, strlen(scheme)) == 0);
    uri += strlen("memcached+"); /* "sasl:" is then parsed as any other scheme */
#endif
    floor_address(uri, 11211, &address);
}

static void *connect_to(void) {
    memcached_st *server = memcached_create(NULL);
    floor_check(server && memcached_server_add(server, address.host, (in_port_t)address.port) == MEMCACHED_SUCCESS,
                "memcached_server_add");
    memcached_behavior_set(server, MEMCACHED_BEHAVIOR_SUPPORT_CAS, 1);
    memcached_behavior_set(server, MEMCACHED_BEHAVIOR_TCP_NODELAY, 1);
#ifdef FLOOR_SASL
    floor_check(memcached_set_sasl_auth_data(server, address.user, address.password) == MEMCACHED_SUCCESS, "the login");
#else
    if (*address.user) { /* memcached -Y: the first `set` logs in */
        char line[2 * FLOOR_TEXT + 2];
        snprintf(line, sizeof line, "%s %s", address.user, address.password);
        floor_check(memcached_set(server, "auth", 4, line, strlen(line), 0, 0) == MEMCACHED_SUCCESS, "logging in");
    }
#endif
    return server;
}

static size_t name(char key[KEY], int number) {
    return (size_t)snprintf(key, KEY, "dlock-bench:floor-%d", number);
}

static void acquire(void *server, int number) {
    char key[KEY];
    floor_check(memcached_add(server, key, name(key, number), "token", 5, LEASE_S, 0) == MEMCACHED_SUCCESS, "add");
}

static uint64_t gets(memcached_st *server, const char *key, size_t length) {
    memcached_return_t rc;
    floor_check(memcached_mget(server, &key, &length, 1) == MEMCACHED_SUCCESS, "gets");
    memcached_result_st *result = memcached_fetch_result(server, NULL, &rc);
    floor_check(result && memcached_result_length(result) == 5, "reading what gets answers");
    uint64_t cas = memcached_result_cas(result);
    memcached_result_free(result);
    floor_check(!memcached_fetch_result(server, NULL, &rc), "the end of what gets answers");
    return cas;
}

static void release(void *server, int number) {
    char key[KEY];
    size_t length = name(key, number);
    uint64_t cas = gets(server, key, length);
    floor_check(memcached_cas(server, key, length, "token", 5, ALREADY_PAST, 0, cas) == MEMCACHED_SUCCESS, "cas");
}

/* Gets a key that does not exist. */
static void round_trip(void *server) {
    size_t length;
    uint32_t flags;
    memcached_return_t rc;
    floor_check(!memcached_get(server, "dlock-bench:none", 16, &length, &flags, &rc) && rc == MEMCACHED_NOTFOUND,
                "get of nothing");
}

static memcached_return_t add_up(const memcached_instance_st *server, const char *key, size_t key_length,
                                 const char *value, size_t value_length, void *sum) {
    static const char *const counters[] = {"cmd_get",     "cmd_set",       "cmd_touch",  "cmd_meta",
                                           "delete_hits", "delete_misses", "incr_hits",  "incr_misses",
                                           "decr_hits",   "decr_misses",   "touch_hits", "auth_cmds"};
    (void)server, (void)value_length;
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++)
        if (strlen(counters[i]) == key_length && strncmp(counters[i], key, key_length) == 0)
            *(int64_t *)sum += atoll(value);
    return MEMCACHED_SUCCESS;
}

/* Returns the number of commands. In a request for several keys each key counts. */
static int64_t commands(void) {
    static memcached_st *server;
    int64_t sum = 0;
    if (!server) server = connect_to();
    floor_check(memcached_stat_execute(server, NULL, add_up, &sum) == MEMCACHED_SUCCESS, "stats");
    return sum;
}

struct floor floor_program = {.prepare = prepare,
                              .connect = connect_to,
                              .acquire = acquire,
                              .release = release,
                              .round_trip = round_trip,
                              .commands = commands};
