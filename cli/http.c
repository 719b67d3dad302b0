/* The least of HTTP/1.0 that Prometheus needs (RFC 1945): one request and one answer per connection. A server library
 * would be the largest dependency of the command, for one page; tests/programs/cli/metrics_test.sh shows what else this
 * one has to stand: a reader that sends nothing, and one that sends nonsense. */
#include "http.h"

#include "loss.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REQUEST_MAX = 8192, PATIENCE_MS = 2000 };

/* Splits "[HOST:]PORT", where HOST may have brackets. */
static void split(char *address, const char **host, const char **port) {
    char *colon = strrchr(address, ':');
    *host = "127.0.0.1";
    *port = colon ? colon + 1 : address;
    if (!colon) return;
    *colon = '\0';
    if (address[0] == '[' && colon > address && colon[-1] == ']') {
        colon[-1] = '\0';
        address++;
    }
    if (*address) *host = address;
}

static int listen_at(const char *address) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    const char *host, *port;
    char *copy = strdup(address);
    if (!copy) return no_memory(), -1;
    split(copy, &host, &port);
    int rc = getaddrinfo(host, port, &hints, &found), fd = -1;
    if (rc != 0) {
        note("cannot listen at \"%s\": %s; write [HOST:]PORT", address, gai_strerror(rc));
    } else {
        fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool ok = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) == 0 &&
                  bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 16) == 0;
        if (!ok) {
            note("cannot listen at \"%s\": %s", address, strerror(errno));
            if (fd >= 0) close(fd);
            fd = -1;
        }
        freeaddrinfo(found);
    }
    free(copy);
    return fd;
}

static void say_where(int fd) {
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    char host[64], port[16];
    if (getsockname(fd, (struct sockaddr *)&own, &size) == 0 &&
        getnameinfo((struct sockaddr *)&own, size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        note(strchr(host, ':') ? "serving http://[%s]:%s/metrics" : "serving http://%s:%s/metrics", host, port);
}

/* Reads the request's head. False: it has no end, or did not come in time. */
static bool read_head(int fd, char head[REQUEST_MAX]) {
    size_t used = 0;
    for (int64_t end = now_ms() + PATIENCE_MS; now_ms() < end && used < REQUEST_MAX - 1;) {
        ssize_t n = recv(fd, head + used, REQUEST_MAX - 1 - used, 0);
        if (n <= 0) return false;
        used += (size_t)n;
        head[used] = '\0';
        if (strstr(head, "\r\n\r\n") || strstr(head, "\n\n")) return true;
    }
    return false;
}

static bool send_all(int fd, const char *text, size_t size) {
    for (int64_t end = now_ms() + PATIENCE_MS; size > 0 && now_ms() < end;) {
        ssize_t n = send(fd, text, size, MSG_NOSIGNAL);
        if (n <= 0) return false;
        text += n;
        size -= (size_t)n;
    }
    return size == 0;
}

static void send_answer(int fd, bool whole, const char *status, const char *body, size_t size) {
    char head[200];
    int used = snprintf(head, sizeof head,
                        "HTTP/1.0 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                        "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                        status, size);
    if (send_all(fd, head, (size_t)used) && whole) send_all(fd, body, size);
}

/* True if the request line asks for /metrics, or for the root. */
static bool wants_page(const char *target) {
    size_t length = strcspn(target, " ?\r\n");
    return (length == 1 && target[0] == '/') || (length == 8 && strncmp(target, "/metrics", 8) == 0);
}

static void answer(int fd, http_page *page, void *arg) {
    char head[REQUEST_MAX], *body = NULL;
    size_t size = 0;
    if (!read_head(fd, head)) return;
    const bool get = strncmp(head, "GET ", 4) == 0, only_head = strncmp(head, "HEAD ", 5) == 0;
    const char *status = !get && !only_head                   ? "405 Method Not Allowed"
                         : !wants_page(strchr(head, ' ') + 1) ? "404 Not Found"
                                                              : NULL;
    FILE *out = open_memstream(&body, &size);
    bool made = out && (status ? fputs("only GET /metrics\n", out) >= 0 : page(out, arg));
    if (out) made = fclose(out) == 0 && made;
    if (!made) size = 0;
    send_answer(fd, !only_head, !made ? "500 Internal Server Error" : status ? status : "200 OK", body, size);
    free(body);
}

int http_serve(const struct command *command, const char *address, http_page *page, void *arg) {
    const struct timeval patience = {PATIENCE_MS / 1000, 0};
    int fd = listen_at(address);
    if (fd < 0) return usage_error(command, "give --listen an address of this host");
    say_where(fd);
    for (;;) {
        int reader = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (reader < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            note("cannot answer: %s%s", strerror(errno), limit_advice(errno));
            sleep(1);
        }
        if (reader < 0) continue;
        setsockopt(reader, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        setsockopt(reader, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        answer(reader, page, arg);
        shutdown(reader, SHUT_WR);
        close(reader);
    }
}
