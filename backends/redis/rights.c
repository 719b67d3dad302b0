/* Checks whether this user may run the commands that dlock's requests and scripts use. Each is tried in a form that
 * changes nothing. */
#include "redis.h"

#include <ctype.h>

/* No lock has a key with braces. */
#define KEY "{dlock}:doctor"
#define CHANNEL "dlock:doctor"
#define MOST_WORDS 6

/* Within a script a command needs the same right as outside. The user need not have rights on these keys: the server
 * checks the command first, and says which of the two it refuses. */
static const char *const harmless[][MOST_WORDS] = {
    {"EVALSHA", "0000000000000000000000000000000000000000", "0"},
    {"SCRIPT", "LOAD", "("}, /* a text that does not compile */
    {"SCAN", "0", "COUNT", "1"},
    {"TIME"},
    {"PUBSUB", "NUMSUB"},
    {"PUBLISH", CHANNEL, ""},
    {"GET", KEY},
    {"MGET", KEY},
    {"SET", KEY, "", "XX"},
    {"SETRANGE", KEY, "0", ""},
    {"DEL", KEY},
    {"EXISTS", KEY},
    {"PEXPIRE", KEY, "1"},
    {"PEXPIREAT", KEY, "1"},
    {"PTTL", KEY},
    {"HSET", KEY, "one", "and", "no value"},
    {"HGET", KEY, "x"},
    {"HDEL", KEY, "x"},
    {"ZADD", KEY, "XX", "1", "x"},
    {"ZREM", KEY, "x"},
    {"ZRANGE", KEY, "0", "0"},
    {"ZREVRANGE", KEY, "0", "0"},
    {"ZRANGEBYSCORE", KEY, "0", "0"},
    {"ZREVRANGEBYSCORE", KEY, "0", "0"},
    {"ZRANK", KEY, "x"},
    {"ZSCORE", KEY, "x"},
    {"ZCARD", KEY},
    {"ZCOUNT", KEY, "0", "0"},
};
/* In addition for clusters. */
static const char *const in_cluster[][MOST_WORDS] = {
    {"CLUSTER", "SLOTS"},    {"ASKING"},       {"PUBSUB", "SHARDNUMSUB"}, {"SPUBLISH", CHANNEL, ""},
    {"SSUBSCRIBE", CHANNEL}, {"SUNSUBSCRIBE"},
};
/* These change something, but leave nothing behind if the user may run all of them. */
static const char *const fleeting[][MOST_WORDS] = {
    {"SET", KEY, "0", "PX", "100"}, {"INCR", KEY}, {"DEL", KEY}, {"SUBSCRIBE", CHANNEL}, {"UNSUBSCRIBE"}};

/* The missing rights, in the notation of ACL SETUSER. */
struct missing {
    char rights[400];
    size_t used;
};

static void note(struct missing *missing, const char *const *words) {
    const bool has_subcommand =
        strcmp(words[0], "SCRIPT") == 0 || strcmp(words[0], "PUBSUB") == 0 || strcmp(words[0], "CLUSTER") == 0;
    int n = snprintf(missing->rights + missing->used, sizeof missing->rights - missing->used, " +%s%s%s", words[0],
                     has_subcommand ? "|" : "", has_subcommand ? words[1] : "");
    for (size_t i = missing->used; n > 0 && missing->rights[i]; i++)
        missing->rights[i] = (char)tolower((unsigned char)missing->rights[i]);
    missing->used = strlen(missing->rights);
}

static int try_all(struct redis *redis, const char *const (*commands)[MOST_WORDS], size_t n, struct missing *missing,
                   int64_t deadline_us, struct dlock_error *err) {
    for (size_t i = 0; i < n; i++) {
        size_t lengths[MOST_WORDS] = {0}, words = 0;
        while (words < MOST_WORDS && commands[i][words]) {
            lengths[words] = strlen(commands[i][words]);
            words++;
        }
        redis_request(redis, words, commands[i], lengths);
    }
    for (size_t i = 0; i < n; i++) {
        redisReply *reply;
        int rc = redis_reply(redis, deadline_us, &reply, err);
        if (rc) return rc;
        const bool denied = redis_error_is(reply, "NOPERM");
        if (denied && strstr(commands[i][0], "UNSUBSCRIBE"))
            redis->broken = true; /* the connection stays a subscriber and unusable; dlock itself never unsubscribes */
        else if (denied && strstr(reply->str, " run the "))
            note(missing, commands[i]);
        freeReplyObject(reply);
    }
    return 0;
}

int redis_check_rights(struct redis *redis, struct dlock_report *report, int64_t deadline_us, struct dlock_error *err) {
    struct missing missing = {.used = 0};
    int rc = try_all(redis, harmless, sizeof harmless / sizeof harmless[0], &missing, deadline_us, err);
    if (rc == 0 && redis->member)
        rc = try_all(redis, in_cluster, sizeof in_cluster / sizeof in_cluster[0], &missing, deadline_us, err);
    if (rc == 0 && missing.used == 0)
        rc = try_all(redis, fleeting, sizeof fleeting / sizeof fleeting[0], &missing, deadline_us, err);
    if (rc) return rc;
    if (missing.used)
        dlock_find(report, "locks fail or wait for nothing without them: give them to this user with ACL SETUSER",
                   "rights that are missing:%s", missing.rights);
    else
        dlock_find(report, NULL, "this user may run all commands that dlock needs");
    return 0;
}
