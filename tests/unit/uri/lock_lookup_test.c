/* The keeper never waits for the name server. The linker puts __wrap_getaddrinfo in place of getaddrinfo. */
#include "fixture.h"

#include "base/env.h"

#include <netdb.h>

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static bool hangs;
static unsigned asked;

static void name_server_hangs(bool on) {
    pthread_mutex_lock(&guard);
    hangs = on;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&guard);
}

int __real_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **list);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **list);

/* Every name is 127.0.0.1. */
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **list) {
    struct addrinfo numeric = *hints;
    if (hints->ai_flags & AI_NUMERICHOST) return __real_getaddrinfo(host, service, hints, list);
    pthread_mutex_lock(&guard);
    asked++;
    while (hangs) dlock__cond_wait(&changed, &guard, DLOCK__NEVER);
    pthread_mutex_unlock(&guard);
    numeric.ai_flags |= AI_NUMERICHOST;
    return __real_getaddrinfo("127.0.0.1", service, &numeric, list);
}

/* The connection is opened again for a renewal, at the address that was known, while the name is looked up. */
static void renewals_wait_for_no_name(const char *uri) {
    struct lost_count lost = {0};
    struct fake_command command;
    dlock_lock *lock = watched_lock(client_new(uri), "n", &lost);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    fake_advance_ms(2 * THIRD_MS); /* on its own connection, if it has one */
    fake_log_clear();
    unsigned before = asked;
    name_server_hangs(true);
    fake_server_cut();
    int64_t begun_us = dlock__now_us();
    fake_advance_ms(THIRD_MS + 500);
    assert_true(fake_last(FAKE_CONNECT, NULL, &command));
    assert_int_equal(fake_calls(FAKE_CONNECT), 1);
    assert_in_range(command.at_us - begun_us, 0, THIRD_MS * 1000 + 300000);
    assert_int_equal(asked, before + 1);
    assert_true(dlock_held(lock));
    assert_int_equal(lost.calls, 0);
    name_server_hangs(false);
    fake_settle();
    assert_int_equal(dlock_release(lock, NULL), 0);
}

TEST(with_a_connection_of_the_keepers) {
    renewals_wait_for_no_name("fakepoll://server.test");
}

TEST(with_one_connection_for_all) {
    renewals_wait_for_no_name("fakeshared://server.test");
}

static int begin(void **state) {
    (void)state;
    dlock__cond_init(&changed);
    return 0;
}

TESTS(fixture_setup, fixture_teardown, begin, NULL)
