/* How many round trips a thousand locks take: a relay that lets no answer through before it has seen all requests of a
 * flight. A client that waits for an earlier answer never gets it. */
#include "harness.h"
#include "support/group.h"
#include "support/loopback.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LOCKS = 1000, FLIGHT = 256 };

struct relay {
    int port, listener;
    atomic_bool counts;  /* else it lets everything through */
    atomic_int commands; /* one for each lock, up to now */
    pthread_t thread;
};

/* Lines that begin with a command that changes an item. A line may come in parts. */
static void count_commands(struct relay *relay, const char *data, size_t size) {
    static const char *const words[] = {"add ", "cas ", "ms ", "md "};
    static char line[5];
    static size_t length;
    for (size_t i = 0; i < size; i++) {
        if (length < 4) line[length++] = data[i];
        line[length] = '\0';
        if (length && line[length - 1] == ' ')
            for (size_t j = 0; j < sizeof words / sizeof *words; j++)
                if (strcmp(line, words[j]) == 0) atomic_fetch_add(&relay->commands, 1);
        if (data[i] == ' ') length = 4, line[3] = '-';
        if (data[i] == '\n') length = 0;
    }
}

/* 256, 512, 768 and 1000: that makes four round trips. */
static bool flight_is_whole(const struct relay *relay) {
    const int commands = atomic_load(&relay->commands);
    return commands >= LOCKS || commands % FLIGHT == 0;
}

/* False: `from` has gone. */
static bool pass(struct relay *relay, int from, int to, bool requests) {
    char buffer[65536];
    ssize_t n = recv(from, buffer, sizeof buffer, 0);
    if (n <= 0) return false;
    if (requests && atomic_load(&relay->counts)) count_commands(relay, buffer, (size_t)n);
    return send(to, buffer, (size_t)n, MSG_NOSIGNAL) == n;
}

static void *serve(void *arg) {
    struct relay *relay = arg;
    const int client = accept(relay->listener, NULL, NULL), to = loopback_connect(server.port);
    bool open = true;
    while (open) {
        const bool held_back = atomic_load(&relay->counts) && !flight_is_whole(relay);
        struct pollfd fds[2] = {{client, POLLIN, 0}, {held_back ? -1 : to, POLLIN, 0}};
        if (poll(fds, 2, -1) < 0) continue;
        if (fds[0].revents)
            open = pass(relay, client, to, true);
        else if (fds[1].revents)
            open = pass(relay, to, client, false);
    }
    close(client);
    close(to);
    return NULL;
}

static struct held held[LOCKS];
static struct dlock_claim *claims[LOCKS];

/* Returns how many commands it took. */
static int run(struct relay *relay, struct link *link, dlock_batch *operation) {
    struct dlock_error err = {0};
    for (int i = 0; i < LOCKS; i++) claim_preset(claims[i]);
    atomic_store(&relay->commands, 0);
    if (operation(link->conn, claims, LOCKS, TIMEOUT_MS, &err) != 0)
        fail_msg("%s, with %d requests sent", err.message, atomic_load(&relay->commands));
    for (int i = 0; i < LOCKS; i++) assert_int_equal(claims[i]->result, 0);
    return atomic_load(&relay->commands);
}

TEST(a_thousand_locks_take_four_round_trips) {
    static char names[LOCKS][16];
    struct relay relay = {0};
    struct link link;
    int commands = 0;
    for (int i = 0; i < LOCKS; i++) {
        snprintf(names[i], sizeof names[i], "flown-%04d", i);
        claim_init(&held[i], names[i], 'a', i);
        claims[i] = &held[i].claim;
    }
    relay.listener = loopback_listen(&relay.port);
    assert_int_equal(pthread_create(&relay.thread, NULL, serve, &relay), 0);
    link_to(&link, relay.port, 'a');
    await_tick(&server, &link);
    atomic_store(&relay.counts, true);
    run(&relay, &link, backend->acquire);
    /* Repeated if the server's clock was read in the meantime, and late: then leases are rightly set again. */
    for (int tries = 0; tries == 0 || (tries < 5 && commands != LOCKS); tries++)
        commands = run(&relay, &link, backend->renew);
    assert_int_equal(commands, LOCKS);
    assert_int_equal(run(&relay, &link, backend->release), LOCKS);
    link_end(&link);
    pthread_join(relay.thread, NULL);
    close(relay.listener);
}

TESTS(NULL, NULL, group_begin, group_end)
