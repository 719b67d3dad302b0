/* Is this server set up as locks need it? */
#include "memcached.h"

#include <stdlib.h>

/* ---- facts ------------------------------------------------------------------------------------------------------- */

struct fact {
    const char *name;
    char value[32]; /* "": the server did not say */
};

enum { VERSION, UPTIME, BYTES, MOST_BYTES, EVICTED, FLUSHES, CLIENTS, MOST_CLIENTS, STATS };
enum { EVICTIONS, SETTINGS };

struct facts {
    struct fact *facts;
    size_t n;
};

static void learn(const char *name, const char *value, void *arg) {
    struct facts *facts = arg;
    for (size_t i = 0; i < facts->n; i++) {
        struct fact *fact = &facts->facts[i];
        size_t n = 0;
        if (strcmp(name, fact->name) != 0) continue;
        for (; value[n] >= 0x20 && value[n] < 0x7f && n + 1 < sizeof fact->value; n++) fact->value[n] = value[n];
        fact->value[n] = '\0';
    }
}

static long long number(const struct fact *fact) {
    return strtoll(fact->value, NULL, 10);
}

/* ---- each subject ------------------------------------------------------------------------------------------------ */

static void check_restarts(struct dlock_report *report, const struct memcached *memcached, const struct fact *stats) {
    int64_t quarantine_ms = memcached->peer->quarantine_ms, left_us;
    if (quarantine_ms <= 0) {
        dlock_find(report, "a restart forgets all grants: remove quarantine=0 from the URI",
                   "up for %s s, and no quarantine", stats[UPTIME].value);
        return;
    }
    dlock_find(report, NULL, "up for %s s: what a restart forgets, the quarantine of %lld s covers",
               stats[UPTIME].value, (long long)(quarantine_ms / 1000));
    left_us = memcached_quarantine_left_us(memcached);
    if (left_us > 0)
        dlock_find(report, "wait: a server that was just started may have forgotten grants",
                   "quarantine: nothing is granted for another %lld s", (long long)(left_us / 1000000 + 1));
}

static void check_memory(struct dlock_report *report, const struct fact *stats, const struct fact *settings) {
    long long used = number(&stats[BYTES]), most = number(&stats[MOST_BYTES]);
    if (strcmp(settings[EVICTIONS].value, "off") == 0)
        dlock_find(report, NULL, "evictions off (-M)");
    else
        dlock_find(report, "a full server evicts held locks: start one with -M, for locks alone",
                   "evictions %s, %lld items evicted so far",
                   *settings[EVICTIONS].value ? settings[EVICTIONS].value : "unknown", number(&stats[EVICTED]));
    if (most > 0)
        dlock_find(report,
                   used > most / 10 * 9
                       ? "a full server refuses or evicts locks: give it more memory (-m), or move other "
                         "data away"
                       : NULL,
                   "memory: %lld of %lld MB used", used >> 20, most >> 20);
}

/* It leaves a trace as long as the server lives. */
static void check_flushes(struct dlock_report *report, const struct fact *stats) {
    long long flushes = number(&stats[FLUSHES]);
    dlock_find(report, flushes > 0 ? "flush_all frees every held lock: start one with -F, for locks alone" : NULL,
               "flush_all: %lld so far", flushes);
}

static void check_clients(struct dlock_report *report, const struct fact *stats) {
    long long used = number(&stats[CLIENTS]), most = number(&stats[MOST_CLIENTS]);
    if (most > 0)
        dlock_find(report, used > most / 10 * 9 ? "without a connection no lock is renewed: raise -c" : NULL,
                   "clients: %lld of %lld", used, most);
}

int memcached_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct fact stats[STATS] = {[VERSION] = {.name = "version"},
                                [UPTIME] = {.name = "uptime"},
                                [BYTES] = {.name = "bytes"},
                                [MOST_BYTES] = {.name = "limit_maxbytes"},
                                [EVICTED] = {.name = "evictions"},
                                [FLUSHES] = {.name = "cmd_flush"},
                                [CLIENTS] = {.name = "curr_connections"},
                                [MOST_CLIENTS] = {.name = "max_connections"}};
    struct fact settings[SETTINGS] = {[EVICTIONS] = {.name = "evictions"}};
    struct dlock_report report = {each, arg, false};
    int rc;
    memcached_request(conn, 2, MEMCACHED_ASK_STATS);
    rc = memcached_read_stats(conn, deadline_us, learn, &(struct facts){stats, STATS}, err);
    if (rc == 0) rc = memcached_read_stats(conn, deadline_us, learn, &(struct facts){settings, SETTINGS}, err);
    if (rc) return rc;
    dlock_find(&report, NULL, "memcached %s, with cas",
               *stats[VERSION].value ? stats[VERSION].value : "of unknown version");
    check_restarts(&report, conn, stats);
    check_memory(&report, stats, settings);
    check_flushes(&report, stats);
    check_clients(&report, stats);
    return 0;
}
