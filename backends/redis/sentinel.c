/* redis+sentinel: which server is the master, by the Sentinels that the URI names. All of them are asked at once, so
 * that a dead one costs nothing, and the one that has heard of the latest failover is believed: one that was cut off
 * names the old master. They speak Redis' protocol, in plain, and each is sent the same. */
#include "redis.h"

#include <stdatomic.h>
#include <stdlib.h>

/* How long the others may take once one of them has named a master. */
#define GRACE_US 100000
#define MAX_REPLY_BYTES 65536

/* What one of them has said, or why it has not. */
struct asked {
    const char *address; /* of the Sentinel */
    int port;
    redisReader *reader; /* NULL: it is done */
    size_t sent, received;
    int code; /* 0: it has named a master */
    struct dlock_error err;
};

struct round {
    struct redis *redis;
    const struct redis_address *address;
    size_t n, open, named;
    int64_t deadline_us;
    long long epoch; /* of the failover that made the master what it is; the latest that was heard of */
    struct asked asked[REDIS_SENTINELS];
};

/* Nothing more is heard of the i-th. */
static void finish(struct round *round, size_t i) {
    int *const open = &round->redis->sentinels[i];
    const int fd = *open - 1;
    *open = 0; /* first: a child forked meanwhile looks here */
    atomic_signal_fence(memory_order_seq_cst);
    if (fd >= 0) close(fd);
    redisReaderFree(round->asked[i].reader);
    round->asked[i].reader = NULL;
    round->open--;
}

static void failed(struct round *round, size_t i, int code, const char *why) {
    struct asked *asked = &round->asked[i];
    asked->code = dlock_fail(&asked->err, code, "the Sentinel at %s port %d: %s", asked->address, asked->port, why);
    finish(round, i);
}

static void failed_by_errno(struct round *round, size_t i, int error) {
    char reason[128];
    failed(round, i, DLOCK_EUNAVAILABLE, strerror_r(error, reason, sizeof reason));
}

/* ---- what it says ------------------------------------------------------------------------------------------------ */

/* The value of a field of SENTINEL MASTER's reply; "" where it has none. */
static const char *field_of(const redisReply *reply, const char *field) {
    for (size_t i = 0; i + 1 < reply->elements; i += 2) {
        const redisReply *name = reply->element[i], *value = reply->element[i + 1];
        if (name->type == REDIS_REPLY_STRING && value->type == REDIS_REPLY_STRING && strcmp(name->str, field) == 0)
            return value->str;
    }
    return "";
}

static void take_master(struct round *round, size_t i, const redisReply *reply) {
    struct redis_master *master = &round->redis->master;
    const char *ip = field_of(reply, "ip"), *port = field_of(reply, "port"), *epoch = field_of(reply, "config-epoch");
    const long number = strtol(port, NULL, 10);
    union dlock_socket_address unused;
    if (!*ip || !*epoch || strlen(ip) >= sizeof master->address || number < 1 || number > 65535) {
        failed(round, i, DLOCK_EPROTO, "its answer makes no sense");
        return;
    }
    if (!dlock_socket_address(NULL, ip, (int)number, &unused)) {
        failed(round, i, DLOCK_EINVAL,
               "it knows the master by a name, which dlock does not look up: set announce-hostnames no");
        return;
    }
    const long long heard = strtoll(epoch, NULL, 10);
    if (round->named++ == 0 || heard > round->epoch) {
        round->epoch = heard;
        snprintf(master->address, sizeof master->address, "%s", ip);
        master->port = (int)number;
        master->quorum = (int)strtol(field_of(reply, "quorum"), NULL, 10);
    }
    round->asked[i].code = 0;
    finish(round, i);
}

static void take_error(struct round *round, size_t i, const redisReply *reply) {
    char why[256];
    int code = DLOCK_EPROTO;
    if (redis_error_is(reply, "ERR No such master")) {
        snprintf(why, sizeof why, "it knows no master \"%.100s\"", round->address->master);
        code = DLOCK_EINVAL;
    } else if (redis_error_is(reply, "NOAUTH") || redis_error_is(reply, "WRONGPASS") ||
               redis_error_is(reply, "NOPERM") || strncmp(reply->str, "ERR AUTH", 8) == 0 ||
               strncmp(reply->str, "ERR Client sent AUTH", 20) == 0) {
        /* The server's text is not repeated, but for its first word: it might contain the password. */
        snprintf(why, sizeof why, "%.*s: give sentinel_user= and sentinel_password= as it wants them",
                 (int)strcspn(reply->str, " "), reply->str);
        code = DLOCK_EAUTH;
    } else if (strncmp(reply->str, "ERR unknown command", 19) == 0) {
        snprintf(why, sizeof why, "it is none, but another Redis server");
    } else {
        snprintf(why, sizeof why, "%.200s", reply->str);
    }
    failed(round, i, code, why);
}

/* The first reply may be that to AUTH. */
static void take(struct round *round, size_t i, const redisReply *reply) {
    if (reply->type == REDIS_REPLY_ERROR)
        take_error(round, i, reply);
    else if (reply->type == REDIS_REPLY_ARRAY)
        take_master(round, i, reply);
    else if (reply->type != REDIS_REPLY_STATUS)
        failed(round, i, DLOCK_EPROTO, "its answer makes no sense");
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

static void begin(struct round *round, size_t i) {
    struct redis *redis = round->redis;
    struct asked *asked = &round->asked[i];
    union dlock_socket_address to;
    const socklen_t length = dlock_socket_address(NULL, asked->address, asked->port, &to);
    round->open++;
    const int fd = length ? socket(to.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) : -1;
    redis->sentinels[i] = fd + 1;
    asked->reader = fd < 0 ? NULL : redis_new_reader(redis);
    if (fd < 0)
        failed_by_errno(round, i, length ? errno : EDESTADDRREQ);
    else if (!asked->reader)
        failed_by_errno(round, i, ENOMEM);
    else if (connect(fd, &to.any, length) != 0 && errno != EINPROGRESS && errno != EINTR)
        failed_by_errno(round, i, errno);
}

/* Sends what it has not got yet; false: that failed. */
static bool send_rest(struct round *round, size_t i) {
    const struct redis *redis = round->redis;
    struct asked *asked = &round->asked[i];
    const ssize_t n = send(redis->sentinels[i] - 1, redis->out + asked->sent, redis->written - asked->sent,
                           MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) asked->sent += (size_t)n;
    if (n >= 0 || errno == EAGAIN || errno == EINTR) return true;
    failed_by_errno(round, i, errno);
    return false;
}

static void read_replies(struct round *round, size_t i, const char *bytes, size_t n) {
    struct asked *asked = &round->asked[i];
    void *reply = NULL;
    asked->received += n;
    bool sane = asked->received <= MAX_REPLY_BYTES && redisReaderFeed(asked->reader, bytes, n) == REDIS_OK;
    while (sane && asked->reader && (sane = redisReaderGetReply(asked->reader, &reply) == REDIS_OK) && reply) {
        take(round, i, reply);
        freeReplyObject(reply);
    }
    if (!sane) failed(round, i, DLOCK_EPROTO, "its answer makes no sense");
}

static void receive(struct round *round, size_t i) {
    char buffer[4096];
    const ssize_t n = recv(round->redis->sentinels[i] - 1, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n > 0)
        read_replies(round, i, buffer, (size_t)n);
    else if (n == 0)
        failed(round, i, DLOCK_EUNAVAILABLE, "it closed the connection");
    else if (errno != EAGAIN && errno != EINTR)
        failed_by_errno(round, i, errno);
}

/* Waits for all of them, or for one and a moment longer. */
static void converse(struct round *round) {
    struct pollfd polled[REDIS_SENTINELS];
    while (round->open) {
        int64_t left_us = round->deadline_us - dlock_now_us();
        for (size_t i = 0; i < round->n; i++)
            polled[i] = (struct pollfd){.fd = round->redis->sentinels[i] - 1,
                                        .events = round->asked[i].sent < round->redis->written ? POLLOUT : POLLIN};
        const int ready = left_us > 0 ? poll(polled, round->n, (int)(left_us / 1000) + 1) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return;
        const size_t named = round->named;
        for (size_t i = 0; i < round->n; i++)
            if (polled[i].revents && (polled[i].events != POLLOUT || send_rest(round, i)) && polled[i].events == POLLIN)
                receive(round, i);
        const int64_t grace_us = dlock_now_us() + GRACE_US;
        if (named == 0 && round->named && grace_us < round->deadline_us) round->deadline_us = grace_us;
    }
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

/* None has named a master. That none knows its name is final when all say so. */
static int explain(const struct round *round, struct dlock_error *err) {
    static const int codes[] = {DLOCK_EAUTH, DLOCK_EUNAVAILABLE, DLOCK_EPROTO, DLOCK_EINVAL};
    for (size_t c = 0; c < sizeof codes / sizeof codes[0]; c++)
        for (size_t i = 0; i < round->n; i++) {
            if (round->asked[i].code != codes[c]) continue;
            if (err) *err = round->asked[i].err;
            return codes[c];
        }
    return DLOCK_EUNAVAILABLE;
}

static void write_question(struct redis *redis, const struct redis_address *address) {
    redis->written = redis->unanswered = redis->elements = 0;
    redis->broken = false;
    if (address->sentinel_user)
        redis_command(redis, "AUTH", address->sentinel_user, address->sentinel_password, (char *)NULL);
    else if (address->sentinel_password)
        redis_command(redis, "AUTH", address->sentinel_password, (char *)NULL);
    redis_command(redis, "SENTINEL", "MASTER", address->master, (char *)NULL);
}

int redis_find_master(struct redis *redis, const struct redis_address *address, const struct dlock_host *hosts,
                      size_t n, int64_t deadline_us, struct dlock_error *err) {
    struct round round = {.redis = redis, .address = address, .deadline_us = deadline_us};
    round.n = n < REDIS_SENTINELS ? n : REDIS_SENTINELS;
    write_question(redis, address);
    for (size_t i = 0; i < round.n && !redis->broken; i++) {
        round.asked[i].address = hosts[i].address;
        round.asked[i].port = hosts[i].port ? hosts[i].port : REDIS_SENTINEL_PORT;
        begin(&round, i);
    }
    if (!redis->broken) converse(&round);
    for (size_t i = 0; i < round.n; i++)
        if (round.asked[i].reader) failed(&round, i, DLOCK_EUNAVAILABLE, "no answer in time");
    const bool no_memory = redis->broken;
    redis_forget_requests(redis);
    redis->master.asked = (int)round.n;
    redis->master.answered = (int)round.named;
    if (no_memory) return dlock_fail(err, DLOCK_ENOMEM, "out of memory");
    return round.named ? 0 : explain(&round, err);
}
