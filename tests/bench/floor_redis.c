/* SET NX PX, and the compare-and-delete script of the Redis documentation. */
#include "floor.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

static redisContext *server;
static char script[64]; /* its SHA-1 */

static void connect_to(const char *uri) {
    struct floor_address address = floor_address(uri, 6379);
    floor_need(!address.has_path);
    server = redisConnectWithTimeout(address.host, address.port, (struct timeval){3, 0});
    floor_check(server && !server->err, "connecting");
    redisReply *reply =
        redisCommand(server, "SCRIPT LOAD %s",
                     "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0");
    floor_check(reply && reply->type == REDIS_REPLY_STRING && reply->len < sizeof script, "SCRIPT LOAD");
    snprintf(script, sizeof script, "%s", reply->str);
    freeReplyObject(reply);
}

static void cycle(void) {
    redisReply *reply = redisCommand(server, "SET dlock-bench:floor token NX PX 10000");
    floor_check(reply && reply->type == REDIS_REPLY_STATUS, "SET NX");
    freeReplyObject(reply);
    reply = redisCommand(server, "EVALSHA %s 1 dlock-bench:floor token", script);
    floor_check(reply && reply->type == REDIS_REPLY_INTEGER && reply->integer == 1, "EVALSHA");
    freeReplyObject(reply);
}

static void ping(void) {
    redisReply *reply = redisCommand(server, "PING");
    floor_check(reply && reply->type == REDIS_REPLY_STATUS, "PING");
    freeReplyObject(reply);
}

int main(int argc, char **argv) {
    return floor_main(argc, argv, &(struct floor){connect_to, cycle, ping});
}
