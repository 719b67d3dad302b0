/* The socket. Requests are written, sent and received here, against the caller's deadline; hiredis parses the
 * replies. */
#include "redis.h"

#include <stdatomic.h>
#include <stdlib.h>

/* Limits that no honest reply comes near, except a page of keys that includes long ones of other programs, and the map
 * of a cluster in which each slot is a separate range. With one replica a map of Redis 7 has 13 elements for each
 * range. */
#define MAX_REPLY_BYTES (4u << 20)
#define MAX_REPLY_ELEMENTS (1u << 19)
#define MAX_WORDS 16

/* Longest time that a blocking recv() waits; it saves the poll() before it when the deadline is not near. */
#define PATIENCE_MS 100

/* ---- connecting -------------------------------------------------------------------------------------------------- */

/* Creates an array of the reply being read, if it is not too long: hiredis would allocate any length that the server
 * names. */
#if HIREDIS_MAJOR >= 1
static void *create_array(const redisReadTask *task, size_t n) {
#else
static void *create_array(const redisReadTask *task, int n) {
#endif
    struct redis *redis = task->privdata;
    if ((size_t)n > MAX_REPLY_ELEMENTS - redis->elements) return NULL;
    redis->elements += (size_t)n;
    return redis->parser->createArray(task, n);
}

redisReader *redis_new_reader(struct redis *redis) {
    redisReader *reader = redisReaderCreate();
    if (!reader) return NULL;
    redis->parser = reader->fn;
    redis->bounded = *redis->parser;
    redis->bounded.createArray = create_array;
    reader->fn = &redis->bounded;
    reader->privdata = redis;
    return reader;
}

static int adopt(struct redis *redis, struct dlock_error *err) {
    const int fd = redis->stream.fd;
    const struct timeval patience = {.tv_usec = PATIENCE_MS * 1000};
    redisReader *reader = redis_new_reader(redis);
    if (!reader) {
        dlock_stream_close(&redis->stream);
        return dlock_fail(err, DLOCK_ENOMEM, "out of memory");
    }
    redis->impatient = setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0 ||
                       fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) != 0;
    redis->written = redis->sent = redis->unanswered = redis->elements = redis->received = 0;
    redis->broken = redis->drained = false;
    redis->reader = reader;
    return 0;
}

int redis_dial(struct redis *redis, const struct redis_address *address, const struct dlock_host *host,
               int64_t deadline_us, struct dlock_error *err) {
    char server[sizeof redis->where + 16];
    if (address->socket)
        snprintf(redis->where, sizeof redis->where, "%s", address->socket);
    else
        snprintf(redis->where, sizeof redis->where, strchr(host->address, ':') ? "[%s]:%d" : "%s:%d", host->address,
                 host->port);
    snprintf(server, sizeof server, "Redis at %s", redis->where);
    int rc =
        dlock_stream_dial(&redis->stream, address->uri, address->socket, host, host->port, server, deadline_us, err);
    return rc == 0 ? adopt(redis, err) : rc;
}

void redis_forget_requests(struct redis *redis) {
    free(redis->out);
    redis->out = NULL;
    redis->out_size = redis->written = 0;
}

void redis_hang_up(struct redis *redis) {
    redisReader *reader = redis->reader;
    if (!reader) return;
    dlock_stream_hang_up(&redis->stream, redis->unanswered || redis->broken);
    redis->reader = NULL; /* cleared first, since a child forked during cleanup would close the descriptor */
    atomic_signal_fence(memory_order_seq_cst);
    dlock_stream_close(&redis->stream);
    redisReaderFree(reader);
    redis_forget_requests(redis);
}

void redis_abandon(struct redis *redis) {
    if (redis->reader) close(redis->stream.fd);
    if (redis->stream.dialing) close(redis->stream.dialing - 1);
}

/* ---- requests and replies ---------------------------------------------------------------------------------------- */

/* Makes room for `more` further bytes. The buffer is kept for the life of the connection, so that renewals do not run
 * out of memory. */
static bool make_room(struct redis *redis, size_t more) {
    size_t need = redis->written + more, size = redis->out_size ? redis->out_size : 1024;
    char *out;
    if (need <= redis->out_size) return true;
    while (size < need) size *= 2;
    out = realloc(redis->out, size);
    if (!out) return false;
    redis->out = out;
    redis->out_size = size;
    return true;
}

/* Writes "*3\r\n" or "$3\r\n". */
static char *put_number(char *at, char kind, size_t number) {
    char digits[24];
    size_t n = 0;
    do digits[n++] = (char)('0' + number % 10);
    while (number /= 10);
    *at++ = kind;
    while (n) *at++ = digits[--n];
    *at++ = '\r';
    *at++ = '\n';
    return at;
}

void redis_request(struct redis *redis, size_t n, const char *const *words, const size_t *lengths) {
    const size_t number = 24;
    size_t need = number;
    char *at;
    for (size_t i = 0; i < n; i++) need += number + lengths[i];
    redis->unanswered++;
    if (!make_room(redis, need)) {
        redis->broken = true;
        return;
    }
    at = put_number(redis->out + redis->written, '*', n);
    for (size_t i = 0; i < n; i++) {
        at = put_number(at, '$', lengths[i]);
        memcpy(at, words[i], lengths[i]);
        at += lengths[i];
        *at++ = '\r';
        *at++ = '\n';
    }
    redis->written = (size_t)(at - redis->out);
}

void redis_command(struct redis *redis, ...) {
    const char *words[MAX_WORDS];
    size_t lengths[MAX_WORDS];
    size_t n = 0;
    va_list args;
    va_start(args, redis);
    while (n < MAX_WORDS && (words[n] = va_arg(args, const char *))) {
        lengths[n] = strlen(words[n]);
        n++;
    }
    va_end(args);
    redis_request(redis, n, words, lengths);
}

static int dead(struct redis *redis, const char *why, struct dlock_error *err) {
    redis->broken = true;
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "Redis at %s: %s", redis->where, why);
}

/* Reports a failure of the socket, by errno. */
static int failed(struct redis *redis, struct dlock_error *err) {
    int code;
    const char *why = dlock_stream_why(&redis->stream, errno, &code);
    redis->broken = true;
    return dlock_fail(err, code, "Redis at %s: %s", redis->where, why);
}

int redis_nonsense(struct redis *redis, const char *what, struct dlock_error *err) {
    redis->broken = true;
    return dlock_fail(err, DLOCK_EPROTO, "Redis at %s sent an invalid answer: %s", redis->where, what);
}

/* Sends as much as the socket takes without blocking. */
static int send_some(struct redis *redis, struct dlock_error *err) {
    while (redis->sent < redis->written) {
        ssize_t n = dlock_stream_send(&redis->stream, redis->out + redis->sent, redis->written - redis->sent);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
        /* the server may have said why it hung up, which is still to be read */
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) break;
        if (n < 0) return failed(redis, err);
        redis->sent += (size_t)n;
    }
    redis->sent = redis->written = 0;
    return 0;
}

/* Receives the available bytes. Returns 0 even if there were none. */
static int receive_some(struct redis *redis, int flags, struct dlock_error *err) {
    char buffer[16384];
    ssize_t n = dlock_stream_recv(&redis->stream, buffer, sizeof buffer, flags);
    if (n == 0) return dead(redis, REDIS_CLOSED, err);
    if (n < 0) {
        if (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK) return 0;
        return failed(redis, err);
    }
    redis->drained = (size_t)n < sizeof buffer;
    if (redisReaderFeed(redis->reader, buffer, (size_t)n) != REDIS_OK)
        return redis_nonsense(redis, redis->reader->errstr, err);
    redis->received += (size_t)n; /* the reader keeps less of an array, whose strings it has parsed */
    if (redis->received > MAX_REPLY_BYTES) return redis_nonsense(redis, "a reply of more than 4 MB", err);
    return 0;
}

/* Waits for more of a reply, and sends what is unsent. *late: the deadline has passed. */
static int exchange(struct redis *redis, int64_t deadline_us, bool *late, struct dlock_error *err) {
    int ready, rc = send_some(redis, err);
    if (rc) return rc;
    if (deadline_us == 0) {
        *late = true;
        return redis->drained ? 0 : receive_some(redis, MSG_DONTWAIT, err);
    }
    if (!redis->written && !redis->impatient && deadline_us - dlock_now_us() > 2 * PATIENCE_MS * 1000)
        return receive_some(redis, 0, err);
    ready = dlock_stream_wait(&redis->stream, redis->written ? POLLIN | POLLOUT : POLLIN, deadline_us);
    *late = !ready || dlock_now_us() >= deadline_us; /* the server may never stop sending */
    return ready & ~POLLOUT ? receive_some(redis, MSG_DONTWAIT, err) : 0;
}

/* Returns 1 with a reply, 0 if none came until the deadline (0: now), or an error. */
static int next_reply(struct redis *redis, int64_t deadline_us, redisReply **reply, struct dlock_error *err) {
    void *parsed = NULL;
    bool late = false;
    if (!redis->reader || redis->broken)
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "the connection to Redis at %s is broken", redis->where);
    for (;;) {
        int rc;
        if (redisReaderGetReply(redis->reader, &parsed) != REDIS_OK)
            return redis_nonsense(redis, redis->reader->errstr, err);
        if (parsed) {
            redis->elements = 0;
            redis->received = redis->reader->len - redis->reader->pos;
            *reply = parsed;
            return 1;
        }
        if (late) {
            redis->drained = false;
            return 0;
        }
        if ((rc = exchange(redis, deadline_us, &late, err)) != 0) return rc;
    }
}

int redis_reply(struct redis *redis, int64_t deadline_us, redisReply **reply, struct dlock_error *err) {
    int rc = next_reply(redis, deadline_us, reply, err);
    if (rc == 0) return dead(redis, "no answer in time", err);
    if (rc < 0) return rc;
    redis->unanswered--;
    return 0;
}

int redis_push(struct redis *redis, struct dlock_error *err) {
    return send_some(redis, err);
}

int redis_poll_reply(struct redis *redis, redisReply **reply, struct dlock_error *err) {
    return next_reply(redis, 0, reply, err);
}

/* ---- error replies ----------------------------------------------------------------------------------------------- */

bool redis_error_is(const redisReply *reply, const char *kind) {
    static const char in_script[] = "ERR Error running script", in_many[] = "@user_script: ", raised[] = "ERR ";
    size_t length = strlen(kind);
    const char *found = reply->str;
    if (reply->type != REDIS_REPLY_ERROR) return false;
    if (strncmp(found, kind, length) == 0) return found[length] == ' ' || found[length] == '\0';
    /* Redis 7 prefixes an error that a script raises. */
    if (strncmp(found, raised, sizeof raised - 1) == 0 && strncmp(found + sizeof raised - 1, kind, length) == 0)
        return found[sizeof raised - 1 + length] == ' ';
    /* Before Redis 7 a script's error is wrapped: "ERR Error running script (…): @user_script: 9: -OOM …". A script
     * that catches it (many.lua) returns it without the text before the script's name. */
    if (strncmp(found, in_script, sizeof in_script - 1) != 0 && strncmp(found, in_many, sizeof in_many - 1) != 0)
        return false;
    while ((found = strstr(found + 1, kind)))
        if ((found[-1] == ' ' || found[-1] == '-') && found[length] == ' ') return true;
    return false;
}

struct refusal {
    const char *kind;
    int code;
    const char *advice;
};

static const char elsewhere[] = "; this is a member of a Redis Cluster: use " REDIS_CLUSTER "://";

/* Returns the explanation of a refusal that concerns the server or this client as a whole; NULL: none. */
static const struct refusal *find_refusal(const redisReply *reply) {
    static const char rights[] = "; 'dlock doctor' names the rights that are missing";
    static const struct refusal refusals[] = {
        {"NOAUTH", DLOCK_EAUTH, "; give a password in the URI, or password_file="},
        {"WRONGPASS", DLOCK_EAUTH, ""},
        {"NOPERM", DLOCK_EAUTH, rights},
        {"ERR ACL failure in script:", DLOCK_EAUTH, rights},
        {"The user executing the script can't", DLOCK_EAUTH, rights},
        {"DENIED", DLOCK_EAUTH, ""},
        {"MOVED", DLOCK_EPROTO, elsewhere},
        {"ASK", DLOCK_EPROTO, elsewhere},
        {"READONLY", DLOCK_EUNAVAILABLE, "; this is a replica: look for the master"},
        {"LOADING", DLOCK_EUNAVAILABLE, ""},
        {"BUSY", DLOCK_EUNAVAILABLE, ""},
        {"MASTERDOWN", DLOCK_EUNAVAILABLE, ""},
        {"CLUSTERDOWN", DLOCK_EUNAVAILABLE, ""},
        {"OOM", DLOCK_EUNAVAILABLE, "; raise maxmemory, or move other data away"},
        {"MISCONF", DLOCK_EUNAVAILABLE, "; look at the server's disk and log"},
        {"NOREPLICAS", DLOCK_EUNAVAILABLE, "; min-replicas-to-write asks for more replicas than follow it"},
        {"ERR max number of clients reached", DLOCK_EUNAVAILABLE, ""},
        {"ERR unknown command", DLOCK_EPROTO, "; dlock needs it: see docs/servers/redis.md"},
        {"ERR Unknown Redis command", DLOCK_EPROTO, "; dlock needs it: see docs/servers/redis.md"},
        {"Unknown Redis command", DLOCK_EPROTO, "; dlock needs it: see docs/servers/redis.md"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
        if (redis_error_is(reply, refusals[i].kind)) return &refusals[i];
    return NULL;
}

bool redis_is_foreign_data(const redisReply *reply) {
    if (reply->type != REDIS_REPLY_ERROR || find_refusal(reply)) return false;
    return redis_error_is(reply, "WRONGTYPE") || strstr(reply->str, "user_script");
}

/* Returns the length of the first sentence, the reason: behind it stand the script's hash, or general advice. */
static int first_sentence(const char *text) {
    const char *end = strstr(text, ". ");
    return end && end - text < 200 ? (int)(end - text) : 200;
}

int redis_refused(const struct redis *redis, const redisReply *reply, struct dlock_error *err) {
    const struct refusal *refusal = find_refusal(reply);
    if (refusal)
        return dlock_fail(err, refusal->code, "Redis at %s refused: %.*s%s", redis->where, first_sentence(reply->str),
                          reply->str,
                          redis->member && refusal->advice == elsewhere ? "; that names no slot, or no address"
                                                                        : refusal->advice);
    return dlock_fail(err, DLOCK_EPROTO, "unexpected error of Redis at %s: %.200s", redis->where, reply->str);
}
