/* A proxy between a client and a server, in its own thread, that reads the requests as they pass. */
#include "harness.h"
#include "support/relay.h"

#include <stdlib.h>

enum { TYPES = 32, BUFFER = 1 << 20 };

/* The bytes of a connection, without the whole requests. */
struct stream {
    bool greeted; /* the connect request has passed */
    size_t used;
    unsigned char buffer[BUFFER];
};

struct proxy {
    struct relay *relay;
    pthread_mutex_t mutex;
    int lose;                  /* request type, 0: none */
    int hold_type, hold_after; /* after this many more of that type, answers are held; 0: none */
    int seen[TYPES], all;
    size_t sent[TYPES];
    struct stream *streams[RELAY_PAIRS]; /* NULL: not used yet */
};

static uint32_t number(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static int look_at_request(struct proxy *proxy, int type) {
    int reaction = RELAY_PASS;
    proxy->seen[type]++;
    if (type != OP_PING && type != OP_EXISTS) proxy->all++;
    if (type == proxy->lose) {
        proxy->lose = 0;
        reaction |= RELAY_END_IT;
    }
    if (type == proxy->hold_type && --proxy->hold_after == 0) {
        proxy->hold_type = 0;
        reaction |= RELAY_HOLD;
    }
    return reaction;
}

/* Every whole request: length, xid, type, … */
static int look_at_stream(struct proxy *proxy, struct stream *stream) {
    int reaction = RELAY_PASS;
    for (;;) {
        size_t size = stream->used >= 4 ? number(stream->buffer) + 4 : 0;
        if (!size || stream->used < size) return reaction;
        uint32_t type = stream->greeted && size >= 12 ? number(stream->buffer + 8) : 0;
        stream->greeted = true;
        if (type > 0 && type < TYPES) {
            proxy->sent[type] += size;
            reaction |= look_at_request(proxy, (int)type);
        }
        stream->used -= size;
        memmove(stream->buffer, stream->buffer + size, stream->used);
    }
}

static int look(void *arg, size_t pair, bool first, const char *bytes, size_t size) {
    struct proxy *proxy = arg;
    if (!proxy->streams[pair]) proxy->streams[pair] = malloc(sizeof *proxy->streams[pair]);
    struct stream *stream = proxy->streams[pair];
    if (!stream) abort();
    if (first) stream->greeted = false;
    if (first) stream->used = 0;
    if (size > sizeof stream->buffer - stream->used) abort();
    memcpy(stream->buffer + stream->used, bytes, size);
    stream->used += size;
    pthread_mutex_lock(&proxy->mutex);
    int reaction = look_at_stream(proxy, stream);
    pthread_mutex_unlock(&proxy->mutex);
    return reaction;
}

struct proxy *proxy_new(int server_port) {
    struct proxy *proxy = calloc(1, sizeof *proxy);
    assert_non_null(proxy);
    pthread_mutex_init(&proxy->mutex, NULL);
    proxy->relay = relay_new(server_port);
    relay_watch(proxy->relay, look, proxy);
    return proxy;
}

void proxy_end(struct proxy *proxy) {
    relay_end(proxy->relay);
    for (size_t i = 0; i < RELAY_PAIRS; i++) free(proxy->streams[i]);
    pthread_mutex_destroy(&proxy->mutex);
    free(proxy);
}

int proxy_port(const struct proxy *proxy) {
    return relay_port(proxy->relay);
}

size_t proxy_sent(struct proxy *proxy, int type) {
    pthread_mutex_lock(&proxy->mutex);
    size_t sent = proxy->sent[type];
    pthread_mutex_unlock(&proxy->mutex);
    return sent;
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
    relay_hold(proxy->relay, RELAY_ANSWERS, on);
}

void proxy_hold_after(struct proxy *proxy, int type, int count) {
    pthread_mutex_lock(&proxy->mutex);
    proxy->hold_type = type;
    proxy->hold_after = count;
    pthread_mutex_unlock(&proxy->mutex);
}

void proxy_silence(struct proxy *proxy, bool on) {
    relay_hold(proxy->relay, RELAY_ANSWERS, on);
    relay_hold(proxy->relay, RELAY_REQUESTS, on);
}

void proxy_deafen(struct proxy *proxy, bool on) {
    relay_lose(proxy->relay, on);
}

void proxy_strand(struct proxy *proxy) {
    relay_mute(proxy->relay, "");
}

void proxy_refuse(struct proxy *proxy, bool on) {
    relay_refuse(proxy->relay, on);
}

void proxy_lose_answer(struct proxy *proxy, int type) {
    pthread_mutex_lock(&proxy->mutex);
    proxy->lose = type;
    pthread_mutex_unlock(&proxy->mutex);
}
