/* URIs, servers that are reached and not, passwords, quarantine, descriptors. */
#include "harness.h"
#include "support/fake.h"
#include "support/group.h"
#include "support/loopback.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Connects, and locks something where that works. */
static int try(const struct uri *uri, struct dlock_error *err) {
    struct link link;
    int rc = link_try(&link, &uri->parts, 'a', 0, TIMEOUT_MS, err);
    if (rc == 0) {
        struct held held;
        claim_init(&held, "works", 'a', 1);
        while (acquire(&link, &held) == DLOCK_ENOTREADY) sleep_ms((int)held.claim.ready_ms);
        assert_int_equal(held.claim.result, 0);
        assert_int_equal(release(&link, &held), 0);
    }
    link_end(&link);
    return rc;
}

static void assert_refused(const struct uri *uri, int code, const char *word) {
    struct dlock_error err = {0};
    int rc = try(uri, &err);
    if (rc != code || !strstr(err.message, word)) fail_msg("%d \"%s\", not %d \"%s\"", rc, err.message, code, word);
    assert_int_equal(err.code, code);
}

/* ---- URIs -------------------------------------------------------------------------------------------------------- */

/* Before any name is looked up. */
TEST(uris_are_judged_without_addresses) {
    struct dlock_error err = {0};
    struct uri uri;
    uri_init(&uri, server.port);
    for (int i = 0; i < 3; i++) uri.host[i].address = NULL;
    assert_int_equal(backend->accepts(&uri.parts, &err), 0);
    uri.parts.n_hosts = 2; /* the same name twice */
    assert_int_equal(backend->accepts(&uri.parts, &err), 0);
    for (int other = 0; other < 2; other++) { /* a name, or a port */
        if (other) uri.host[1] = uri.host[0], uri.host[1].port++;
        if (!other) uri.host[1].host = "other";
        assert_int_equal(backend->accepts(&uri.parts, &err), DLOCK_EINVAL);
        assert_non_null(strstr(err.message, "exactly one server"));
    }
    uri.parts.n_hosts = 1;
    uri.parts.path = "/3";
    assert_int_equal(backend->accepts(&uri.parts, &err), DLOCK_EINVAL);
    assert_non_null(strstr(err.message, "prefix="));
}

/* Two servers behind one name are two servers. */
TEST(several_addresses_are_an_error_that_says_what_to_do) {
    static const char *const pairs[][2] = {
        {"192.0.2.1", "192.0.2.2"}, {"2001:db8::1", "192.0.2.1"}, {"127.0.0.1", "127.0.0.2"}, {"::1", "192.0.2.1"}};
    struct uri uri;
    uri_init(&uri, server.port);
    uri.parts.n_hosts = 2;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        uri.host[0].address = pairs[i][0];
        uri.host[1].address = pairs[i][1];
        assert_refused(&uri, DLOCK_EINVAL, "put one of the addresses into the URI");
        assert_refused(&uri, DLOCK_EINVAL, pairs[i][1]);
    }
    uri.parts.n_hosts = 3;
    uri.host[0].address = uri.host[1].address = "127.0.0.1";
    uri.host[2].address = "192.0.2.1";
    assert_refused(&uri, DLOCK_EINVAL, ", ...)");
}

/* But localhost is one, which may listen on one of the two. */
TEST(the_addresses_of_localhost_are_tried_in_turn) {
    struct uri uri;
    uri_init(&uri, server.port);
    uri.parts.n_hosts = 2;
    uri.host[0].address = "::1";
    assert_int_equal(try(&uri, NULL), 0);
    uri_init(&uri, loopback_unused_port());
    uri.parts.n_hosts = 2;
    uri.host[1].address = "::1";
    assert_refused(&uri, DLOCK_EUNAVAILABLE, "[::1]");
}

/* Each address gets its share of the time: a silent first one leaves some for the second. */
TEST(a_silent_address_leaves_time_for_the_next) {
    struct sockaddr_in6 address = {.sin6_family = AF_INET6,
                                   .sin6_port = htons((uint16_t)server.port),
                                   .sin6_addr = in6addr_loopback};
    int silent = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct link link;
    struct uri uri;
    if (bind(silent, (struct sockaddr *)&address, sizeof address) != 0) {
        print_message("skipped: this machine has no IPv6, or somebody has the port\n");
        close(silent);
        skip();
    }
    assert_int_equal(listen(silent, 5), 0);
    uri_init(&uri, server.port);
    uri.parts.n_hosts = 2;
    uri.host[0].address = "::1";
    assert_int_equal(link_try(&link, &uri.parts, 'a', 0, 2000, NULL), 0);
    link_end(&link);
    close(silent);
}

TEST(only_numbers_are_addresses) {
    struct uri uri;
    uri_init(&uri, server.port);
    uri.host[0].address = "localhost";
    assert_refused(&uri, DLOCK_EINVAL, "localhost");
}

TEST(what_memcached_lacks_is_refused) {
    struct uri uri;
    uri_init(&uri, server.port);
    uri.parts.path = "/3";
    assert_refused(&uri, DLOCK_EINVAL, "prefix=");
    uri.parts.path = "/";
    assert_int_equal(try(&uri, NULL), 0);
    uri.parts.user = "joe";
    assert_refused(&uri, DLOCK_EINVAL, "password");
    uri.parts.user = NULL;
    uri.parts.password = "secret";
    assert_refused(&uri, DLOCK_EINVAL, "user");
}

TEST(a_socket_is_a_path) {
    char path[64], long_path[200];
    const char *arguments[] = {"-s", path, "-a", "777", NULL};
    struct server local;
    struct uri uri;
    snprintf(path, sizeof path, "/tmp/dlock-memc-socket.%d", (int)getpid());
    server_start_unheard(&local, arguments);
    uri_init(&uri, 0);
    uri.parts.scheme = "memcached+unix";
    uri.parts.n_hosts = 0;
    uri.parts.path = path;
    for (int64_t until = now_ms() + 10000; try(&uri, NULL) != 0 && now_ms() < until;) sleep_ms(20);
    assert_int_equal(try(&uri, NULL), 0);
    uri.parts.n_hosts = 1;
    assert_refused(&uri, DLOCK_EINVAL, "memcached+unix:///path/to/socket");
    uri.parts.n_hosts = 0;
    uri.parts.path = NULL;
    assert_refused(&uri, DLOCK_EINVAL, "path of a socket");
    memset(long_path, '/', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = '\0';
    uri.parts.path = long_path;
    assert_refused(&uri, DLOCK_EINVAL, "shorter than");
    uri.parts.path = "/nowhere/at/all";
    assert_refused(&uri, DLOCK_EUNAVAILABLE, "/nowhere/at/all");
    server_stop(&local);
    unlink(path);
}

/* ---- passwords --------------------------------------------------------------------------------------------------- */

static void start_with_users(struct server *guarded, char *file, size_t size, const char *line) {
    const char *arguments[] = {"-Y", file, NULL};
    FILE *out;
    snprintf(file, size, "/tmp/dlock-memc-users.%d", (int)getpid());
    out = fopen(file, "w");
    assert_non_null(out);
    fprintf(out, "%s\n", line);
    fclose(out);
    assert_int_equal(chmod(file, 0644), 0);
    server_start(guarded, arguments);
}

TEST(passwords_are_checked) {
    struct server guarded;
    struct uri uri;
    char file[64];
    start_with_users(&guarded, file, sizeof file, "joe:se:cret");
    uri_init(&uri, guarded.port);
    assert_refused(&uri, DLOCK_EAUTH, "give a user and a password");
    uri.parts.user = "joe";
    uri.parts.password = "se:cret";
    assert_int_equal(try(&uri, NULL), 0);
    uri.parts.password = "hunter2";
    assert_refused(&uri, DLOCK_EAUTH, "refused the user or the password");
    struct dlock_error err = {0};
    try(&uri, &err);
    assert_null(strstr(err.message, "hunter2"));
    server_stop(&guarded);
    unlink(file);
}

/* They would end the line early, and what follows would be a command. */
TEST(credentials_cannot_be_commands) {
    static const char *const bad[] = {"a b", "a\r\nflush_all", "a\n", "a\tb", "\x01"};
    struct uri uri;
    char long_word[300];
    uri_init(&uri, server.port);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uri.parts.user = "joe", uri.parts.password = bad[i];
        assert_refused(&uri, DLOCK_EINVAL, "password");
        uri.parts.user = bad[i], uri.parts.password = "secret";
        assert_refused(&uri, DLOCK_EINVAL, "user");
    }
    uri.parts.user = "a:b";
    assert_refused(&uri, DLOCK_EINVAL, "user");
    memset(long_word, 'x', sizeof long_word - 1);
    long_word[sizeof long_word - 1] = '\0';
    uri.parts.user = long_word;
    assert_refused(&uri, DLOCK_EINVAL, "at most");
}

/* A server without passwords would store them. */
TEST(a_password_is_not_told_to_a_server_that_asks_for_none) {
    struct uri uri;
    int64_t before = stat_of(&server, "cmd_set");
    uri_init(&uri, server.port);
    uri.parts.user = "joe", uri.parts.password = "secret";
    assert_refused(&uri, DLOCK_EAUTH, "leave user and password out");
    assert_int_equal(stat_of(&server, "cmd_set"), before);
}

/* One that runs with -S or -B binary closes the connection without a word, and so does twemproxy. */
TEST(a_server_without_text_protocol_is_guessed) {
    const char *arguments[] = {"-B", "binary", NULL};
    struct server binary;
    struct uri uri;
    struct dlock_error err = {0};
    server_start_unheard(&binary, arguments);
    uri_init(&uri, binary.port);
    uri.parts.user = "joe", uri.parts.password = "secret";
    for (int64_t until = now_ms() + 10000; now_ms() < until; sleep_ms(20)) {
        try(&uri, &err);
        if (!strstr(err.message, "cannot connect")) break;
    }
    assert_refused(&uri, DLOCK_EUNAVAILABLE, "one that runs with -S is memcached+sasl://");
    assert_refused(&uri, DLOCK_EUNAVAILABLE, "as twemproxy does, which dlock cannot use");
    server_stop(&binary);
}

TEST(a_server_without_ids_is_refused) {
    const char *arguments[] = {"-C", NULL};
    struct server plain;
    struct uri uri;
    server_start(&plain, arguments);
    uri_init(&uri, plain.port);
    assert_refused(&uri, DLOCK_ENOTSUP, "-C");
    server_stop(&plain);
}

TEST(a_server_without_room_is_unavailable) {
    enum { LINKS = 30 };
    const char *arguments[] = {"-c", "20", "-t", "1", NULL};
    struct server small;
    struct link links[LINKS];
    struct uri uri;
    int rc = 0;
    server_start(&small, arguments);
    uri_init(&uri, small.port);
    for (int i = 0; i < LINKS; i++) {
        int each = link_try(&links[i], &uri.parts, 'a', 0, rc ? 1 : 500, NULL);
        if (each) rc = each;
    }
    assert_int_equal(rc, DLOCK_EUNAVAILABLE);
    for (int i = 0; i < LINKS; i++) link_end(&links[i]);
    server_stop(&small);
}

/* ---- quarantine -------------------------------------------------------------------------------------------------- */

TEST(a_young_server_grants_nothing) {
    enum { QUARANTINE_MS = 4000 };
    struct server young;
    struct held held;
    struct link link;
    int64_t begin = now_ms(), first_ms;
    server_start(&young, NULL);
    link_careful(&link, young.port, 'a', QUARANTINE_MS);
    claim_init(&held, "young", 'a', 1);
    assert_int_equal(acquire(&link, &held), DLOCK_ENOTREADY);
    first_ms = held.claim.ready_ms;
    assert_in_range(first_ms, 1, QUARANTINE_MS + 1);
    assert_int_equal(stat_of(&young, "cmd_set"), 0);
    sleep_ms(1000);
    assert_int_equal(acquire(&link, &held), DLOCK_ENOTREADY);
    assert_true(held.claim.ready_ms < first_ms);
    /* A lock that is held already could be renewed and released; there is none. */
    assert_int_equal(renew(&link, &held), DLOCK_ELOST);
    while (acquire(&link, &held) == DLOCK_ENOTREADY) sleep_ms((int)held.claim.ready_ms);
    assert_int_equal(held.claim.result, 0);
    assert_in_range(now_ms() - begin, QUARANTINE_MS, QUARANTINE_MS + 5000);
    link_end(&link);
    server_stop(&young);
}

/* `uptime` is up to three seconds more than the time that has passed. Without a quarantine it takes a second. */
TEST(an_old_server_grants_at_once) {
    static const struct {
        int uptime_s, quarantine_s, result;
    } cases[] = {{100000, 99997, 0}, {100000, 99998, DLOCK_ENOTREADY}, {4, 0, 0}, {3, 0, DLOCK_ENOTREADY}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char greeting[256];
        struct fake old = {.greeting = {greeting},
                           .answers =
                               FAKE_SAYS("STORED\r\nVALUE old 0 33 5\r\naaaaaaaaaaaaaaaaaaaaaaaa.1@test:1\r\nEND\r\n")};
        struct held held;
        struct link link;
        snprintf(greeting, sizeof greeting, "STAT uptime %d\r\n%s", cases[i].uptime_s,
                 strstr(fake_protocol.greeting[0], "STAT time"));
        fake_start(&old);
        link_careful(&link, old.port, 'a', cases[i].quarantine_s * 1000);
        claim_init(&held, "old", 'a', 1);
        assert_int_equal(acquire(&link, &held), cases[i].result);
        if (!cases[i].result)
            assert_true(held.claim.fence == FAKE_STARTED_US + (100000 - (uint64_t)cases[i].uptime_s) * 1000000 + 5);
        fake_unlink(&old, &link);
    }
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

enum { MAX_FDS = 1024 };

/* The sockets of this process, into fds; how many there are. */
static size_t sockets(int fds[MAX_FDS]) {
    DIR *folder = opendir("/proc/self/fd");
    size_t n = 0;
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        int fd = atoi(entry->d_name), type;
        socklen_t size = sizeof type;
        if (entry->d_name[0] != '.' && n < MAX_FDS && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0)
            fds[n++] = fd;
    }
    closedir(folder);
    return n;
}

static int option(int fd, int level, int name) {
    int value = -1;
    socklen_t size = sizeof value;
    assert_int_equal(getsockopt(fd, level, name, &value, &size), 0);
    return value;
}

TEST(the_socket_is_set_up) {
    int fds[MAX_FDS];
    struct link link;
    assert_int_equal(sockets(fds), 0);
    link_to(&link, server.port, 'a');
    assert_int_equal(sockets(fds), 1);
    assert_true(fcntl(fds[0], F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(fds[0], F_GETFL) & O_NONBLOCK);
    assert_true(option(fds[0], IPPROTO_TCP, TCP_NODELAY) != 0);
    assert_true(option(fds[0], SOL_SOCKET, SO_KEEPALIVE) != 0);
    assert_in_range(option(fds[0], IPPROTO_TCP, TCP_KEEPIDLE), 1, 60);
    link_end(&link);
    assert_int_equal(sockets(fds), 0);
}

TEST(a_failed_connect_leaves_nothing_open) {
    int fds[MAX_FDS];
    struct fake fake = {.greeting = {"nonsense\r\n"}};
    struct link link;
    struct uri uri;
    uri_init(&uri, 1); /* no server listens there */
    assert_int_equal(link_try(&link, &uri.parts, 'a', 0, TIMEOUT_MS, NULL), DLOCK_EUNAVAILABLE);
    link_end(&link);
    assert_int_equal(fake_try(&fake, &link, TIMEOUT_MS, NULL), DLOCK_EPROTO);
    fake_unlink(&fake, &link);
    sleep_ms(50);
    assert_int_equal(sockets(fds), 0);
}

/* In a forked child the socket is closed without a message; the parent's still works. */
TEST(a_forked_child_lets_go) {
    struct held held;
    struct link link;
    int fds[MAX_FDS], status = -1;
    pid_t pid;
    link_to(&link, server.port, 'a');
    claim_init(&held, "forked", 'a', 1);
    assert_int_equal(acquire(&link, &held), 0);
    pid = fork();
    if (pid == 0) {
        backend->abandon(link.conn);
        _exit(sockets(fds) == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(renew(&link, &held), 0);
    assert_int_equal(release(&link, &held), 0);
    link_end(&link);
}

TEST(nothing_is_harmless_before_connect) {
    void *conn = calloc(1, backend->conn_size);
    const int before = fcntl(0, F_GETFD);
    assert_non_null(conn);
    backend->abandon(conn); /* descriptor 0 is not ours */
    backend->disconnect(conn);
    assert_int_equal(fcntl(0, F_GETFD), before);
    free(conn);
}

TESTS(NULL, NULL, group_begin, group_end)
