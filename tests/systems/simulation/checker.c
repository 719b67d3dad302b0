/* The invariants: see checker.h. Reads the core's structures without its mutex, since no other thread runs at that
 * time. */
#include "checker.h"

#include "fake_server.h"
#include "memory.h"
#include "state/client.h"
#include "state/name.h"
#include "support/history.h"
#include "wire.h"

#include <stdio.h>
#include <string.h>

#define NO_RECORD SIZE_MAX

enum {
    HOLDS = 256,
    CLIENTS = 32,
    EXPORTS = 256,
    HEARD = 64,
    HISTORY_NAMES = 16,
    ENDS_US = 80000,      /* 1 % of the longest lease for each of the clocks, and some more */
    LOOK_US = 5000,       /* between two looks at what the server keeps */
    SETTLED_US = 1300000, /* time after the last fault until every dead connection is known to be dead */
    HANDED_US = 3200000,  /* a hand-over to a waiter that came late, whose client may not learn of it */
    GIVE_BACK_US = 200000,
    UNTOLD = 256,
    LATE_US = 300000 /* a thread of the core that nothing keeps from what is due does it within this time */
};

struct hold {
    bool used;
    struct sim_host *host;
    dlock_lock *lock;
    unsigned name;
    size_t record; /* index in the history while its record is open, or NO_RECORD */
};

static struct hold holds[HOLDS];
static size_t holds_end;       /* no element from here on was ever used */
static struct history history; /* all grants that a client believed in, in microseconds from the run's begin */
static size_t records_room;
static struct {
    const dlock_client *client; /* NULL: unused */
    struct sim_host *host;
} clients[CLIENTS];
static struct {
    uint64_t order;   /* of an entry that no client needs any more */
    int64_t since_us; /* since when */
} idle[SERVER_ENTRIES];
static int64_t calm_us = SIM_NEVER;
static char exported[EXPORTS][DLOCK_TOKEN_MAX + 1]; /* the tokens of the last exports */
static unsigned n_exported;
static struct {
    char token[DLOCK_TOKEN_MAX + 1];
    uint64_t fence;
} heard[HEARD]; /* the last grants of which clients have read a wake-up */
static unsigned n_heard;
static struct {
    char token[DLOCK_TOKEN_MAX + 1];
    int64_t since_us;
} untold[UNTOLD]; /* the last losses of which an owner was not told at once */
static unsigned n_untold;
uint64_t sim_grants;
bool sim_prompt;

/* The grant that the hold's owner would be told of if it asked now; NULL: none. */
static const struct dlock__acquisition *believed(const struct hold *hold) {
    if (!hold->used || hold->host->dead) return NULL;
    for (const struct dlock__hold *h = hold->lock->holds; h; h = h->other)
        if (!sim_was_broken(h->acq->token) && dlock__acq_held(h->acq) &&
            h->acq->valid_until_us > sim_local_us(hold->host, sim_now_us()))
            return h->acq;
    return NULL;
}

static bool excludes(enum dlock_mode a, enum dlock_mode b) {
    return a == DLOCK_EXCLUSIVE || b == DLOCK_EXCLUSIVE;
}

/* ---- the history: the beliefs of each holder, and for how long ---- */

static const char *name_of(unsigned name) {
    static char names[HISTORY_NAMES][16];
    if (name >= HISTORY_NAMES) sim_fail("too many names");
    if (!*names[name]) snprintf(names[name], sizeof names[name], "n%u", name);
    return names[name];
}

static void record_begin(struct hold *hold, const struct dlock__acquisition *acq, int64_t asked_us) {
    if (history.n == records_room) {
        size_t room = records_room ? 2 * records_room : 256;
        struct history_hold *more = sim_new(room * sizeof *more);
        if (history.n) memcpy(more, history.holds, history.n * sizeof *more);
        sim_free(history.holds);
        history.holds = more;
        records_room = room;
    }
    hold->record = history.n++;
    struct history_hold *record = &history.holds[hold->record];
    *record = (struct history_hold){.mode = "xsp"[acq->mode],
                                    .limit = hold->lock->limit,
                                    .fence = dlock__acq_fence(acq),
                                    .asked = asked_us - SIM_BEGIN_US,
                                    .from = sim_now_us() - SIM_BEGIN_US,
                                    .until = sim_global_us(hold->host, acq->valid_until_us) - SIM_BEGIN_US,
                                    .who = hold->host->number,
                                    .id = (int)hold->record};
    record->name = name_of(hold->name);
}

static void record_end(struct hold *hold) {
    if (hold->record == NO_RECORD) return;
    struct history_hold *record = &history.holds[hold->record];
    if (record->until > sim_now_us() - SIM_BEGIN_US) record->until = sim_now_us() - SIM_BEGIN_US;
    hold->record = NO_RECORD;
}

/* Notes that the hold's owner now believes in `acq`; NULL: in nothing any more. */
static void record_go_on(struct hold *hold, const struct dlock__acquisition *acq) {
    if (hold->record == NO_RECORD) return;
    struct history_hold *record = &history.holds[hold->record];
    if (!acq || dlock__acq_fence(acq) != record->fence || "xsp"[acq->mode] != record->mode) {
        record_end(hold);
        return;
    }
    int64_t until_us = sim_global_us(hold->host, acq->valid_until_us) - SIM_BEGIN_US;
    if (until_us > record->until) record->until = until_us;
}

unsigned sim_held_begin(dlock_lock *lock, unsigned name, int64_t asked_us) {
    SIM_UNSEEN;
    unsigned at = 0;
    while (at < holds_end && holds[at].used) at++;
    if (at == HOLDS) sim_fail("too many holds");
    if (at == holds_end) holds_end++;
    for (size_t i = 0; i < holds_end; i++)
        if (holds[i].used && holds[i].name == name) record_go_on(&holds[i], believed(&holds[i]));
    holds[at] = (struct hold){true, sim_host(), lock, name, NO_RECORD};
    const struct dlock__acquisition *acq = believed(&holds[at]);
    sim_grants++;
    if (acq) record_begin(&holds[at], acq, asked_us); /* else it ended before its owner could look */
    return at;
}

void sim_held_downgraded(unsigned number, int64_t asked_us) {
    SIM_UNSEEN;
    struct hold *hold = &holds[number];
    const struct dlock__acquisition *acq = believed(hold);
    record_go_on(hold, acq); /* ends the record, unless the fence could not grow any more */
    if (acq && hold->record == NO_RECORD) record_begin(hold, acq, asked_us);
}

static void hold_end(struct hold *hold) {
    if (!hold->used) return;
    record_go_on(hold, believed(hold));
    record_end(hold);
    hold->used = false;
}

void sim_held_end(unsigned hold) {
    SIM_UNSEEN;
    hold_end(&holds[hold]);
}

int64_t sim_held_until(unsigned hold) {
    SIM_UNSEEN;
    const struct dlock__acquisition *acq = believed(&holds[hold]);
    return acq ? sim_global_us(holds[hold].host, acq->valid_until_us) : 0;
}

int64_t sim_held_since(unsigned hold) {
    SIM_UNSEEN;
    const struct dlock__acquisition *acq = believed(&holds[hold]);
    return acq && acq->ordinal == 0 ? sim_global_us(holds[hold].host, acq->granted_us) : 0;
}

void sim_held_gone(const struct sim_host *host) {
    SIM_UNSEEN;
    for (size_t i = 0; i < holds_end; i++)
        if (holds[i].host == host) hold_end(&holds[i]);
}

static void break_of_a_rule(const char *what, void *arg) {
    (void)arg;
    sim_fail("%s", what);
}

/* Checks exclusion, by mode and limit, and fences, with the checker of the fault suite. */
static void check_history(void) {
    history_check(&history, break_of_a_rule, NULL);
}

/* ---- what holders believe, compared with what the server keeps ---- */

static bool is_of(const struct server_entry *entry, const char *token) {
    size_t length = strlen(token);
    return strncmp(entry->token, token, length) == 0 && (!entry->token[length] || entry->token[length] == '#');
}

static void check_against(const struct hold *hold, const struct dlock__acquisition *acq) {
    int64_t ahead_us = server_now_us() - dlock__now_us(), kept_us = -1; /* kept_us: here; -1: nothing is kept */
    for (size_t i = 0; server_at(i); i++) {
        const struct server_entry *entry = server_at(i);
        if (!entry->used || !entry->held || strcmp(entry->name, acq->name->text) != 0) continue;
        if (is_of(entry, acq->token)) {
            int64_t us = sim_global_us(&sim_server, entry->until_us - ahead_us);
            if (us > kept_us) kept_us = us;
        } else if (entry->until_us > server_now_us() && excludes(entry->mode, acq->mode)) {
            sim_fail("n%u: the server has given %s what %s still believes to have", hold->name, entry->token,
                     hold->host->name);
        }
    }
    int64_t believed_us = sim_global_us(hold->host, acq->valid_until_us);
    if (kept_us >= 0 && kept_us < believed_us)
        sim_fail("n%u: %s believes in its grant for %lld us longer than the server keeps it", hold->name,
                 hold->host->name, (long long)(believed_us - kept_us));
}

/* Checks that on_lost has run before another client has the name. */
static void check_told(const struct hold *hold) {
    if (!sim_prompt || !hold->used || hold->host->dead || hold->host->stops > 0 || !hold->lock->on_lost) return;
    for (const struct dlock__hold *h = hold->lock->holds; h && !hold->lock->client->closed; h = h->other) {
        const struct dlock__acquisition *acq = h->acq;
        if (h->count == 0 || sim_was_broken(acq->token) ||
            !(dlock__acq_held(acq) || (dlock__acq_lost(acq) && acq->untold > 0)))
            continue;
        for (size_t i = 0; server_at(i); i++) {
            const struct server_entry *entry = server_at(i);
            if (entry->used && entry->held && entry->until_us > server_now_us() && excludes(entry->mode, acq->mode) &&
                strcmp(entry->name, acq->name->text) == 0 && !is_of(entry, acq->token))
                sim_fail("n%u: the server has given %s what %s has lost, and was not told of", hold->name, entry->token,
                         hold->host->name);
        }
    }
}

/* ---- the order of waiters ---- */

/* True if the server could grant the name once more. A holder whose lease is over blocks it until the server has
 * noticed. */
static bool has_room(const char *name, enum dlock_mode mode, uint32_t limit, int64_t now_us) {
    unsigned n = 0;
    for (size_t i = 0; server_at(i); i++) {
        const struct server_entry *entry = server_at(i);
        if (!entry->used || !entry->held || entry->until_us <= now_us || strcmp(entry->name, name) != 0) continue;
        if (mode != DLOCK_PERMIT && excludes(entry->mode, mode)) return false;
        n++;
    }
    return mode != DLOCK_PERMIT || n < limit;
}

void sim_check_refusal(const struct dlock_claim *claim) {
    if (claim->result != DLOCK_EBUSY) return;
    const struct server_entry *mine = server_find(claim->name, claim->token);
    for (size_t i = 0; server_at(i); i++) {
        const struct server_entry *entry = server_at(i);
        if (!entry->used || entry->held || entry == mine || strcmp(entry->name, claim->name) != 0) continue;
        if (!mine || entry->order < mine->order) return;
    }
    if (has_room(claim->name, claim->mode, claim->limit, server_now_us()))
        sim_fail("%s: %s is refused though nobody is in its way", claim->name, claim->token);
}

void sim_check_line(void) {
    for (size_t i = 0; server_at(i); i++) {
        const struct server_entry *first = server_at(i);
        if (!first->used || first->held) continue;
        bool is_first = true;
        for (size_t k = 0; server_at(k); k++) {
            const struct server_entry *other = server_at(k);
            if (!other->used || strcmp(other->name, first->name) != 0) continue;
            if (other->held && other->order > first->order)
                sim_fail("%s: %s was served before %s, which came earlier", first->name, other->token, first->token);
            is_first = is_first && (other->held || other->order >= first->order);
        }
        if (is_first && has_room(first->name, first->mode, first->limit, 0))
            sim_fail("%s: %s waits though there is room", first->name, first->token);
    }
}

/* ---- what the server keeps ---- */

void sim_client_begin(const dlock_client *client) {
    unsigned at = 0;
    while (at < CLIENTS && clients[at].client) at++;
    if (at == CLIENTS) sim_fail("too many clients");
    clients[at].client = client;
    clients[at].host = sim_host();
}

void sim_client_end(const dlock_client *client) {
    for (size_t i = 0; i < CLIENTS; i++)
        if (clients[i].client == client) clients[i].client = NULL;
}

void sim_calm(void) {
    calm_us = sim_now_us();
}

void sim_check_server_is_back(void) {
    if (calm_us < SIM_NEVER) calm_us = sim_now_us();
}

/* The client that made the entry and has to release it; NULL: none that could. */
static const dlock_client *maker(const struct server_entry *entry) {
    for (size_t i = 0; i < CLIENTS; i++) {
        const dlock_client *client = clients[i].client;
        if (client && strncmp(client->id, entry->token, 24) == 0)
            return clients[i].host->dead || clients[i].host->stopped_us || client->closed ? NULL : client;
    }
    return NULL;
}

static const struct dlock__acquisition *known(const dlock_client *client, const struct server_entry *entry) {
    const struct dlock__acquisition *acq = client->acquisitions;
    while (acq && (!is_of(entry, acq->token) || strncmp(acq->name->text, entry->name, strlen(acq->name->text)) != 0))
        acq = acq->all_next;
    return acq;
}

void sim_exported(const char *ticket) {
    SIM_UNSEEN;
    const char *end = ticket + strlen(ticket); /* …+token+name+check */
    for (int i = 0; i < 2; i++) end = memrchr(ticket, '+', (size_t)(end - ticket));
    const char *token = (const char *)memrchr(ticket, '+', (size_t)(end - ticket)) + 1;
    snprintf(exported[n_exported++ % EXPORTS], sizeof *exported, "%.*s", (int)(end - token), token);
}

static bool is_exported(const char *token) {
    for (size_t i = 0; i < EXPORTS; i++)
        if (strcmp(exported[i], token) == 0) return true;
    return false;
}

/* Without memory a client may forget what it has heard. */
void sim_heard(const struct dlock_wake *wake) {
    if (wake->kind != DLOCK_WAKE_GRANTED || sim_allocations_may_fail()) return;
    snprintf(heard[n_heard % HEARD].token, sizeof heard->token, "%s", wake->token);
    heard[n_heard++ % HEARD].fence = wake->fence;
}

static bool is_heard(const struct server_entry *entry) {
    for (size_t i = 0; i < HEARD; i++)
        if (heard[i].fence == entry->fence && is_of(entry, heard[i].token)) return true;
    return false;
}

/* Stopped clients count, with what they have asked for. */
bool sim_is_awaited(const char *token) {
    for (size_t i = 0; i < CLIENTS; i++)
        for (const struct dlock__acquisition *acq = clients[i].client ? clients[i].client->acquisitions : NULL; acq;
             acq = acq->all_next)
            if (strcmp(acq->token, token) == 0) return true;
    return is_exported(token);
}

/* True if everything that broke has been noticed by now. */
static bool settled(void) {
    return calm_us < SIM_NEVER && sim_now_us() > calm_us + SETTLED_US;
}

/* Checks that an unneeded entry is removed within most_us. */
static void check_idle(size_t at, const struct server_entry *entry, int64_t most_us) {
    if (idle[at].order != entry->order) {
        idle[at].order = entry->order;
        idle[at].since_us = sim_now_us();
    }
    if (sim_now_us() - idle[at].since_us > most_us)
        sim_fail("%s: the server keeps %s, which nobody needs any more", entry->name, entry->token);
}

static void check_entry(size_t at, const struct server_entry *entry, const dlock_client *client) {
    const struct dlock__acquisition *acq = known(client, entry);
    bool orphaned = acq && dlock__acq_orphaned(acq) && acq->untold == 0, stray = sim_server_came_late(entry);
    if (stray && !acq && entry->held && is_heard(entry)) {
        check_idle(at, entry, GIVE_BACK_US); /* its client should have made an orphan of it at once */
    } else if (orphaned || (stray && !acq && entry->held)) {
        /* A release of a grant that may come late is repeated every quarter of a lease, and takes four trips. The
         * client of a waiter that came late releases the grant when told of it, which a dying connection may have
         * prevented. */
        int64_t most_us = entry->lease_ms * 250 + sim_faults.latency_us * INT64_C(16) + GIVE_BACK_US;
        if (!orphaned && most_us < HANDED_US) most_us = HANDED_US;
        if (settled())
            check_idle(at, entry, most_us);
        else
            idle[at].order = 0;
    } else if (acq || stray || !entry->held || is_exported(entry->token)) {
        idle[at].order = 0; /* no lease ends a waiter that came late: its client learns of it when it is granted */
    } else {                /* in a session: until its connection is closed; else until an export has returned */
        int64_t most_us = dlock__can(client, DLOCK_CAP_SESSION) ? SETTLED_US : 0;
        check_idle(at, entry, dlock__can(client, DLOCK_CAP_QUEUE) ? HANDED_US : most_us);
    }
}

/* Checks the server's entries, except grants about to end: those end without a message. */
static void check_kept(void) {
    for (size_t i = 0; server_at(i); i++) {
        const struct server_entry *entry = server_at(i);
        bool ends = entry->held && entry->until_us < server_now_us() + ENDS_US;
        const dlock_client *client = entry->used && !ends && sim_server_is_connected(entry) ? maker(entry) : NULL;
        if (client)
            check_entry(i, entry, client);
        else
            idle[i].order = 0;
    }
}

/* When the loss was seen first; SIM_NEVER: it was not yet. */
static int64_t untold_since(const char *token) {
    for (unsigned i = 0; i < UNTOLD; i++)
        if (strcmp(untold[i].token, token) == 0) return untold[i].since_us;
    return SIM_NEVER;
}

static void note_untold(const dlock_client *client) {
    for (const struct dlock__acquisition *acq = client->acquisitions; acq; acq = acq->all_next) {
        if (acq->untold == 0 || untold_since(acq->token) != SIM_NEVER) continue;
        snprintf(untold[n_untold % UNTOLD].token, sizeof untold->token, "%s", acq->token);
        untold[n_untold++ % UNTOLD].since_us = sim_now_us();
    }
}

void sim_note_losses(void) {
    for (size_t i = 0; i < CLIENTS; i++)
        if (clients[i].client) note_untold(clients[i].client);
}

/* A lost grant is released when its owner was told, or a lease after the loss. Clocks differ by up to 1 %. */
void sim_check_release(const char *token) {
    SIM_UNSEEN;
    for (size_t i = 0; i < CLIENTS; i++)
        for (const struct dlock__acquisition *acq = clients[i].client ? clients[i].client->acquisitions : NULL; acq;
             acq = acq->all_next)
            if (acq->untold > 0 && strcmp(acq->token, token) == 0 &&
                (untold_since(token) == SIM_NEVER || sim_now_us() - untold_since(token) < acq->lease_ms * 980))
                sim_fail(
                    "%s: %s is released before its owner was told of the loss, after %lld us of a lease of %lld ms",
                    acq->name->text, token, (long long)(sim_now_us() - untold_since(token)), (long long)acq->lease_ms);
}

/* ---- what the threads of the core have to do in time ---- */

static void check_due(const dlock_client *client, int64_t now_us, int64_t most_us) {
    for (const struct dlock__acquisition *acq = client->acquisitions; acq; acq = acq->all_next) {
        if (!dlock__acq_renewable(acq)) continue;
        int64_t at_us = dlock__acq_end(acq);
        if (dlock__acq_is_renewed(acq) && !acq->renewing && acq->renew_at_us < at_us) at_us = acq->renew_at_us;
        if (now_us - most_us > at_us)
            sim_fail("%s: nobody renews or ends the grant of %s, which is due for %lld us", acq->name->text, acq->token,
                     (long long)(now_us - at_us));
    }
}

static void check_read(const dlock_client *client, int64_t most_us) {
    for (size_t i = 0; i < sim_links_end; i++) {
        const struct link *link = &sim_links[i];
        if (!link->open || !link->listening || link->silent || link->wakes_begin == link->wakes_end) continue;
        if (strcmp(link->client, client->id) != 0) continue;
        int64_t unread_us = sim_now_us() - link->wakes[link->wakes_begin % WAKES]->arrived_us;
        if (unread_us > most_us) sim_fail("nobody has read a wake-up for %lld us", (long long)unread_us);
    }
}

static void check_threads(void) {
    int64_t most_us = LATE_US + sim_faults.latency_us * INT64_C(8);
    for (size_t i = 0; i < CLIENTS && settled(); i++) {
        const dlock_client *client = clients[i].client;
        if (!client || client->closed || clients[i].host->dead || clients[i].host->stopped_us) continue;
        check_due(client, sim_local_us(clients[i].host, sim_now_us()), most_us);
        if (dlock__can(client, DLOCK_CAP_WAKE)) check_read(client, most_us);
    }
}

void sim_check(void) {
    static int64_t looked_us;
    for (size_t i = 0; i < holds_end; i++) {
        if (!holds[i].used) continue;
        const struct dlock__acquisition *acq = believed(&holds[i]);
        record_go_on(&holds[i], acq);
        if (acq)
            check_against(&holds[i], acq);
        else
            check_told(&holds[i]);
    }
    if (sim_now_us() < looked_us + LOOK_US) return;
    looked_us = sim_now_us();
    check_kept();
    check_threads();
}

void sim_check_end(void) {
    struct sim_host *host = sim_host();
    sim_visit(&sim_server);
    for (size_t i = 0; server_at(i); i++) {
        const struct server_entry *entry = server_at(i);
        if (entry->used && entry->held && entry->until_us > server_now_us())
            sim_fail("%s of %s is left at the server for another %lld ms", entry->token, entry->name,
                     (long long)((entry->until_us - server_now_us()) / 1000));
    }
    sim_visit(host);
    check_history();
}
