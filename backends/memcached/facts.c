/* Facts about the server: its start, with which the quarantine begins, its time and its settings. */
#include "memcached.h"

/* By how much the reported uptime may exceed the real one: a server that has just been started reports 2 seconds. */
#define UPTIME_AHEAD_S 3

struct facts {
    bool has_time, has_uptime, no_cas, evicts, walks_hash;
    uint64_t time_s, uptime_s;
};

static bool whole_number(const char *text, uint64_t *number) {
    return memcached_number(&text, number) && !*text;
}

/* True for 1.6.19 and newer. */
static bool walks_hash(const char *version) {
    uint64_t part[3] = {0};
    for (int i = 0; i < 3 && memcached_number(&version, &part[i]) && *version == '.'; i++) version++;
    for (int i = 0; i < 3; i++)
        if (part[i] != (const uint64_t[]){1, 6, 19}[i]) return part[i] > (const uint64_t[]){1, 6, 19}[i];
    return true;
}

static void learn(const char *name, const char *value, void *arg) {
    struct facts *facts = arg;
    if (strcmp(name, "time") == 0)
        facts->has_time = whole_number(value, &facts->time_s);
    else if (strcmp(name, "uptime") == 0)
        facts->has_uptime = whole_number(value, &facts->uptime_s);
    else if (strcmp(name, "version") == 0)
        facts->walks_hash = walks_hash(value);
    else if (strcmp(name, "evictions") == 0)
        facts->evicts = strcmp(value, "on") == 0;
    else if (strcmp(name, "cas_enabled") == 0)
        facts->no_cas = strcmp(value, "no") == 0;
}

/* Shortest quarantine. Fences count from the server's start, which is known in whole seconds only. So nothing is
 * granted in the first second, even without a quarantine: a server restarted within the same second would repeat
 * fences. */
#define START_US 1000000

/* Computes the end of the quarantine from the uptime. It holds for the connection's lifetime, since a connection ends
 * with its server. */
static void begin_quarantine(struct memcached *memcached, uint64_t uptime_s) {
    int64_t up_us = uptime_s > UPTIME_AHEAD_S ? (int64_t)(uptime_s - UPTIME_AHEAD_S) * 1000000 : 0;
    int64_t quarantine_us = memcached->peer->quarantine_ms * 1000;
    if (quarantine_us < START_US) quarantine_us = START_US;
    if (up_us < quarantine_us) memcached->quarantine_until_us = dlock_now_us() + quarantine_us - up_us;
}

int64_t memcached_quarantine_left_us(const struct memcached *memcached) {
    return memcached->quarantine_until_us ? memcached->quarantine_until_us - dlock_now_us() : 0;
}

bool memcached_quarantined(const struct memcached *memcached, struct dlock_claim *claim) {
    const int64_t left_us = memcached_quarantine_left_us(memcached);
    if (left_us <= 0) return false;
    claim->ready_ms = left_us / 1000 + 1;
    return true;
}

/* Expiries up to this are relative, so a server whose clock is below it cannot have absolute ones. */
#define MONTH_S 2592000

bool memcached_time_makes_sense(uint64_t time_s) {
    return time_s > MONTH_S && time_s < MEMCACHED_FENCE_END / 1000000 / 2;
}

static bool time_makes_sense(const struct facts *facts) {
    return facts->has_time && memcached_time_makes_sense(facts->time_s);
}

int memcached_read_time(struct memcached *memcached, int64_t deadline_us, uint64_t *time_s, struct dlock_error *err) {
    struct facts facts = {0};
    int rc = memcached_read_stats(memcached, deadline_us, learn, &facts, err);
    if (rc) return rc;
    if (!time_makes_sense(&facts)) return memcached_nonsense(memcached, "stats without a plausible time", err);
    *time_s = facts.time_s;
    return 0;
}

/* The server's start is `time` less `uptime`, which is constant for the server's lifetime, even if its clock is set. */
int memcached_ask_facts(struct memcached *memcached, int64_t deadline_us, struct dlock_error *err) {
    const int64_t sent_us = dlock_now_us();
    struct facts facts = {0};
    int rc;
    memcached_ask_stats(memcached);
    memcached_ask_settings(memcached);
    memcached_ask_abilities(memcached);
    rc = memcached_read_stats(memcached, deadline_us, learn, &facts, err);
    if (rc == 0) rc = memcached_read_stats(memcached, deadline_us, learn, &facts, err);
    if (rc) return rc;
    if (!time_makes_sense(&facts) || !facts.has_uptime || facts.time_s <= facts.uptime_s)
        return memcached_nonsense(memcached, "stats without uptime, or without a plausible time", err);
    if (facts.no_cas)
        return dlock_fail(err, DLOCK_ENOTSUP,
                          "memcached at %s runs with -C (no compare-and-swap), which locks need; start it without",
                          memcached->where);
    if ((rc = memcached_read_abilities(memcached, deadline_us, err)) != 0) return rc;
    memcached->started_us = (facts.time_s - facts.uptime_s) * 1000000;
    memcached->connected_us = dlock_now_us();
    memset(&memcached->clock, 0, sizeof memcached->clock);
    memcached_clock_read(&memcached->clock, sent_us, facts.time_s);
    memcached->evicts = facts.evicts;
    memcached->walks_hash = facts.walks_hash;
    memcached->tells_ttl = false;
    memcached->quarantine_until_us = 0;
    begin_quarantine(memcached, facts.uptime_s);
    return 0;
}
