#include "harness.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

static struct sockaddr_in loopback(int port) {
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

static int free_port(void) {
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_return_code(bind(fd, (struct sockaddr *)&address, size), errno);
    assert_return_code(getsockname(fd, (struct sockaddr *)&address, &size), errno);
    close(fd);
    return ntohs(address.sin_port);
}

static void launch(struct server *server, const char *const *arguments) {
    char port[16];
    const char *words[40] = {"memcached", "-U", "0", "-p", port, "-l", "127.0.0.1"};
    size_t n = 7;
    const struct passwd *nobody = geteuid() == 0 ? getpwnam("nobody") : NULL; /* root is refused */
    pid_t parent = getpid();
    snprintf(port, sizeof port, "%d", server->port);
    while (arguments && *arguments && n < 39) words[n++] = *arguments++;
    words[n] = NULL;
    server->pid = fork();
    assert_return_code(server->pid, errno);
    if (server->pid) return;
    if (nobody && (setgid(nobody->pw_gid) != 0 || setuid(nobody->pw_uid) != 0)) _exit(1);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* which its own change of user (-u) would undo */
    if (getppid() != parent) _exit(1);
    dup2(open("/dev/null", O_RDWR), 1);
    dup2(1, 2);
    execvp(words[0], (char *const *)words);
    _exit(127);
}

/* All that comes until the server has hung up, which it does once it has answered; false: it cannot be reached. */
static bool talk(int port, const char *request, char *out, size_t size) {
    struct sockaddr_in address = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t n = 0;
    ssize_t got = 1;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        send(fd, request, strlen(request), MSG_NOSIGNAL) == (ssize_t)strlen(request) && shutdown(fd, SHUT_WR) == 0)
        while (n + 1 < size && (got = recv(fd, out + n, size - 1 - n, 0)) > 0) n += (size_t)got;
    close(fd);
    out[n] = '\0';
    return n > 0;
}

/* Whether the server answers, at last; false when the process ended (the port may have been taken). */
static bool answers(struct server *server) {
    char text[256];
    for (int64_t until = now_ms() + 20000; now_ms() < until; sleep_ms(10)) {
        if (waitpid(server->pid, NULL, WNOHANG) == server->pid) return false;
        if (talk(server->port, "version\r\n", text, sizeof text)) return true;
    }
    fail_msg("memcached does not answer");
    return false;
}

static void make_folder(struct server *server) {
    const char *root = getenv("TMPDIR");
    memset(server, 0, sizeof *server);
    snprintf(server->folder, sizeof server->folder, "%s/dlock-memc.XXXXXX", root && strlen(root) < 30 ? root : "/tmp");
    assert_non_null(mkdtemp(server->folder));
    assert_return_code(chmod(server->folder, 0777), errno); /* it runs as nobody */
}

void server_start_unheard(struct server *server, const char *const *arguments) {
    make_folder(server);
    server->port = free_port();
    launch(server, arguments);
}

void server_start(struct server *server, const char *const *arguments) {
    make_folder(server);
    for (int tries = 0; tries < 5; tries++) {
        server->port = free_port();
        launch(server, arguments);
        if (answers(server)) return;
    }
    fail_msg("memcached does not start: is it installed?");
}

void server_kill(struct server *server) {
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

const char *ask(const struct server *server, const char *format, ...) {
    static char text[16384];
    char request[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(request, sizeof request - 2, format, args);
    va_end(args);
    strcat(request, "\r\n");
    if (!talk(server->port, request, text, sizeof text)) fail_msg("no answer to: %s", request);
    return text;
}

static int64_t stat_in(const char *stats, const char *name) {
    char line[80];
    const char *found;
    snprintf(line, sizeof line, "STAT %s ", name);
    found = strstr(stats, line);
    if (!found) fail_msg("no %s in stats", name);
    return strtoll(found + strlen(line), NULL, 10);
}

int64_t stat_of(const struct server *server, const char *name) {
    return stat_in(ask(server, "stats"), name);
}

void count(const struct server *server, struct counts *since) {
    static struct counts last;
    const char *stats = ask(server, "stats");
    struct counts now = {stat_in(stats, "cmd_set"), stat_in(stats, "cmd_get"), stat_in(stats, "cas_hits"),
                         stat_in(stats, "cas_badval") + stat_in(stats, "cas_misses")};
    if (since)
        *since = (struct counts){now.stores - last.stores, now.gets - last.gets, now.cas_hits - last.cas_hits,
                                 now.cas_misses - last.cas_misses};
    last = now;
}

/* ---- the backend ------------------------------------------------------------------------------------------------- */

const struct dlock_backend *backend;

#ifdef DLOCK_MEMCACHED_MODULE
int backend_load(void **state) {
    void *module = dlopen(DLOCK_MEMCACHED_MODULE, RTLD_NOW | RTLD_LOCAL);
    (void)state;
    if (!module) fail_msg("%s", dlerror());
    backend = dlsym(module, "dlock_backend_memcached");
    assert_non_null(backend);
    return 0;
}
#else
extern const struct dlock_backend dlock_backend_memcached;
int backend_load(void **state) {
    (void)state;
    backend = &dlock_backend_memcached;
    return 0;
}
#endif

static void log_nothing(const struct dlock_peer *peer, int level, const char *message) {
    (void)peer, (void)level, (void)message;
}

void uri_init(struct uri *uri, int port) {
    memset(uri, 0, sizeof *uri);
    for (size_t i = 0; i < 3; i++) uri->host[i] = (struct dlock_host){"localhost", "127.0.0.1", port};
    uri->parts.scheme = "memcached";
    uri->parts.hosts = uri->host;
    uri->parts.n_hosts = 1;
}

int link_try(struct link *link, const struct dlock_uri *uri, char letter, int64_t quarantine_ms, int timeout_ms,
             struct dlock_error *err) {
    memset(link, 0, sizeof *link);
    memset(link->client, letter, 24);
    link->peer = (struct dlock_peer){DLOCK_ABI, link->client, quarantine_ms, log_nothing};
    link->conn = calloc(1, backend->conn_size);
    assert_non_null(link->conn);
    return backend->connect(link->conn, uri, &link->peer, timeout_ms, err);
}

void link_new(struct link *link, int port, char letter) {
    struct uri uri;
    struct dlock_error err = {0};
    uri_init(&uri, port);
    if (link_try(link, &uri.parts, letter, 0, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
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
    claim_preset(&held->claim);
}

void claim_preset(struct dlock_claim *claim) {
    claim->result = DLOCK_EPROTO;
    claim->kept_ms = claim->lease_ms;
    claim->retry_ms = -1;
    claim->server_us = 0;
}

static int one(dlock_batch *operation, struct link *link, struct held *held) {
    struct dlock_claim *claim = &held->claim;
    struct dlock_error err = {0};
    claim_preset(claim);
    if (operation(link->conn, &claim, 1, TIMEOUT_MS, &err) != 0) fail_msg("%d: %s", err.code, err.message);
    return claim->result;
}

int acquire(struct link *link, struct held *held) {
    return one(backend->acquire, link, held);
}
int renew(struct link *link, struct held *held) {
    return one(backend->renew, link, held);
}
int release(struct link *link, struct held *held) {
    return one(backend->release, link, held);
}
