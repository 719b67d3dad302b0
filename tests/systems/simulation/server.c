/* The server's end of simulated connections, with tests/unit/fake_server.c behind them. See network.h. */
#include "checker.h"
#include "fake_server.h"
#include "wire.h"

enum { STRAYS = 64, BROKEN = 512 };

struct sim_host sim_server = {.name = "server"};
uint64_t sim_requests;
struct link sim_links[SIM_LINKS];
size_t sim_links_end;

static bool ended_sessions[GENERATIONS];
static const struct sim_kind *kind;
static const struct server_rules *rules;
static bool away;
static int64_t quarantine_ms;

static const struct server_rules queue_rules = {.queue = true}, poll_rules = {.queue = false},
                                 look_rules = {.look = true}, local_rules = {.look = true, .forever = true};

enum {
    MODES = DLOCK_CAP_FENCE | DLOCK_CAP_BREAK | DLOCK_CAP_SHARED | DLOCK_CAP_PERMIT | DLOCK_CAP_EXPORT |
            DLOCK_CAP_INSPECT | DLOCK_CAP_LIST,
    QUEUE = MODES | DLOCK_CAP_QUEUE | DLOCK_CAP_WAKE | DLOCK_CAP_WANTED
};
static const struct sim_kind kinds[] = {
    {"simqueue", QUEUE},
    {"simforgets", QUEUE | DLOCK_CAP_VOLATILE},
    {"simpoll", MODES},
    {"simlook", MODES | DLOCK_CAP_WAKE},
    {"simsession", (QUEUE & ~(DLOCK_CAP_EXPORT | DLOCK_CAP_WANTED)) | DLOCK_CAP_SESSION | DLOCK_CAP_THREADSAFE},
    {"simlocal", (MODES & ~DLOCK_CAP_EXPORT) | DLOCK_CAP_WAKE | DLOCK_CAP_SESSION | DLOCK_CAP_THREADSAFE},
};

size_t sim_kinds(const struct sim_kind **all) {
    *all = kinds;
    return sizeof kinds / sizeof *kinds;
}

/* ---- sessions ---- */

/* Ends a session: where grants live in connections, they end with a connection that the client closed. One that broke
 * may come back, as far as the server knows: its grants end with their leases. */
void sim_session_end(unsigned generation) {
    struct sim_host *host = sim_host();
    if (!(kind->caps & DLOCK_CAP_SESSION)) return;
    sim_visit(&sim_server);
    server_drop_conn(rules, generation);
    sim_visit(host);
    ended_sessions[generation] = true;
}

void sim_link_break(struct link *link) {
    if (!link->open) return;
    link->open = link->listening = false;
    if (link->fd >= 0) sim_signal(link->fd); /* makes the client's end readable: it is over */
}

/* ---- wake-ups ---- */

static bool is_told(const struct link *link, const struct server_entry *entry) {
    if (!link->open || !link->listening) return false;
    if (kind->caps & DLOCK_CAP_SESSION) return link->generation == entry->conn;
    return strncmp(entry->token, link->client, 24) == 0;
}

static bool listens(const struct server_entry *entry) {
    for (size_t i = 0; i < sim_links_end; i++)
        if (is_told(&sim_links[i], entry)) return true;
    return false;
}

static void tell(const struct server_entry *entry, const char *name, int64_t kept_ms) {
    struct dlock_wake wake = {DLOCK_WAKE_LOOK, name, NULL, 0, 0, 0};
    if (entry)
        wake = (struct dlock_wake){DLOCK_WAKE_GRANTED, name, entry->token, entry->fence, server_now_us(), kept_ms};
    for (size_t i = 0; i < sim_links_end; i++)
        if (sim_links[i].open && sim_links[i].listening && (!entry || is_told(&sim_links[i], entry)))
            sim_wake_send(&sim_links[i], &wake);
}

static void want(const struct server_entry *entry) {
    const struct dlock_wake wake = {DLOCK_WAKE_WANTED, entry->name, entry->token, 0, 0, 0};
    for (size_t i = 0; i < sim_links_end; i++)
        if (is_told(&sim_links[i], entry)) sim_wake_send(&sim_links[i], &wake);
}

/* ---- requests ---- */

/* Executes the operation. Where grants live in sessions, so do tokens: a request in one session has nothing to do with
 * entries of another. */
static void operate(const struct request *request, struct dlock_claim *claim) {
    static void (*const operations[])(const struct server_rules *, unsigned,
                                      struct dlock_claim *) = {server_acquire, server_renew, server_release};
    char here[DLOCK_TOKEN_MAX + 1];
    const char *token = claim->token;
    snprintf(here, sizeof here, "%s#%u", token, request->generation);
    if (kind->caps & DLOCK_CAP_SESSION) claim->token = here;
    operations[request->operation](rules, request->generation, claim);
    if (request->operation == ACQUIRE) sim_check_refusal(claim);
    claim->token = token;
}

/* ---- strays: requests that arrive long after their clients have given them up, for example from the sockets of a
 * stopped server, and become waiters ---- */

static char strays[STRAYS][DLOCK_TOKEN_MAX + 1];
static unsigned n_strays;

bool sim_server_came_late(const struct server_entry *entry) {
    for (unsigned i = 0; i < STRAYS; i++)
        if (strcmp(strays[i], entry->token) == 0) return true;
    return false;
}

/* True if the stray becomes a waiter, so that its client will be told; else it would be a grant that only its lease
 * ends. */
static bool is_queued(const struct dlock_claim *claim) {
    if (!(claim->flags & DLOCK_CLAIM_QUEUE) || sim_is_awaited(claim->token)) return false;
    if (server_find(claim->name, claim->token)) return false;
    snprintf(strays[n_strays++ % STRAYS], sizeof *strays, "%s", claim->token);
    return server_waiters(claim->name) > 0 || (claim->mode == DLOCK_EXCLUSIVE && server_holder(claim->name));
}

bool sim_server_work(struct request *request) {
    if (away || ended_sessions[request->generation]) return false;
    static const char *const words[] = {"acquire", "renewal", "release"};
    sim_visit(&sim_server);
    for (size_t i = 0; i < request->n && request->operation != PING; i++) {
        struct dlock_claim *claim = &request->items[i].claim;
        if (request->stray && !is_queued(claim)) continue;
        claim->result = DLOCK_EPROTO;
        claim->retry_ms = -1;
        claim->ready_ms = -1;
        claim->kept_ms = claim->lease_ms;
        claim->hints = 0;
        operate(request, claim);
        if (request->stray && claim->result == 0) server_release(rules, request->generation, claim);
        sim_say("%s of %s by %s in %u for %lld ms: %s", words[request->operation], claim->name, claim->token,
                request->generation, (long long)claim->lease_ms, dlock_strerror(claim->result));
        sim_requests++;
    }
    sim_check();
    if (!(kind->caps & DLOCK_CAP_VOLATILE)) sim_check_line(); /* in its quarantine a server grants nothing */
    return true;
}

/* ---- the server ---- */

static void come_back(void *arg) {
    (void)arg;
    away = false;
    sim_say("the server is back");
    sim_check_server_is_back();
}

void sim_server_restart(int64_t away_us, bool forget) {
    sim_say("the server ends%s", forget ? " and forgets" : "");
    struct sim_host *host = sim_host();
    for (size_t i = 0; i < sim_links_end; i++) sim_link_break(&sim_links[i]);
    sim_visit(&sim_server);
    if (forget) {
        server_forget();
        server_ready_in_ms(quarantine_ms + away_us / 1000);
    }
    sim_visit(host);
    away = true;
    sim_at(sim_now_us() + away_us, come_back, NULL);
}

bool sim_server_away(void) {
    return away;
}

bool sim_server_holder(size_t n, struct dlock_info *info) {
    const struct server_entry *entry = server_at(n);
    if (!entry) return false;
    *info = (struct dlock_info){.name = entry->name, .mode = entry->mode, .limit = entry->limit, .fence = entry->fence};
    if (entry->used && entry->held) info->token = entry->token;
    return true;
}

bool sim_sessions_are_local(void) {
    return kind->caps & DLOCK_CAP_SESSION && rules->forever;
}

bool sim_server_is_connected(const struct server_entry *entry) {
    if (!(kind->caps & DLOCK_CAP_SESSION)) return true;
    for (unsigned i = 0; i < sim_links_end; i++)
        if (sim_link_is_open(i, entry->conn)) return !sim_links[i].silent;
    return false;
}

static char broken[BROKEN][DLOCK_TOKEN_MAX + 1];
static unsigned n_broken;

bool sim_was_broken(const char *token) {
    for (unsigned i = 0; i < n_broken && i < BROKEN; i++)
        if (strcmp(broken[i], token) == 0) return true;
    return false;
}

bool sim_server_break(const char *name) {
    struct sim_host *host = sim_host();
    sim_visit(&sim_server);
    for (size_t i = 0; server_at(i); i++) {
        const struct server_entry *entry = server_at(i);
        if (!entry->used || !entry->held || strcmp(entry->name, name) != 0) continue;
        snprintf(broken[n_broken++ % BROKEN], sizeof *broken, "%.*s", (int)strcspn(entry->token, "#"), entry->token);
    }
    bool held = server_break(rules, name) == 0;
    sim_check();
    sim_visit(host);
    return held;
}

void sim_server_quarantine(int64_t ms) {
    if (ms > quarantine_ms) quarantine_ms = ms;
}

void sim_server_start(const struct sim_kind *chosen, int64_t handover_ms) {
    static const struct server_rules *const rules_of[] = {&queue_rules, &queue_rules, &poll_rules,
                                                          &look_rules,  &queue_rules, &local_rules};
    kind = chosen;
    rules = rules_of[chosen - kinds];
    server_reset(tell, want, listens);
    server_handover_ms(handover_ms);
}
