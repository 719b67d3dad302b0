/* The lease of all claims of a connection, and how long it is sure to live.
 *
 * The leader ends a lease when the TTL has passed, by the leader's clock, since the lease was granted or kept alive. A
 * new leader restarts the TTL of every lease (lessor.Promote). So a lease renewed by a request sent at t lives until t
 * + TTL, provided that the member that answered was the leader. But a leader that was stopped or cut off, and replaced
 * without noticing, still answers, since keeping a lease alive needs no majority. It does not know what its followers
 * have since agreed on.
 *
 * Every answer names the leader's term. If a keepalive is answered in some term, and a request that needs a majority,
 * such as a transaction, is sent afterwards and answered in the same term, then the leader of that term was still the
 * leader when the lease had been renewed, and every later leader restarts the TTL later.
 *
 * A stopped leader that resumes may still end the leases whose TTL has passed by its own clock: it has the new leader
 * revoke them, however often they were kept alive there (https://github.com/etcd-io/etcd/issues/15247; etcd 3.4.23 and
 * 3.5.16 both do so). So a lease is used only in the term in which it was granted. In another term the connection gets
 * a new lease, unknown to any earlier leader, and moves each key to it when the key is renewed or looked at. That
 * happens before the old lease expires at the old leader: either that leader renewed it less than a TTL ago, or the
 * claims are lost by our clock as well. The old lease is left to expire. */
#include "etcd.h"

#include <inttypes.h>

enum { PAUSE_MS = 10 /* before checking again whether the members agree on a leader */ };

struct etcd_lease etcd_lease_known(struct etcd *z) {
    pthread_mutex_lock(&z->mutex);
    struct etcd_lease lease = z->lease;
    pthread_mutex_unlock(&z->mutex);
    return lease;
}

bool etcd_lease_lives(struct etcd *z) {
    struct etcd_lease lease = etcd_lease_known(z);
    return lease.id && dlock_now_us() < lease.sent_us + lease.ttl_ms * 1000;
}

void etcd_lease_gone(struct etcd *z, int64_t id) {
    pthread_mutex_lock(&z->mutex);
    if (z->lease.id == id) z->lease = (struct etcd_lease){0};
    pthread_mutex_unlock(&z->mutex);
}

/* The core takes 1 % off the time that is left, for clocks that run differently; here 1 % is added to the time that has
 * passed. */
int64_t etcd_kept_ms(const struct etcd_lease *lease, uint64_t term, int64_t from_us) {
    int64_t age_us = from_us - lease->sent_us;
    if (!lease->id || lease->term != term) return 0;
    int64_t left_ms = age_us <= 0 ? lease->ttl_ms : lease->ttl_ms - (age_us + age_us / 99) / 1000 - 1;
    return left_ms > 0 ? left_ms : 0;
}

/* Reads `{"ID":…,"TTL":…}`. False: it is malformed. */
static bool read_lease(const struct etcd_reply *reply, int64_t sent_us, struct etcd_lease *lease) {
    int64_t ttl_s = etcd_int(reply->body, "TTL");
    lease->id = etcd_int(reply->body, "ID");
    lease->sent_us = sent_us;
    lease->ttl_ms = ttl_s * 1000;
    lease->term = reply->term;
    return lease->id > 0 && ttl_s >= 0 && ttl_s <= INT32_MAX;
}

/* Makes this the connection's lease, in place of the lease `replaces` or of none. If another thread has stored a lease
 * first, returns that one. The slots are those of the keys that have the connection's lease in their names. */
static void note(struct etcd *z, int64_t replaces, struct etcd_lease *lease) {
    pthread_mutex_lock(&z->mutex);
    bool fresh = lease->id != replaces;
    if (z->lease.id == replaces || (z->lease.id == 0 && fresh)) {
        if (fresh || z->lease.sent_us < lease->sent_us) z->lease = *lease;
        if (fresh) memset(z->slots, 0, sizeof z->slots);
        z->slots_lease = lease->id;
    } else if (z->lease.id) {
        *lease = z->lease;
    }
    pthread_mutex_unlock(&z->mutex);
}

/* Stores the term that the member in use knows of. */
static int ask_term(struct etcd *z, int64_t deadline_us, uint64_t *term, struct dlock_error *err) {
    struct dlock_text body = {NULL, 0, 0, false};
    struct etcd_reply reply;
    dlock_text_add(&body, "{}");
    int rc = etcd_post(z, "/v3/maintenance/status", &body, ETCD_REPEAT, deadline_us, &reply, err);
    if (rc != 0) return etcd_code(rc, err);
    *term = reply.term;
    etcd_reply_end(&reply);
    return 0;
}

static int grant_once(struct etcd *z, int64_t deadline_us, struct etcd_lease *lease, struct dlock_error *err) {
    struct dlock_text body = {NULL, 0, 0, false};
    struct etcd_reply reply;
    int64_t sent_us = dlock_now_us();
    dlock_text_add(&body, "{\"TTL\":\"%d\"}", z->address.ttl_s);
    int rc = etcd_post(z, "/v3/lease/grant", &body, ETCD_REPEAT, deadline_us, &reply, err);
    if (rc != 0) return etcd_code(rc, err);
    bool sensible = read_lease(&reply, sent_us, lease) && lease->ttl_ms > 0;
    etcd_reply_end(&reply);
    return sensible ? 0 : etcd_nonsense(z, "lease", err);
}

/* The answer to a grant may name a later term than that of the leader that was asked. If the term before it was the
 * same, the lease is of that term; else it is left to end. No other one is granted before the member knows of that
 * later term: each of them costs a majority a write, and lives for a whole TTL. */
static int grant(struct etcd *z, int64_t replaces, int64_t deadline_us, struct etcd_lease *lease,
                 struct dlock_error *err) {
    uint64_t term = 0;
    lease->term = 0;
    do {
        int rc = ask_term(z, deadline_us, &term, err);
        if (rc == 0 && lease->term <= term) rc = grant_once(z, deadline_us, lease, err);
        if (rc != 0) return rc;
        if (lease->term == term) {
            note(z, replaces, lease);
            return 0;
        }
        poll(NULL, 0, PAUSE_MS);
    } while (dlock_now_us() < deadline_us);
    return etcd_unsettled(z, err);
}

/* Renews the lease. Returns 0, LEASE_GONE (it has ended, or is from another term) or a code. */
static int set_anew(struct etcd *z, const struct etcd_lease *before, int64_t deadline_us, struct etcd_lease *lease,
                    struct dlock_error *err) {
    struct dlock_text body = {NULL, 0, 0, false};
    struct etcd_reply reply;
    int64_t sent_us = dlock_now_us();
    dlock_text_add(&body, "{\"ID\":\"%" PRId64 "\"}", before->id);
    int rc = etcd_post(z, "/v3/lease/keepalive", &body, ETCD_REPEAT, deadline_us, &reply, err);
    if (rc != 0) return rc;
    bool sensible = read_lease(&reply, sent_us, lease) && lease->id == before->id;
    etcd_reply_end(&reply);
    if (!sensible) return etcd_nonsense(z, "answer about a lease", err);
    if (lease->ttl_ms == 0 || lease->term != before->term) return ETCD_LEASE_GONE;
    note(z, before->id, lease);
    return 0;
}

int etcd_keep_alive(struct etcd *z, int64_t deadline_us, struct etcd_lease *lease, struct dlock_error *err) {
    struct etcd_lease before = etcd_lease_known(z);
    int rc = before.id ? set_anew(z, &before, deadline_us, lease, err) : ETCD_LEASE_GONE;
    return rc == ETCD_LEASE_GONE ? grant(z, before.id, deadline_us, lease, err) : rc;
}

int etcd_lease(struct etcd *z, int share, int64_t deadline_us, struct etcd_lease *lease, struct dlock_error *err) {
    *lease = etcd_lease_known(z);
    if (lease->id && dlock_now_us() - lease->sent_us < lease->ttl_ms * 1000 / share) return 0;
    return etcd_keep_alive(z, deadline_us, lease, err);
}

/* ---- slots: which keys of a name are whose ----------------------------------------------------------------------- */

void etcd_take_slot(struct etcd *z, struct dlock_claim *claim) {
    uint64_t slot = 0;
    pthread_mutex_lock(&z->mutex);
    while (slot < ETCD_SLOTS && z->slots[slot / 8] & 1 << slot % 8) slot++;
    if (slot < ETCD_SLOTS) z->slots[slot / 8] |= (unsigned char)(1 << slot % 8);
    int64_t named = z->slots_lease;
    pthread_mutex_unlock(&z->mutex);
    if (slot == ETCD_SLOTS) return;
    claim->state[ETCD_NAMED] = (uint64_t)named;
    claim->state[ETCD_FLAGS] |= (slot + 1) << ETCD_SLOT_SHIFT;
}

bool etcd_give_slot(struct etcd *z, struct dlock_claim *claim) {
    uint64_t slot = etcd_slot(claim);
    if (slot == 0 || slot > ETCD_SLOTS || claim->state[ETCD_FLAGS] & (ETCD_UNSURE | ETCD_USED_UP)) return false;
    pthread_mutex_lock(&z->mutex);
    if (z->slots_lease == (int64_t)claim->state[ETCD_NAMED])
        z->slots[(slot - 1) / 8] &= (unsigned char)~(1 << (slot - 1) % 8);
    pthread_mutex_unlock(&z->mutex);
    return true;
}
