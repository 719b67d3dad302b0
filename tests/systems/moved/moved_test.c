/* A server that moves: its name stands for one address first, and for another one later, as in a cluster of containers.
 * Both are proxies in front of the server that the first argument names, so what it knows moves along. Several names
 * stand for the same server, as if they were its members. */
#include "support/api.h"
#include "support/clock.h"
#include "support/relay.h"
#include "support/test.h"

#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAMES = 3, LEASE_MS = 8000, STEP_MS = 1500, PATIENCE_MS = 30000 };

static const char *uri;

/* ---- the name server --------------------------------------------------------------------------------------------- */

static struct moving {
    const char *host, *before, *after;
    _Atomic(const char *) address;
    struct relay *old_place, *new_place;
    int port;
} names[NAMES] = {{.host = "moving1.test", .before = "127.0.0.2", .after = "127.0.0.3"},
                  {.host = "moving2.test", .before = "127.0.0.2", .after = "127.0.0.3"},
                  {.host = "moving3.test", .before = "127.0.0.4", .after = "127.0.0.5"}},
  *const first = names;
static atomic_bool hangs; /* the name server does not answer */

/* Overrides libc's, also for the library. */
__attribute__((visibility("default"))) int getaddrinfo(const char *name, const char *service,
                                                       const struct addrinfo *hints, struct addrinfo **list) {
    typedef int look_up(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **list);
    look_up *real;
    void *symbol = dlsym(RTLD_NEXT, "getaddrinfo");
    memcpy(&real, &symbol, sizeof real);
    for (size_t i = 0; name && !(hints && hints->ai_flags & AI_NUMERICHOST) && i < NAMES; i++)
        if (strcmp(name, names[i].host) == 0) {
            while (hangs) sleep_ms(10);
            return real(names[i].address, service, hints, list);
        }
    return real(name, service, hints, list);
}

/* ---- the servers ------------------------------------------------------------------------------------------------- */

/* `uri` is scheme://[user@]127.0.0.1:port… */
static const char *authority(void) {
    const char *at = strstr(uri, "127.0.0.1:");
    assert_non_null(at);
    return at;
}

static void place(struct moving *name, int server_port) {
    for (int tries = 0; !name->new_place && tries < 20; tries++) {
        if (name->old_place) relay_end(name->old_place);
        name->old_place = relay_at(name->before, 0, server_port);
        assert_non_null(name->old_place);
        name->port = relay_port(name->old_place);
        name->new_place = relay_at(name->after, name->port, server_port);
    }
    assert_non_null(name->new_place);
    name->address = name->before;
}

static int setup(void **state) {
    (void)state;
    hangs = false;
    for (size_t i = 0; i < NAMES; i++) place(&names[i], atoi(strchr(authority(), ':') + 1));
    return 0;
}

static void leave_old_place(struct moving *name) {
    relay_end(name->old_place);
    name->old_place = NULL;
}

static int teardown(void **state) {
    (void)state;
    for (size_t i = 0; i < NAMES; i++) {
        if (names[i].old_place) leave_old_place(&names[i]);
        relay_end(names[i].new_place);
        names[i].new_place = NULL;
    }
    return 0;
}

/* ---- clients ----------------------------------------------------------------------------------------------------- */

static bool has_sessions(void) {
    return strncmp(uri, "zookeeper:", 10) == 0 || strncmp(uri, "etcd:", 5) == 0;
}

/* A client of the first n names. The text after the port in `uri` stays, except the lease; of the keys, those that TLS
 * needs. */
static dlock_client *open_client_of(size_t n) {
    const char *at = authority(), *rest = at + strcspn(at, "/?"), *query = strchr(rest, '?');
    bool forgets = query && strstr(query, "quarantine=0");
    const char *tls = query ? strstr(query, "&ca=") : NULL;
    char hosts[128];
    int used = 0;
    for (size_t i = 0; i < n; i++)
        used +=
            snprintf(hosts + used, sizeof hosts - (size_t)used, "%s%s:%d", i ? "," : "", names[i].host, names[i].port);
    return api_client("%.*s%s%.*s?timeout=1s&lease=%dms%s%s%s", (int)(at - uri), uri, hosts, (int)strcspn(rest, "?"),
                      rest, LEASE_MS, has_sessions() ? "&session=8s" : "", forgets ? "&quarantine=0" : "",
                      tls ? tls : "");
}

static dlock_client *open_client(void) {
    return open_client_of(1);
}

static dlock_lock *open_lock(dlock_client *client, const char *name) {
    char unique[64];
    snprintf(unique, sizeof unique, "%s-%d", name, (int)getpid());
    return api_lock(client, unique, NULL);
}

static void acquire(dlock_lock *lock) {
    struct dlock_error err = {0};
    if (dlock_acquire(lock, PATIENCE_MS, &err) != 0) fail_msg("%s", err.message);
}

struct waiter {
    pthread_t thread;
    dlock_lock *lock;
    int acquired, released;
    uint64_t fence;
};

static void *await(void *arg) {
    struct waiter *waiter = arg;
    waiter->acquired = dlock_acquire(waiter->lock, PATIENCE_MS, NULL);
    waiter->fence = dlock_fence(waiter->lock);
    waiter->released = dlock_release(waiter->lock, NULL);
    return NULL;
}

static void hold(dlock_lock *lock, int ms) {
    for (int64_t until = now_ms() + ms; now_ms() < until; sleep_ms(10)) assert_true(dlock_held(lock));
}

/* Holds the lock beyond its lease; then the one that waits gets it. */
static void hold_and_hand_over(dlock_lock *lock, struct waiter *waiter) {
    const uint64_t fence = dlock_fence(lock);
    hold(lock, LEASE_MS * 3 / 2);
    assert_int_equal(dlock_release(lock, NULL), 0);
    pthread_join(waiter->thread, NULL);
    assert_int_equal(waiter->acquired, 0);
    assert_int_equal(waiter->released, 0);
    assert_true(waiter->fence > fence);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* A holder that does nothing but hold keeps its lock beyond the lease, and hands it to one that waits. */
TEST(holder_and_waiter_follow) {
    dlock_client *client = open_client(), *other = open_client();
    dlock_lock *lock = open_lock(client, "follow");
    struct waiter waiter = {.lock = open_lock(other, "follow")};
    acquire(lock);
    assert_int_equal(pthread_create(&waiter.thread, NULL, await, &waiter), 0);
    sleep_ms(300);
    first->address = first->after;
    leave_old_place(first);
    hold_and_hand_over(lock, &waiter);
    acquire(lock);
    assert_int_equal(dlock_release(lock, NULL), 0);
    dlock_free(lock);
    dlock_free(waiter.lock);
    dlock_close(client);
    dlock_close(other);
}

/* The old address takes packets and answers nothing, like an address that is no longer in use. */
TEST(silence_at_the_old_address_is_left) {
    dlock_client *client = open_client();
    dlock_lock *lock = open_lock(client, "silent");
    acquire(lock);
    assert_int_equal(dlock_release(lock, NULL), 0);
    first->address = first->after;
    relay_silence(first->old_place);
    acquire(lock);
    assert_true(relay_taken(first->new_place) > 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
    dlock_free(lock);
    dlock_close(client);
}

/* The old address may belong to another server by now: where a connection broke, the name is looked up before the next
 * one. A session may be resumed at the old address, since no other server knows it. */
TEST(nobody_goes_back_to_the_old_address) {
    dlock_client *client = open_client();
    dlock_lock *lock = open_lock(client, "back");
    acquire(lock);
    assert_int_equal(dlock_release(lock, NULL), 0);
    int taken = relay_taken(first->old_place);
    first->address = first->after;
    relay_hang_up(first->old_place);
    acquire(lock);
    if (!has_sessions()) assert_int_equal(relay_taken(first->old_place), taken);
    assert_int_equal(dlock_release(lock, NULL), 0);
    dlock_free(lock);
    dlock_close(client);
}

/* A rolling restart: the servers get new addresses one after the other, while all others answer. */
static void move_one_by_one(void (*leave)(struct moving *name)) {
    dlock_client *client = open_client_of(NAMES), *other = open_client_of(NAMES);
    dlock_lock *lock = open_lock(client, "one-by-one");
    struct waiter waiter = {.lock = open_lock(other, "one-by-one")};
    acquire(lock);
    assert_int_equal(pthread_create(&waiter.thread, NULL, await, &waiter), 0);
    hold(lock, STEP_MS);
    for (size_t i = 0; i < NAMES; i++) {
        leave(&names[i]);
        hold(lock, STEP_MS);
        names[i].address = names[i].after;
        hold(lock, STEP_MS);
    }
    hold_and_hand_over(lock, &waiter);
    dlock_free(lock);
    dlock_free(waiter.lock);
    dlock_close(client);
    dlock_close(other);
}

TEST(names_move_one_by_one) {
    move_one_by_one(leave_old_place);
}

static void fall_silent(struct moving *name) {
    relay_silence(name->old_place);
}

TEST(names_move_one_by_one_from_silent_addresses) {
    move_one_by_one(fall_silent);
}

/* One server stays where it is. */
TEST(names_without_a_name_server) {
    dlock_client *client = open_client_of(NAMES);
    dlock_lock *lock = open_lock(client, "no-name-server");
    acquire(lock);
    hangs = true;
    for (size_t i = 0; i < NAMES - 1; i++) {
        leave_old_place(&names[i]);
        hold(lock, STEP_MS);
    }
    hold(lock, LEASE_MS * 3 / 2);
    hangs = false;
    assert_int_equal(dlock_release(lock, NULL), 0);
    dlock_free(lock);
    dlock_close(client);
}

int main(int argc, char **argv) {
    if (argc < 2) return 64;
    uri = argv[1];
    return tests_run(argc - 1, argv + 1, setup, teardown, NULL, NULL);
}
