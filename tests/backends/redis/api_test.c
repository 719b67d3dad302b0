/* Through the public interface: how many commands locks cost, and a server that is restarted. */
#include "api.h"
#include "support/group.h"
#include "support/relay.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what it costs ----------------------------------------------------------------------------------------------- */

static void assert_two_commands(const char *name, enum dlock_mode mode, uint32_t limit, bool reentry) {
    const struct dlock_options options = {.size = sizeof options, .mode = mode, .limit = limit};
    dlock_client *client = api_open(&server, "quarantine=0");
    dlock_lock *lock = api_lock(client, name, &options);
    struct monitor monitor;
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
    monitor_begin(&monitor, &server);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(dlock_acquire(lock, 1000, NULL), 0);
        if (reentry) assert_int_equal(dlock_acquire(lock, 1000, NULL), 0); /* costs nothing */
        if (reentry) assert_int_equal(dlock_release(lock, NULL), 0);
        assert_int_equal(dlock_release(lock, NULL), 0);
    }
    monitor_end(&monitor, &server);
    assert_int_equal(monitor.requests, 200);
    assert_int_equal(monitor.evalsha, 200);
    assert_int_equal(monitor.published, 0);
    dlock_free(lock);
    dlock_close(client);
}

TEST(an_uncontended_cycle_is_two_commands) {
    assert_two_commands("alone", DLOCK_EXCLUSIVE, 0, true);
    assert_two_commands("read", DLOCK_SHARED, 0, true);
    assert_two_commands("seats", DLOCK_PERMIT, 3, false);
}

/* One client holds and four wait, each in turn: a waiter is woken by one message and asks once more, since any client
 * may have sent it. Each calls three scripts; a TIME before the release makes the server send that message before the
 * reply. */
TEST(a_contended_acquisition_is_three_scripts) {
    enum { CLIENTS = 5, ROUNDS = 30 };
    dlock_client *clients[CLIENTS];
    struct api_worker workers[CLIENTS];
    struct monitor monitor;
    memset(workers, 0, sizeof workers);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = api_open(&server, "quarantine=0&lease=30s");
        workers[i].lock = api_lock(clients[i], "wanted", NULL);
        workers[i].timeout_ms = 30000;
        workers[i].hold_ms = 3;
    }
    /* All have waited before it is counted, and so have the connections that they need for that. */
    dlock_client *first = api_open(&server, "quarantine=0&lease=30s");
    dlock_lock *gate = api_lock(first, "wanted", NULL);
    assert_int_equal(dlock_acquire(gate, 30000, NULL), 0);
    for (int warm = 1; warm >= 0; warm--) {
        if (!warm) monitor_begin(&monitor, &server);
        for (int i = 0; i < CLIENTS; i++) {
            workers[i].rounds = warm ? 5 : ROUNDS;
            api_begin(&workers[i]);
        }
        if (warm) {
            while (ask_number(&server, "ZCARD {wanted}:dlock:queue") < CLIENTS) usleep(1000);
            assert_int_equal(dlock_release(gate, NULL), 0);
        }
        for (int i = 0; i < CLIENTS; i++) api_end(&workers[i]);
    }
    monitor_end(&monitor, &server);
    dlock_free(gate);
    dlock_close(first);
    for (int i = 0; i < CLIENTS; i++) {
        if (workers[i].code) fail_msg("%s", workers[i].err.message);
        assert_int_equal(workers[i].lost_it_ms, 0);
        dlock_free(workers[i].lock);
        dlock_close(clients[i]);
    }
    print_message("%d acquisitions: %d commands, %d messages\n", CLIENTS * ROUNDS, monitor.requests, monitor.published);
    assert_true(monitor.evalsha <= 3 * CLIENTS * ROUNDS);
    assert_true(monitor.requests <= 4 * CLIENTS * ROUNDS);
    assert_true(monitor.published <= CLIENTS * ROUNDS);
    assert_true(monitor.published > CLIENTS * ROUNDS / 2); /* there was contention */
}

/* ---- messages that another user sends -------------------------------------------------------------------------- */

static int64_t scripts_called(void) {
    const char *line = strstr(ask_text(&server, "INFO commandstats"), "cmdstat_evalsha:calls=");
    return line ? strtoll(line + strlen("cmdstat_evalsha:calls="), NULL, 10) : 0;
}

/* PUBLISH is no write command, and who may read knows the tokens. */
TEST(a_reader_s_message_grants_nothing) {
    dlock_client *holds = api_open(&server, "quarantine=0"), *waits = api_open(&server, "quarantine=0");
    dlock_lock *held = api_lock(holds, "forged", NULL), *exported = api_lock(waits, "exported", NULL);
    struct api_worker waiter = {.lock = api_lock(waits, "forged", NULL), .timeout_ms = 60000, .rounds = 1};
    char ticket[DLOCK_TICKET_MAX + 1], channel[64], token[DLOCK_TOKEN_MAX + 1], others[DLOCK_TOKEN_MAX + 1];
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    assert_int_equal(dlock_acquire(exported, 0, NULL), 0);
    assert_int_equal(dlock_export(exported, ticket, sizeof ticket, NULL), 0);
    snprintf(others, sizeof others, "%s", ask_text(&server, "GET exported"));
    api_begin(&waiter);
    while (ask_number(&server, "ZCARD {forged}:dlock:queue") < 1) sleep_ms(2);
    snprintf(token, sizeof token, "%s",
             ask_text(&server, "EVAL %s 0", "return redis.call('ZRANGE', '{forged}:dlock:queue', 0, 0)[1]"));
    snprintf(channel, sizeof channel, "dlock:%.24s", token);
    const int64_t before = scripts_called();
    ask_number(&server, "PUBLISH %s %s", channel, "look exported");
    for (int i = 0; i < 2; i++) { /* with a grant in it, and as dlock writes it */
        const char *said[] = {"36028797018963900 1 600000 ", ""};
        char text[400];
        snprintf(text, sizeof text, "granted %s %sexported", others, said[i]);
        ask_number(&server, "PUBLISH %s %s", channel, text);
        snprintf(text, sizeof text, "granted %s %sforged", token, said[i]);
        ask_number(&server, "PUBLISH %s %s", channel, text);
    }
    while (scripts_called() == before && !waiter.got_it_ms) sleep_ms(2); /* it asks */
    sleep_ms(100);
    assert_int_equal(waiter.got_it_ms, 0);
    assert_true(dlock_held(held));
    assert_int_equal(dlock_release(held, NULL), 0);
    api_end(&waiter);
    if (waiter.code) fail_msg("%s", waiter.err.message);
    assert_true(waiter.fence > 0 && waiter.fence < (uint64_t)1 << 62);
    assert_string_equal(ask_text(&server, "GET exported"), others);
    dlock_lock *locks[] = {held, exported, waiter.lock};
    for (int i = 0; i < 3; i++) dlock_free(locks[i]);
    dlock_close(holds);
    dlock_close(waits);
}

/* ---- restarts ---------------------------------------------------------------------------------------------------- */

static void restart(void) {
    server_kill(&server);
    server_again(&server, NULL);
}

/* Without quarantine: the holder learns of its loss at its next renewal, and others get the lock at once. */
TEST(restarted_while_held) {
    dlock_client *client = api_open(&server, "lease=1s&quarantine=0"), *other = api_open(&server, "quarantine=0");
    struct api_worker holder = {.lock = api_lock(client, "held", NULL), .rounds = 1, .hold_ms = 15000};
    dlock_lock *lock = api_lock(other, "held", NULL);
    struct dlock_error err = {0};
    uint64_t fence;
    api_begin(&holder);
    api_await_grant(&holder);
    assert_int_equal(dlock_acquire(lock, 0, &err), DLOCK_EBUSY);
    assert_non_null(strstr(err.message, "lock \"held\" is busy: held by a process on "));
    restart();
    if (dlock_acquire(lock, 10000, &err) != 0) fail_msg("%s", err.message);
    fence = dlock_fence(lock);
    api_end(&holder);
    if (holder.code) fail_msg("%d: %s", holder.code, holder.err.message);
    assert_true(holder.lost_it_ms > 0);
    assert_true(fence > holder.fence);
    assert_int_equal(dlock_release(lock, NULL), 0);
    dlock_free(lock);
    dlock_free(holder.lock);
    dlock_close(client);
    dlock_close(other);
}

/* A holder that got the lock by hand-over is killed: its waiters, all of them alive, notice at the end of its lease,
 * whatever their places, and get the lock in order. */
TEST(ten_who_wait_replace_a_killed_holder) {
    enum { WAITING = 10, LEASE = 2000, SLACK_MS = 2000 };
    struct api_worker worker[WAITING];
    dlock_client *clients[WAITING];
    struct link before, killed, ear;
    struct held first, second;
    struct dlock_wake wake;
    int64_t asked_ms, answered_ms;
    link_to(&before, server.port, 'e');
    link_to(&killed, server.port, 'f');
    link_to(&ear, server.port, 'f');
    link_listen(&ear);
    held_new(&first, &before, "bereft");
    held_new(&second, &killed, "bereft");
    assert_int_equal(acquire(&before, &first), 0);
    assert_int_equal(queue_up(&killed, &second), DLOCK_EBUSY);
    for (int i = 0; i < WAITING; i++) {
        clients[i] = api_open(&server, "quarantine=0");
        worker[i] = (struct api_worker){.lock = api_lock(clients[i], "bereft", NULL), .timeout_ms = 60000, .rounds = 1};
        api_begin(&worker[i]);
        while (ask_number(&server, "ZCARD {bereft}:dlock:queue") < i + 2) sleep_ms(2);
    }
    assert_int_equal(release(&before, &first), 0);
    assert_true(wake_within(&ear, &wake, 5000));
    second.claim.lease_ms = LEASE;
    asked_ms = now_ms();
    assert_int_equal(renew(&killed, &second), 0);
    answered_ms = now_ms();
    for (int i = 0; i < WAITING; i++) {
        api_end(&worker[i]);
        if (worker[i].code) fail_msg("%s", worker[i].err.message);
        if (i) assert_true(worker[i].fence > worker[i - 1].fence);
        if (i == 0) assert_in_range(worker[0].got_it_ms, asked_ms + LEASE, answered_ms + LEASE + SLACK_MS);
        dlock_free(worker[i].lock);
        dlock_close(clients[i]);
    }
    link_end(&before);
    link_end(&killed);
    link_end(&ear);
}

/* Without quarantine: the queue is gone, and who waited in it gets the lock all the same. */
TEST(restarted_while_waiting) {
    dlock_client *client = api_open(&server, "quarantine=0"), *other = api_open(&server, "lease=2s&quarantine=0");
    struct api_worker waiter = {.lock = api_lock(client, "waited for", NULL), .timeout_ms = 20000, .rounds = 1};
    dlock_lock *lock = api_lock(other, "waited for", NULL);
    int64_t begin;
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    api_begin(&waiter);
    while (ask_number(&server, "ZCARD %s", "{waited for}:dlock:queue") == 0) sleep_ms(5);
    restart();
    begin = now_ms();
    api_end(&waiter);
    if (waiter.code) fail_msg("%d: %s", waiter.code, waiter.err.message);
    assert_true(waiter.got_it_ms - begin < 8000);
    while (dlock_held(lock)) sleep_ms(5); /* the next renewal tells */
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    dlock_free(lock);
    dlock_free(waiter.lock);
    dlock_close(client);
    dlock_close(other);
}

/* With quarantine, no other client gets the lock before its holder has noticed. */
TEST(quarantine_protects_the_holder) {
    static const char query[] = "lease=2s"; /* and so is the quarantine */
    dlock_client *client, *other;
    struct api_worker holder = {.rounds = 1, .hold_ms = 15000}, waiter = {.timeout_ms = 20000, .rounds = 1};
    struct dlock_error err = {0};
    dlock_lock *lock;
    client = api_open(&server, query);
    other = api_open(&server, query);
    holder.timeout_ms = 10000; /* the server may have been started just now */
    holder.lock = api_lock(client, "protected", NULL);
    waiter.lock = api_lock(other, "protected", NULL);
    api_begin(&holder);
    api_await_grant(&holder);
    api_begin(&waiter);
    while (ask_number(&server, "ZCARD {protected}:dlock:queue") == 0) sleep_ms(5);
    restart();
    lock = api_lock(other, "another", NULL);
    assert_int_equal(dlock_acquire(lock, 0, &err), DLOCK_ENOTREADY);
    assert_non_null(strstr(err.message, "the server grants nothing for another "));
    assert_non_null(strstr(err.message, "quarantine"));
    api_end(&holder);
    api_end(&waiter);
    if (holder.code) fail_msg("%d: %s", holder.code, holder.err.message);
    if (waiter.code) fail_msg("%d: %s", waiter.code, waiter.err.message);
    assert_true(holder.lost_it_ms > 0);
    assert_true(waiter.got_it_ms > holder.lost_it_ms);
    assert_true(waiter.fence > holder.fence);
    dlock_free(lock);
    dlock_free(holder.lock);
    dlock_free(waiter.lock);
    dlock_close(client);
    dlock_close(other);
}

/* A server outage costs clients only time, as long as the server forgets nothing. */
TEST(restarted_with_a_journal) {
    static const char *const journal[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    struct server safe;
    dlock_client *client;
    struct api_worker holder = {.rounds = 1, .hold_ms = 4000, .timeout_ms = 20000};
    server_start(&safe, journal);
    client = api_open(&safe, "lease=6s&quarantine=6s");
    holder.lock = api_lock(client, "journalled", NULL);
    api_begin(&holder);
    api_await_grant(&holder);
    server_kill(&safe);
    server_again(&safe, journal);
    api_end(&holder);
    if (holder.code) fail_msg("%d: %s", holder.code, holder.err.message);
    assert_int_equal(holder.lost_it_ms, 0);
    dlock_free(holder.lock);
    dlock_close(client);
    server_stop(&safe);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* ---- fork -------------------------------------------------------------------------------------------------------- */

/* A child closes the connections it inherited; its own child finds other files under their numbers. */
TEST(a_child_of_a_child_closes_nothing) {
    enum { FILES = 40 };
    dlock_client *client = api_open(&server, "quarantine=0");
    dlock_lock *lock = api_lock(client, "forked twice", NULL);
    int status;
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    pid_t child = fork();
    if (child == 0) {
        int files[FILES], inner = 0, closed = 0;
        for (int i = 0; i < FILES; i++) files[i] = open("/dev/null", O_RDONLY);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            for (int i = 0; i < FILES; i++) closed += fcntl(files[i], F_GETFD) < 0;
            _exit(closed);
        }
        _exit(waitpid(grandchild, &inner, 0) == grandchild ? inner != 0 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
    dlock_free(lock);
    dlock_close(client);
}

/* The exit status of a child that uses what it inherited; 0: all is as documented. */
static int child_status(dlock_client *client, dlock_lock *lock) {
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        dlock_lock *fresh;
        alarm(20);
        if (dlock_acquire(lock, -1, NULL) != DLOCK_EFORKED || dlock_release(lock, NULL) != DLOCK_EFORKED) _exit(1);
        if (dlock_held(lock) || dlock_fence(lock) || dlock_remaining_ms(lock)) _exit(2);
        if (dlock_new(client, "a child's", NULL, &fresh, NULL) != DLOCK_EFORKED) _exit(3);
        dlock_free(lock);
        dlock_close(client);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* Waits until `count` (of the relay) is not `before` any more. */
static void await_change(struct relay *relay, int (*count)(struct relay *), int before) {
    for (int64_t until = now_ms() + 20000; count(relay) == before; sleep_ms(1))
        if (now_ms() > until) fail_msg("nobody has said anything");
}

static void expect_renewed(dlock_lock *lock, int64_t for_ms) {
    for (int64_t until = now_ms() + for_ms; now_ms() < until; sleep_ms(10)) assert_true(dlock_held(lock));
}

/* The server has renewed the lock, and its answer is on the way, when the process forks: the answer is the parent's. */
TEST(a_fork_in_the_middle_of_a_renewal) {
    struct relay *relay = relay_new(server.port);
    dlock_client *client = api_client("redis://127.0.0.1:%d?quarantine=0&lease=3s", relay_port(relay));
    dlock_lock *lock = api_lock(client, "forked", NULL);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    uint64_t fence = dlock_fence(lock);
    await_change(relay, relay_trips, relay_trips(relay)); /* the first renewal: the next one has its connection */
    while (dlock_remaining_ms(lock) < 2500) sleep_ms(1);
    relay_hold(relay, RELAY_ANSWERS, true);
    await_change(relay, relay_trips, relay_trips(relay));
    int trips = relay_trips(relay), taken = relay_taken(relay);
    assert_int_equal(child_status(client, lock), 0);
    assert_int_equal(relay_trips(relay), trips);
    relay_hold(relay, RELAY_ANSWERS, false);
    expect_renewed(lock, 4500);
    assert_int_equal(relay_taken(relay), taken); /* by the same connections */
    assert_int_equal(dlock_fence(lock), fence);
    assert_int_equal(dlock_release(lock, NULL), 0);
    dlock_free(lock);
    dlock_close(client);
    relay_end(relay);
}

/* The connection is there, and the server's greeting on the way. */
TEST(a_fork_in_the_middle_of_a_connect) {
    struct relay *relay = relay_new(server.port);
    dlock_client *client = api_client("redis://127.0.0.1:%d?quarantine=0&lease=3s&timeout=20s", relay_port(relay));
    dlock_lock *lock = api_lock(client, "forked", NULL);
    struct api_worker worker = {.lock = lock, .timeout_ms = 20000, .rounds = 1, .hold_ms = 4500};
    relay_hold(relay, RELAY_ANSWERS, true);
    relay_hang_up(relay);
    int trips = relay_trips(relay);
    api_begin(&worker);
    await_change(relay, relay_trips, trips);
    int taken = relay_taken(relay);
    assert_int_equal(child_status(client, lock), 0);
    assert_int_equal(relay_taken(relay), taken);
    relay_hold(relay, RELAY_ANSWERS, false);
    api_await_grant(&worker);
    api_end(&worker); /* held for longer than a lease */
    if (worker.code) fail_msg("%s", worker.err.message);
    dlock_free(lock);
    dlock_close(client);
    relay_end(relay);
}

/* Each scheme has an alias, by which the same module is found. */
TEST(valkey_is_redis) {
    static const char host[] = "127.0.0.1";
    char uri[80];
    struct dlock_error err;
    dlock_client *client = api_open(&server, "quarantine=0"), *other;
    dlock_lock *lock = api_lock(client, "aliased", NULL);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    other = api_client("valkey://%s:%d?quarantine=0", host, server.port);
    assert_string_equal(dlock_client_backend(other)->name, "redis");
    dlock_lock *same = api_lock(other, "aliased", NULL);
    assert_int_equal(dlock_acquire(same, 0, NULL), DLOCK_EBUSY);
    assert_int_equal(dlock_release(lock, NULL), 0);
    assert_int_equal(dlock_acquire(same, 0, NULL), 0);
    dlock_free(same);
    dlock_close(other);
    dlock_free(lock);
    dlock_close(client);
    snprintf(uri, sizeof uri, "valkey+cluster://%s:%d", host, server.port);
    assert_int_equal(dlock_open(uri, NULL, &other, &err), DLOCK_ENOTSUP);
    assert_non_null(strstr(err.message, "no member of a cluster"));
    snprintf(uri, sizeof uri, "valkey+sentinel://%s:%d/mymaster", host, server.port);
    assert_int_not_equal(dlock_open(uri, NULL, &other, &err), DLOCK_ENOBACKEND);
    assert_non_null(strstr(err.message, "Sentinel"));
}

TESTS(NULL, NULL, group_begin, group_end)
