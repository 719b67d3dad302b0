/* Checks whether the server is set up as locks need it. */
#include "memcached.h"

#include <stdlib.h>

/* ---- facts ------------------------------------------------------------------------------------------------------- */

struct fact {
    const char *name;
    char value[32]; /* "": not reported by the server */
};

enum { VERSION, UPTIME, BYTES, MOST_BYTES, EVICTED, MOVED_OUT, MOVED_BUSY, FLUSHES, CLIENTS, MOST_CLIENTS, STATS };
enum { EVICTIONS, MOVER, AUTOMOVE, SETTINGS };

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

/* ---- the findings ------------------------------------------------------------------------------------------------ */

static void check_restarts(struct dlock_report *report, const struct memcached *memcached, const struct fact *stats) {
    int64_t quarantine_ms = memcached->peer->quarantine_ms, left_us;
    if (quarantine_ms <= 0) {
        dlock_find(report, "a restart forgets all grants: remove quarantine=0 from the URI",
                   "up for %s s, and no quarantine", stats[UPTIME].value);
        return;
    }
    dlock_find(report, NULL, "up for %s s: a quarantine of %lld s covers grants lost in a restart", stats[UPTIME].value,
               (long long)(quarantine_ms / 1000));
    left_us = memcached_quarantine_left_us(memcached);
    if (left_us > 0) dlock_find_not_ready(report, left_us / 1000 + 1);
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

/* Checks the slab page mover. To move a page of memory to items of another size, the server needs room for the items in
 * it. Before 1.6.34 it dropped items for which there was no room, and items that were in use for long; neither is
 * reported as an eviction or prevented by -M. Later servers wait instead, and no longer report the number of dropped
 * items; servers before 1.4.11 have no page mover. */
static void check_mover(struct dlock_report *report, const struct fact *stats, const struct fact *settings) {
    const char *automove = *settings[AUTOMOVE].value ? settings[AUTOMOVE].value : "unknown";
    if (strcmp(settings[MOVER].value, "yes") == 0 && *stats[MOVED_OUT].value)
        dlock_find(report, "it drops held locks when memory is short, even with -M: start one with -o no_slab_reassign",
                   "slab page mover on (slab_automove %s), %lld items dropped so far", automove,
                   number(&stats[MOVED_OUT]) + number(&stats[MOVED_BUSY]));
    else if (*settings[MOVER].value)
        dlock_find(report, NULL, "slab page mover %s",
                   strcmp(settings[MOVER].value, "yes") == 0 ? "on, which drops no locks in this version"
                                                             : "off (-o no_slab_reassign)");
}

/* Checks for flush_all; the server counts it from its start on. */
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
                                [MOVED_OUT] = {.name = "slab_reassign_evictions_nomem"},
                                [MOVED_BUSY] = {.name = "slab_reassign_busy_deletes"},
                                [FLUSHES] = {.name = "cmd_flush"},
                                [CLIENTS] = {.name = "curr_connections"},
                                [MOST_CLIENTS] = {.name = "max_connections"}};
    struct fact settings[SETTINGS] = {[EVICTIONS] = {.name = "evictions"},
                                      [MOVER] = {.name = "slab_reassign"},
                                      [AUTOMOVE] = {.name = "slab_automove"}};
    struct dlock_report report = {each, arg, false};
    int rc;
    memcached_ask_stats(conn);
    memcached_ask_settings(conn);
    rc = memcached_read_stats(conn, deadline_us, learn, &(struct facts){stats, STATS}, err);
    if (rc == 0) rc = memcached_read_stats(conn, deadline_us, learn, &(struct facts){settings, SETTINGS}, err);
    if (rc) return rc;
    dlock_find(&report, NULL, "memcached %s, with cas",
               *stats[VERSION].value ? stats[VERSION].value : "of unknown version");
    memcached_report(conn, &report);
    check_restarts(&report, conn, stats);
    check_memory(&report, stats, settings);
    check_mover(&report, stats, settings);
    check_flushes(&report, stats);
    check_clients(&report, stats);
    return 0;
}
