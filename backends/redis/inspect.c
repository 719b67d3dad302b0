/* Inspecting, listing and breaking locks. */
#include "redis.h"

/* How many keys of the database one page of a list examines, which takes the server a millisecond. */
#define PAGE "1000"

/* ---- inspect ----------------------------------------------------------------------------------------------------- */

/* The holders of some names. */
struct walk {
    const char *name;        /* the only name, or NULL: */
    redisReply *const *keys; /* the keys of the names, each of which can be decoded */
    dlock_each each;
    void *arg;
    bool ended; /* `each` has returned non-zero */
    char decoded[REDIS_NAME_MAX + 1];
};

static const char *name_of(struct walk *walk, size_t i) {
    if (walk->name) return walk->name;
    redis_decode_key(walk->keys[i]->str, walk->keys[i]->len, walk->decoded);
    return walk->decoded;
}

static void write_inspect(struct redis *redis, size_t i, struct redis_call *call, void *arg) {
    struct walk *walk = arg;
    (void)redis;
    call->script = REDIS_INSPECT;
    call->name = name_of(walk, i);
    call->args[0] = walk->name ? "0" : "1"; /* 1: only locks that dlock has taken */
    call->n = 1;
}

/* Copies a token, which any client may have written. */
static void copy_token(char *out, size_t size, const redisReply *token) {
    size_t length = token->len < size ? token->len : size - 1;
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)token->str[i];
        out[i] = byte < 0x20 || byte == 0x7f ? '?' : (char)byte;
    }
    out[length] = '\0';
}

/* Reads one holder: token, fence, remaining. The fence follows the server's clock. */
static bool read_holder(redisReply *const *part, int64_t now_us, char token[DLOCK_TOKEN_MAX + 1],
                        struct dlock_info *info) {
    if (part[0]->type != REDIS_REPLY_STRING || part[1]->type != REDIS_REPLY_INTEGER ||
        part[2]->type != REDIS_REPLY_INTEGER || part[1]->integer < 0 || part[1]->integer >= REDIS_FENCE_END ||
        part[2]->integer < -1)
        return false;
    copy_token(token, DLOCK_TOKEN_MAX + 1, part[0]);
    info->token = token;
    info->fence = (uint64_t)part[1]->integer;
    info->remaining_ms = part[2]->integer < 0 ? DLOCK_FOREVER : part[2]->integer;
    info->held_ms = dlock_held_ms(now_us, part[1]->integer);
    return true;
}

static int read_inspect(struct redis *redis, size_t i, const redisReply *reply, void *arg, struct dlock_error *err) {
    struct walk *walk = arg;
    struct dlock_info info = {.size = sizeof info, .limit = 1};
    char token[DLOCK_TOKEN_MAX + 1];
    redisReply **part = reply->element;
    if (reply->type == REDIS_REPLY_ERROR || reply->type == REDIS_REPLY_NIL) return 0; /* WRONGTYPE: no lock */
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3 || reply->elements % 3 != 0 ||
        part[0]->type != REDIS_REPLY_STRING || part[1]->type != REDIS_REPLY_INTEGER ||
        part[2]->type != REDIS_REPLY_INTEGER || part[1]->integer < 0 || part[1]->integer > UINT32_MAX)
        return redis_nonsense(redis, "the result of inspect.lua", err);
    info.name = name_of(walk, i);
    info.waiters = (uint32_t)part[1]->integer;
    if (redis_limit_of(part[0]->str, &info.limit))
        info.mode = DLOCK_PERMIT;
    else if (strcmp(part[0]->str, REDIS_KIND_SHARED) == 0)
        info.mode = DLOCK_SHARED;
    else if (*part[0]->str)
        return redis_nonsense(redis, "the result of inspect.lua", err);
    const int64_t now_us = part[2]->integer;
    for (part += 3; part < reply->element + reply->elements; part += 3) {
        if (!read_holder(part, now_us, token, &info)) return redis_nonsense(redis, "the result of inspect.lua", err);
        if (!walk->ended) walk->ended = walk->each(&info, walk->arg) != 0;
    }
    return 0;
}

static int run_walk(struct redis *redis, struct walk *walk, size_t n, int64_t deadline_us, struct dlock_error *err) {
    const struct redis_pipeline pipeline = {.count = n, .write = write_inspect, .read = read_inspect, .arg = walk};
    return redis_run_pipeline(redis, &pipeline, deadline_us, err);
}

int redis_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err) {
    struct walk walk = {.name = name, .each = each, .arg = arg};
    return run_walk(conn, &walk, 1, dlock_deadline_us(timeout_ms), err);
}

/* ---- waiters ----------------------------------------------------------------------------------------------------- */

static void write_waiters(struct redis *redis, size_t i, struct redis_call *call, void *arg) {
    const struct walk *walk = arg;
    (void)redis, (void)i;
    call->script = REDIS_INSPECT;
    call->name = walk->name;
    call->args[0] = "2";
    call->n = 1;
}

/* Reads one waiter: token, kind. */
static bool read_waiter(redisReply *const *part, char token[DLOCK_TOKEN_MAX + 1], struct dlock_info *info) {
    if (part[0]->type != REDIS_REPLY_STRING || part[1]->type != REDIS_REPLY_STRING) return false;
    copy_token(token, DLOCK_TOKEN_MAX + 1, part[0]);
    info->limit = 1;
    if (redis_limit_of(part[1]->str, &info->limit))
        info->mode = DLOCK_PERMIT;
    else if (strcmp(part[1]->str, REDIS_KIND_SHARED) == 0)
        info->mode = DLOCK_SHARED;
    return true;
}

static int read_waiters(struct redis *redis, size_t i, const redisReply *reply, void *arg, struct dlock_error *err) {
    struct walk *walk = arg;
    (void)i;
    if (reply->type == REDIS_REPLY_ERROR) return 0; /* WRONGTYPE: no queue */
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements % 2 != 0)
        return redis_nonsense(redis, "the result of inspect.lua", err);
    for (size_t k = 0; k < reply->elements && !walk->ended; k += 2) {
        char token[DLOCK_TOKEN_MAX + 1];
        struct dlock_info info = {.size = sizeof info, .name = walk->name, .token = token};
        if (!read_waiter(&reply->element[k], token, &info))
            return redis_nonsense(redis, "the result of inspect.lua", err);
        walk->ended = walk->each(&info, walk->arg) != 0;
    }
    return 0;
}

int redis_waiters(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err) {
    struct walk walk = {.name = name, .each = each, .arg = arg};
    const struct redis_pipeline pipeline = {.count = 1, .write = write_waiters, .read = read_waiters, .arg = &walk};
    return redis_run_pipeline(conn, &pipeline, dlock_deadline_us(timeout_ms), err);
}

/* ---- list -------------------------------------------------------------------------------------------------------- */

/* Writes a pattern for the keys of the names that begin with `prefix`. Keys of fences and queues begin with a brace. */
static void write_pattern(char *out, size_t size, const char *prefix) {
    char encoded[REDIS_KEY_MAX + 1];
    size_t used = 0;
    dlock_encode_name(encoded, sizeof encoded, prefix, REDIS_SPECIAL, false);
    for (const char *p = encoded; *p && used + 3 < size; p++) {
        if (strchr("*?[]\\", *p)) out[used++] = '\\';
        out[used++] = *p;
    }
    memcpy(out + used, used ? "*" : "[^{]*", used ? 2 : 6);
}

/* Reads one page of keys: the next cursor and an array of strings. */
static int scan(struct redis *redis, const char *prefix, const char *cursor, int64_t deadline_us, redisReply **page,
                struct dlock_error *err) {
    char pattern[2 * REDIS_KEY_MAX + 2];
    redisReply **part;
    int rc;
    write_pattern(pattern, sizeof pattern, prefix);
    redis_command(redis, "SCAN", *cursor ? cursor : "0", "MATCH", pattern, "COUNT", PAGE, (char *)NULL);
    if ((rc = redis_reply(redis, deadline_us, page, err)) != 0) return rc;
    part = (*page)->element;
    if ((*page)->type == REDIS_REPLY_ERROR)
        rc = redis_refused(redis, *page, err);
    else if ((*page)->type != REDIS_REPLY_ARRAY || (*page)->elements != 2 || part[0]->type != REDIS_REPLY_STRING ||
             part[0]->len == 0 || part[0]->len > 20 || strspn(part[0]->str, "0123456789") != part[0]->len ||
             part[1]->type != REDIS_REPLY_ARRAY)
        rc = redis_nonsense(redis, "scan", err);
    for (size_t i = 0; !rc && i < part[1]->elements; i++)
        if (part[1]->element[i]->type != REDIS_REPLY_STRING) rc = redis_nonsense(redis, "scan", err);
    if (rc) freeReplyObject(*page);
    return rc;
}

/* Moves the keys of locks to the front and counts them. */
static size_t keep_locks(const redisReply *keys) {
    char name[REDIS_NAME_MAX + 1];
    size_t kept = 0;
    for (size_t i = 0; i < keys->elements; i++) {
        redisReply *key = keys->element[i];
        if (!redis_decode_key(key->str, key->len, name)) continue;
        keys->element[i] = keys->element[kept];
        keys->element[kept++] = key;
    }
    return kept;
}

int redis_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
               struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct walk walk = {.each = each, .arg = arg};
    redisReply *page;
    int rc;
    if (strlen(prefix) > REDIS_NAME_MAX) return 0;
    if ((rc = scan(conn, prefix, cursor, deadline_us, &page, err)) != 0) return rc;
    walk.keys = page->element[1]->element;
    rc = run_walk(conn, &walk, keep_locks(page->element[1]), deadline_us, err);
    if (rc == 0 && !walk.ended && strcmp(page->element[0]->str, "0") != 0) {
        memcpy(cursor, page->element[0]->str, page->element[0]->len + 1);
        rc = 1;
    }
    freeReplyObject(page);
    return rc;
}

/* ---- break ------------------------------------------------------------------------------------------------------- */

struct breaking {
    const char *name;
    int64_t was; /* break.lua's reply */
};

static void write_break(struct redis *redis, size_t i, struct redis_call *call, void *arg) {
    const struct breaking *breaking = arg;
    (void)i;
    call->script = REDIS_BREAK;
    call->name = breaking->name;
    call->args[0] = redis_may_grant(redis);
    call->n = 1;
    redis_add_rest(redis, call);
}

static int read_break(struct redis *redis, size_t i, const redisReply *reply, void *arg, struct dlock_error *err) {
    struct breaking *breaking = arg;
    (void)i;
    if (reply->type == REDIS_REPLY_ERROR) return 0; /* WRONGTYPE: no lock */
    if (reply->type != REDIS_REPLY_INTEGER || reply->integer < 0 || reply->integer > 2)
        return redis_nonsense(redis, "the result of break.lua", err);
    breaking->was = reply->integer;
    return 0;
}

int redis_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err) {
    struct breaking breaking = {name, 0};
    const struct redis_pipeline pipeline = {
        .count = 1, .grants = true, .write = write_break, .read = read_break, .arg = &breaking};
    int rc = redis_run_pipeline(conn, &pipeline, dlock_deadline_us(timeout_ms), err);
    if (rc != 0 || breaking.was == 1) return rc;
    if (breaking.was == 0) return dlock_fail(err, DLOCK_ELOST, "nobody holds the lock");
    return dlock_fail(
        err, DLOCK_EINVAL,
        "the key has no expiry and was never locked by dlock, so it may be an application's data; delete it "
        "with redis-cli if it is a lock");
}
