/* The socket: hiredis writes and parses the protocol, while every wait is a poll() of ours against the caller's
 * deadline. hiredis itself never blocks, never meets a timeout and never raises SIGPIPE. */
#include "redis.h"

#include <sds.h>
#include <stdatomic.h>

/* No honest reply comes near these. */
#define MAX_REPLY_BYTES (4u << 20)
#define MAX_REPLY_ELEMENTS (1u << 17)
#define MAX_WORDS 16

/* ---- connecting -------------------------------------------------------------------------------------------------- */

/* An array of the reply that is being read: hiredis would allocate whatever length the server names. */
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

static int adopt(struct redis *redis, int fd, struct dlock_error *err) {
    redis->link = redisConnectFd(fd);
    if (!redis->link) {
        close(fd);
        return dlock_fail(err, DLOCK_ENOMEM, "out of memory");
    }
    redis->link->flags &= ~REDIS_BLOCK;
    redis->parser = redis->link->reader->fn;
    redis->bounded = *redis->parser;
    redis->bounded.createArray = create_array;
    redis->link->reader->fn = &redis->bounded;
    redis->link->reader->privdata = redis;
    redis->sent = redis->unanswered = redis->elements = 0;
    redis->broken = false;
    return 0;
}

int redis_dial(struct redis *redis, const struct redis_address *address, int64_t deadline_us, struct dlock_error *err) {
    char reason[128];
    int fd = -1, error;
    if (address->socket)
        snprintf(redis->where, sizeof redis->where, "%s", address->socket);
    else
        snprintf(redis->where, sizeof redis->where, strchr(address->host, ':') ? "[%s]:%d" : "%s:%d", address->host,
                 address->port);
    error = dlock_dial(address->socket, address->host, address->port, deadline_us, &redis->dialing, &fd);
    if (error == EDESTADDRREQ) return dlock_fail(err, DLOCK_EINVAL, "not a numeric address: %s", redis->where);
    if (error)
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "cannot connect to redis at %s: %s", redis->where,
                          strerror_r(error, reason, sizeof reason));
    return adopt(redis, fd, err);
}

void redis_hang_up(struct redis *redis) {
    redisContext *link = redis->link;
    if (!link) return;
    dlock_hang_up(link->fd, redis->unanswered || redis->broken);
    redis->link = NULL; /* first: a child forked meanwhile looks here */
    atomic_signal_fence(memory_order_seq_cst);
    redisFree(link);
}

/* ---- requests and replies ---------------------------------------------------------------------------------------- */

void redis_request(struct redis *redis, int argc, const char *const *argv, const size_t *lengths) {
    redis->unanswered++;
    /* hiredis 0.14 takes its words as not const, and leaves them alone. */
    if (redisAppendCommandArgv(redis->link, argc, (const char **)argv, lengths) != REDIS_OK) redis->broken = true;
}

void redis_command(struct redis *redis, ...) {
    const char *words[MAX_WORDS];
    size_t lengths[MAX_WORDS];
    int n = 0;
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
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "redis at %s: %s", redis->where, why);
}

int redis_nonsense(struct redis *redis, const char *what, struct dlock_error *err) {
    redis->broken = true;
    return dlock_fail(err, DLOCK_EPROTO, "redis at %s sent an answer that makes no sense: %s", redis->where, what);
}

/* Gives the socket what it takes without blocking. */
static int send_some(struct redis *redis, struct dlock_error *err) {
    while (redis->sent < sdslen(redis->link->obuf)) {
        ssize_t n = send(redis->link->fd, redis->link->obuf + redis->sent, sdslen(redis->link->obuf) - redis->sent,
                         MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
        /* The server may have said why it hung up: let that be read. */
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) break;
        if (n < 0) {
            char reason[128];
            return dead(redis, strerror_r(errno, reason, sizeof reason), err);
        }
        redis->sent += (size_t)n;
    }
    sdsclear(redis->link->obuf);
    redis->sent = 0;
    return 0;
}

static int receive_some(struct redis *redis, struct dlock_error *err) {
    redisContext *link = redis->link;
    if (redisBufferRead(link) != REDIS_OK) {
        if (link->err == REDIS_ERR_PROTOCOL) return redis_nonsense(redis, link->errstr, err);
        return dead(redis, link->err == REDIS_ERR_EOF ? "the server closed the connection" : link->errstr, err);
    }
    if (link->reader->len > MAX_REPLY_BYTES) return redis_nonsense(redis, "a reply of more than 4 MB", err);
    return 0;
}

/* 1 with a reply; 0 when none came until the deadline (0: now); else an error. */
static int next_reply(struct redis *redis, int64_t deadline_us, redisReply **reply, struct dlock_error *err) {
    int rc, ready;
    void *parsed = NULL;
    if (!redis->link || redis->broken)
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "the connection to redis at %s is broken", redis->where);
    for (;;) {
        if (redisGetReplyFromReader(redis->link, &parsed) != REDIS_OK)
            return redis_nonsense(redis, redis->link->errstr, err);
        if (parsed) {
            redis->elements = 0;
            *reply = parsed;
            return 1;
        }
        if ((rc = send_some(redis, err)) != 0) return rc;
        ready = dlock_wait_fd(redis->link->fd, redis->sent || sdslen(redis->link->obuf) ? POLLIN | POLLOUT : POLLIN,
                              deadline_us);
        if (!ready) return 0;
        if ((ready & ~POLLOUT) && (rc = receive_some(redis, err)) != 0) return rc;
    }
}

int redis_reply(struct redis *redis, int64_t deadline_us, redisReply **reply, struct dlock_error *err) {
    int rc = next_reply(redis, deadline_us, reply, err);
    if (rc == 0) return dead(redis, "no answer in time", err);
    if (rc < 0) return rc;
    redis->unanswered--;
    return 0;
}

int redis_poll_reply(struct redis *redis, redisReply **reply, struct dlock_error *err) {
    return next_reply(redis, 0, reply, err);
}

/* ---- error replies ----------------------------------------------------------------------------------------------- */

bool redis_error_is(const redisReply *reply, const char *kind) {
    static const char in_script[] = "ERR Error running script";
    size_t length = strlen(kind);
    const char *found = reply->str;
    if (reply->type != REDIS_REPLY_ERROR) return false;
    if (strncmp(found, kind, length) == 0) return found[length] == ' ' || found[length] == '\0';
    /* Before Redis 7 a script that fails wraps the reason: "ERR Error running script (…): @user_script: 9: -OOM …". */
    if (strncmp(found, in_script, sizeof in_script - 1) != 0) return false;
    while ((found = strstr(found + 1, kind)))
        if ((found[-1] == ' ' || found[-1] == '-') && found[length] == ' ') return true;
    return false;
}

int redis_refused(const struct redis *redis, const redisReply *reply, struct dlock_error *err) {
    static const struct {
        const char *kind;
        int code;
        const char *advice;
    } kinds[] = {
        {"NOAUTH", DLOCK_EAUTH, "; give a password in the URI"},
        {"WRONGPASS", DLOCK_EAUTH, ""},
        {"NOPERM", DLOCK_EAUTH, ""},
        {"DENIED", DLOCK_EAUTH, ""},
        {"READONLY", DLOCK_EUNAVAILABLE, "; this is a replica: look for the master"},
        {"LOADING", DLOCK_EUNAVAILABLE, ""},
        {"BUSY", DLOCK_EUNAVAILABLE, ""},
        {"MASTERDOWN", DLOCK_EUNAVAILABLE, ""},
        {"CLUSTERDOWN", DLOCK_EUNAVAILABLE, ""},
        {"OOM", DLOCK_EUNAVAILABLE, ""},
        {"MISCONF", DLOCK_EUNAVAILABLE, ""},
        {"NOREPLICAS", DLOCK_EUNAVAILABLE, ""},
        {"ERR max number of clients reached", DLOCK_EUNAVAILABLE, ""},
    };
    int printable = 0;
    while (printable < 200 && (unsigned char)reply->str[printable] >= 0x20 && reply->str[printable] != 0x7f)
        printable++;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (redis_error_is(reply, kinds[i].kind))
            return dlock_fail(err, kinds[i].code, "redis at %s refused: %.*s%s", redis->where, printable, reply->str,
                              kinds[i].advice);
    return dlock_fail(err, DLOCK_EPROTO, "unexpected error of redis at %s: %.*s", redis->where, printable, reply->str);
}
