/* Process-wide state that the backend must not change. SIGPIPE: opening a connection does not change its action, and a
 * connection that is gone raises none. And exit(), when OpenSSL must not free what dlock's threads may still use: this
 * program says so if it does. tls_test.sh runs it with PORT, and OVER_TLS. */
#include "site.h"

#include <maria.h>
#include <openssl/crypto.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>

static volatile sig_atomic_t raised;

static void count_it(int number) {
    (void)number;
    raised++;
}

static void link_here(struct link *link) {
    struct dlock_error err;
    struct uri uri;
    const bool over_tls = getenv("OVER_TLS") != NULL;
    uri_init(&uri, atoi(getenv("PORT")));
    uri.parts.scheme = over_tls ? "mysql+tls" : "mysql";
    uri.parts.path = "/locks";
    uri.parts.user = "dlock";
    uri.parts.password = "secret";
    uri.param[0] = (struct dlock_param){"insecure", "on"};
    uri.parts.n_params = over_tls ? 1 : 0;
    if (link_try(link, &uri.parts, 'a', 0, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
}

static int begin(void **state) {
    const struct sigaction action = {.sa_handler = count_it};
    return backend_load(state) || sigaction(SIGPIPE, &action, NULL);
}

/* The first test: libmariadb is initialized once. */
TEST(its_action_stays) {
    struct sigaction now;
    SCOPED_LINK link;
    link_here(&link);
    sigaction(SIGPIPE, NULL, &now);
    assert_ptr_equal(now.sa_handler, count_it);
}

/* The connection ends in the kernel, so that the next write fails. */
static void hang_up(const struct link *link) {
    const struct maria *maria = link->conn;
    assert_int_equal(shutdown(maria->fd - 1, SHUT_RDWR), 0);
}

/* Every time it is the same token, so that the next acquire finds its grant. */
TEST(no_lost_connection_raises_it) {
    dlock_batch *const operations[] = {backend->renew, backend->release, NULL};
    for (size_t i = 0; i < 3; i++) {
        struct dlock_error err;
        struct link link;
        sigset_t mask;
        link_here(&link);
        HELD(held, &link, "process");
        assert_int_equal(acquire(&link, &held), 0);
        hang_up(&link);
        if (operations[i])
            assert_int_equal(held_run(operations[i], &link, &held, 0, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
        link_end(&link);
        pthread_sigmask(SIG_SETMASK, NULL, &mask);
        assert_int_equal(sigismember(&mask, SIGPIPE), 0);
        assert_int_equal(raised, 0);
    }
}

static void tell(void) {
    puts("OpenSSL has freed its state");
}

static int end(void **state) {
    (void)state;
    return getenv("OVER_TLS") && OPENSSL_atexit(tell) != 1;
}

TESTS(NULL, NULL, begin, end)
