/* Facts about the server, from INFO. */
#include "redis.h"

#include <stdlib.h>

#define OLDEST_VERSION 5

bool redis_info_field(const redisReply *info, const char *field, char *out, size_t size) {
    const size_t length = strlen(field);
    for (const char *line = info->type == REDIS_REPLY_STRING ? info->str : NULL; line && *line;
         line = strchr(line, '\n')) {
        size_t n;
        if (*line == '\n') line++;
        if (strncmp(line, field, length) != 0 || line[length] != ':') continue;
        line += length + 1;
        n = strcspn(line, "\r\n");
        if (n >= size) n = size - 1;
        memcpy(out, line, n);
        out[n] = '\0';
        return true;
    }
    return false;
}

int redis_check_server(struct redis *redis, const redisReply *info, struct dlock_error *err) {
    char version[32], mode[32];
    if (!redis_info_field(info, "redis_version", version, sizeof version))
        return redis_nonsense(redis, "INFO names no redis_version", err);
    redis->version = (int)strtol(version, NULL, 10);
    if (redis->version < OLDEST_VERSION)
        return dlock_fail(err, DLOCK_ENOTSUP, "Redis at %s is version %s; dlock needs %d or newer", redis->where,
                          version, OLDEST_VERSION);
    /* Valkey's name for it is server_mode. */
    if (!redis_info_field(info, "redis_mode", mode, sizeof mode) &&
        !redis_info_field(info, "server_mode", mode, sizeof mode))
        return 0;
    if (strcmp(mode, redis->member ? "cluster" : "standalone") == 0) return 0;
    if (redis->member)
        return dlock_fail(err, DLOCK_ENOTSUP,
                          "Redis at %s runs in %s mode and is no member of a cluster: use " REDIS_NAME "://",
                          redis->where, mode);
    if (strcmp(mode, "cluster") == 0)
        return dlock_fail(err, DLOCK_ENOTSUP, "Redis at %s is a member of a cluster: use " REDIS_CLUSTER "://",
                          redis->where);
    return dlock_fail(err, DLOCK_ENOTSUP,
                      "Redis at %s runs in %s mode, which dlock does not support; name a standalone server or the "
                      "master itself",
                      redis->where, mode);
}

int redis_check_role(struct redis *redis, const redisReply *info, struct dlock_error *err) {
    char role[32], host[128] = "?", port[16] = "?";
    if (!redis_info_field(info, "role", role, sizeof role) || strcmp(role, "slave") != 0) return 0;
    redis_info_field(info, "master_host", host, sizeof host);
    redis_info_field(info, "master_port", port, sizeof port);
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "Redis at %s is a replica; name its master (it says %s:%s)",
                      redis->where, host, port);
}
