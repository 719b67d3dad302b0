#include "cluster_nodes.h"

#include "support/loopback.h"

#include <stdio.h>

struct server master[MASTERS], replica;
struct relay *front;
char first[24], second[24], third[24];

static bool replicated; /* there is a replica */

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

/* Returns the port for connections from other nodes. */
static int start_node(struct server *server, const char *timeout_ms) {
    const int port = loopback_unused_port();
    char bus[16];
    snprintf(bus, sizeof bus, "%d", port);
    const char *const arguments[] = {"--cluster-enabled",
                                     "yes",
                                     "--cluster-port",
                                     bus,
                                     "--cluster-node-timeout",
                                     timeout_ms,
                                     "--cluster-require-full-coverage",
                                     "no",
                                     "--repl-diskless-sync-delay",
                                     "0",
                                     NULL};
    server_start(server, arguments);
    return port;
}

void get_id(struct server *server, char id[41]) {
    snprintf(id, 41, "%s", ask_text(server, "CLUSTER MYID"));
}

static void add_slots(struct server *server, int from, int to) {
    if (from <= to) assert_string_equal(ask_text(server, "CLUSTER ADDSLOTSRANGE %d %d", from, to), "OK");
}

/* All of them see all slots served by as many masters, and answer clients. */
static void await_slots(void) {
    char expected[60];
    snprintf(expected, sizeof expected, "cluster_size:%d\r", MASTERS);
    for (int i = 0; i < MASTERS; i++) {
        await_said(&master[i], "CLUSTER INFO", "cluster_slots_ok:16384");
        await_said(&master[i], "CLUSTER INFO", expected);
        await_said(&master[i], "CLUSTER INFO", "cluster_state:ok");
    }
}

void cluster_start(const char *timeout_ms, int last, int end) {
    const int half = last / 2;
    replicated = false;
    front = NULL;
    for (int i = 0; i < MASTERS; i++) {
        const int bus = start_node(&master[i], timeout_ms);
        ask_text(&master[i], "CLUSTER SET-CONFIG-EPOCH %d", i + 1);
        /* All pairs explicitly: on their own they would need a second or two to learn of each other. */
        for (int j = 0; j < i; j++) ask_text(&master[j], "CLUSTER MEET 127.0.0.1 %d %d", master[i].port, bus);
    }
    add_slots(&master[0], 0, half - 1);
    add_slots(&master[1], half, last - 1);
    add_slots(&master[1], end + 1, SLOTS - 1);
    add_slots(&master[2], last, end);
    await_slots();
}

void cluster_add_replica(const char *timeout_ms) {
    char id[41], announced[24];
    front = relay_new(master[0].port);
    ask_text(&master[0], "CONFIG SET cluster-announce-port %d", relay_port(front));
    get_id(&master[0], id);
    const int bus = start_node(&replica, timeout_ms);
    replicated = true;
    for (int i = 0; i < MASTERS; i++) ask_text(&master[i], "CLUSTER MEET 127.0.0.1 %d %d", replica.port, bus);
    await_said(&replica, "CLUSTER NODES", id);
    snprintf(announced, sizeof announced, "127.0.0.1:%d@", relay_port(front));
    await_said(&replica, "CLUSTER NODES", announced);
    ask_text(&replica, "CLUSTER REPLICATE %s", id);
    await_said(&replica, "INFO replication", "master_link_status:up");
    for (int i = 0; i < MASTERS; i++) await_said(&master[i], "CLUSTER NODES", " slave ");
}

void cluster_stop(void) {
    for (int i = 0; i < MASTERS; i++) server_stop(&master[i]);
    if (replicated) server_stop(&replica);
    if (front) relay_end(front);
}

/* ---- names and URIs ---------------------------------------------------------------------------------------------- */

void uri_of(char uri[200], const char *query) {
    snprintf(uri, 200, "redis+cluster://127.0.0.1:%d,127.0.0.1:%d?timeout=2s&%s", master[1].port, master[2].port,
             query);
}

int slot_of(const char *name) {
    return (int)ask_number(&master[1], "CLUSTER KEYSLOT %s", name);
}

const char *name_from(int i, struct server *server, char name[24]) {
    for (;; i++) {
        snprintf(name, 24, "lock-%d", i);
        char question[60];
        snprintf(question, sizeof question, "EXISTS %s", name);
        if (!strstr(said_to(server, question), "MOVED")) return name;
    }
}

void choose_names(void) {
    name_from(0, &master[0], first);
    name_from(0, &master[1], second);
    name_from(0, &master[2], third);
}

void await_grant(const char *uri, const char *name) {
    struct dlock_error err;
    for (int64_t until = now_ms() + CHANGE_MS; try_lock(uri, name, &err) != 0; sleep_ms(20))
        if (now_ms() > until) fail_msg("%s: %s", name, err.message);
}

void await_quarantines(const char *uri) {
    const char *const names[] = {first, second, third};
    struct dlock_error err;
    for (int i = 0; i < MASTERS; i++) try_lock(uri, names[i], &err);
    for (int i = 0; i < MASTERS; i++) await_grant(uri, names[i]);
}
