/* redis+cluster: a partitioned network, with one master and most clients on one side; its replica, the other masters
 * and the other clients are on the other. The nodes talk through their own relays and clients through others, where
 * each begins with the name of its side, which is a user of all nodes. */
#include "cluster_nodes.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { NODE_TIMEOUT = 3000, NODES = MASTERS + 1 };
#define NODE_TIMEOUT_TEXT "3000"

static struct server *node[NODES] = {&master[0], &master[1], &master[2], &replica};
static struct relay *to_node[NODES]; /* for clients; the first master's is `front` */
/* Between nodes. The first message on a connection names its sender, and the others may name any node. */
static struct bus {
    struct relay *relay;
    bool from_first[RELAY_PAIRS]; /* the first master sends here */
} bus[NODES];
static char first_id[41];
static atomic_bool parted;

/* ---- relays ------------------------------------------------------------------------------------------------------ */

static int look(void *arg, size_t pair, bool new, const char *bytes, size_t size) {
    enum { SENDER = 40 }; /* where its id is: clusterMsg in cluster.h of Redis */
    struct bus *this = arg;
    if (new) this->from_first[pair] = size >= SENDER + 40 && memcmp(bytes + SENDER, first_id, 40) == 0;
    return parted && this->from_first[pair] ? RELAY_MUTE : RELAY_PASS;
}

static int bus_port(const struct server *server) {
    /* "ID ADDRESS:PORT@BUS myself,…" */
    const char *at = strstr(said_to(server, "CLUSTER NODES"), "myself");
    assert_non_null(at);
    while (*at != '@') at--;
    return atoi(at + 1);
}

/* Makes the others reach this node by relays. */
static void announce(int i) {
    const int port = bus_port(node[i]);
    bus[i].relay = relay_new(port);
    relay_watch(bus[i].relay, look, &bus[i]);
    ask_text(node[i], "CONFIG SET cluster-announce-bus-port %d", relay_port(bus[i].relay));
    to_node[i] = i == 0 ? front : relay_new(node[i]->port);
    ask_text(node[i], "CONFIG SET cluster-announce-port %d", relay_port(to_node[i]));
    ask_text(node[i], "ACL SETUSER east on >pw ~* &* +@all");
    ask_text(node[i], "ACL SETUSER west on >pw ~* &* +@all");
}

static int setup(void **state) {
    (void)state;
    parted = false;
    cluster_start(NODE_TIMEOUT_TEXT, SLOTS / 3 * 2, SLOTS - 1);
    cluster_add_replica(NODE_TIMEOUT_TEXT);
    choose_names();
    get_id(&master[0], first_id);
    for (int i = 0; i < NODES; i++) announce(i);
    for (int i = 0; i < NODES; i++)
        for (int j = 0; j < NODES; j++) {
            char address[40];
            snprintf(address, sizeof address, ":%d@%d", relay_port(to_node[i]), relay_port(bus[i].relay));
            await_said(node[j], "CLUSTER NODES", address);
        }
    return 0;
}

static int teardown(void **state) {
    (void)state;
    cluster_stop();
    for (int i = 0; i < NODES; i++) relay_end(bus[i].relay);
    for (int i = 1; i < NODES; i++) relay_end(to_node[i]);
    return 0;
}

/* ---- the split --------------------------------------------------------------------------------------------------- */

static void part(void) {
    relay_cut(front, "west");
    for (int i = 1; i < NODES; i++) relay_cut(to_node[i], "east");
    parted = true;
    relay_silence(bus[0].relay);
}

/* Clients on both sides contend, and one on the first master's side holds the lock when the network is parted, which
 * the replica has not heard of. Returns when that master has stopped answering and the replica is promoted, *stopped
 * being the former. */
static void split(int lease_ms, int quarantine_ms, int64_t *stopped) {
    char uri[2][300];
    for (int i = 0; i < 2; i++)
        snprintf(uri[i], sizeof uri[i],
                 "redis+cluster://%s:pw@127.0.0.1:%d,127.0.0.1:%d?lease=%dms&quarantine=%dms&timeout=1s",
                 i == 0 ? "east" : "west", relay_port(to_node[0]), relay_port(to_node[1]), lease_ms, quarantine_ms);
    await_quarantines(uri[0]);
    players_begin(uri[0], first);
    players_join(uri[1], first);
    players_await_turns();
    assert_int_equal(players_met(), 0);
    assert_true(relay_mute(front, "PSYNC") > 0);
    players_keep(uri[0], first);
    sleep_ms(lease_ms); /* what the replica heard of last ends earlier than the holder's lease */
    part();
    const int64_t began = now_ms();
    int64_t promoted = *stopped = 0;
    for (; !*stopped || !promoted; sleep_ms(5)) {
        if (!*stopped && strstr(said_to(&master[0], "CLUSTER INFO"), "cluster_state:fail")) *stopped = now_ms();
        if (!promoted && strstr(said_to(&replica, "INFO replication"), "role:master")) promoted = now_ms();
        assert_true(now_ms() - began < CHANGE_MS);
    }
    print_message("lease=%dms&quarantine=%dms: the old master stopped after %" PRId64
                  " ms, the new one began after %" PRId64 "\n",
                  lease_ms, quarantine_ms, *stopped - began, promoted - began);
    /* a node is pinged after half the timeout, and missed when that got no answer for all of it; 2 s for the machine */
    assert_true(*stopped - began < NODE_TIMEOUT * 3 / 2 + 2000);
}

/* docs/servers/redis.md advises this. */
TEST(a_quarantine_of_lease_and_timeout_has_one_holder) {
    int64_t stopped;
    split(2000, 2000 + NODE_TIMEOUT, &stopped);
    players_await_late_turns();
    sleep_ms(1000);
    players_end();
}

/* Two have it then, but not after the last lease of the old master. The lease is longer than a promotion may come after
 * that master's end. */
TEST(two_holders_end_with_the_old_masters_last_lease) {
    enum { LONG_LEASE = 6000 };
    int64_t stopped;
    split(LONG_LEASE, 0, &stopped);
    players_await_late_turns();
    const int64_t left = stopped + LONG_LEASE - now_ms();
    if (left > 0) sleep_ms((int)left);
    const int before = players_met();
    print_message("two had it %d times\n", before);
    assert_true(before > 0);
    sleep_ms(2000);
    players_stop();
    assert_int_equal(players_met(), before);
}

TESTS(setup, teardown, NULL, NULL)
