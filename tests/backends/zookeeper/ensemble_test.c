/* Three servers that lose their leader, or their majority. */
#include "harness.h"

#include "support/api.h"
#include <arpa/inet.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { MEMBERS = 3, PATIENCE_MS = 90000 }; /* three Java machines elect a leader, on a machine that may be busy */

static char folder[64];
static struct site member[MEMBERS];
static bool down[MEMBERS];

/* ---- servers ----------------------------------------------------------------------------------------------------- */

static int setup_all(void **state) {
    char command[512];
    backend_load(state);
    snprintf(folder, sizeof folder, "/tmp/dlock-zookeeper.XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "'%s' ensemble '%s' %d", DLOCK_ZOOKEEPER_SCRIPT, folder, MEMBERS);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    for (int i = 0; i < MEMBERS; i++) {
        snprintf(member[i].folder, sizeof member[i].folder, "%.50s/%d", folder, i + 1);
        assert_int_equal(fscanf(pipe, "%d", &member[i].port), 1);
    }
    assert_int_equal(pclose(pipe), 0);
    return 0;
}

static int teardown_all(void **state) {
    char command[128];
    (void)state;
    for (int i = 0; i < MEMBERS; i++)
        if (!down[i]) site_signal(&member[i], SIGKILL);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void ask(int i, char answer[4096]) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)member[i].port)};
    struct timeval patience = {1, 0};
    size_t used = 0;
    memset(answer, 0, 4096);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, (void *)&to, sizeof to) == 0 && send(fd, "srvr", 4, MSG_NOSIGNAL) == 4)
        for (ssize_t n; used < 4095 && (n = recv(fd, answer + used, 4095 - used, 0)) > 0;) used += (size_t)n;
    close(fd);
}

static bool leads(int i) {
    char answer[4096];
    ask(i, answer);
    return strstr(answer, "Mode: leader") != NULL;
}

static int find_leader(void) {
    for (int64_t until = now_ms() + PATIENCE_MS; now_ms() < until; sleep_ms(20))
        for (int i = 0; i < MEMBERS; i++)
            if (!down[i] && leads(i)) return i;
    fail_msg("no leader");
    return -1;
}

static void take_down(int i, int number) {
    site_signal(&member[i], number);
    down[i] = true;
}

static void bring_back(int i) {
    site_again(&member[i]);
    down[i] = false;
}

/* ---- through the public interface -------------------------------------------------------------------------------- */

static _Atomic int64_t lost_ms, granted_ms;

static void on_lost(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock, (void)err, (void)arg;
    atomic_store(&lost_ms, now_ms());
}

static dlock_lock *open_lock(dlock_client **client) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    struct dlock_error err;
    dlock_lock *lock;
    char uri[160];
    options.on_lost = on_lost;
    options.owner = DLOCK_OWNER_HANDLE;
    snprintf(uri, sizeof uri, "zookeeper://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d" BASE "?session=8s&timeout=2s",
             member[0].port, member[1].port, member[2].port);
    if (dlock_open(uri, NULL, client, &err) != 0) fail_msg("%s", err.message);
    assert_int_equal(dlock_new(*client, "ensemble", &options, &lock, NULL), 0);
    return lock;
}

static void *wait_main(void *lock) {
    int rc = dlock_acquire(lock, 120000, NULL);
    if (rc == 0) atomic_store(&granted_ms, now_ms());
    return NULL;
}

/* An election costs no lock. A holder that is left with a minority is told of its loss, and only after that can the
 * waiter be granted the lock. */
TEST(majority_comes_and_goes) {
    SCOPED_CLIENT *one, *two;
    SCOPED_LOCK *holder = open_lock(&one), *waiter = open_lock(&two);
    pthread_t thread;
    assert_int_equal(dlock_acquire(holder, 10000, NULL), 0);
    uint64_t fence = dlock_fence(holder);
    assert_int_equal(pthread_create(&thread, NULL, wait_main, waiter), 0);
    sleep_ms(500);

    int first = find_leader();
    take_down(first, SIGKILL);
    int second = find_leader();
    assert_int_not_equal(first, second);
    sleep_ms(3000);
    assert_true(dlock_held(holder));
    assert_int_equal(dlock_fence(holder), fence);
    assert_int_equal(atomic_load(&lost_ms), 0);
    assert_int_equal(atomic_load(&granted_ms), 0);

    take_down(second, SIGKILL);
    for (int64_t until = now_ms() + 10000; dlock_held(holder); sleep_ms(5)) assert_true(now_ms() < until);
    sleep_ms(1000);
    assert_int_not_equal(atomic_load(&lost_ms), 0);
    assert_int_equal(atomic_load(&granted_ms), 0);

    bring_back(first);
    pthread_join(thread, NULL);
    assert_true(atomic_load(&granted_ms) > atomic_load(&lost_ms));
    assert_true(dlock_fence(waiter) > fence);
    assert_int_equal(dlock_release(waiter, NULL), 0);
    assert_int_equal(dlock_release(holder, NULL), DLOCK_ELOST);
    bring_back(second);
}

/* ---- through the table of operations ----------------------------------------------------------------------------- */

/* Renews, and moves *valid_until_ms to where the holder may now think that it ends. */
static int renew_once(struct link *link, struct held *held, int timeout_ms, int64_t *valid_until_ms) {
    struct dlock_error err;
    int64_t begun = now_ms();
    int rc = held_run(backend->renew, link, held, 0, timeout_ms, &err);
    if (rc == 0 && held->claim.result == 0 && begun + held->claim.kept_ms > *valid_until_ms)
        *valid_until_ms = begun + held->claim.kept_ms;
    return rc;
}

/* A leader that was cut off still acts as one for a moment, and is cut off again. Its answer is worthless: its
 * followers have another leader, which ends the holder's session. */
TEST(deposed_leader_proves_nothing) {
    enum { SESSION_MS = 7000, AHEAD_MS = 500, BACK_MS = 60 };
    SCOPED_LINK near;
    struct uri uri;
    int old = find_leader();
    LINK(far, member[old].port, "7s", 'a');
    uri_session(&uri, member[(old + 1) % MEMBERS].port, "60s");
    uri.host[1] = (struct dlock_host){"127.0.0.1", "127.0.0.1", member[(old + 2) % MEMBERS].port};
    uri.parts.n_hosts = 2;
    assert_int_equal(link_try(&near, &uri.parts, 'b', 0, CONNECTS_MS, NULL), 0);
    CLAIM_INIT(held, "deposed", 'a', 1);
    CLAIM_INIT(next, "deposed", 'b', 1);
    assert_int_equal(acquire(&far, &held), 0);
    sleep_ms(500);
    int64_t valid_until_ms = 0;
    assert_int_equal(renew_once(&far, &held, TIMEOUT_MS, &valid_until_ms), 0);
    assert_int_not_equal(valid_until_ms, 0);

    int64_t stopped = now_ms(), granted = 0;
    site_signal(&member[old], SIGSTOP);
    down[old] = true;
    find_leader();
    assert_int_equal(persistently(&near, queue_up, &next), DLOCK_EBUSY);
    while (now_ms() < stopped + SESSION_MS - AHEAD_MS)
        sleep_ms(10); /* until then it would not end the session itself */
    site_signal(&member[old], SIGCONT);
    bool back = true;
    for (int64_t now; !granted && (now = now_ms()) - stopped < PATIENCE_MS; sleep_ms(2)) {
        /* If the old leader joined the others, the holder's client would keep its session by it. */
        if (back &&
            (renew_once(&far, &held, 20, &valid_until_ms) != 0 || now - stopped > SESSION_MS - AHEAD_MS + BACK_MS)) {
            site_signal(&member[old], SIGSTOP);
            back = false;
        }
        if (queue_up(&near, &next) == 0) granted = now_ms();
    }
    site_signal(&member[old], SIGCONT);
    down[old] = false;
    assert_int_not_equal(granted, 0);
    if (granted < valid_until_ms)
        fail_msg("granted %lld ms before the holder thought its grant would end",
                 (long long)(valid_until_ms - granted));
    assert_true(next.claim.fence > held.claim.fence);
    assert_int_equal(release(&near, &next), 0);
}

/* The question itself is one. */
static int connections(int i) {
    char answer[4096];
    ask(i, answer);
    const char *number = strstr(answer, "Connections: ");
    return number ? atoi(number + strlen("Connections: ")) - 1 : 0;
}

/* Connects to one of all servers that does not lead, and returns which it is. */
static int link_to_a_follower(struct link *link) {
    struct uri uri;
    uri_session(&uri, member[0].port, "10s");
    for (int i = 0; i < MEMBERS; i++) uri.host[i] = (struct dlock_host){"127.0.0.1", "127.0.0.1", member[i].port};
    uri.parts.n_hosts = MEMBERS;
    for (int64_t until = now_ms() + PATIENCE_MS; now_ms() < until; link_end(link), sleep_ms(100)) {
        assert_int_equal(link_try(link, &uri.parts, 'a', 0, CONNECTS_MS, NULL), 0);
        for (int i = 0; i < MEMBERS; i++)
            if (connections(i) > 0 && !leads(i)) return i;
    }
    fail_msg("no follower takes connections");
    return -1;
}

/* The server hangs just before a renewal. The client changes to another one while the grant is valid. */
TEST(hung_server_costs_no_lock) {
    SCOPED_LINK link;
    int hung = link_to_a_follower(&link);
    CLAIM_INIT(held, "hung", 'a', 1);
    assert_int_equal(acquire(&link, &held), 0);
    sleep_ms(3300);
    int64_t valid_until_ms = 0;
    assert_int_equal(renew_once(&link, &held, TIMEOUT_MS, &valid_until_ms), 0);
    sleep_ms(3200);
    site_signal(&member[hung], SIGSTOP);
    down[hung] = true;
    int rc = persistently(&link, renew, &held);
    int64_t renewed_ms = now_ms();
    site_signal(&member[hung], SIGCONT);
    down[hung] = false;
    assert_int_equal(rc, 0);
    assert_in_range(renewed_ms, 0, valid_until_ms);
    assert_int_equal(release(&link, &held), 0);
}

TESTS(NULL, NULL, setup_all, teardown_all)
