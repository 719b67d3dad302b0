/* The `check` operation: how this server's settings strengthen or weaken locks. */
#include "redis.h"

#include <stdlib.h>

static int64_t info_number(const redisReply *info, const char *field) {
    char text[32];
    return redis_info_field(info, field, text, sizeof text) ? strtoll(text, NULL, 10) : 0;
}

/* Returns the value in a reply to CONFIG GET; NULL: the server does not tell it (CONFIG forbidden or renamed). */
static const char *config_value(const redisReply *reply) {
    bool told =
        reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 && reply->element[1]->type == REDIS_REPLY_STRING;
    return told ? reply->element[1]->str : NULL;
}

static bool info_is(const redisReply *info, const char *field, const char *expected) {
    char text[32];
    return redis_info_field(info, field, text, sizeof text) && strcmp(text, expected) == 0;
}

/* ---- each subject ------------------------------------------------------------------------------------------------ */

static void check_memory(struct dlock_report *report, const redisReply *info) {
    int64_t most = info_number(info, "maxmemory"), used = info_number(info, "used_memory");
    char policy[32] = "unknown";
    redis_info_field(info, "maxmemory_policy", policy, sizeof policy);
    if (most <= 0) {
        dlock_find(report, NULL, "maxmemory 0: nothing is evicted");
        return;
    }
    if (strcmp(policy, "noeviction") == 0)
        dlock_find(report, NULL, "maxmemory-policy noeviction");
    else
        dlock_find(report, "when memory is short, held locks are evicted: set maxmemory-policy noeviction",
                   "maxmemory-policy %s, %lld keys evicted so far", policy,
                   (long long)info_number(info, "evicted_keys"));
    dlock_find(report,
               used > most / 10 * 9 ? "a full server refuses or evicts locks: raise maxmemory, or move other data away"
                                    : NULL,
               "memory: %lld of %lld MB used", (long long)(used >> 20), (long long)(most >> 20));
}

/* Reports what a restart forgets, and whether the quarantine covers that. The current settings say nothing about the
 * next restart, which may change them; so there is always a quarantine unless the URI turns it off. */
static void check_persistence(struct dlock_report *report, const struct redis *redis, const redisReply *info,
                              const redisReply *appendfsync) {
    const int64_t quarantine_ms = redis->peer->quarantine_ms, left_ms = redis_quarantine_left_ms(redis);
    const bool aof = info_is(info, "aof_enabled", "1");
    const char *fsync = config_value(appendfsync) ? config_value(appendfsync) : "unknown";
    char settings[100];
    snprintf(settings, sizeof settings, "appendonly %s%s%.40s", aof ? "yes" : "no", aof ? ", appendfsync " : "",
             aof ? fsync : "");
    if (quarantine_ms > 0) {
        dlock_find(report, NULL, "%s: a quarantine of %lld s covers grants lost in a restart", settings,
                   (long long)(quarantine_ms / 1000));
        dlock_find(report, NULL,
                   "the quarantine is counted by the server's wall clock: one that is set forward in the first %lld s "
                   "shortens it",
                   (long long)(quarantine_ms / 1000));
        if (left_ms > 0 && !redis->unrecorded.code) dlock_find_not_ready(report, left_ms);
    } else if (aof && strcmp(fsync, "always") == 0) {
        dlock_find(report, NULL, "%s: a restart that keeps these settings forgets nothing", settings);
    } else if (aof && !config_value(appendfsync)) {
        dlock_find(report,
                   "let the server's user run CONFIG GET (ACL +config|get), or remove quarantine=0 from the URI",
                   "appendonly yes, appendfsync cannot be looked at, and no quarantine");
    } else {
        dlock_find(
            report,
            "a restart forgets grants: remove quarantine=0 from the URI, or set appendonly yes and appendfsync always",
            "%s, and no quarantine", settings);
    }
    if (aof && !info_is(info, "aof_last_write_status", "ok"))
        dlock_find(report, "the append-only file cannot be written: look at the server's disk and log",
                   "aof_last_write_status is not ok");
}

static void check_replicas(struct dlock_report *report, const struct redis *redis, const redisReply *info) {
    int64_t replicas = info_number(info, "connected_slaves");
    if (replicas == 0)
        dlock_find(report, NULL, "no replicas: no failover that could forget grants");
    else if (redis->peer->quarantine_ms > 0)
        dlock_find(report, NULL, "%lld replica%s: a quarantine of %lld s covers grants lost in a failover",
                   (long long)replicas, replicas == 1 ? "" : "s", (long long)(redis->peer->quarantine_ms / 1000));
    else
        dlock_find(report,
                   "replication is asynchronous, so a failover may forget the latest grants: remove quarantine=0 from "
                   "the URI, or check fences",
                   "%lld replica%s, and no quarantine", (long long)replicas, replicas == 1 ? "" : "s");
}

static void check_sentinels(struct dlock_report *report, struct redis *redis, int64_t deadline_us) {
    const struct redis_master *master = &redis->master;
    size_t answered;
    const size_t asked = redis_count_sentinels(redis, deadline_us, &answered);
    if (!asked) return;
    const bool few = asked < 3, deaf = answered < asked;
    dlock_find(report,
               few    ? "name all of them, at least three, on machines of their own: fewer cannot agree when one fails"
               : deaf ? "look at those that do not answer: a failover may be impossible while they are away"
                      : NULL,
               "%zu of %zu Sentinels answer; quorum %d; the master is %s port %d", answered, asked, master->quorum,
               master->host, master->port);
}

/* Newer servers tell the limit. */
static void check_clients(struct dlock_report *report, const redisReply *info) {
    int64_t used = info_number(info, "connected_clients"), most = info_number(info, "maxclients");
    if (most > 0)
        dlock_find(report, used > most / 10 * 9 ? "without a connection no lock is renewed: raise maxclients" : NULL,
                   "clients: %lld of %lld", (long long)used, (long long)most);
}

/* Reports if the user may not ask since when the server has been the master: connecting does not fail for that. */
static int check_incarnation(struct redis *redis, struct dlock_report *report, int64_t deadline_us,
                             struct dlock_error *err) {
    char key[REDIS_KEY_MAX + 40], advice[REDIS_KEY_MAX + 140];
    struct dlock_error why;
    redis_ask_incarnation(redis);
    int rc = redis->asked ? redis_read_incarnation(redis, deadline_us, &why) : 0;
    snprintf(advice, sizeof advice, "no lock is granted until it may: give it +eval and ~%s (ACL SETUSER)",
             redis_record_key(redis, key));
    if (rc == DLOCK_EAUTH)
        dlock_find(report, advice, "this user may not see whether the server was restarted or promoted");
    else if (rc && err)
        *err = why;
    return rc == DLOCK_EAUTH ? 0 : rc;
}

int redis_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct redis *redis = conn;
    struct dlock_report report = {each, arg, false};
    redisReply *info, *appendfsync;
    char version[32] = "unknown";
    int rc;
    redis_command(redis, "INFO", (char *)NULL);
    redis_command(redis, "CONFIG", "GET", "appendfsync", (char *)NULL);
    if ((rc = redis_reply(redis, deadline_us, &info, err)) != 0) return rc;
    if ((rc = redis_reply(redis, deadline_us, &appendfsync, err)) != 0) {
        freeReplyObject(info);
        return rc;
    }
    if (info->type == REDIS_REPLY_ERROR) {
        rc = redis_refused(redis, info, err);
    } else if (!redis_info_field(info, "redis_version", version, sizeof version)) {
        rc = redis_nonsense(redis, "INFO names no redis_version", err);
    } else {
        /* any other role was refused at connect */
        dlock_find(&report, NULL, redis->member ? "redis %s, a master" : "redis %s, a standalone master", version);
        dlock_stream_report(&redis->stream, &report);
        check_sentinels(&report, redis, deadline_us);
        check_memory(&report, info);
        check_persistence(&report, redis, info, appendfsync);
        check_replicas(&report, redis, info);
        check_clients(&report, info);
        rc = check_incarnation(redis, &report, deadline_us, err);
        if (rc == 0)
            rc = redis_check_rights(redis, &report, deadline_us, err); /* last: it may make the connection unusable */
    }
    freeReplyObject(info);
    freeReplyObject(appendfsync);
    return rc;
}
