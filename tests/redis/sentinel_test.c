/* redis+sentinel, with three Sentinels, a master and a replica of our own. All reach the master through a relay. */
#include "players.h"
#include "sentinels.h"
#include "support/relay.h"

#include <signal.h>

static struct server master, replica;
static struct relay *front;

static void start_all(const char *more) {
    server_start(&master, NULL);
    server_start(&replica, NULL);
    ask_text(&master, "CONFIG SET repl-diskless-sync-delay 0");
    front = relay_new(master.port);
    follow(&replica, relay_port(front));
    for (int i = 0; i < SENTINELS; i++) sentinel_start(i, relay_port(front), more);
}

static int setup_for_no_failover(void **state) {
    (void)state;
    start_all("");
    return 0;
}

/* The master's first quarantine goes by meanwhile. */
static int setup(void **state) {
    char uri[100];
    struct dlock_error err;
    (void)state;
    start_all("");
    snprintf(uri, sizeof uri, "redis://127.0.0.1:%d?lease=7s", master.port);
    if (try_lock(uri, "tried", &err) != DLOCK_ENOTREADY) fail_msg("%s", err.message);
    sentinels_await_agreement();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    sentinels_stop();
    relay_end(front);
    server_stop(&replica);
    server_stop(&master);
    return 0;
}

static void uri_of(char uri[400], const char *user, const char *path) {
    snprintf(uri, 400, "redis+sentinel://%s127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/%s", user, sentinels[0].port,
             sentinels[1].port, sentinels[2].port, path);
}

/* ---- failovers --------------------------------------------------------------------------------------------------- */

static void player_uri(char uri[400], const char *lease) {
    char path[60];
    snprintf(path, sizeof path, "mymaster?lease=%s&timeout=1s", lease);
    uri_of(uri, "", path);
}

static void begin_to_play(const char *lease) {
    char uri[400];
    player_uri(uri, lease);
    players_begin(uri, "contended");
    players_await_turns();
}

/* The replica never hears of this grant, and the one that has it of no new master. */
static void grant_in_secret(const char *lease) {
    char uri[100];
    assert_true(relay_mute(front, "PSYNC") > 0);
    sleep_ms(100);
    snprintf(uri, sizeof uri, "redis://127.0.0.1:%d?lease=%s&timeout=1s", relay_port(front), lease);
    players_keep(uri, "contended");
}

static void killed_master(void **state) {
    (void)state;
    begin_to_play("7s"); /* longer than the failover takes */
    grant_in_secret("7s");
    server_kill(&master);
    players_await_failover(&replica, "SIGKILL");
    players_end();
    server_again(&master, NULL);
}

static void cut_off_master(void **state) {
    (void)state;
    begin_to_play("3s");
    grant_in_secret("3s");
    relay_silence(front);
    players_await_failover(&replica, "partition");
    players_end();
}

static void stopped_master(void **state) {
    (void)state;
    begin_to_play("3s");
    grant_in_secret("3s");
    kill(master.pid, SIGSTOP);
    players_await_failover(&replica, "SIGSTOP");
    /* It believes that it is the master until the Sentinels tell it otherwise. Nobody asks it meanwhile. */
    kill(master.pid, SIGCONT);
    await_said(&master, "INFO replication", "role:slave");
    players_await_turns();
    players_end();
}

/* By hand, nobody being dead: Sentinel leaves the old master alone for some ten seconds, which goes on as a master for
 * those who are connected to it, while others come to the new one. */
static void failed_over_by_hand(void **state) {
    char uri[400];
    (void)state;
    begin_to_play("3s");
    assert_string_equal(ask_text(&sentinels[1], "SENTINEL FAILOVER mymaster"), "OK");
    sentinels_await_master(replica.port);
    player_uri(uri, "3s");
    players_join(uri, "contended");
    await_said(&master, "INFO replication", "role:slave");
    players_await_turns();
    players_end();
}

static void fail_over(int to_port) {
    for (int64_t until = now_ms() + CHANGE_MS; strcmp(said_to(&sentinels[1], "SENTINEL FAILOVER mymaster"), "OK") != 0;
         sleep_ms(50))
        assert_true(now_ms() < until); /* the last one is not over, or the other server is not well yet */
    sentinels_await_master(to_port);
}

/* There and back before the old master was told: it has been one all the time, and does not know what the other has
 * granted meanwhile. */
static void the_old_master_again(void **state) {
    char uri[400], id[64];
    struct dlock_error err;
    (void)state;
    uri_of(uri, "", "mymaster?lease=1s&timeout=1s");
    for (int64_t until = now_ms() + CHANGE_MS; try_lock(uri, "tried", &err) != 0; sleep_ms(50))
        assert_true(now_ms() < until);
    snprintf(id, sizeof id, "%.55s", strstr(said_to(&master, "INFO replication"), "master_replid:"));
    fail_over(replica.port);
    fail_over(relay_port(front));
    assert_non_null(strstr(said_to(&master, "INFO replication"), id));
    assert_int_equal(try_lock(uri, "tried", &err), DLOCK_ENOTREADY);
    assert_int_equal(try_lock(uri, "tried", &err), DLOCK_ENOTREADY);
}

/* ---- Sentinels that are away, or do not know ---------------------------------------------------------------------- */

static int find_sentinels(const struct dlock_finding *finding, void *arg) {
    if (strstr(finding->what, "Sentinels answer")) snprintf(arg, 256, "%d %s", finding->health, finding->what);
    return 0;
}

static void assert_answering(const char *uri, enum dlock_health health, int number) {
    char said[256] = "", expected[256];
    struct dlock_error err = {0};
    dlock_client *client = api_client("%s", uri);
    assert_int_equal(dlock_check(client, find_sentinels, said, &err), 0);
    dlock_close(client);
    snprintf(expected, sizeof expected, "%d %d of 3 Sentinels answer; quorum 2; the master is 127.0.0.1 port %d",
             health, number, relay_port(front));
    assert_string_equal(said, expected);
}

static void some_of_them_are_enough(void **state) {
    char uri[400];
    struct dlock_error err;
    (void)state;
    uri_of(uri, "", "mymaster?quarantine=0&timeout=3s");
    assert_answering(uri, DLOCK_FINE, 3);
    kill(sentinels[0].pid, SIGSTOP);
    kill(sentinels[1].pid, SIGKILL);
    for (int i = 0; i < 20; i++) assert_int_equal(try_lock(uri, "tried", &err), 0);
    assert_answering(uri, DLOCK_WEAK, 1);
    kill(sentinels[2].pid, SIGSTOP);
    assert_int_equal(try_lock(uri, "tried", &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "Sentinel"));
    kill(sentinels[0].pid, SIGCONT);
    assert_int_equal(try_lock(uri, "tried", &err), 0);
}

/* It was away during the failover, and still names the old master, which is there again. */
static void the_latest_failover_counts(void **state) {
    char uri[400], port[16];
    struct dlock_error err;
    (void)state;
    kill(sentinels[0].pid, SIGSTOP);
    assert_string_equal(ask_text(&sentinels[1], "SENTINEL FAILOVER mymaster"), "OK");
    await_said(&replica, "INFO replication", "role:master");
    snprintf(port, sizeof port, ":%d,", replica.port);
    for (int i = 1; i < SENTINELS; i++) await_said(&sentinels[i], "INFO sentinel", port);
    await_said(&master, "INFO replication", "role:slave");
    said_to(&master, "REPLICAOF NO ONE");
    kill(sentinels[0].pid, SIGCONT);
    uri_of(uri, "", "mymaster?quarantine=0");
    for (int i = 0; i < 5; i++) {
        assert_int_equal(try_lock(uri, "tried", &err), 0);
        assert_string_not_equal(said_to(&replica, "GET {tried}:dlock:fence"), "");
        said_to(&replica, "DEL {tried}:dlock:fence");
    }
}

static void an_unknown_name(void **state) {
    char uri[400];
    struct dlock_error err;
    (void)state;
    uri_of(uri, "", "other?quarantine=0");
    assert_int_equal(try_lock(uri, "tried", &err), DLOCK_EINVAL);
    assert_non_null(strstr(err.message, "knows no master \"other\""));
    uri_of(uri, "", "?quarantine=0");
    assert_int_equal(try_lock(uri, "tried", &err), DLOCK_EINVAL);
    assert_non_null(strstr(err.message, "/mymaster"));
    snprintf(uri, sizeof uri, "redis+sentinel://127.0.0.1:%d/mymaster", master.port);
    assert_int_equal(try_lock(uri, "tried", &err), DLOCK_EPROTO);
    assert_non_null(strstr(err.message, "a Redis server, not a Sentinel"));
    snprintf(uri, sizeof uri, "redis://127.0.0.1:%d?sentinel_password=x", master.port);
    assert_int_equal(try_lock(uri, "tried", &err), DLOCK_EINVAL);
}

static void users_and_passwords(void **state) {
    char uri[400];
    struct dlock_error err;
    (void)state;
    start_all("requirepass \"secret\"\nuser scout on >word ~* &* +@all\n");
    ask_text(&master, "ACL SETUSER locks on >pw ~* &* +@all");
    ask_text(&master, "ACL SETUSER default resetpass >other");
    uri_of(uri, "locks:pw@", "mymaster?quarantine=0&sentinel_password=secret");
    assert_int_equal(try_lock(uri, "tried", &err), 0);
    uri_of(uri, "locks:pw@", "mymaster?quarantine=0&sentinel_user=scout&sentinel_password=word");
    assert_int_equal(try_lock(uri, "tried", &err), 0);
    static const char *const wrong[] = {"", "&sentinel_password=unsaid",
                                        "&sentinel_user=scout&sentinel_password=unsaid"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char path[100];
        snprintf(path, sizeof path, "mymaster?quarantine=0%s", wrong[i]);
        uri_of(uri, "locks:pw@", path);
        assert_int_equal(try_lock(uri, "tried", &err), DLOCK_EAUTH);
        assert_non_null(strstr(err.message, "sentinel_password="));
        assert_null(strstr(err.message, "unsaid"));
    }
    uri_of(uri, "locks:bad@", "mymaster?quarantine=0&sentinel_password=secret");
    assert_int_equal(try_lock(uri, "tried", &err), DLOCK_EAUTH);
}

/* The name of one test: only that. CTest runs them side by side; CMake reads their names from the lines of this list. */
int main(int argc, char **argv) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(killed_master),
        TEST(cut_off_master),
        TEST(stopped_master),
        TEST(failed_over_by_hand),
        TEST(the_old_master_again),
        TEST(the_latest_failover_counts),
        cmocka_unit_test_setup_teardown(some_of_them_are_enough, setup_for_no_failover, teardown),
        cmocka_unit_test_setup_teardown(an_unknown_name, setup_for_no_failover, teardown),
        cmocka_unit_test_teardown(users_and_passwords, teardown),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("sentinel", tests, NULL, NULL);
}
