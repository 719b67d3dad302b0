/* A server that moves: its name stands for 127.0.0.2 first, and for 127.0.0.3 later, as in a cluster of containers.
 * Both are proxies in front of the server that the first argument names, so what it knows moves along. */
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

enum { LEASE_MS = 4000, PATIENCE_MS = 30000 };

static const char *uri;

/* ---- the name server --------------------------------------------------------------------------------------------- */

static const char host[] = "moving.test";
static _Atomic(const char *) address;

/* Overrides libc's, also for the library. */
__attribute__((visibility("default"))) int getaddrinfo(const char *name, const char *service,
                                                       const struct addrinfo *hints, struct addrinfo **list) {
    typedef int look_up(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **list);
    look_up *real;
    void *symbol = dlsym(RTLD_NEXT, "getaddrinfo");
    memcpy(&real, &symbol, sizeof real);
    bool ours = name && strcmp(name, host) == 0 && !(hints && hints->ai_flags & AI_NUMERICHOST);
    return real(ours ? address : name, service, hints, list);
}

/* ---- the servers ------------------------------------------------------------------------------------------------- */

static struct relay *old_place, *new_place;
static int port;

/* `uri` is scheme://[user@]127.0.0.1:port… */
static const char *authority(void) {
    const char *at = strstr(uri, "127.0.0.1:");
    assert_non_null(at);
    return at;
}

static int setup(void **state) {
    int server_port = atoi(strchr(authority(), ':') + 1);
    (void)state;
    for (int tries = 0; !new_place && tries < 20; tries++) {
        if (old_place) relay_end(old_place);
        old_place = relay_at("127.0.0.2", 0, server_port);
        assert_non_null(old_place);
        port = relay_port(old_place);
        new_place = relay_at("127.0.0.3", port, server_port);
    }
    assert_non_null(new_place);
    address = "127.0.0.2";
    return 0;
}

static int teardown(void **state) {
    (void)state;
    if (old_place) relay_end(old_place);
    relay_end(new_place);
    old_place = new_place = NULL;
    return 0;
}

/* ---- clients ----------------------------------------------------------------------------------------------------- */

/* The text after the port in `uri` stays, except the lease; of the keys, those that TLS needs. */
static dlock_client *open_client(void) {
    const char *at = authority(), *rest = at + strcspn(at, "/?"), *query = strchr(rest, '?');
    bool session = strncmp(uri, "zookeeper:", 10) == 0 || strncmp(uri, "etcd:", 5) == 0,
         forgets = query && strstr(query, "quarantine=0");
    const char *tls = query ? strstr(query, "&ca=") : NULL;
    return api_client("%.*s%s:%d%.*s?timeout=1s&lease=%dms%s%s%s", (int)(at - uri), uri, host, port,
                      (int)strcspn(rest, "?"), rest, LEASE_MS, session ? "&session=2s" : "",
                      forgets ? "&quarantine=0" : "", tls ? tls : "");
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

/* Its grant ends with its connection, as there is nothing that another one could renew. */
static bool is_of_a_session(dlock_client *client) {
    return dlock_client_backend(client)->caps & DLOCK_CAP_SESSION;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* A holder that does nothing but hold keeps its lock beyond the lease, and hands it to one that waits. */
TEST(holder_and_waiter_follow) {
    dlock_client *client = open_client(), *other = open_client();
    dlock_lock *lock = open_lock(client, "follow");
    struct waiter waiter = {.lock = open_lock(other, "follow")};
    acquire(lock);
    uint64_t fence = dlock_fence(lock);
    assert_int_equal(pthread_create(&waiter.thread, NULL, await, &waiter), 0);
    sleep_ms(300);
    address = "127.0.0.3";
    relay_end(old_place);
    old_place = NULL;
    if (is_of_a_session(client)) {
        for (int64_t until = now_ms() + PATIENCE_MS; dlock_held(lock); sleep_ms(10)) assert_true(now_ms() < until);
        assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    } else {
        for (int64_t until = now_ms() + 2 * LEASE_MS; now_ms() < until; sleep_ms(10)) assert_true(dlock_held(lock));
        assert_int_equal(dlock_release(lock, NULL), 0);
    }
    pthread_join(waiter.thread, NULL);
    assert_int_equal(waiter.acquired, 0);
    assert_int_equal(waiter.released, 0);
    assert_true(waiter.fence > fence);
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
    address = "127.0.0.3";
    relay_silence(old_place);
    acquire(lock);
    assert_true(relay_taken(new_place) > 0);
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
    int taken = relay_taken(old_place);
    address = "127.0.0.3";
    relay_hang_up(old_place);
    acquire(lock);
    if (!is_of_a_session(client)) assert_int_equal(relay_taken(old_place), taken);
    assert_int_equal(dlock_release(lock, NULL), 0);
    dlock_free(lock);
    dlock_close(client);
}

int main(int argc, char **argv) {
    if (argc < 2) return 64;
    uri = argv[1];
    return tests_run(argc - 1, argv + 1, setup, teardown, NULL, NULL);
}
