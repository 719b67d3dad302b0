/* redis+cluster, with a cluster of our own. */
#include "cluster_nodes.h"
#include "support/loopback.h"

#include <hiredis.h>
#include <signal.h>
#include <stdlib.h>

static int begin(void **state) {
    (void)state;
    cluster_start("15000", SLOTS / 3 * 2, SLOTS - 1);
    return 0;
}

static int end(void **state) {
    (void)state;
    cluster_stop();
    return 0;
}

/* Each test starts with empty nodes, and leaves each with its own slots. */
static int setup(void **state) {
    (void)state;
    for (int i = 0; i < MASTERS; i++) ask_text(&master[i], "FLUSHALL");
    for (int i = 0; i < MASTERS; i++) ask_text(&master[i], "CONFIG RESETSTAT");
    choose_names();
    return 0;
}

/* How often clients have been told this error. */
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

/* ---- slots that move --------------------------------------------------------------------------------------------- */

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

/* From now on the nodes announce themselves in this way. */
static void announce(const char *name, const char *type) {
    for (int i = 0; i < MASTERS; i++) {
        ask_text(&master[i], "CONFIG SET cluster-announce-hostname %s", name);
        ask_text(&master[i], "CONFIG SET cluster-preferred-endpoint-type %s", type);
    }
    for (int i = 0; i < MASTERS; i++)
        for (int j = 0; j < MASTERS; j++) {
            char known[60];
            snprintf(known, sizeof known, "127.0.0.1:%d@", master[j].port);
            await_said(&master[i], "CLUSTER NODES", known);
        }
}

/* Also while they begin to announce names. */
TEST(moving_slot) {
    char uri[200];
    uri_of(uri, "lease=10s&quarantine=0");
    players_begin(uri, first);
    players_await_turns();
    const int moved = told("MOVED"), slot = slot_of(first);
    for (int i = 0; i < 3; i++) {
        if (i == 1) announce("localhost", "hostname");
        move_slot(slot, &master[i % MASTERS], &master[(i + 1) % MASTERS]);
        players_await_turns();
    }
    announce("", "ip");
    print_message("MOVED %d, ASK %d, TRYAGAIN %d\n", told("MOVED") - moved, told("ASK"), told("TRYAGAIN"));
    assert_true(told("MOVED") > moved);
    assert_true(told("ASK") > 0);
    assert_true(told("TRYAGAIN") > 0);
    players_end();
}

/* A node refuses what a script calls for a key that it has deleted, if the slot is on its way: the script would stop
 * half-way. Here a writer's release would have made the first reader a holder, without an end to that. */
TEST(no_half_of_a_script) {
    char uri[200];
    const struct dlock_options reading = {.size = sizeof reading, .mode = DLOCK_SHARED};
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

/* Moves the slot of what the first master has written down about itself. */
static void move_marker(struct server *to) {
    redisReply *keys = redisCommand(master[0].plain, "KEYS dlock:*:incarnation:*");
    assert_int_equal(keys->elements, 1);
    const int slot = slot_of(keys->element[0]->str);
    freeReplyObject(keys);
    begin_to_move(slot, &master[0], to);
    end_to_move(slot, &master[0], to);
}

/* A node whose data were deleted refuses the next grant and those after it, while the other nodes continue. The same
 * happens when it loses the slot of its own record, which a script discovers for a name without a fence. */
TEST(flushed_node) {
    char uri[200], unused[24];
    const char *const names[] = {first, second, third};
    dlock_lock *locks[MASTERS];
    struct dlock_error err;
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

/* As `redis-cli --cluster fix` does when a node and its data are gone: another one, which has long been a master, gets
 * its slots, and knows nothing of the locks there. */
TEST(slots_without_their_keys) {
    char uri[200];
    const int slot = slot_of(second);
    struct dlock_error err;
    uri_of(uri, "lease=2s");
    await_quarantines(uri);
    dlock_client *holds = api_client("%s", uri), *client = api_client("%s", uri);
    dlock_lock *held = api_lock(holds, second, NULL), *lock = api_lock(client, second, NULL);
    dlock_lock *near = api_lock(client, first, NULL);
    assert_int_equal(dlock_acquire(near, 0, NULL), 0); /* asks the node that gets the slot */
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    for (int i = 0; i < MASTERS; i++) ask_text(&master[i], "CLUSTER DELSLOTS %d", slot);
    ask_text(&master[0], "CLUSTER ADDSLOTS %d", slot);
    ask_text(&master[0], "CLUSTER BUMPEPOCH");
    int rc = dlock_acquire(lock, 1500, &err);
    for (int64_t until = now_ms() + CHANGE_MS; rc == DLOCK_EUNAVAILABLE && now_ms() < until;)
        rc = dlock_acquire(lock, 0, &err);
    if (rc != DLOCK_ENOTREADY && rc != DLOCK_ETIMEDOUT) fail_msg("%d: %s", rc, rc ? err.message : "granted");
    if (dlock_acquire(lock, CHANGE_MS, &err) != 0) fail_msg("%s", err.message);
    assert_false(dlock_held(held));
    dlock_lock *locks[] = {held, lock, near};
    for (int i = 0; i < 3; i++) dlock_free(locks[i]);
    dlock_close(holds);
    dlock_close(client);
}

/* A silent node's locks are lost, and no others that the same client renews at the same time. */
TEST(silent_node) {
    char uri[200];
    const char *const names[] = {first, second, third};
    dlock_lock *locks[MASTERS];
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

/* How many messages of this kind scripts have sent at a node. */
static int sent(struct server *server, const char *command) {
    char field[60];
    snprintf(field, sizeof field, "cmdstat_%s:calls=", command);
    const char *found = strstr(said_to(server, "INFO commandstats"), field);
    return found ? atoi(found + strlen(field)) : 0;
}

/* A node's wake-ups use sharded channels. A node without slots for these uses ordinary ones. In another cluster, which
 * ends in place of the first one. */
TEST_WITH(end, NULL, channels) {
    char uri[200];
    cluster_start("15000", 15000, 15000);
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

TEST(uris) {
    char uri[200];
    struct dlock_error err;
    struct server alone;
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

/* A node that announces another address, where no server listens. */
TEST_WITH(NULL, NULL, an_address_that_cannot_be_reached) {
    char uri[200], address[40], bus[16];
    struct dlock_error err;
    struct server alone;
    snprintf(bus, sizeof bus, "%d", loopback_unused_port());
    server_start(&alone, (const char *const[]){"--cluster-enabled", "yes", "--cluster-port", bus,
                                               "--cluster-announce-ip", "127.0.0.77", NULL});
    ask_text(&alone, "CLUSTER ADDSLOTSRANGE 0 %d", SLOTS - 1);
    await_said(&alone, "CLUSTER INFO", "cluster_state:ok");
    snprintf(uri, sizeof uri, "redis+cluster://127.0.0.1:%d?quarantine=0", alone.port);
    snprintf(address, sizeof address, "announces the address 127.0.0.77:%d", alone.port);
    assert_int_equal(try_lock(uri, "tried", &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, address));
    assert_non_null(strstr(err.message, "set cluster-announce-ip"));
    server_stop(&alone);
}

/* A node that announces a name, and beside it an address that clients cannot reach, as behind a load balancer. */
TEST_WITH(NULL, NULL, a_name_that_is_looked_up) {
    char uri[200], bus[16];
    struct dlock_error err = {0};
    struct server alone;
    snprintf(bus, sizeof bus, "%d", loopback_unused_port());
    server_start(&alone, (const char *const[]){"--cluster-enabled", "yes", "--cluster-port", bus,
                                               "--cluster-announce-ip", "127.0.0.77", "--cluster-announce-hostname",
                                               "localhost", "--cluster-preferred-endpoint-type", "hostname", NULL});
    ask_text(&alone, "CLUSTER ADDSLOTSRANGE 0 %d", SLOTS - 1);
    await_said(&alone, "CLUSTER INFO", "cluster_state:ok");
    snprintf(uri, sizeof uri, "redis+cluster://127.0.0.1:%d?quarantine=0", alone.port);
    if (try_lock(uri, "tried", &err) != 0) fail_msg("%s", err.message);
    ask_text(&alone, "CONFIG SET cluster-announce-hostname nowhere.invalid");
    assert_int_equal(try_lock(uri, "tried", &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "nowhere.invalid"));
    server_stop(&alone);
}

TESTS(setup, NULL, begin, end)
