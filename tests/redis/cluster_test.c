/* redis+cluster, with a cluster of our own: masters, and a replica of the first. Redis 7 or newer. */
#include "players.h"
#include "support/loopback.h"
#include "support/relay.h"

#include <hiredis.h>
#include <signal.h>
#include <stdlib.h>

enum { MASTERS = 3, SLOTS = 16384 };

static struct server master[MASTERS], replica; /* of the first of them */
static bool replicated;                        /* there is one */
static struct relay *front;                    /* of that master, for clients and for its replica; NULL: none */

/* ---- the cluster ------------------------------------------------------------------------------------------------- */

static void start_node(struct server *server, const char *timeout_ms) {
    char bus[16];
    snprintf(bus, sizeof bus, "%d", loopback_unused_port());
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
}

static void get_id(struct server *server, char id[41]) {
    snprintf(id, 41, "%s", ask_text(server, "CLUSTER MYID"));
}

static void meet(struct server *server) {
    char nodes[400], *bus;
    snprintf(nodes, sizeof nodes, "%.399s", ask_text(server, "CLUSTER NODES"));
    bus = strchr(nodes, '@');
    assert_non_null(bus);
    ask_text(&master[0], "CLUSTER MEET 127.0.0.1 %d %d", server->port, atoi(bus + 1));
}

static void add_slots(struct server *server, int from, int to) {
    if (from <= to) assert_string_equal(ask_text(server, "CLUSTER ADDSLOTSRANGE %d %d", from, to), "OK");
}

/* All of them see all slots served by this many masters. */
static void await_slots(int masters) {
    char expected[60];
    snprintf(expected, sizeof expected, "cluster_size:%d\r", masters);
    for (int i = 0; i < MASTERS; i++) {
        await_said(&master[i], "CLUSTER INFO", "cluster_slots_ok:16384");
        await_said(&master[i], "CLUSTER INFO", expected);
    }
}

/* The last master has the slots from `last` to `end`; the others the rest, half of it each. */
static void start_cluster(const char *timeout_ms, int last, int end) {
    const int half = last / 2;
    for (int i = 0; i < MASTERS; i++) {
        start_node(&master[i], timeout_ms);
        ask_text(&master[i], "CLUSTER SET-CONFIG-EPOCH %d", i + 1);
        meet(&master[i]);
    }
    add_slots(&master[0], 0, half - 1);
    add_slots(&master[1], half, last - 1);
    add_slots(&master[1], end + 1, SLOTS - 1);
    add_slots(&master[2], last, end);
    await_slots(MASTERS);
}

static void add_replica(const char *timeout_ms) {
    char id[41];
    front = relay_new(master[0].port);
    ask_text(&master[0], "CONFIG SET cluster-announce-port %d", relay_port(front));
    get_id(&master[0], id);
    start_node(&replica, timeout_ms);
    meet(&replica);
    await_said(&replica, "CLUSTER NODES", id);
    char announced[24];
    snprintf(announced, sizeof announced, "127.0.0.1:%d@", relay_port(front));
    await_said(&replica, "CLUSTER NODES", announced);
    ask_text(&replica, "CLUSTER REPLICATE %s", id);
    await_said(&replica, "INFO replication", "master_link_status:up");
    for (int i = 0; i < MASTERS; i++) await_said(&master[i], "CLUSTER NODES", " slave ");
    replicated = true;
}

static int setup_plain(void **state) {
    (void)state;
    replicated = false;
    front = NULL;
    start_cluster("15000", SLOTS / 3 * 2, SLOTS - 1);
    return 0;
}

static int setup(void **state) {
    (void)state;
    start_cluster("2000", SLOTS / 3 * 2, SLOTS - 1);
    add_replica("2000");
    return 0;
}

static int teardown(void **state) {
    (void)state;
    for (int i = 0; i < MASTERS; i++) server_stop(&master[i]);
    if (replicated) server_stop(&replica);
    if (front) relay_end(front);
    return 0;
}

/* ---- names and URIs ---------------------------------------------------------------------------------------------- */

static void uri_of(char uri[200], const char *query) {
    snprintf(uri, 200, "redis+cluster://127.0.0.1:%d,127.0.0.1:%d?timeout=2s&%s", master[1].port, master[2].port,
             query);
}

static int slot_of(const char *name) {
    return (int)ask_number(&master[1], "CLUSTER KEYSLOT %s", name);
}

/* A name whose slot this node has; others from another number on. */
static const char *name_from(int i, struct server *server, char name[24]) {
    for (;; i++) {
        snprintf(name, 24, "lock-%d", i);
        char question[60];
        snprintf(question, sizeof question, "EXISTS %s", name);
        if (!strstr(said_to(server, question), "MOVED")) return name;
    }
}

static const char *name_on(struct server *server, char name[24]) {
    return name_from(0, server, name);
}

/* Until a node grants something; each has its quarantine at the beginning. */
static void await_grant(const char *uri, const char *name) {
    struct dlock_error err;
    for (int64_t until = now_ms() + CHANGE_MS; try_lock(uri, name, &err) != 0; sleep_ms(20))
        if (now_ms() > until) fail_msg("%s: %s", name, err.message);
}

/* How often clients have been told this so far. */
static int told(const char *error) {
    char field[60];
    int sum = 0;
    snprintf(field, sizeof field, "errorstat_%s:count=", error);
    for (int i = 0; i < MASTERS; i++) {
        const char *found = strstr(said_to(&master[i], "INFO errorstats"), field);
        if (found) sum += atoi(found + strlen(field));
    }
    return sum;
}

/* It is on its way from now on. */
static void begin_to_move(int slot, struct server *from, struct server *to) {
    char source[41], target[41];
    get_id(from, source);
    get_id(to, target);
    ask_text(to, "CLUSTER SETSLOT %d IMPORTING %s", slot, source);
    ask_text(from, "CLUSTER SETSLOT %d MIGRATING %s", slot, target);
}

/* The rest of what redis-cli --cluster reshard does, but slowly. */
static void end_to_move(int slot, struct server *from, struct server *to) {
    char target[41], key[300];
    get_id(to, target);
    while (ask_number(from, "CLUSTER COUNTKEYSINSLOT %d", slot) > 0) {
        redisReply *keys = redisCommand(from->plain, "CLUSTER GETKEYSINSLOT %d 1", slot);
        assert_non_null(keys);
        snprintf(key, sizeof key, "%s", keys->elements ? keys->element[0]->str : "");
        freeReplyObject(keys);
        if (*key) ask_text(from, "MIGRATE 127.0.0.1 %d %s 0 5000", to->port, key);
        sleep_ms(50);
    }
    sleep_ms(200);
    ask_text(to, "CLUSTER SETSLOT %d NODE %s", slot, target);
    ask_text(from, "CLUSTER SETSLOT %d NODE %s", slot, target);
}

static void move_slot(int slot, struct server *from, struct server *to) {
    begin_to_move(slot, from, to);
    for (int64_t until = now_ms() + 1500; now_ms() < until && told("TRYAGAIN") == 0;) sleep_ms(20);
    end_to_move(slot, from, to);
}

/* ---- failovers --------------------------------------------------------------------------------------------------- */

static char first[24], second[24], third[24]; /* names on these nodes */

static void choose_names(void) {
    name_on(&master[0], first);
    name_on(&master[1], second);
    name_on(&master[2], third);
}

static void await_quarantines(const char *uri) {
    await_grant(uri, first);
    await_grant(uri, second);
    await_grant(uri, third);
}

/* The first master has gone as `how` says, without having told its replica of the last grant. A lock on another node is
 * held all the time. */
static void fail_over(void (*go)(void), const char *how) {
    char uri[200];
    choose_names();
    uri_of(uri, "lease=7s");
    await_quarantines(uri);
    dlock_client *bystander = api_client("%s", uri);
    dlock_lock *held = api_lock(bystander, second, NULL), *other = api_lock(bystander, first, NULL);
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    assert_int_equal(dlock_acquire(other, 1000, NULL), 0);
    assert_int_equal(dlock_release(other, NULL), 0);
    const uint64_t fence = dlock_fence(held);
    players_begin(uri, first);
    players_await_turns();
    assert_true(relay_mute(front, "PSYNC") > 0);
    sleep_ms(100);
    players_keep(uri, first);
    sleep_ms(4000); /* what the replica heard of last ends earlier than this */
    go();
    players_await_failover(&replica, how);
    assert_true(dlock_held(held));
    assert_true(dlock_fence(held) == fence);
    dlock_free(held);
    dlock_free(other);
    dlock_close(bystander);
}

static void kill_first(void) {
    server_kill(&master[0]);
}

static void killed_master(void **state) {
    (void)state;
    fail_over(kill_first, "SIGKILL");
    players_end();
    server_again(&master[0], NULL);
}

static void stop_first(void) {
    kill(master[0].pid, SIGSTOP);
}

static void stopped_master(void **state) {
    (void)state;
    fail_over(stop_first, "SIGSTOP");
    /* It learns that it is a replica now. Nobody asks it meanwhile: what is new goes to the map's node. */
    kill(master[0].pid, SIGCONT);
    await_said(&master[0], "INFO replication", "role:slave");
    players_await_turns();
    players_end();
}

/* The node of the promoted replica grants nothing for one quarantine; the other nodes go on. */
static void promoted_replica(void **state) {
    char uri[200];
    struct dlock_error err;
    (void)state;
    choose_names();
    uri_of(uri, "lease=4s");
    await_quarantines(uri);
    assert_string_equal(said_to(&replica, "CLUSTER FAILOVER"), "OK");
    await_said(&replica, "INFO replication", "role:master");
    const int64_t promoted = now_ms();
    /* The other nodes have to learn who it is now. */
    int rc = try_lock(uri, first, &err);
    while (rc == DLOCK_EUNAVAILABLE && now_ms() - promoted < CHANGE_MS) rc = try_lock(uri, first, &err);
    assert_int_equal(rc, DLOCK_ENOTREADY);
    assert_int_equal(try_lock(uri, second, &err), 0);
    assert_int_equal(try_lock(uri, third, &err), 0);
    await_grant(uri, first);
    assert_true(now_ms() - promoted >= 4000);
}

/* Moves the slot of what the first master has written down about itself. */
static void move_marker(struct server *to) {
    redisReply *keys = redisCommand(master[0].plain, "KEYS dlock:*:incarnation");
    assert_int_equal(keys->elements, 1);
    const int slot = slot_of(keys->element[0]->str);
    freeReplyObject(keys);
    begin_to_move(slot, &master[0], to);
    end_to_move(slot, &master[0], to);
}

/* A node whose data were deleted grants nothing from the next grant on, and the others go on. So it is when it loses the
 * slot of what it has written down about itself, which a script finds out for a name without a fence. */
static void flushed_node(void **state) {
    char uri[200], unused[24];
    const char *const names[] = {first, second, third};
    dlock_lock *locks[MASTERS];
    struct dlock_error err;
    (void)state;
    choose_names();
    uri_of(uri, "lease=2s");
    await_quarantines(uri);
    dlock_client *client = api_client("%s", uri);
    for (int i = 0; i < MASTERS; i++) {
        locks[i] = api_lock(client, names[i], NULL);
        assert_int_equal(dlock_acquire(locks[i], 0, NULL), 0);
        assert_int_equal(dlock_release(locks[i], NULL), 0);
    }
    ask_text(&master[0], "FLUSHALL");
    assert_int_equal(dlock_acquire(locks[0], 0, NULL), DLOCK_ENOTREADY);
    for (int i = 1; i < MASTERS; i++) assert_int_equal(dlock_acquire(locks[i], 0, NULL), 0);
    for (int i = 0; i < 2; i++) {
        await_grant(uri, first);
        sleep_ms(1200);
        assert_int_equal(dlock_acquire(locks[0], 0, NULL), 0); /* asks */
        assert_int_equal(dlock_release(locks[0], NULL), 0);
        if (i == 0) ask_number(&master[0], "DEL {%s}:dlock:fence", first);
        move_marker(&master[1]);
        dlock_lock *lock = api_lock(client, i == 0 ? first : name_from(1000, &master[0], unused), NULL);
        const int rc = dlock_acquire(lock, 0, &err);
        if (rc != DLOCK_ENOTREADY) fail_msg("%d: %s", rc, err.message);
        dlock_free(lock);
        assert_int_equal(try_lock(uri, first, &err), DLOCK_ENOTREADY);
    }
    for (int i = 0; i < MASTERS; i++) dlock_free(locks[i]);
    dlock_close(client);
}

/* A silent node takes its own locks along, and no others that the same client renews in the same breath. */
static void silent_node(void **state) {
    char uri[200];
    const char *const names[] = {first, second, third};
    dlock_lock *locks[MASTERS];
    (void)state;
    choose_names();
    uri_of(uri, "lease=6s&quarantine=0");
    dlock_client *client = api_client("%s", uri);
    for (int i = 0; i < MASTERS; i++) {
        locks[i] = api_lock(client, names[i], NULL);
        assert_int_equal(dlock_acquire(locks[i], 0, NULL), 0);
    }
    kill(master[0].pid, SIGSTOP);
    for (int64_t until = now_ms() + CHANGE_MS; dlock_held(locks[0]); sleep_ms(10)) assert_true(now_ms() < until);
    sleep_ms(6000);
    assert_true(dlock_held(locks[1]));
    assert_true(dlock_held(locks[2]));
    kill(master[0].pid, SIGCONT);
    for (int i = 0; i < MASTERS; i++) dlock_free(locks[i]);
    dlock_close(client);
}

/* ---- slots that move --------------------------------------------------------------------------------------------- */

static void moving_slot(void **state) {
    char uri[200];
    (void)state;
    choose_names();
    uri_of(uri, "lease=10s&quarantine=0");
    players_begin(uri, first);
    players_await_turns();
    const int moved = told("MOVED"), slot = slot_of(first);
    for (int i = 0; i < 3; i++) {
        move_slot(slot, &master[i % MASTERS], &master[(i + 1) % MASTERS]);
        players_await_turns();
    }
    print_message("MOVED %d, ASK %d, TRYAGAIN %d\n", told("MOVED") - moved, told("ASK"), told("TRYAGAIN"));
    assert_true(told("MOVED") > moved);
    assert_true(told("ASK") > 0);
    assert_true(told("TRYAGAIN") > 0);
    players_end();
}

/* A node refuses what a script calls for a key that it has deleted, if the slot is on its way: the script would stop
 * half-way. Here a writer's release would have made the first reader a holder, without an end to that. */
static void no_half_of_a_script(void **state) {
    char uri[200];
    const struct dlock_options reading = {.size = sizeof reading, .mode = DLOCK_SHARED};
    (void)state;
    choose_names();
    uri_of(uri, "lease=10s&quarantine=0");
    dlock_client *writers = api_client("%s", uri), *readers = api_client("%s", uri);
    dlock_lock *writer = api_lock(writers, first, NULL);
    struct api_worker reader = {.lock = api_lock(readers, first, &reading), .timeout_ms = CHANGE_MS, .rounds = 1};
    assert_int_equal(dlock_acquire(writer, 0, NULL), 0);
    api_begin(&reader);
    while (ask_number(&master[0], "EXISTS {%s}:dlock:queue", first) == 0) sleep_ms(5);
    ask_number(&master[0], "ZADD {%s}:dlock:holders 1 x", first);
    ask_number(&master[0], "HSET {%s}:dlock:grants x 1", first);
    ask_text(&master[0], "SET {%s}:dlock:turn 9999999999999", first);
    begin_to_move(slot_of(first), &master[0], &master[1]);
    const int so_far = told("ASK") + told("TRYAGAIN");
    dlock_release(writer, NULL);
    assert_true(told("ASK") + told("TRYAGAIN") > so_far);
    assert_true(ask_number(&master[0], "PTTL %s", first) > 0);
    ask_text(&master[0], "CLUSTER SETSLOT %d STABLE", slot_of(first));
    ask_text(&master[1], "CLUSTER SETSLOT %d STABLE", slot_of(first));
    api_end(&reader);
    assert_int_equal(reader.code, 0);
    dlock_free(writer);
    dlock_free(reader.lock);
    dlock_close(writers);
    dlock_close(readers);
}

/* ---- one node is different --------------------------------------------------------------------------------------- */

/* How many messages of this kind scripts have sent at a node. */
static int sent(struct server *server, const char *command) {
    char field[60];
    snprintf(field, sizeof field, "cmdstat_%s:calls=", command);
    const char *found = strstr(said_to(server, "INFO commandstats"), field);
    return found ? atoi(found + strlen(field)) : 0;
}

/* Wake-ups of a node go over sharded channels. One that has none of the slots for these has ordinary ones. */
static void channels(void **state) {
    char uri[200];
    (void)state;
    replicated = false;
    front = NULL;
    start_cluster("15000", 15000, 15000);
    choose_names();
    assert_int_equal(slot_of(third), 15000);
    uri_of(uri, "lease=10s&quarantine=0");
    struct server *const nodes[] = {&master[0], &master[2]};
    for (int i = 0; i < 2; i++) {
        const int before[] = {sent(nodes[i], "spublish"), sent(nodes[i], "publish")};
        players_begin(uri, i ? third : first);
        players_await_turns();
        players_await_turns();
        players_end();
        const int after[] = {sent(nodes[i], "spublish"), sent(nodes[i], "publish")};
        assert_true(after[i] - before[i] > PLAYERS);
        /* Each connection says hello, by an ordinary message. */
        if (i) assert_int_equal(after[0], before[0]);
    }
}

static void uris(void **state) {
    char uri[200];
    struct dlock_error err;
    struct server alone;
    (void)state;
    uri_of(uri, "db=1");
    assert_int_equal(try_lock(uri, "tried", &err), DLOCK_EINVAL);
    assert_non_null(strstr(err.message, "one database"));
    snprintf(uri, sizeof uri, "redis://127.0.0.1:%d", master[0].port);
    assert_int_equal(try_lock(uri, "tried", &err), DLOCK_ENOTSUP);
    assert_non_null(strstr(err.message, "redis+cluster://"));
    server_start(&alone, NULL);
    snprintf(uri, sizeof uri, "redis+cluster://127.0.0.1:%d", alone.port);
    assert_int_equal(try_lock(uri, "tried", &err), DLOCK_ENOTSUP);
    assert_non_null(strstr(err.message, "redis://"));
    server_stop(&alone);
}

int main(void) {
#define TEST(name, setup) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(killed_master, setup),     TEST(stopped_master, setup),
        TEST(promoted_replica, setup),  TEST(flushed_node, setup_plain),
        TEST(silent_node, setup_plain), TEST(moving_slot, setup_plain),
        TEST(channels, NULL),           TEST(no_half_of_a_script, setup_plain),
        TEST(uris, setup_plain),
    };
    return cmocka_run_group_tests_name("cluster", tests, NULL, NULL);
}
