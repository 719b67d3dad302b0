/* Talking to Sentinels. All are asked at once, so that a dead one costs no time. They speak Redis' protocol, and all
 * are sent the same text. */
#include "sentinel.h"

#include <stdatomic.h>
#include <stdlib.h>

#define MAX_REPLY_BYTES 65536

/* Closes the connection to a Sentinel, for good. */
static void hang_up(struct redis_sentinel *sentinel) {
    const bool open = sentinel->open != 0;
    sentinel->open = 0; /* cleared first, since a child forked during cleanup reads it */
    atomic_signal_fence(memory_order_seq_cst);
    if (open) dlock_stream_close(&sentinel->stream);
    redisReaderFree(sentinel->reader);
    sentinel->reader = NULL;
    sentinel->asked_us = 0;
}

/* Ranks errors, the most telling first. An unknown master name is final only if all Sentinels report it. */
static int rank(int code) {
    static const int codes[] = {DLOCK_EAUTH, DLOCK_EUNAVAILABLE, DLOCK_EPROTO, DLOCK_EINVAL};
    int i = 0;
    while (i < 4 && codes[i] != code) i++;
    return i;
}

static const char *where(const struct redis_sentinel *sentinel, char out[128]) {
    snprintf(out, 128, "the Sentinel at %s port %d", sentinel->address, sentinel->port);
    return out;
}

static void failed_as(struct redis_sentinels *sentinels, struct redis_sentinel *sentinel,
                      const struct dlock_error *why) {
    if (!sentinels->code || rank(why->code) < rank(sentinels->code)) {
        sentinels->code = why->code;
        sentinels->why = *why;
    }
    hang_up(sentinel);
}

static void failed(struct redis_sentinels *sentinels, struct redis_sentinel *sentinel, int code, const char *why) {
    struct dlock_error err;
    char server[128];
    dlock_fail(&err, code, "%s: %s", where(sentinel, server), why);
    failed_as(sentinels, sentinel, &err);
}

/* The connection must be open. */
static void failed_by_errno(struct redis_sentinels *sentinels, struct redis_sentinel *sentinel) {
    int code;
    const char *why = dlock_stream_why(&sentinel->stream, errno, &code);
    failed(sentinels, sentinel, code, why);
}

static void makes_no_sense(struct redis_sentinels *sentinels, struct redis_sentinel *sentinel) {
    failed(sentinels, sentinel, DLOCK_EPROTO, "its answer is invalid");
}

/* ---- answers of a Sentinel --------------------------------------------------------------------------------------- */

/* Returns the value of a field of SENTINEL MASTER's reply; "": there is none. */
static const char *field_of(const redisReply *reply, const char *field) {
    for (size_t i = 0; i + 1 < reply->elements; i += 2) {
        const redisReply *name = reply->element[i], *value = reply->element[i + 1];
        if (name->type == REDIS_REPLY_STRING && value->type == REDIS_REPLY_STRING && strcmp(name->str, field) == 0)
            return value->str;
    }
    return "";
}

/* Reads the answer to the login. Other addresses may lead to the same Sentinel. */
static void take_id(struct redis_sentinels *sentinels, struct redis_sentinel *sentinel, const redisReply *reply) {
    char id[sizeof sentinel->id];
    if (!redis_info_field(reply, "run_id", id, sizeof id) || !*id) {
        failed(sentinels, sentinel, DLOCK_EPROTO, "its INFO has no run_id");
        return;
    }
    for (size_t i = 0; i < sentinels->n; i++)
        if (strcmp(sentinels->each[i].id, id) == 0) sentinel->who = sentinels->each[i].who;
    memcpy(sentinel->id, id, sizeof id);
}

/* Reads the first of the two answers, the address, or with announce-hostnames the name. The second one also contains it,
 * but that of the old master until all replicas follow the new one. */
static void take_address(struct redis_sentinels *sentinels, struct redis_sentinel *sentinel, const redisReply *reply) {
    struct redis_named *named = &sentinel->saying;
    const redisReply *ip = reply->element[0], *number = reply->element[1];
    const long port = number->type == REDIS_REPLY_STRING ? strtol(number->str, NULL, 10) : 0;
    if (ip->type != REDIS_REPLY_STRING || !redis_is_host(ip->str) || port < 1 || port > 65535) {
        makes_no_sense(sentinels, sentinel);
        return;
    }
    snprintf(named->host, sizeof named->host, "%s", ip->str);
    named->port = (int)port;
}

/* Reads the second answer. */
static void take_master(struct redis_sentinels *sentinels, struct redis_sentinel *sentinel, const redisReply *reply) {
    struct redis_named *named = &sentinel->saying;
    const char *epoch = field_of(reply, "config-epoch");
    const long others = strtol(field_of(reply, "num-other-sentinels"), NULL, 10);
    if (!*sentinel->id || !named->port || !*epoch || others < 0 || others > INT32_MAX - 1) {
        makes_no_sense(sentinels, sentinel);
        return;
    }
    named->epoch = strtoll(epoch, NULL, 10);
    named->others = (int)others;
    named->quorum = (int)strtol(field_of(reply, "quorum"), NULL, 10);
    sentinel->said = *named;
    sentinel->said_us = sentinel->asked_us;
    sentinel->asked_us = 0;
}

static void take_error(struct redis_sentinels *sentinels, struct redis_sentinel *sentinel, const redisReply *reply) {
    char why[256];
    int code = DLOCK_EPROTO;
    if (redis_error_is(reply, "ERR No such master")) {
        snprintf(why, sizeof why, "it knows no master \"%s\"", sentinels->name);
        code = DLOCK_EINVAL;
    } else if (redis_error_is(reply, "NOPERM")) {
        snprintf(why, sizeof why, "NOPERM: give the user of sentinel_user= +info and +sentinel (ACL SETUSER)");
        code = DLOCK_EAUTH;
    } else if (redis_error_is(reply, "NOAUTH") || redis_error_is(reply, "WRONGPASS") ||
               strncmp(reply->str, "ERR AUTH", 8) == 0 || strncmp(reply->str, "ERR Client sent AUTH", 20) == 0) {
        /* only the first word is repeated, since the rest may contain the password */
        snprintf(why, sizeof why, "%.*s: set or remove sentinel_user= and sentinel_password= to match the Sentinel",
                 (int)strcspn(reply->str, " "), reply->str);
        code = DLOCK_EAUTH;
    } else if (strncmp(reply->str, "ERR unknown command", 19) == 0) {
        snprintf(why, sizeof why, "it is a Redis server, not a Sentinel");
    } else {
        snprintf(why, sizeof why, "%.200s", reply->str);
    }
    failed(sentinels, sentinel, code, why);
}

/* Reads a reply. The very first one may be that to AUTH. */
static void take(struct redis_sentinels *sentinels, struct redis_sentinel *sentinel, const redisReply *reply) {
    if (reply->type == REDIS_REPLY_ERROR)
        take_error(sentinels, sentinel, reply);
    else if (reply->type == REDIS_REPLY_STRING && !*sentinel->id)
        take_id(sentinels, sentinel, reply);
    else if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 && !sentinel->saying.port)
        take_address(sentinels, sentinel, reply);
    else if (reply->type == REDIS_REPLY_ARRAY)
        take_master(sentinels, sentinel, reply);
    else if (reply->type != REDIS_REPLY_STATUS && reply->type != REDIS_REPLY_NIL) /* NIL: an error follows */
        makes_no_sense(sentinels, sentinel);
}

/* ---- sockets ----------------------------------------------------------------------------------------------------- */

/* Sends the rest of the text. */
static void send_rest(struct redis_sentinels *sentinels, struct redis_sentinel *sentinel) {
    const ssize_t n =
        dlock_stream_send(&sentinel->stream, sentinels->text + sentinel->sent, sentinels->length - sentinel->sent);
    if (n > 0) sentinel->sent += (size_t)n;
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
        sentinel->sent = sentinels->length; /* it may have said why it hung up, which is still to be read */
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        failed_by_errno(sentinels, sentinel);
}

static void read_replies(struct redis *redis, struct redis_sentinels *sentinels, struct redis_sentinel *sentinel,
                         const char *bytes, size_t n) {
    const size_t elements = redis->elements; /* of the master's reply being read */
    void *reply = NULL;
    sentinel->received += n;
    bool sane = sentinel->asked_us && sentinel->received <= MAX_REPLY_BYTES &&
                redisReaderFeed(sentinel->reader, bytes, n) == REDIS_OK;
    redis->elements = 0;
    while (sane && sentinel->open && (sane = redisReaderGetReply(sentinel->reader, &reply) == REDIS_OK) && reply) {
        take(sentinels, sentinel, reply);
        freeReplyObject(reply);
    }
    redis->elements = elements;
    if (!sane) makes_no_sense(sentinels, sentinel);
}

static void receive(struct redis *redis, struct redis_sentinels *sentinels, struct redis_sentinel *sentinel) {
    char buffer[4096];
    ssize_t n;
    /* After a full buffer the descriptor may not show that there is more. */
    do {
        n = dlock_stream_recv(&sentinel->stream, buffer, sizeof buffer, MSG_DONTWAIT);
        if (n > 0) read_replies(redis, sentinels, sentinel, buffer, (size_t)n);
    } while (n == sizeof buffer && sentinel->open);
    if (n == 0)
        failed(sentinels, sentinel, DLOCK_EUNAVAILABLE, "it closed the connection");
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        failed_by_errno(sentinels, sentinel);
}

/* Continues connecting, and then sends what is unsent. */
static void go_on(struct redis_sentinels *sentinels, struct redis_sentinel *sentinel) {
    struct dlock_error err;
    char server[128];
    if (sentinel->connects) {
        sentinel->connects = dlock_stream_step(&sentinel->stream, where(sentinel, server), &err);
        if (sentinel->connects < 0) failed_as(sentinels, sentinel, &err);
        if (sentinel->connects) return;
    }
    if (sentinel->sent < sentinels->length) send_rest(sentinels, sentinel);
}

/* True if the whole question was sent: only then it answers. */
static bool has_been_asked(const struct redis_sentinels *sentinels, const struct redis_sentinel *sentinel) {
    return !sentinel->connects && sentinel->sent == sentinels->length;
}

bool redis_sentinels_hear(struct redis *redis, struct redis_sentinels *sentinels, int64_t until_us) {
    struct pollfd polled[REDIS_SENTINELS];
    const int64_t left_us = until_us - dlock_now_us();
    bool owed = false;
    for (size_t i = 0; i < sentinels->n; i++) {
        const struct redis_sentinel *sentinel = &sentinels->each[i];
        owed |= sentinel->asked_us != 0;
        const int events = sentinel->connects                    ? sentinel->connects
                           : has_been_asked(sentinels, sentinel) ? POLLIN
                                                                 : POLLOUT;
        polled[i] = (struct pollfd){.fd = sentinel->open - 1, .events = (short)events};
    }
    if (!owed) return false;
    const int ready = poll(polled, sentinels->n, left_us > 0 ? (int)(left_us / 1000) + 1 : 0);
    if (ready < 0 && errno == EINTR) return true;
    for (size_t i = 0; ready > 0 && i < sentinels->n; i++) {
        struct redis_sentinel *sentinel = &sentinels->each[i];
        if (!polled[i].revents) continue;
        if (has_been_asked(sentinels, sentinel))
            receive(redis, sentinels, sentinel);
        else
            go_on(sentinels, sentinel);
    }
    return ready > 0 && dlock_now_us() < until_us; /* poll() never waits if a Sentinel sends without end */
}

void redis_sentinels_ask(struct redis_sentinels *sentinels, int64_t before_us) {
    const int64_t now_us = dlock_now_us();
    for (size_t i = 0; i < sentinels->n; i++) {
        struct redis_sentinel *sentinel = &sentinels->each[i];
        if (!sentinel->open || sentinel->asked_us || sentinel->said_us >= before_us) continue;
        sentinel->asked_us = now_us;
        sentinel->sent = sentinels->login;
        sentinel->received = 0;
        sentinel->saying.port = 0;
        go_on(sentinels, sentinel);
    }
}

/* ---- the beginning ----------------------------------------------------------------------------------------------- */

/* True if an earlier host has the same address: two names may belong to one Sentinel. */
static bool is_known(const struct redis_sentinels *sentinels, const struct redis_sentinel *sentinel) {
    for (const struct redis_sentinel *other = sentinels->each; other < sentinel; other++)
        if (other->port == sentinel->port && strcmp(other->address, sentinel->address) == 0) return true;
    return false;
}

static void dial(struct redis *redis, struct redis_sentinels *sentinels, struct redis_sentinel *sentinel,
                 const struct redis_address *address, const char *name) {
    struct dlock_error err;
    union dlock_socket_address to;
    const socklen_t length = dlock_socket_address(NULL, sentinel->address, sentinel->port, &to);
    const int fd = length ? socket(to.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0) {
        const int error = length ? errno : EDESTADDRREQ;
        failed(sentinels, sentinel, DLOCK_EUNAVAILABLE, strerror(error));
        return;
    }
    if (dlock_stream_begin(&sentinel->stream, address->uri, name, fd, &err)) {
        close(fd);
        failed_as(sentinels, sentinel, &err);
        return;
    }
    sentinel->open = fd + 1;
    sentinel->connects = POLLOUT;
    sentinel->reader = redis_new_reader(redis);
    sentinel->asked_us = dlock_now_us();
    if (!sentinel->reader)
        failed(sentinels, sentinel, DLOCK_ENOMEM, "out of memory");
    else if (connect(fd, &to.any, length) != 0 && errno != EINPROGRESS && errno != EINTR)
        failed_by_errno(sentinels, sentinel);
}

/* Writes the text that all Sentinels are sent. False: out of memory. */
static bool write_text(struct redis *redis, struct redis_sentinels *sentinels, const struct redis_address *address) {
    redis->written = redis->elements = 0;
    redis->broken = false;
    if (address->sentinel_user)
        redis_command(redis, "AUTH", address->sentinel_user, address->sentinel_password, (char *)NULL);
    else if (address->sentinel_password)
        redis_command(redis, "AUTH", address->sentinel_password, (char *)NULL);
    redis_command(redis, "INFO", "server", (char *)NULL);
    sentinels->login = redis->written;
    redis_command(redis, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", address->master, (char *)NULL);
    redis_command(redis, "SENTINEL", "MASTER", address->master, (char *)NULL);
    sentinels->text = redis->out;
    sentinels->length = redis->written;
    redis->out = NULL;
    redis->out_size = redis->written = redis->unanswered = 0;
    return !redis->broken;
}

struct redis_sentinels *redis_sentinels_new(struct redis *redis, const struct redis_address *address) {
    static const struct dlock_host local = {"127.0.0.1", "127.0.0.1", 0};
    const size_t n = address->uri->n_hosts ? address->uri->n_hosts : 1;
    const struct dlock_host *hosts = address->uri->n_hosts ? address->uri->hosts : &local;
    struct redis_sentinels *sentinels = calloc(1, sizeof *sentinels);
    if (!sentinels) return NULL;
    snprintf(sentinels->name, sizeof sentinels->name, "%.100s", address->master);
    redis->sentinels = sentinels;
    if (!write_text(redis, sentinels, address)) return NULL;
    sentinels->asked_us = dlock_now_us();
    for (size_t i = 0, name = 0; i < n && sentinels->n < REDIS_SENTINELS; i++) {
        struct redis_sentinel *sentinel = &sentinels->each[sentinels->n];
        /* the addresses of a name are consecutive */
        if (i > 0 && (hosts[i].port != hosts[i - 1].port || strcmp(hosts[i].host, hosts[i - 1].host) != 0))
            name = sentinels->n;
        sentinel->name = name;
        sentinel->who = sentinels->n;
        snprintf(sentinel->address, sizeof sentinel->address, "%s", hosts[i].address);
        sentinel->port = hosts[i].port ? hosts[i].port : REDIS_SENTINEL_PORT;
        if (is_known(sentinels, sentinel)) continue;
        sentinels->n++;
        dial(redis, sentinels, sentinel, address, hosts[i].host);
    }
    return sentinels;
}

void redis_sentinels_free(struct redis_sentinels *sentinels) {
    if (!sentinels) return;
    for (size_t i = 0; i < sentinels->n; i++) hang_up(&sentinels->each[i]);
    if (sentinels->text) explicit_bzero(sentinels->text, sentinels->length);
    free(sentinels->text);
    free(sentinels);
}

void redis_sentinels_abandon(const struct redis_sentinels *sentinels) {
    for (size_t i = 0; sentinels && i < sentinels->n; i++)
        if (sentinels->each[i].open) close(sentinels->each[i].open - 1);
}
