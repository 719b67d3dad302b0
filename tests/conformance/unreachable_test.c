/* Servers that are not there, do not answer, or whose name is unknown: each call ends by its deadline. */
#include "suite.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Makes a TCP socket on a free loopback port, which it keeps others from using. It answers nothing; with `listening`,
 * connections succeed all the same. */
static int silent_socket(bool listening, int *port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT(fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0);
    EXPECT(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    if (listening) EXPECT(listen(fd, 16) == 0);
    *port = ntohs(address.sin_port);
    return fd;
}

/* The suite's URI for another server, with the `timeout` of these cases. */
static char *uri_of(const char *host, int port) {
    char authority[128];
    snprintf(authority, sizeof authority, "user:s3cr3t@%s:%d", host, port);
    char *moved = uri_at(authority), *uri = uri_with(moved, "timeout", "1s");
    free(moved);
    return uri;
}

static void expect_open_fails(const char *uri, int64_t bound_ms) {
    dlock_client *client = NULL;
    int64_t begun = now_ms();
    EXPECT_CODE(DLOCK_EUNAVAILABLE, dlock_open(uri, NULL, &client, ERR));
    EXPECT_BETWEEN(0, bound_ms, now_ms() - begun);
    EXPECT(client == NULL);
    if (strstr(last_error.message, "s3cr3t")) FAIL("the password stands in: %s", last_error.message);
}

/* A LAZY client opens, and every call ends by its own deadline. */
static void expect_calls_fail(const char *uri) {
    dlock_client *client = NULL;
    struct dlock_client_options lazy = DLOCK_CLIENT_OPTIONS_INIT;
    lazy.flags = DLOCK_CLIENT_LAZY;
    int64_t begun = now_ms();
    EXPECT_CODE(0, dlock_open(uri, &lazy, &client, ERR));
    EXPECT_BETWEEN(0, SLACK_MS, now_ms() - begun);
    dlock_lock *lock = new_lock(client, suite.name, NULL);
    const int64_t timeouts[] = {0, 300, 1500};
    for (size_t i = 0; i < sizeof timeouts / sizeof timeouts[0]; i++) {
        begun = now_ms();
        EXPECT_CODE(DLOCK_EUNAVAILABLE, dlock_acquire(lock, timeouts[i], ERR));
        EXPECT_BETWEEN(0, (timeouts[i] > 0 ? timeouts[i] : 1000) + SLACK_MS, now_ms() - begun);
        EXPECT(!dlock_held(lock));
    }
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(lock, ERR));
    begun = now_ms();
    dlock_free(lock);
    dlock_close(client);
    EXPECT_BETWEEN(0, 1000 + SLACK_MS, now_ms() - begun);
}

static void ask_a_port(bool listening, void (*ask)(const char *uri)) {
    int port, fd = silent_socket(listening, &port);
    char *uri = uri_of("127.0.0.1", port);
    ask(uri);
    free(uri);
    close(fd);
}

static void expect_refused(const char *uri) {
    dlock_client *client;
    expect_open_fails(uri, SLACK_MS);
    EXPECT_CODE(DLOCK_EUNAVAILABLE, dlock_open(uri, NULL, &client, NULL)); /* nor has the backend an error to fill */
}

static void expect_silence(const char *uri) {
    expect_open_fails(uri, 1000 + SLACK_MS);
}

void case_closed_port(void) {
    ask_a_port(false, expect_refused);
}

void case_closed_port_lazy(void) {
    ask_a_port(false, expect_calls_fail);
}

void case_silent_server(void) {
    ask_a_port(true, expect_silence);
}

void case_silent_server_lazy(void) {
    ask_a_port(true, expect_calls_fail);
}

/* A server whose queue of connections is full: connect() itself gets no answer. */
void case_unanswered_connect(void) {
    enum { FILL = 8 };
    int port, fd = silent_socket(true, &port), fill[FILL];
    EXPECT(listen(fd, 0) == 0);
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)port);
    for (int i = 0; i < FILL; i++) {
        fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        EXPECT(fill[i] >= 0);
        connect(fill[i], (struct sockaddr *)&address, sizeof address);
    }
    char *uri = uri_of("127.0.0.1", port);
    expect_open_fails(uri, 1000 + SLACK_MS);
    expect_calls_fail(uri);
    free(uri);
    for (int i = 0; i < FILL; i++) close(fill[i]);
    close(fd);
}

void case_unresolvable_host(void) {
    char *uri = uri_of("nosuchhost.invalid", 7);
    expect_open_fails(uri, 1000 + SLACK_MS);
    if (!strstr(last_error.message, "nosuchhost.invalid")) FAIL("the host is not named: %s", last_error.message);
    expect_calls_fail(uri);
    free(uri);
}
