#include "harness.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <hiredis.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- time -------------------------------------------------------------------------------------------------------- */

int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void sleep_ms(int ms) {
    const struct timespec time = {ms / 1000, (ms % 1000) * 1000000L};
    nanosleep(&time, NULL);
}

/* ---- servers ----------------------------------------------------------------------------------------------------- */

static int free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_return_code(bind(fd, (struct sockaddr *)&address, size), errno);
    assert_return_code(getsockname(fd, (struct sockaddr *)&address, &size), errno);
    close(fd);
    return ntohs(address.sin_port);
}

static void launch(struct server *server, const char *const *arguments) {
    char port[16], sock[96], log[96];
    const char *words[40] = {
        "redis-server", "--port", port,           "--bind",       "127.0.0.1", "--save",    "", "--appendonly",
        "no",           "--dir",  server->folder, "--unixsocket", sock,        "--logfile", log};
    size_t n = 15;
    pid_t parent = getpid();
    snprintf(port, sizeof port, "%d", server->port);
    snprintf(sock, sizeof sock, "%s/sock", server->folder);
    snprintf(log, sizeof log, "%s/log", server->folder);
    while (arguments && *arguments && n < 39) words[n++] = *arguments++;
    words[n] = NULL;
    server->pid = fork();
    assert_return_code(server->pid, errno);
    if (server->pid) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    dup2(open("/dev/null", O_RDWR), 1);
    execvp(words[0], (char *const *)words);
    _exit(127);
}

/* Whether the server answers, at last; false when the process ended (the port may have been taken). */
static bool answers(struct server *server) {
    for (int64_t until = now_ms() + 20000; now_ms() < until; sleep_ms(10)) {
        redisReply *reply = NULL;
        if (waitpid(server->pid, NULL, WNOHANG) == server->pid) return false;
        server->plain = redisConnect("127.0.0.1", server->port);
        if (server->plain && !server->plain->err) reply = redisCommand(server->plain, "PING");
        if (reply) {
            bool loading = reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "LOADING", 7) == 0;
            freeReplyObject(reply);
            if (!loading) return true;
        }
        if (server->plain) redisFree(server->plain);
        server->plain = NULL;
    }
    fail_msg("redis-server does not answer");
    return false;
}

void server_start(struct server *server, const char *const *arguments) {
    const char *root = getenv("TMPDIR");
    memset(server, 0, sizeof *server);
    snprintf(server->folder, sizeof server->folder, "%s/dlock-redis.XXXXXX", root && strlen(root) < 30 ? root : "/tmp");
    assert_non_null(mkdtemp(server->folder));
    for (int tries = 0; tries < 5; tries++) {
        server->port = free_port();
        launch(server, arguments);
        if (answers(server)) return;
    }
    fail_msg("redis-server does not start: is it installed?");
}

void server_kill(struct server *server) {
    if (server->plain) redisFree(server->plain);
    server->plain = NULL;
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
}

void server_again(struct server *server, const char *const *arguments) {
    launch(server, arguments);
    assert_true(answers(server));
}

void server_stop(struct server *server) {
    char command[128];
    server_kill(server);
    snprintf(command, sizeof command, "rm -rf '%s'", server->folder);
    assert_int_equal(system(command), 0);
}

static redisReply *ask(struct server *server, const char *format, va_list args) {
    redisReply *reply = redisvCommand(server->plain, format, args);
    if (!reply) fail_msg("%s: %s", format, server->plain->errstr);
    if (reply->type == REDIS_REPLY_ERROR) fail_msg("%s: %s", format, reply->str);
    return reply;
}

int64_t ask_number(struct server *server, const char *format, ...) {
    va_list args;
    va_start(args, format);
    redisReply *reply = ask(server, format, args);
    int64_t number = reply->integer;
    va_end(args);
    if (reply->type != REDIS_REPLY_INTEGER) fail_msg("%s: no number", format);
    freeReplyObject(reply);
    return number;
}

const char *ask_text(struct server *server, const char *format, ...) {
    static char text[16384];
    va_list args;
    va_start(args, format);
    redisReply *reply = ask(server, format, args);
    va_end(args);
    snprintf(text, sizeof text, "%s", reply->str ? reply->str : "");
    freeReplyObject(reply);
    return text;
}

/* ---- counting ---------------------------------------------------------------------------------------------------- */

void monitor_begin(struct monitor *monitor, const struct server *server) {
    memset(monitor, 0, sizeof *monitor);
    monitor->link = redisConnect("127.0.0.1", server->port);
    assert_int_equal(monitor->link->err, 0);
    freeReplyObject(redisCommand(monitor->link, "MONITOR"));
}

void monitor_end(struct monitor *monitor, struct server *server) {
    static const char end[] = "the end of the count";
    bool over = false;
    ask_text(server, "ECHO %s", end);
    while (!over) {
        redisReply *line;
        bool script;
        assert_int_equal(redisGetReply(monitor->link, (void **)&line), REDIS_OK);
        over = strstr(line->str, end) != NULL;
        script = strstr(line->str, " lua] ") != NULL;
        if (!over && !script) monitor->requests++;
        if (!over && !script && strstr(line->str, "] \"EVALSHA\"")) monitor->evalsha++;
        if (script && strstr(line->str, "] \"PUBLISH\"")) monitor->published++;
        freeReplyObject(line);
    }
    redisFree(monitor->link);
}

/* ---- the backend ------------------------------------------------------------------------------------------------- */

const struct dlock_backend *backend;

#ifdef DLOCK_REDIS_MODULE
void backend_load(void) {
    void *module = dlopen(DLOCK_REDIS_MODULE, RTLD_NOW | RTLD_LOCAL);
    if (!module) fail_msg("%s", dlerror());
    backend = dlsym(module, "dlock_backend_redis");
    assert_non_null(backend);
}
#else
extern const struct dlock_backend dlock_backend_redis;
void backend_load(void) {
    backend = &dlock_backend_redis;
}
#endif

static void log_nothing(const struct dlock_peer *peer, int level, const char *message) {
    (void)peer, (void)level, (void)message;
}

int link_try(struct link *link, const struct dlock_uri *uri, char letter, int64_t quarantine_ms,
             struct dlock_error *err) {
    memset(link, 0, sizeof *link);
    memset(link->client, letter, 24);
    link->peer = (struct dlock_peer){DLOCK_ABI, link->client, quarantine_ms, log_nothing};
    link->conn = calloc(1, backend->conn_size);
    assert_non_null(link->conn);
    return backend->connect(link->conn, uri, &link->peer, TIMEOUT_MS, err);
}

void uri_init(struct uri *uri, int port) {
    memset(uri, 0, sizeof *uri);
    for (size_t i = 0; i < 3; i++) uri->host[i] = (struct dlock_host){"localhost", "127.0.0.1", port};
    uri->parts.scheme = "redis";
    uri->parts.hosts = uri->host;
    uri->parts.n_hosts = 1;
}

void link_new(struct link *link, const struct server *server, char letter) {
    struct uri uri;
    struct dlock_error err = {0};
    uri_init(&uri, server->port);
    if (link_try(link, &uri.parts, letter, 0, &err) != 0) fail_msg("%s", err.message);
}

void link_listen(struct link *link) {
    struct dlock_error err = {0};
    if (backend->listen(link->conn, &link->fd, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
    assert_true(link->fd > 2);
}

void link_end(struct link *link) {
    backend->disconnect(link->conn);
    free(link->conn);
    link->conn = NULL;
}

void claim_init(struct held *held, const char *name, char letter, int serial) {
    char client[25] = {0};
    memset(client, letter, 24);
    memset(held, 0, sizeof *held);
    snprintf(held->token, sizeof held->token, "%s.%d@test:1", client, serial);
    held->claim.name = name;
    held->claim.token = held->token;
    held->claim.lease_ms = LEASE_MS;
}

static int one(dlock_batch *operation, struct link *link, struct held *held) {
    struct dlock_claim *claim = &held->claim;
    struct dlock_error err = {0};
    claim->result = DLOCK_EPROTO;
    claim->kept_ms = claim->lease_ms;
    claim->retry_ms = -1;
    claim->server_us = 0;
    if (operation(link->conn, &claim, 1, TIMEOUT_MS, &err) != 0) fail_msg("%d: %s", err.code, err.message);
    return claim->result;
}

int acquire(struct link *link, struct held *held) {
    held->claim.flags = 0;
    return one(backend->acquire, link, held);
}

int queue_up(struct link *link, struct held *held) {
    held->claim.flags = DLOCK_CLAIM_QUEUE;
    return one(backend->acquire, link, held);
}

int renew(struct link *link, struct held *held) {
    return one(backend->renew, link, held);
}
int release(struct link *link, struct held *held) {
    return one(backend->release, link, held);
}

bool wake_within(struct link *link, struct dlock_wake *wake, int ms) {
    struct pollfd fd = {link->fd, POLLIN, 0};
    struct dlock_error err = {0};
    int rc;
    for (int64_t until = now_ms() + ms;;) {
        if ((rc = backend->wake(link->conn, wake, &err)) < 0) fail_msg("%d: %s", err.code, err.message);
        if (rc == 1) return true;
        if (now_ms() >= until) return false;
        poll(&fd, 1, (int)(until - now_ms()));
    }
}
