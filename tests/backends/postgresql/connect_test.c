/* Connecting: the parameters of the URI, refusals and their reasons, and servers that cannot be reached. */
#include "site.h"
#include "support/loopback.h"
#include "support/starve.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#define PASSWORD "pass-Word%s"

static struct dlock_error err;

/* The result of connect for these; the connection is ended. */
static int try(const struct params *params) {
    struct link link;
    memset(&err, 0, sizeof err);
    int rc = link_with(&link, params, 'a', TIMEOUT_MS, &err);
    link_end(&link);
    return rc;
}

/* ---- who --------------------------------------------------------------------------------------------------------- */

TEST(passwords) {
    char file[] = "/tmp/dlock-passfile-XXXXXX";
    struct link link;
    link_new(&link, 'a'); /* the objects are not the role's */
    link_end(&link);
    sql("DROP ROLE IF EXISTS dlock_password");
    sql("CREATE ROLE dlock_password SUPERUSER LOGIN PASSWORD '%s'", PASSWORD);
    const struct params right = {.user = "dlock_password", .password = PASSWORD};
    const struct params wrong = {.user = "dlock_password", .password = "Wrong-" PASSWORD};
    const struct params none = {.user = "dlock_password", .more = {{"passfile", "/nonexistent"}}};
    const struct params key = {.user = "dlock_password", .more = {{"password", PASSWORD}}};
    const struct params nobody = {.user = "dlock_nobody", .password = PASSWORD};
    const struct params in_file = {.user = "dlock_password", .more = {{"passfile", file}}};
    assert_int_equal(try(&right), 0);
    assert_int_equal(try(&key), 0);
    assert_int_equal(try(&wrong), DLOCK_EAUTH);
    assert_null(strstr(err.message, PASSWORD));
    const struct params word = {.user = "dlock_password", .more = {{"password", "authentication"}}};
    assert_int_equal(try(&word), DLOCK_EAUTH);
    assert_null(strstr(err.message, "authentication"));
    assert_int_equal(try(&none), DLOCK_EAUTH);
    assert_int_equal(try(&nobody), DLOCK_EAUTH);
    assert_null(strstr(err.message, PASSWORD));
    int fd = mkstemp(file);
    assert_true(fd >= 0);
    dprintf(fd, "%s:%d:*:dlock_password:%s\n", site.host, site.port, PASSWORD);
    close(fd);
    assert_int_equal(try(&in_file), 0);
    unlink(file);
    sql("DROP ROLE dlock_password");
}

TEST(no_such_database) {
    const struct params params = {.path = "/dlock_nowhere"};
    assert_int_equal(try(&params), DLOCK_EINVAL);
}

/* ---- what the URI may say ---------------------------------------------------------------------------------------- */

TEST(keys) {
    static const struct dlock_param bad[] = {{"no_such_key", "hidden"},
                                             {"listen", "hidden"},
                                             {"schema", "hid\"den"},
                                             {"schema", ""},
                                             {"schema", "1hidden"},
                                             /* Only libpq can judge these: */
                                             {"sslmode", "hidden"},
                                             {"port", "hidden"},
                                             {"target_session_attrs", "hidden"},
                                             {"hostaddr", "hidden"}};
    enum { OURS = 5 };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct params params = {.more = {bad[i]}};
        int rc = try(&params);
        if (rc != DLOCK_EINVAL) fail_msg("%s=%s: %d %s", bad[i].key, bad[i].value, rc, err.message);
        /* Told before any name is looked up. */
        const struct dlock_uri uri = {.scheme = "postgresql", .params = &bad[i], .n_params = 1};
        assert_int_equal(backend->accepts(&uri, &err), i < OURS ? DLOCK_EINVAL : 0);
        assert_null(strstr(err.message, "hidden"));
    }
    /* libpq's errors show the parameter values that they complain about, and none of libpq's own words is hidden. */
    static const struct dlock_param vain[] = {{"host", "/named/folder"},
                                              {"user", "named_user"},
                                              {"dbname", "named_database"}};
    for (size_t i = 0; i < sizeof vain / sizeof *vain; i++) {
        const struct params params = {.more = {vain[i], {"application_name", "connection"}}};
        assert_int_not_equal(try(&params), 0);
        if (!strstr(err.message, vain[i].value) || strchr(err.message, '*')) fail_msg("%s", err.message);
    }
    const struct params unknown = {.more = {{"no_such_key", ""}}};
    try(&unknown);
    assert_non_null(strstr(err.message, "no_such_key"));
    const struct params good = {
        .more = {{"sslmode", "disable"}, {"connect_timeout", "10"}, {"options", "-c geqo=off"}}};
    assert_int_equal(try(&good), 0);
}

TEST(application_name) {
    const struct params given = {.more = {{"application_name", "my locks"}}};
    LINK(link, 'a');
    assert_string_equal(sql_text("SELECT application_name FROM pg_stat_activity WHERE pid = %d",
                                 PQbackendPID(pg_of(&link)->link)),
                        "dlock");
    link_end(&link);
    assert_int_equal(link_with(&link, &given, 'a', TIMEOUT_MS, &err), 0);
    assert_string_equal(sql_text("SELECT application_name FROM pg_stat_activity WHERE pid = %d",
                                 PQbackendPID(pg_of(&link)->link)),
                        "my locks");
}

TEST(unix_sockets) {
    char port[12];
    snprintf(port, sizeof port, "%d", site.port);
    const struct params key = {.no_host = true, .more = {{"host", site.folder}, {"port", port}}};
    const struct params host = {.host = site.folder};
    const struct params nowhere = {.no_host = true, .more = {{"host", "/nonexistent"}}};
    assert_int_equal(try(&key), 0);
    assert_int_equal(try(&host), 0);
    assert_int_equal(try(&nowhere), DLOCK_EUNAVAILABLE);
}

TEST(services_and_environment) {
    char file[] = "/tmp/dlock-service-XXXXXX", port[12], ports[16];
    int fd = mkstemp(file);
    const struct params service = {.no_host = true, .user = "", .path = "", .more = {{"service", "locks"}}};
    const struct params bare = {.no_host = true, .user = "", .path = ""};
    assert_true(fd >= 0);
    dprintf(fd, "[locks]\nhost=%s\nport=%d\nuser=dlock\ndbname=postgres\n", site.host, site.port);
    close(fd);
    setenv("PGSERVICEFILE", file, 1);
    assert_int_equal(try(&service), 0);
    unsetenv("PGSERVICEFILE");
    assert_int_equal(try(&service), DLOCK_EINVAL); /* no service of that name exists */
    unlink(file);
    snprintf(port, sizeof port, "%d", site.port);
    setenv("PGHOST", site.folder, 1);
    setenv("PGPORT", port, 1);
    setenv("PGUSER", "dlock", 1);
    setenv("PGDATABASE", "postgres", 1);
    assert_int_equal(try(&bare), 0);
    setenv("PGHOST", "localhost", 1); /* a name, which libpq must not look up */
    assert_int_equal(try(&bare), 0);
    setenv("PGHOST", "name.invalid,localhost", 1);
    assert_int_equal(try(&bare), 0);
    setenv("PGHOST", "name.invalid", 1);
    assert_int_equal(try(&bare), DLOCK_EUNAVAILABLE);
    setenv("PGHOST", "/nonexistent,localhost", 1);
    snprintf(ports, sizeof ports, "1,%d", site.port);
    setenv("PGPORT", ports, 1);
    assert_int_equal(try(&bare), 0);
    unsetenv("PGHOST");
    unsetenv("PGPORT");
    unsetenv("PGUSER");
    unsetenv("PGDATABASE");
}

TEST(socket_options) {
    int value;
    socklen_t length = sizeof value;
    LINK(link, 'a');
    int fd = PQsocket(pg_of(&link)->link);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &length), 0);
    assert_true(value);
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &length), 0);
    assert_true(value);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &value, &length), 0);
    assert_int_equal(value, 5);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &length), 0);
    assert_int_equal(value, 10000);
}

/* ---- where ------------------------------------------------------------------------------------------------------- */

/* Each of three hosts has a third of the first; a call that does not end would take longer than the second. */
enum { TRIES_MS = 9000, LATE_MS = 10000 };

TEST(the_first_that_is_there) {
    int port;
    int silent = loopback_listen(&port);
    const struct params params = {.hosts = {{"one", "127.0.0.1", loopback_unused_port()},
                                            {"two", "127.0.0.1", port},
                                            {"three", site.host, site.port}}};
    struct link link;
    int64_t before = now_ms();
    if (link_with(&link, &params, 'a', TRIES_MS, &err) != 0) fail_msg("%s", err.message);
    assert_true(now_ms() - before < TRIES_MS);
    HELD(held, &link, "third");
    assert_int_equal(acquire(&link, &held), 0);
    assert_int_equal(release(&link, &held), 0);
    link_end(&link);
    close(silent);
}

/* In place of the C library's for the backend, not for libpq: one name takes its time. */
int __real_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found);
int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found);
int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    if (name && strcmp(name, "slow.invalid") == 0) {
        sleep_ms(1500);
        name = "127.0.0.1";
    }
    return __real_getaddrinfo(name, service, hints, found);
}

TEST(a_slow_resolver) {
    char port[12];
    snprintf(port, sizeof port, "%d", site.port);
    const struct params params = {.more = {{"host", "slow.invalid"}, {"port", port}}};
    struct link link;
    int64_t before = now_ms();
    assert_int_equal(link_with(&link, &params, 'a', 300, &err), DLOCK_EUNAVAILABLE);
    assert_in_range(now_ms() - before, 290, 1200);
    assert_non_null(strstr(err.message, "look up"));
    link_end(&link);
    assert_int_equal(try(&params), 0);
}

/* A refusal is one: the next host would get the same password. */
TEST(a_refusal_ends_the_search) {
    const struct params params = {
        .user = "dlock_nobody", .hosts = {{"one", site.host, site.port}, {"two", "127.0.0.1", loopback_unused_port()}}};
    assert_int_equal(try(&params), DLOCK_EAUTH);
}

TEST(nobody_there) {
    int port;
    int silent = loopback_listen(&port);
    const struct params refused = {.port = loopback_unused_port()}, hangs = {.port = port};
    struct link link;
    assert_int_equal(try(&refused), DLOCK_EUNAVAILABLE);
    int64_t before = now_ms();
    assert_int_equal(link_with(&link, &hangs, 'a', 400, &err), DLOCK_EUNAVAILABLE);
    assert_in_range(now_ms() - before, 390, LATE_MS);
    before = now_ms();
    link_end(&link);
    assert_true(now_ms() - before < LATE_MS);
    close(silent);
}

static int try_again(void *params, struct dlock_error *why) {
    int rc = try(params);
    *why = err;
    return rc;
}

/* Without a user in the URI libpq asks the system for its name, which it reads in a file. */
TEST(no_descriptor_left) {
    struct params named = {0}, nameless = {.user = ""};
    struct dlock_error why = {0};
    assert_true(starve(try_again, &named, DLOCK_EUNAVAILABLE, &why) > 0);
    assert_non_null(strstr(why.message, "raise the limit (ulimit -n)"));
    assert_true(starve(try_again, &nameless, DLOCK_EUNAVAILABLE, &why) > 0);
}

static void *speak_http(void *arg) {
    static const char answer[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    int fd = accept(*(int *)arg, NULL, NULL);
    char request[512];
    if (fd >= 0 && read(fd, request, sizeof request) > 0 && write(fd, answer, sizeof answer - 1) > 0) sleep_ms(100);
    if (fd >= 0) close(fd);
    return NULL;
}

TEST(another_kind_of_server) {
    int port;
    int fd = loopback_listen(&port);
    const struct params params = {.port = port};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, speak_http, &fd), 0);
    assert_int_equal(try(&params), DLOCK_EPROTO);
    pthread_join(thread, NULL);
    close(fd);
}

/* A standby, or what looks like one, is not what we look for. */
TEST(read_only_servers) {
    const struct params params = {.user = "dlock_reader"};
    const struct params any = {.user = "dlock_reader", .more = {{"target_session_attrs", "any"}}};
    struct link link;
    link_new(&link, 'a');
    link_end(&link);
    sql("DROP ROLE IF EXISTS dlock_reader");
    sql("CREATE ROLE dlock_reader SUPERUSER LOGIN");
    sql("ALTER ROLE dlock_reader SET default_transaction_read_only = on");
    assert_int_equal(try(&params), DLOCK_EUNAVAILABLE);
    assert_int_equal(link_with(&link, &any, 'a', TIMEOUT_MS, &err), 0);
    HELD(held, &link, "reader");
    assert_int_equal(held_run(backend->acquire, &link, &held, 0, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "primary"));
    link_end(&link);
    sql("DROP ROLE dlock_reader");
}

TESTS(NULL, NULL, site_begin, site_end)
