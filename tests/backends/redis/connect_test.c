/* Connecting: URIs, credentials, several hosts, replicas, and what the descriptor is like. */
#include "harness.h"
#include "support/group.h"
#include "support/loopback.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct server guarded;
static const char password[] = "s3cr3t-word";

static int start(void **state) {
    static const char *const arguments[] = {"--requirepass", password, NULL};
    group_begin(state);
    server_start(&guarded, arguments);
    ask_text(&guarded, "AUTH %s", password);
    /* Before 6.2 there are no rights for channels. */
    ask_text(&guarded, "ACL SETUSER worker on >w0rker-word ~* %s +@all -evalsha",
             strstr(ask_text(&guarded, "INFO server"), "redis_version:6.0.") ? "~*" : "&*");
    return 0;
}

static int stop(void **state) {
    server_stop(&guarded);
    return group_end(state);
}

static int connect_code(const struct dlock_uri *uri, struct dlock_error *err) {
    struct link link;
    memset(err, 0, sizeof *err);
    int rc = link_try(&link, uri, 'a', 0, TIMEOUT_MS, err);
    link_end(&link);
    assert_int_equal(rc, err->code);
    return rc;
}

TEST(databases_are_chosen) {
    static const struct dlock_param db5 = {"db", "5"};
    struct dlock_error err;
    struct link link;
    struct held held;
    struct uri uri;
    char sock[96];
    claim_init(&held, "chosen", 'a', 1);

    uri_init(&uri, server.port);
    uri.parts.path = "/3";
    assert_int_equal(link_try(&link, &uri.parts, 'a', 0, TIMEOUT_MS, NULL), 0);
    assert_int_equal(acquire(&link, &held), 0);
    ask_text(&server, "SELECT 3");
    assert_string_equal(ask_text(&server, "GET chosen"), held.token);
    link_end(&link);

    snprintf(sock, sizeof sock, "%s/sock", server.folder);
    uri.parts.scheme = "redis+unix";
    uri.parts.path = sock;
    uri.parts.n_hosts = 0;
    uri.parts.params = &db5;
    uri.parts.n_params = 1;
    assert_int_equal(link_try(&link, &uri.parts, 'a', 0, TIMEOUT_MS, NULL), 0);
    assert_int_equal(acquire(&link, &held), 0);
    ask_text(&server, "SELECT 5");
    assert_string_equal(ask_text(&server, "GET chosen"), held.token);
    link_end(&link);
    uri.parts.scheme = "valkey+unix";
    assert_int_equal(connect_code(&uri.parts, &err), 0);
    ask_text(&server, "SELECT 0");
}

TEST(bad_uris_are_named) {
    static const char *const paths[] = {"/x", "/-1", "/3x", "/999", "/99999999999999999999", "3"};
    static const struct dlock_param db = {"db", "1"}, bad_db = {"db", ""};
    char long_path[200];
    struct dlock_error err;
    struct uri uri;
    uri_init(&uri, server.port);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        uri.parts.path = paths[i];
        assert_int_equal(connect_code(&uri.parts, &err), DLOCK_EINVAL);
    }
    uri.parts.n_params = 1;
    uri.parts.params = &db;
    uri.parts.path = "/2";
    assert_int_equal(connect_code(&uri.parts, &err), DLOCK_EINVAL);
    assert_non_null(strstr(err.message, "twice"));
    uri.parts.path = "/";
    assert_int_equal(connect_code(&uri.parts, &err), 0);
    uri.parts.params = &bad_db;
    assert_int_equal(connect_code(&uri.parts, &err), DLOCK_EINVAL);
    uri.parts.n_params = 0;

    uri.parts.scheme = "redis+unix";
    uri.parts.path = "/some/sock";
    assert_int_equal(connect_code(&uri.parts, &err), DLOCK_EINVAL); /* a host */
    uri.parts.n_hosts = 0;
    assert_int_equal(connect_code(&uri.parts, &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "/some/sock"));
    uri.parts.path = NULL;
    assert_int_equal(connect_code(&uri.parts, &err), DLOCK_EINVAL);
    memset(long_path, 'x', sizeof long_path);
    long_path[sizeof long_path - 1] = '\0';
    uri.parts.path = long_path;
    assert_int_equal(connect_code(&uri.parts, &err), DLOCK_EINVAL);

    uri_init(&uri, server.port);
    uri.host[0].address = "localhost"; /* the core resolves names, the backend never does */
    assert_int_equal(connect_code(&uri.parts, &err), DLOCK_EINVAL);
}

TEST(credentials_are_checked_and_never_shown) {
    static const struct {
        const char *user, *password;
        int code;
    } tries[] = {
        {NULL, password, 0},
        {"", password, 0},
        {"default", password, 0},
        {NULL, NULL, DLOCK_EAUTH},
        {NULL, "wr0ng-word", DLOCK_EAUTH},
        {"default", "wr0ng-word", DLOCK_EAUTH},
        {"default", NULL, DLOCK_EAUTH},
        {"nobody", password, DLOCK_EAUTH},
        {"worker", "w0rker-word", 0},
    };
    struct dlock_error err;
    struct uri uri;
    uri_init(&uri, guarded.port);
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        uri.parts.user = tries[i].user;
        uri.parts.password = tries[i].password;
        assert_int_equal(connect_code(&uri.parts, &err), tries[i].code);
        if (tries[i].password) assert_null(strstr(err.message, tries[i].password));
    }
    /* A password where none is wanted. */
    uri_init(&uri, server.port);
    uri.parts.password = "needless-word";
    assert_int_equal(connect_code(&uri.parts, &err), DLOCK_EAUTH);
    assert_null(strstr(err.message, "needless-word"));
}

TEST(missing_rights_are_named) {
    struct held held;
    struct dlock_claim *claim = &held.claim;
    struct dlock_error err = {0};
    struct link link;
    struct uri uri;
    uri_init(&uri, guarded.port);
    uri.parts.user = "worker";
    uri.parts.password = "w0rker-word";
    assert_int_equal(link_try(&link, &uri.parts, 'a', 0, TIMEOUT_MS, &err), 0);
    claim_init(&held, "forbidden", 'a', 1);
    assert_int_equal(backend->acquire(link.conn, &claim, 1, TIMEOUT_MS, &err), DLOCK_EAUTH);
    assert_non_null(strstr(err.message, "evalsha"));
    link_end(&link);
}

TEST(hosts_are_tried_until_one_works) {
    struct dlock_error err;
    struct uri uri;
    int silent_port, silent = loopback_listen(&silent_port);
    uri_init(&uri, server.port);
    uri.host[0].port = loopback_unused_port();
    assert_int_equal(connect_code(&uri.parts, &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "127.0.0.1:"));
    uri.parts.n_hosts = 3;
    uri.host[1].port = silent_port;
    int64_t begin = now_ms();
    assert_int_equal(connect_code(&uri.parts, &err), 0);
    assert_true(now_ms() - begin < TIMEOUT_MS);
    close(silent);
}

TEST(replicas_are_refused) {
    struct server replica;
    struct link link;
    struct held held;
    struct dlock_claim *claim = &held.claim;
    struct dlock_error err = {0};
    struct uri uri;
    char named[64];
    server_start(&replica, NULL);
    link_to(&link, replica.port, 'a');
    ask_text(&replica, "REPLICAOF 127.0.0.1 %d", server.port);
    claim_init(&held, "read-only", 'a', 1);
    assert_int_equal(backend->acquire(link.conn, &claim, 1, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "master"));
    link_end(&link);
    uri_init(&uri, replica.port);
    assert_int_equal(connect_code(&uri.parts, &err), DLOCK_EUNAVAILABLE);
    snprintf(named, sizeof named, "127.0.0.1:%d", server.port);
    assert_non_null(strstr(err.message, named));
    server_stop(&replica);
}

TEST(a_full_server_says_so) {
    static const char *const arguments[] = {"--maxclients", "2", NULL};
    struct server full;
    struct link link;
    struct dlock_error err;
    struct uri uri;
    server_start(&full, arguments);
    link_to(&link, full.port, 'a');
    uri_init(&uri, full.port);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(connect_code(&uri.parts, &err), DLOCK_EUNAVAILABLE);
        assert_non_null(strstr(err.message, "max number of clients"));
    }
    link_end(&link);
    server_stop(&full);
}

TEST(the_descriptor_is_private_and_quick) {
    struct link link;
    int on = 0;
    socklen_t size = sizeof on;
    link_to(&link, server.port, 'a');
    link_listen(&link);
    assert_true(fcntl(link.fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(link.fd, F_GETFL) & O_NONBLOCK);
    assert_int_equal(getsockopt(link.fd, IPPROTO_TCP, TCP_NODELAY, &on, &size), 0);
    assert_true(on);
    assert_int_equal(getsockopt(link.fd, SOL_SOCKET, SO_KEEPALIVE, &on, &size), 0);
    assert_true(on);
    link_end(&link);
}

TESTS(NULL, NULL, start, stop)
