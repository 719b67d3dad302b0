/* The invariants: see checker.h. Reads the core's structures without its mutex: no other thread runs meanwhile. */
#include "checker.h"

#include "fake_server.h"
#include "network.h"
#include "state/client.h"
#include "state/name.h"

enum { HOLDS = 256, NAMES = 64 };

struct hold {
    bool used;
    struct sim_host *host;
    dlock_lock *lock;
    unsigned name;
};

static struct hold holds[HOLDS];
static uint64_t fences[NAMES]; /* the greatest that anybody was told */
uint64_t sim_grants;

/* The grant that the hold's owner would be told of if it asked now; NULL: none. */
static const struct dlock__acquisition *believed(const struct hold *hold) {
    if (!hold->used || hold->host->dead) return NULL;
    for (const struct dlock__hold *h = hold->lock->holds; h; h = h->other)
        if (dlock__acq_held(h->acq) && h->acq->valid_until_us > sim_local_us(hold->host, sim_now_us())) return h->acq;
    return NULL;
}

static bool excludes(enum dlock_mode a, enum dlock_mode b) {
    return a == DLOCK_EXCLUSIVE || b == DLOCK_EXCLUSIVE;
}

/* What all of them believe. */
static void check_holders(const struct hold *newest, enum dlock_mode mode) {
    unsigned n = 0;
    for (size_t i = 0; i < HOLDS; i++) {
        const struct hold *hold = &holds[i];
        const struct dlock__acquisition *acq = hold->name == newest->name ? believed(hold) : NULL;
        n += acq != NULL;
        if (acq && hold != newest && excludes(acq->mode, mode))
            sim_fail("two holders of n%u: %s and %s", hold->name, hold->host->name, newest->host->name);
    }
    if (mode == DLOCK_PERMIT && n > newest->lock->limit)
        sim_fail("%u of %u permits of n%u", n, newest->lock->limit, newest->name);
}

unsigned sim_held_begin(dlock_lock *lock, unsigned name) {
    unsigned at = 0;
    while (at < HOLDS && holds[at].used) at++;
    if (at == HOLDS) sim_fail("too many holds");
    holds[at] = (struct hold){true, sim_host(), lock, name};
    const struct dlock__acquisition *acq = believed(&holds[at]);
    sim_grants++;
    if (!acq) return at; /* its time was over before its owner could look */
    check_holders(&holds[at], acq->mode);
    uint64_t fence = dlock__acq_fence(acq);
    if (acq->mode == DLOCK_EXCLUSIVE && fence <= fences[name])
        sim_fail("n%u: fence %llu after %llu", name, (unsigned long long)fence, (unsigned long long)fences[name]);
    if (fence > fences[name]) fences[name] = fence;
    return at;
}

void sim_held_end(unsigned hold) {
    holds[hold].used = false;
}

void sim_held_gone(const struct sim_host *host) {
    for (size_t i = 0; i < HOLDS; i++)
        if (holds[i].host == host) holds[i].used = false;
}

static bool is_of(const struct server_entry *entry, const char *token) {
    size_t length = strlen(token);
    return strncmp(entry->token, token, length) == 0 && (!entry->token[length] || entry->token[length] == '#');
}

static void check_against(const struct hold *hold, const struct dlock__acquisition *acq) {
    int64_t ahead_us = server_now_us() - dlock__now_us(), kept_us = -1; /* here, at the server */
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

void sim_check(void) {
    for (size_t i = 0; i < HOLDS; i++) {
        const struct dlock__acquisition *acq = believed(&holds[i]);
        if (acq) check_against(&holds[i], acq);
    }
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
}
