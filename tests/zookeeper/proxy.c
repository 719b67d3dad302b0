/* A proxy between a client and a server, in a thread of its own, that reads the requests as they pass. */
#include "harness.h"
#include "support/loopback.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PAIRS = 16, TYPES = 32, BUFFER = 1 << 20 };

struct pair {
    int client, server; /* -1: free */
    bool greeted;       /* the connect request has passed */
    bool doomed;        /* ends instead of the next answer */
    bool stranded;      /* open, and forgotten */
    size_t used;
    unsigned char buffer[BUFFER]; /* of requests */
};

struct proxy {
    pthread_mutex_t mutex;
    pthread_t thread;
    int listener, port, server_port, kick[2];
    bool stop, hold, silence, refuse, deafen;
    int lose;                  /* request type, 0: none */
    int hold_type, hold_after; /* so many more of that type, and answers are held; 0: none */
    int seen[TYPES], all;
    struct pair pairs[PAIRS];
};

static void pair_close(struct pair *pair) {
    struct linger reset = {1, 0};
    setsockopt(pair->client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(pair->client);
    close(pair->server);
    pair->client = pair->server = -1;
}

static void send_all(int fd, const void *data, size_t size) {
    const char *at = data;
    while (size > 0) {
        ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
        if (n <= 0) return;
        at += n;
        size -= (size_t)n;
    }
}

static void accept_one(struct proxy *proxy) {
    int client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC), one = 1;
    struct pair *pair = proxy->pairs;
    if (client < 0) return;
    while (pair < proxy->pairs + PAIRS && pair->client >= 0) pair++;
    int server = proxy->refuse || pair == proxy->pairs + PAIRS ? -1 : loopback_connect(proxy->server_port);
    if (server < 0) {
        close(client);
        return;
    }
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    pair->client = client;
    pair->server = server;
    pair->greeted = pair->doomed = pair->stranded = false;
    pair->used = 0;
}

static uint32_t number(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Notes and passes every whole request: length, xid, type, … */
static void requests(struct proxy *proxy, struct pair *pair) {
    ssize_t got = recv(pair->client, pair->buffer + pair->used, sizeof pair->buffer - pair->used, 0);
    if (got <= 0) {
        pair_close(pair);
        return;
    }
    pair->used += (size_t)got;
    for (;;) {
        size_t size = pair->used >= 4 ? number(pair->buffer) + 4 : 0;
        if (!size || pair->used < size) return;
        int type = pair->greeted && size >= 12 ? (int)number(pair->buffer + 8) : 0;
        pair->greeted = true;
        if (type > 0 && type < TYPES) proxy->seen[type]++;
        if (type > 0 && type != OP_PING && type != OP_EXISTS) proxy->all++;
        if (type > 0 && type == proxy->lose) {
            proxy->lose = 0;
            pair->doomed = true;
        }
        if (type > 0 && type == proxy->hold_type && --proxy->hold_after == 0) {
            proxy->hold_type = 0;
            proxy->hold = true;
        }
        send_all(pair->server, pair->buffer, size);
        pair->used -= size;
        memmove(pair->buffer, pair->buffer + size, pair->used);
    }
}

static void answers(struct pair *pair, bool drop) {
    char buffer[65536];
    ssize_t got = recv(pair->server, buffer, sizeof buffer, 0);
    if (got <= 0 || pair->doomed)
        pair_close(pair);
    else if (!drop)
        send_all(pair->client, buffer, (size_t)got);
}

static void serve(struct proxy *proxy, const struct pollfd *fds) {
    if (proxy->refuse)
        for (size_t i = 0; i < PAIRS; i++)
            if (proxy->pairs[i].client >= 0) pair_close(&proxy->pairs[i]);
    for (size_t i = 0; i < PAIRS; i++) {
        struct pair *pair = &proxy->pairs[i];
        if (pair->client >= 0 && fds[2 * i].fd == pair->client && fds[2 * i].revents) requests(proxy, pair);
        if (!proxy->hold && pair->server >= 0 && fds[2 * i + 1].fd == pair->server && fds[2 * i + 1].revents)
            answers(pair, proxy->deafen);
    }
    if (fds[2 * PAIRS].revents) accept_one(proxy);
}

static void *proxy_main(void *arg) {
    struct proxy *proxy = arg;
    struct pollfd fds[2 * PAIRS + 2];
    char byte[64];
    pthread_mutex_lock(&proxy->mutex);
    while (!proxy->stop) {
        for (size_t i = 0; i < PAIRS; i++) {
            bool quiet = proxy->silence || proxy->pairs[i].stranded;
            fds[2 * i] = (struct pollfd){quiet ? -1 : proxy->pairs[i].client, POLLIN, 0};
            fds[2 * i + 1] = (struct pollfd){quiet || proxy->hold ? -1 : proxy->pairs[i].server, POLLIN, 0};
        }
        fds[2 * PAIRS] = (struct pollfd){proxy->silence ? -1 : proxy->listener, POLLIN, 0};
        fds[2 * PAIRS + 1] = (struct pollfd){proxy->kick[0], POLLIN, 0};
        pthread_mutex_unlock(&proxy->mutex);
        poll(fds, 2 * PAIRS + 2, -1);
        if (fds[2 * PAIRS + 1].revents && read(proxy->kick[0], byte, sizeof byte) < 0) {
            /* nothing there */
        }
        pthread_mutex_lock(&proxy->mutex);
        serve(proxy, fds);
    }
    pthread_mutex_unlock(&proxy->mutex);
    return NULL;
}

struct proxy *proxy_new(int server_port) {
    struct proxy *proxy = calloc(1, sizeof *proxy);
    assert_non_null(proxy);
    proxy->server_port = server_port;
    proxy->listener = loopback_listen(&proxy->port);
    assert_int_equal(pipe2(proxy->kick, O_CLOEXEC), 0);
    for (size_t i = 0; i < PAIRS; i++) proxy->pairs[i].client = proxy->pairs[i].server = -1;
    pthread_mutex_init(&proxy->mutex, NULL);
    assert_int_equal(pthread_create(&proxy->thread, NULL, proxy_main, proxy), 0);
    return proxy;
}

static void set(struct proxy *proxy, bool *what, bool on) {
    pthread_mutex_lock(&proxy->mutex);
    *what = on;
    pthread_mutex_unlock(&proxy->mutex);
    assert_int_equal(write(proxy->kick[1], "", 1), 1);
}

void proxy_end(struct proxy *proxy) {
    set(proxy, &proxy->stop, true);
    pthread_join(proxy->thread, NULL);
    for (size_t i = 0; i < PAIRS; i++)
        if (proxy->pairs[i].client >= 0) pair_close(&proxy->pairs[i]);
    close(proxy->listener);
    close(proxy->kick[0]);
    close(proxy->kick[1]);
    pthread_mutex_destroy(&proxy->mutex);
    free(proxy);
}

int proxy_port(const struct proxy *proxy) {
    return proxy->port;
}

int proxy_seen(struct proxy *proxy, int type) {
    pthread_mutex_lock(&proxy->mutex);
    int seen = type < 0 ? proxy->all : proxy->seen[type];
    pthread_mutex_unlock(&proxy->mutex);
    return seen;
}

bool proxy_await(struct proxy *proxy, int type, int count) {
    for (int64_t until = now_ms() + 10000; proxy_seen(proxy, type) < count; sleep_ms(2))
        if (now_ms() > until) return false;
    return true;
}

void proxy_hold(struct proxy *proxy, bool on) {
    set(proxy, &proxy->hold, on);
}

void proxy_hold_after(struct proxy *proxy, int type, int count) {
    pthread_mutex_lock(&proxy->mutex);
    proxy->hold_type = type;
    proxy->hold_after = count;
    pthread_mutex_unlock(&proxy->mutex);
}

void proxy_silence(struct proxy *proxy, bool on) {
    set(proxy, &proxy->silence, on);
}

void proxy_deafen(struct proxy *proxy, bool on) {
    set(proxy, &proxy->deafen, on);
}

void proxy_strand(struct proxy *proxy) {
    pthread_mutex_lock(&proxy->mutex);
    for (size_t i = 0; i < PAIRS; i++) proxy->pairs[i].stranded = proxy->pairs[i].client >= 0;
    pthread_mutex_unlock(&proxy->mutex);
    assert_int_equal(write(proxy->kick[1], "", 1), 1);
}

void proxy_refuse(struct proxy *proxy, bool on) {
    set(proxy, &proxy->refuse, on);
}

void proxy_lose_answer(struct proxy *proxy, int type) {
    pthread_mutex_lock(&proxy->mutex);
    proxy->lose = type;
    pthread_mutex_unlock(&proxy->mutex);
}
