/* Clients of the backend under test and their connections. The core's own way to another backend, dlock_peer.open_member,
 * finds the backend of a URI, loads it, judges the URI and looks up the hosts: so the suite needs nothing but the
 * library's public headers. */
#include "contract/contract.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

const struct dlock_backend *backend;

struct client {
    char id[25];
    struct dlock_peer peer;
    struct dlock_member member;
    struct line *lines; /* all */
    struct line *main, *second, *listener;
};
static struct client clients[CLIENTS];

/* ---- the door ---------------------------------------------------------------------------------------------------- */

static int (*open_member)(const struct dlock_peer *peer, const char *uri, struct dlock_member *out,
                          struct dlock_error *err);

static int door_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                        struct dlock_error *err) {
    (void)conn, (void)uri, (void)timeout_ms, (void)err;
    open_member = peer->open_member;
    return 0;
}

static void door_disconnect(void *conn) {
    (void)conn;
}

static int door_batch(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                      struct dlock_error *err) {
    (void)conn, (void)claims, (void)n, (void)timeout_ms;
    return dlock_fail(err, DLOCK_ENOTSUP, "not a backend");
}

/* A backend that only records how the core opens another one. */
static int find_door(struct dlock_error *err) {
    static const char *const schemes[] = {"dlock-contract", NULL};
    static const struct dlock_backend door = {.abi = DLOCK_ABI,
                                              .size = sizeof(struct dlock_backend),
                                              .name = "dlock_contract",
                                              .schemes = schemes,
                                              .caps = DLOCK_CAP_LOCAL,
                                              .conn_size = 1,
                                              .connect = door_connect,
                                              .disconnect = door_disconnect,
                                              .acquire = door_batch,
                                              .renew = door_batch,
                                              .release = door_batch};
    dlock_client *client;
    int rc = dlock_register(&door, err);
    if (rc == 0) rc = dlock_open("dlock-contract:", NULL, &client, err);
    if (rc == 0) dlock_close(client);
    return rc;
}

/* Takes the password out of the URI, and writes the path of a file that has it: that is how a member gets it. */
static void hide_password(char *uri, size_t size) {
    char *authority = strstr(uri, "://"), *at = authority ? strpbrk(authority + 3, "@/?") : NULL;
    char *colon = authority ? strchr(authority + 3, ':') : NULL;
    if (!at || *at != '@' || !colon || colon > at) return;
    int fd = memfd_create("password", MFD_CLOEXEC);
    for (const char *byte = colon + 1; byte < at; byte++) {
        unsigned value = (unsigned char)*byte;
        if (value == '%' && sscanf(byte + 1, "%2x", &value) == 1) byte += 2;
        if (write(fd, &(char){(char)value}, 1) != 1) FAIL("no room for the password");
    }
    memmove(colon, at, strlen(at) + 1);
    size_t used = strlen(uri);
    snprintf(uri + used, size - used, "%cpassword_file=/proc/self/fd/%d", strchr(uri, '?') ? '&' : '?', fd);
}

/* The URI without the keys that concern a whole client; also without `quarantine`. */
static void member_uri(char *out, size_t size, const char *uri, bool careful) {
    static const char *const keys[] = {"lease=", "timeout=", "connections=", "prefix=", "linger=", "guardian=", NULL};
    size_t head = strcspn(uri, "?");
    char separator = '?';
    int used = snprintf(out, size, "%.*s", (int)head, uri);
    for (const char *key = uri + head; *key; key += strcspn(key, "&")) {
        bool whole = careful && strncmp(++key, "quarantine=", 11) == 0;
        if (!careful) key++;
        for (int i = 0; keys[i]; i++) whole = whole || strncmp(key, keys[i], strlen(keys[i])) == 0;
        if (whole) continue;
        used += snprintf(out + used, size - (size_t)used, "%c%.*s", separator, (int)strcspn(key, "&"), key);
        separator = '&';
    }
    hide_password(out, size);
}

static void log_nothing(const struct dlock_peer *peer, int level, const char *message) {
    (void)peer, (void)level, (void)message;
}

int contract_open(const char *uri, struct dlock_error *err) {
    char plain[4096];
    int rc = find_door(err);
    for (int i = 0; i < CLIENTS && rc == 0; i++) {
        struct client *client = &clients[i];
        member_uri(plain, sizeof plain, uri, i == CAREFUL);
        snprintf(client->id, sizeof client->id, "%08x%08x%07x%x", (unsigned)time(NULL), (unsigned)getpid(), 0U,
                 10U + (unsigned)i);
        client->peer = (struct dlock_peer){.abi = DLOCK_ABI,
                                           .client = client->id,
                                           .quarantine_ms = i == CAREFUL ? QUARANTINE_MS : 0,
                                           .log = log_nothing,
                                           .open_member = open_member,
                                           .prefix = ""};
        rc = open_member(&client->peer, plain, &client->member, err);
    }
    if (rc == 0) backend = clients[0].member.backend;
    return rc;
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

static void listen_on(struct line *line) {
    struct dlock_error err = {0};
    if (line->fd >= 0) return;
    int rc = backend->listen(line->conn, &line->fd, REQUEST_MS, &err);
    if (rc != 0) FAIL("listen answers %d: %s", rc, err.message);
    EXPECT(line->fd >= 0);
}

static struct line *line_new(struct client *client) {
    struct dlock_error err = {0};
    struct line *line = calloc(1, sizeof *line);
    if (line) line->conn = calloc(1, backend->conn_size);
    if (!line || !line->conn) FAIL("out of memory");
    line->fd = -1;
    line->next = client->lines;
    client->lines = line;
    int rc = client->member.connect(&client->member, line->conn, PATIENCE_MS, &err);
    if (rc != 0) FAIL("connect answers %d: %s", rc, err.message);
    return line;
}

const char *client_id(int client) {
    return clients[client].id;
}

struct line *line_of(int client) {
    struct client *who = &clients[client];
    if (!who->main) who->main = line_new(who);
    return who->main;
}

struct line *second_line_of(int client) {
    struct client *who = &clients[client];
    if (can(DLOCK_CAP_THREADSAFE)) return line_of(client);
    if (!who->second) who->second = line_new(who);
    return who->second;
}

void listens(int client) {
    struct client *who = &clients[client];
    if (who->listener || !can(DLOCK_CAP_WAKE)) return;
    who->listener = can(DLOCK_CAP_THREADSAFE) ? line_of(client) : line_new(who);
    listen_on(who->listener);
}

static void line_ends(struct line *line) {
    backend->disconnect(line->conn);
    free(line->conn);
    free(line);
}

void client_dies(int client) {
    struct client *who = &clients[client];
    for (struct line *line = who->lines, *next; line; line = next) {
        next = line->next;
        line_ends(line);
    }
    who->lines = who->main = who->second = who->listener = NULL;
}

void all_clients_end(void) {
    for (int i = 0; i < CLIENTS; i++) {
        client_dies(i);
        clients[i].member.close(&clients[i].member);
    }
}

/* ---- wake-ups ---------------------------------------------------------------------------------------------------- */

bool readable(int fd, int ms) {
    return poll(&(struct pollfd){fd, POLLIN, 0}, 1, ms) == 1;
}

bool wake_of(int client, struct dlock_wake *wake, int ms) {
    const struct line *line = clients[client].listener;
    struct dlock_error err = {0};
    EXPECT(line);
    for (int64_t until = now_ms() + ms;;) {
        memset(wake, 0, sizeof *wake);
        int rc = backend->wake(line->conn, wake, &err);
        if (rc < 0) FAIL("wake answers %d: %s", rc, err.message);
        if (rc == 1 && wake->kind != DLOCK_WAKE_HEARD) return true;
        if (rc == 1) continue;
        int64_t left = until - now_ms();
        if (left <= 0) return false;
        readable(line->fd, (int)left);
    }
}
