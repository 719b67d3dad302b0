/* Acquires with SET NX PX, releases with the compare-and-delete script of the Redis documentation. */
#include "floor.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static struct floor_address address;
static const char *database; /* number of the database; NULL: the first */
static char script[64];      /* SHA-1 of the release script */
static char queue[64];       /* key of the waiters' list, which belongs to this run alone */

static void prepare(struct floor *floor, const char *uri) {
    static char key[FLOOR_TEXT];
    (void)floor;
    snprintf(queue, sizeof queue, "dlock-bench:queue-%d", (int)getpid());
    floor_address(uri, 6379, &address);
    if (*address.path)
        database = address.path;
    else if (floor_key(uri, "db", key))
        database = key;
}

static void expect(redisReply *reply, int type, const char *what) {
    floor_check(reply && reply->type == type, what);
    freeReplyObject(reply);
}

static void load(redisContext *server, char sha[64], const char *text) {
    redisReply *reply = redisCommand(server, "SCRIPT LOAD %s", text);
    floor_check(reply && reply->type == REDIS_REPLY_STRING && reply->len < 64, "SCRIPT LOAD");
    memcpy(sha, reply->str, reply->len + 1);
    freeReplyObject(reply);
}

static void *connect_to(void) {
    redisContext *server = redisConnectWithTimeout(address.host, address.port, (struct timeval){3, 0});
    floor_check(server && !server->err, "connecting");
    if (*address.user)
        expect(redisCommand(server, "AUTH %s %s", address.user, address.password), REDIS_REPLY_STATUS, "AUTH");
    else if (*address.password)
        expect(redisCommand(server, "AUTH %s", address.password), REDIS_REPLY_STATUS, "AUTH");
    if (database) expect(redisCommand(server, "SELECT %s", database), REDIS_REPLY_STATUS, "SELECT");
    load(server, script,
         "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0");
    return server;
}

static void acquire(void *server, int number) {
    expect(redisCommand(server, "SET dlock-bench:floor-%d token NX PX 10000", number), REDIS_REPLY_STATUS, "SET NX");
}

static void release(void *server, int number) {
    redisReply *reply = redisCommand(server, "EVALSHA %s 1 dlock-bench:floor-%d token", script, number);
    floor_check(reply && reply->type == REDIS_REPLY_INTEGER && reply->integer == 1, "EVALSHA");
    freeReplyObject(reply);
}

/* ---- a queue: waiters in a list, each told by a message on its own channel; no fences, and no death ------------
 */

static char take_script[64], give_script[64], channel[80];
static redisContext *messages;

/* Loads the scripts and subscribes; called once in each process. */
static void queue_begin(redisContext *server) {
    load(server, take_script,
         "if redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', '10000') then return 1 end "
         "redis.call('rpush', KEYS[2], ARGV[1]) return 0");
    load(server, give_script,
         "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end local first = redis.call('lpop', KEYS[2]) "
         "if not first then return redis.call('del', KEYS[1]) end "
         "redis.call('set', KEYS[1], first, 'px', '10000') redis.call('publish', first, 'yours') return 1");
    snprintf(channel, sizeof channel, "%s-%d", queue, (int)getpid());
    messages = connect_to();
    expect(redisCommand(messages, "SUBSCRIBE %s", channel), REDIS_REPLY_ARRAY, "SUBSCRIBE");
}

static bool queue_call(void *server, const char *sha, int number) {
    redisReply *reply = redisCommand(server, "EVALSHA %s 2 dlock-bench:queued-%d %s %s", sha, number, queue, channel);
    floor_check(reply && reply->type == REDIS_REPLY_INTEGER, "EVALSHA");
    bool yes = reply->integer == 1;
    freeReplyObject(reply);
    return yes;
}

static void queue_acquire(void *server, int number) {
    void *message;
    if (!messages) queue_begin(server);
    if (queue_call(server, take_script, number)) return;
    floor_check(redisGetReply(messages, &message) == REDIS_OK, "waiting");
    expect(message, REDIS_REPLY_ARRAY, "waiting");
}

static void queue_release(void *server, int number) {
    floor_check(queue_call(server, give_script, number), "releasing");
}

static void ping(void *server) {
    expect(redisCommand(server, "PING"), REDIS_REPLY_STATUS, "PING");
}

/* True for commands that only clients send. Redis counts the commands that a script runs in the same way; these are the
 * ones that scripts never run, and that dlock and most other clients that lock with scripts send. */
static bool is_request(const char *name, size_t length) {
    static const char *const names[] = {"eval",      "evalsha",     "eval_ro", "evalsha_ro", "fcall",  "fcall_ro",
                                        "subscribe", "unsubscribe", "ping",    "auth",       "select", "hello"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == length && strncmp(names[i], name, length) == 0) return true;
    return strncmp(name, "script", 6) == 0 || strncmp(name, "client", 6) == 0;
}

/* Returns the number of requests, from lines such as "cmdstat_evalsha:calls=12,usec=…". */
static int64_t commands(void) {
    static const char prefix[] = "cmdstat_", calls[] = ":calls=";
    static redisContext *server;
    if (!server) server = connect_to();
    redisReply *reply = redisCommand(server, "INFO commandstats");
    int64_t sum = 0;
    floor_check(reply && reply->str, "INFO");
    for (const char *line = reply->str; (line = strstr(line, prefix));) {
        line += sizeof prefix - 1;
        const char *number = strstr(line, calls);
        floor_check(number != NULL, "reading INFO");
        if (is_request(line, (size_t)(number - line))) sum += atoll(number + sizeof calls - 1);
    }
    freeReplyObject(reply);
    return sum;
}

struct floor floor_program = {.prepare = prepare,
                              .connect = connect_to,
                              .acquire = acquire,
                              .release = release,
                              .queue_acquire = queue_acquire,
                              .queue_release = queue_release,
                              .round_trip = ping,
                              .commands = commands};
