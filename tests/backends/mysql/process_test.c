/* Process-wide state that the backend must not change. SIGPIPE: opening a connection does not change its action, and a
 * connection that is gone raises none. And exit(), when OpenSSL must not free what dlock's threads may still use: this
 * program says so if it does. tls_test.sh runs it: process_test PORT [tls]. */
#include "site.h"

#include <maria.h>
#include <openssl/crypto.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>

static int port;
static bool over_tls;
static volatile sig_atomic_t raised;

static void count_it(int number) {
    (void)number;
    raised++;
}

static void link_here(struct link *link) {
    struct dlock_error err;
    struct uri uri;
    uri_init(&uri, port);
    uri.parts.scheme = over_tls ? "mysql+tls" : "mysql";
    uri.parts.path = "/locks";
    uri.parts.user = "dlock";
    uri.parts.password = "secret";
    uri.param[0] = (struct dlock_param){"insecure", "on"};
    uri.parts.n_params = over_tls ? 1 : 0;
    if (link_try(link, &uri.parts, 'a', 0, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
}

static int set_action(void **state) {
    const struct sigaction action = {.sa_handler = count_it};
    (void)state;
    return sigaction(SIGPIPE, &action, NULL);
}

/* The first test: libmariadb is initialized once. */
static void its_action_stays(void **state) {
    struct sigaction now;
    SCOPED_LINK link;
    (void)state;
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
static void no_lost_connection_raises_it(void **state) {
    dlock_batch *const operations[] = {backend->renew, backend->release, NULL};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct dlock_error err;
        struct link link;
        struct held held;
        sigset_t mask;
        link_here(&link);
        held_new(&held, &link, "process");
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

int main(int argc, char **argv) {
    port = argc > 1 ? atoi(argv[1]) : 0;
    over_tls = argc > 2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_action_stays),
        cmocka_unit_test(no_lost_connection_raises_it),
    };
    if (backend_load(NULL) != 0) return 1;
    int failed = cmocka_run_group_tests(tests, set_action, NULL);
    if (over_tls && OPENSSL_atexit(tell) != 1) return 1;
    return failed;
}
