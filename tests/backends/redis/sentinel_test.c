/* redis+sentinel, with three Sentinels, a master and a replica of our own. All reach the master through a relay. */
#include "players.h"
#include "sentinels.h"
#include "support/fake.h"
#include "support/relay.h"

#include <signal.h>
#include <sys/socket.h>

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

/* The master's first quarantine ends in this time. */
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

static int setup_at_two_addresses(void **state) {
    (void)state;
    start_all("bind 127.0.0.1 127.0.0.2\n");
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

/* ---- one of them is silent --------------------------------------------------------------------------------------- */

/* How many cycles of a free lock there are in a second; none may fail. */
static int cycles_in_a_second(dlock_lock *lock) {
    int cycles = 0;
    for (int64_t until = now_ms() + 1000; now_ms() < until; cycles++) {
        struct dlock_error err;
        if (dlock_acquire(lock, 0, &err) != 0) fail_msg("%s", err.message);
        assert_int_equal(dlock_release(lock, NULL), 0);
    }
    return cycles;
}

/* Two of three are a majority, and no client waits for the third, which was stopped or lost its network. */
TEST_WITH(setup_for_no_failover, teardown, a_silent_sentinel_costs_nothing) {
    char uri[400];
    int before = 0, after = 0;
    sentinels_await_agreement();
    uri_of(uri, "", "mymaster?lease=2s");
    dlock_client *client = api_client("%s", uri);
    dlock_lock *lock = api_lock(client, "free", NULL);
    assert_int_equal(dlock_acquire(lock, CHANGE_MS, NULL), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
    for (int tries = 0; tries < 5 && after * 3 <= before; tries++) { /* the machine may be busy with something else */
        kill(sentinels[0].pid, SIGCONT);
        before = cycles_in_a_second(lock);
        kill(sentinels[0].pid, SIGSTOP);
        after = cycles_in_a_second(lock);
        print_message("%d cycles in a second, %d beside a silent Sentinel\n", before, after);
    }
    kill(sentinels[0].pid, SIGCONT);
    assert_true(after * 3 > before);
    dlock_free(lock);
    dlock_close(client);
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

/* The replica never receives this grant, and its holder never learns of a new master. */
static void grant_in_secret(const char *lease) {
    char uri[100];
    assert_true(relay_mute(front, "PSYNC") > 0);
    sleep_ms(100);
    snprintf(uri, sizeof uri, "redis://127.0.0.1:%d?lease=%s&timeout=1s", relay_port(front), lease);
    players_keep(uri, "contended");
}

TEST(killed_master) {
    begin_to_play("7s"); /* longer than the failover takes */
    grant_in_secret("7s");
    server_kill(&master);
    players_await_failover(&replica, "SIGKILL");
    players_end();
    server_again(&master, NULL);
}

TEST(cut_off_master) {
    begin_to_play("3s");
    grant_in_secret("3s");
    relay_silence(front);
    players_await_failover(&replica, "partition");
    players_end();
}

TEST(stopped_master) {
    begin_to_play("3s");
    grant_in_secret("3s");
    kill(master.pid, SIGSTOP);
    players_await_failover(&replica, "SIGSTOP");
    /* It believes that it is the master until the Sentinels correct it. No client asks it in this time. */
    kill(master.pid, SIGCONT);
    await_said(&master, "INFO replication", "role:slave");
    players_await_turns();
    players_end();
}

/* A manual failover, with all servers alive: Sentinel leaves the old master alone for some ten seconds, in which it is
 * still a master to its connected clients, while others connect to the new one. */
TEST(failed_over_by_hand) {
    char uri[400];
    begin_to_play("3s");
    assert_string_equal(ask_text(&sentinels[1], "SENTINEL FAILOVER mymaster"), "OK");
    sentinels_await_master(replica.port);
    player_uri(uri, "3s");
    players_join(uri, "contended");
    await_said(&master, "INFO replication", "role:slave");
    players_await_turns();
    players_end();
}

static void await_lock(const char *uri) {
    struct dlock_error err;
    for (int64_t until = now_ms() + CHANGE_MS; try_lock(uri, "tried", &err) != 0; sleep_ms(50))
        if (now_ms() > until) fail_msg("%s", err.message);
}

static void fail_over(int to_port) {
    for (int64_t until = now_ms() + CHANGE_MS; strcmp(said_to(&sentinels[1], "SENTINEL FAILOVER mymaster"), "OK") != 0;
         sleep_ms(50))
        assert_true(now_ms() < until); /* the last one is not over, or the other server is not well yet */
    sentinels_await_master(to_port);
}

/* The client's connection leads to the old master, which still has the lock; it is the new one that must give it back. */
TEST(released_after_a_failover_by_hand) {
    char uri[400];
    struct dlock_error err;
    player_uri(uri, "7s");
    await_lock(uri);
    dlock_client *client = api_client("%s", uri);
    dlock_lock *lock = api_lock(client, "held", NULL);
    if (dlock_acquire(lock, CHANGE_MS, &err) != 0) fail_msg("%s", err.message);
    ask_text(&master, "SET written 1");
    assert_int_equal(ask_number(&master, "WAIT 1 10000"), 1);
    fail_over(replica.port);
    assert_string_not_equal(said_to(&replica, "GET held"), "");
    if (dlock_release(lock, &err) != 0) fail_msg("%s", err.message);
    assert_string_equal(said_to(&replica, "GET held"), "");
    dlock_free(lock);
    dlock_close(client);
}

/* There and back before the old master was told: it never stopped being one, and does not know what the other one has
 * granted in between. */
TEST(the_old_master_again) {
    char uri[400], id[64];
    struct dlock_error err;
    uri_of(uri, "", "mymaster?lease=1s&timeout=1s");
    await_lock(uri);
    snprintf(id, sizeof id, "%.55s", strstr(said_to(&master, "INFO replication"), "master_replid:"));
    fail_over(replica.port);
    fail_over(relay_port(front));
    assert_non_null(strstr(said_to(&master, "INFO replication"), id));
    assert_int_equal(try_lock(uri, "tried", &err), DLOCK_ENOTREADY);
    assert_int_equal(try_lock(uri, "tried", &err), DLOCK_ENOTREADY);
}

/* ---- who votes --------------------------------------------------------------------------------------------------- */

static int find_sentinels(const struct dlock_finding *finding, void *arg) {
    if (strstr(finding->what, "Sentinels answer")) snprintf(arg, 256, "%d %s", finding->health, finding->what);
    return 0;
}

static void assert_answering(const char *uri, enum dlock_health health, const char *number, const char *host,
                             int port) {
    char said[256] = "", expected[256];
    struct dlock_error err = {0};
    dlock_client *client = api_client("%s", uri);
    assert_int_equal(dlock_check(client, find_sentinels, said, &err), 0);
    dlock_close(client);
    snprintf(expected, sizeof expected, "%d %s Sentinels answer; quorum 2; the master is %s port %d", health, number,
             host, port);
    assert_string_equal(said, expected);
}

/* However many addresses lead to it. */
TEST_WITH(setup_at_two_addresses, teardown, one_sentinel_has_one_vote) {
    char uri[400];
    struct dlock_error err;
    const int port[] = {sentinels[0].port, sentinels[1].port, sentinels[2].port};
    snprintf(uri, sizeof uri, "redis+sentinel://127.0.0.1:%d,127.0.0.2:%d/mymaster?lease=1s", port[0], port[0]);
    assert_int_equal(try_lock(uri, "tried", &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "1 of the Sentinels of \"mymaster\" can be asked, 2 have to"));
    snprintf(uri, sizeof uri, "redis+sentinel://127.0.0.1:%d,127.0.0.2:%d/mymaster?quarantine=0", port[0], port[0]);
    assert_answering(uri, DLOCK_WEAK, "1 of 1", "127.0.0.1", relay_port(front));
    snprintf(uri, sizeof uri,
             "redis+sentinel://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d,127.0.0.2:%d,127.0.0.2:%d,127.0.0.2:%d/mymaster"
             "?lease=1s&timeout=3s",
             port[0], port[1], port[2], port[0], port[1], port[2]);
    await_lock(uri);
    assert_answering(uri, DLOCK_FINE, "3 of 3", "127.0.0.1", relay_port(front));
}

/* The code of connecting to Sentinels with these addresses. */
static int connect_to(const struct dlock_host *hosts, size_t n, struct dlock_error *err) {
    const struct dlock_uri uri = {
        .scheme = "redis+sentinel", .path = "/mymaster", .hosts = hosts, .n_hosts = n, .params = NULL};
    struct link link;
    int rc = link_try(&link, &uri, 'a', 1000, TIMEOUT_MS, err);
    link_end(&link);
    return rc;
}

/* Names with addresses of both families; the Sentinels listen at one of them. */
TEST_WITH(setup_for_no_failover, teardown, addresses_without_a_sentinel) {
    static const char *const names[] = {"s0", "s1", "s2"};
    struct dlock_host hosts[2 * SENTINELS];
    struct dlock_error err;
    sentinels_await_agreement();
    for (int i = 0; i < SENTINELS; i++) {
        hosts[2 * i] = (struct dlock_host){names[i], "::1", sentinels[i].port};
        hosts[2 * i + 1] = (struct dlock_host){names[i], "127.0.0.1", sentinels[i].port};
    }
    if (connect_to(hosts, 2 * SENTINELS, &err) != 0) fail_msg("%s", err.message);
    server_kill(&sentinels[0]);
    if (connect_to(hosts, 2 * SENTINELS, &err) != 0) fail_msg("%s", err.message);
    server_kill(&sentinels[1]);
    assert_int_equal(connect_to(hosts, 2 * SENTINELS, &err), DLOCK_EUNAVAILABLE);
}

/* A name may stand for several Sentinels: absent ones are counted, although the one that answers knows no other. */
TEST_WITH(NULL, teardown, one_name_for_all_of_them) {
    static const char *const addresses[] = {"127.0.0.1", "127.0.0.2", "127.0.0.3"};
    struct dlock_host hosts[SENTINELS];
    struct dlock_error err;
    server_start(&master, NULL);
    server_start(&replica, NULL);
    front = relay_new(master.port);
    for (int i = 0; i < SENTINELS; i++) sentinel_start(i, i == 0 ? relay_port(front) : replica.port, "");
    for (int i = 0; i < SENTINELS; i++) hosts[i] = (struct dlock_host){"all", addresses[i], sentinels[0].port};
    assert_int_equal(connect_to(hosts, 3, &err), DLOCK_EUNAVAILABLE);
}

/* A Sentinel with a false id. */
struct liar {
    struct fake fake;
    char id[41];
    int master_port;
};

static bool lie(struct fake *fake, int fd, int i, const char *request, size_t size) {
    const struct liar *liar = (const struct liar *)fake;
    char port[8], text[400];
    (void)i;
    snprintf(port, sizeof port, "%d", liar->master_port);
    if (memmem(request, size, "INFO", 4))
        snprintf(text, sizeof text, "$51\r\nrun_id:%.40s\r\n\r\n\r\n", liar->id);
    else if (memmem(request, size, "GET-MASTER", 10))
        snprintf(text, sizeof text, "*2\r\n$9\r\n127.0.0.1\r\n$%zu\r\n%s\r\n", strlen(port), port);
    else
        snprintf(text, sizeof text,
                 "*6\r\n$12\r\nconfig-epoch\r\n$1\r\n0\r\n$6\r\nquorum\r\n$1\r\n2\r\n"
                 "$19\r\nnum-other-sentinels\r\n$1\r\n2\r\n");
    return send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text);
}

/* Then it has no separate vote, and the Sentinels whose ids it takes keep theirs. */
TEST_WITH(setup_for_no_failover, teardown, a_borrowed_id) {
    struct dlock_error err;
    struct liar liar = {.fake.converse = lie, .master_port = replica.port};
    sentinels_await_agreement();
    snprintf(liar.id, sizeof liar.id, "%s", strstr(said_to(&sentinels[1], "INFO server"), "run_id:") + 7);
    fake_start(&liar.fake);
    const struct dlock_host hosts[] = {{"s0", "127.0.0.1", liar.fake.port},
                                       {"s1", "127.0.0.1", sentinels[1].port},
                                       {"s2", "127.0.0.1", sentinels[2].port}};
    if (connect_to(hosts, 3, &err) != 0) fail_msg("%s", err.message);
    liar.master_port = relay_port(front);
    if (connect_to(hosts, 3, &err) != 0) fail_msg("%s", err.message);
    server_kill(&sentinels[2]);
    assert_int_equal(connect_to(hosts, 3, &err), DLOCK_EUNAVAILABLE);
    fake_stop(&liar.fake);
}

/* ---- Sentinels that are away, or do not know ---------------------------------------------------------------------- */

TEST_WITH(setup_for_no_failover, teardown, some_of_them_are_enough) {
    char uri[400];
    struct dlock_error err;
    uri_of(uri, "", "mymaster?quarantine=0&timeout=3s");
    assert_answering(uri, DLOCK_FINE, "3 of 3", "127.0.0.1", relay_port(front));
    kill(sentinels[0].pid, SIGSTOP);
    kill(sentinels[1].pid, SIGKILL);
    for (int i = 0; i < 20; i++) assert_int_equal(try_lock(uri, "tried", &err), 0);
    assert_answering(uri, DLOCK_WEAK, "1 of 3", "127.0.0.1", relay_port(front));
    kill(sentinels[2].pid, SIGSTOP);
    assert_int_equal(try_lock(uri, "tried", &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "Sentinel"));
    kill(sentinels[0].pid, SIGCONT);
    assert_int_equal(try_lock(uri, "tried", &err), 0);
}

/* It was away during the failover, and still names the old master, which is there again. */
TEST(the_latest_failover_counts) {
    char uri[400], port[16];
    struct dlock_error err;
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

TEST_WITH(setup_for_no_failover, teardown, an_unknown_name) {
    char uri[400];
    struct dlock_error err;
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

TEST_WITH(NULL, teardown, users_and_passwords) {
    char uri[400];
    struct dlock_error err;
    start_all(
        "requirepass \"secret\"\nuser scout on >word -@all +info +sentinel\nuser deaf on >word ~* &* +@all -info\n");
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
    uri_of(uri, "locks:pw@", "mymaster?quarantine=0&sentinel_user=deaf&sentinel_password=word");
    assert_int_equal(try_lock(uri, "tried", &err), DLOCK_EAUTH);
    assert_non_null(strstr(err.message, "+info"));
    uri_of(uri, "locks:bad@", "mymaster?quarantine=0&sentinel_password=secret");
    assert_int_equal(try_lock(uri, "tried", &err), DLOCK_EAUTH);
}

/* The name of one test: only that. CTest runs them side by side; CMake reads their names from the lines of this list. */
TESTS(setup, teardown, backend_load, NULL)
