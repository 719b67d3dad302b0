/* A network that is parted: on one side the old master, one Sentinel of three and most clients; on the other the replica,
 * two Sentinels and the other clients. All talk through relays, and each begins with the name of its side, which is a
 * user of all servers. */
#include "players.h"
#include "sentinels.h"
#include "support/loopback.h"
#include "support/relay.h"

static struct server master, replica;
static struct relay *to_master, *to_replica, *to_sentinel[SENTINELS];

static const char *const side_of[SENTINELS] = {"east", "west", "west"};
#define USERS "user east on >pw ~* &* +@all\nuser west on >pw ~* &* +@all\n"

static void set_users(struct server *server) {
    ask_text(server, "ACL SETUSER east on >pw ~* &* +@all");
    ask_text(server, "ACL SETUSER west on >pw ~* &* +@all");
}

/* Others see it behind its relay. */
static void start_replica(void) {
    server_start(&replica, NULL);
    set_users(&replica);
    to_replica = relay_new(replica.port);
    ask_text(&replica, "CONFIG SET masteruser west");
    ask_text(&replica, "CONFIG SET masterauth pw");
    ask_text(&replica, "CONFIG SET replica-announce-ip 127.0.0.1");
    ask_text(&replica, "CONFIG SET replica-announce-port %d", relay_port(to_replica));
    follow(&replica, relay_port(to_master));
}

/* Its relay needs to know its port, and it needs to know its relay's. */
static void start_sentinel(int i) {
    char more[400];
    const int port = loopback_unused_port();
    snprintf(more, sizeof more,
             USERS "sentinel announce-ip 127.0.0.1\nsentinel announce-port %d\nsentinel auth-user mymaster %s\n"
                   "sentinel auth-pass mymaster pw\nsentinel sentinel-user %s\nsentinel sentinel-pass pw\n",
             port, side_of[i], side_of[i]);
    sentinel_start(i, relay_port(to_master), more);
    to_sentinel[i] = relay_at("127.0.0.1", port, sentinels[i].port);
    assert_non_null(to_sentinel[i]);
}

static int setup(void **state) {
    (void)state;
    server_start(&master, NULL);
    set_users(&master);
    ask_text(&master, "CONFIG SET repl-diskless-sync-delay 0");
    to_master = relay_new(master.port);
    start_replica();
    for (int i = 0; i < SENTINELS; i++) start_sentinel(i);
    sentinels_await_agreement();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    sentinels_stop();
    for (int i = 0; i < SENTINELS; i++) relay_end(to_sentinel[i]);
    relay_end(to_replica);
    relay_end(to_master);
    server_stop(&replica);
    server_stop(&master);
    return 0;
}

static void part(void) {
    relay_cut(to_master, "west");
    relay_cut(to_sentinel[0], "west");
    relay_cut(to_sentinel[1], "east");
    relay_cut(to_sentinel[2], "east");
    relay_cut(to_replica, "east");
}

static void play_together(const char *east, const char *west) {
    players_begin(east, "contended");
    players_join(west, "contended");
    players_await_turns();
    assert_int_equal(players_met(), 0);
}

/* Plays on, until those on the other side are served by the new master. */
static void play_apart(void) {
    part();
    await_said(&replica, "INFO replication", "role:master");
    players_await_late_turns();
}

TEST(a_majority_of_sentinels_has_to_confirm) {
    char uri[2][400];
    for (int i = 0; i < 2; i++)
        snprintf(uri[i], sizeof uri[i],
                 "redis+sentinel://%s:pw@127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/"
                 "mymaster?sentinel_user=%s&sentinel_password=pw&lease=2s&timeout=1s",
                 side_of[i], relay_port(to_sentinel[0]), relay_port(to_sentinel[1]), relay_port(to_sentinel[2]),
                 side_of[i]);
    play_together(uri[0], uri[1]);
    players_keep(uri[0], "contended");
    sleep_ms(1500); /* it has all the connections that renew it at the old master */
    play_apart();
    sleep_ms(2000);
    players_end();
}

/* docs/servers/redis.md says so, and what to do about it. */
TEST(a_list_of_servers_has_two_holders) {
    char uri[2][400];
    for (int i = 0; i < 2; i++)
        snprintf(uri[i], sizeof uri[i], "redis://%s:pw@127.0.0.1:%d,127.0.0.1:%d?lease=2s&timeout=1s", side_of[i],
                 relay_port(to_master), relay_port(to_replica));
    play_together(uri[0], uri[1]);
    play_apart();
    players_await_turns(); /* also on this side, where the old master first waits for clients that it cannot reach */
    const int before = players_met();
    sleep_ms(2000);
    players_stop();
    print_message("two had it %d times in 2 s\n", players_met() - before);
    assert_true(players_met() > before);
}

TESTS(setup, teardown, NULL, NULL)
