/* Acquiring a lock that no other client has requested since this one released it, without listing its queue.
 *
 * A node's sequence is the number of nodes ever created in its container before it
 * (PrepRequestProcessor.pRequest2TxnCreate: the parent's cversion, which deletions leave alone). Suppose that this
 * client's node with the number K was alone in the queue and has been deleted. If its next node has the number K + 1,
 * no other client has created one in between, so the new node is alone as well.
 *
 * The exception is a container that was deleted and recreated in between, so that it counts from 0 again. Each change
 * on the server has its own zxid, and zxids are consecutive. Between the creation of K and that of K + 1 in a new
 * container there would be at least the deletion of K, the deletion and the creation of the container, and K + 1 other
 * nodes: the two zxids would be K + 5 or more apart. A new leader's zxids jump by more than any K. (One transaction may
 * create several nodes; no lock recipe does so.)
 *
 * A claim for which this fails has to list afterwards, one round trip later than if it had listed at once. So a name
 * where it has failed is listed at once for the next DOUBTS times.
 *
 * The saved request is a sixth of a cycle on a server that does not sync its log (302 us instead of 361 in `dlock
 * bench` on loopback), and too little to measure on one that does (1.1 ms). */
#include "zookeeper.h"

enum { DOUBTS = 16 };

static struct zookeeper_alone *entry_of(struct zookeeper *z, const char *name) {
    return &z->alone[dlock_hash(name, strlen(name), DLOCK_HASH_SEED) % ZOOKEEPER_ALONE];
}

static bool is_of(const struct zookeeper_alone *entry, const char *name) {
    return strcmp(entry->name, name) == 0;
}

void zookeeper_alone_went(struct zookeeper *z, const char *name, int32_t sequence, uint64_t czxid) {
    struct zookeeper_alone *entry = entry_of(z, name);
    pthread_mutex_lock(&z->mutex);
    if (!is_of(entry, name)) {
        snprintf(entry->name, sizeof entry->name, "%s", name);
        entry->doubts = 0;
    }
    entry->czxid = czxid;
    entry->sequence = sequence;
    entry->good = entry->doubts == 0 && sequence >= 0 && sequence < INT32_MAX;
    if (entry->doubts > 0) entry->doubts--;
    pthread_mutex_unlock(&z->mutex);
}

bool zookeeper_alone_hopes(struct zookeeper *z, const char *name) {
    const struct zookeeper_alone *entry = entry_of(z, name);
    pthread_mutex_lock(&z->mutex);
    bool hopes = entry->good && is_of(entry, name);
    pthread_mutex_unlock(&z->mutex);
    return hopes;
}

bool zookeeper_alone_still(struct zookeeper *z, const char *name, int32_t sequence, uint64_t czxid) {
    struct zookeeper_alone *entry = entry_of(z, name);
    pthread_mutex_lock(&z->mutex);
    bool ours = is_of(entry, name);
    bool still = ours && entry->good && sequence == entry->sequence + 1 && czxid > entry->czxid &&
                 czxid - entry->czxid < (uint64_t)entry->sequence + 5;
    if (ours) {
        entry->good = false;
        if (!still) entry->doubts = DOUBTS;
    }
    pthread_mutex_unlock(&z->mutex);
    return still;
}
