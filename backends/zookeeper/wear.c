/* Containers whose node counter is close to the server's limit.
 *
 * A node's sequence is the number of nodes that its container had before it. The counter has 31 bits, and stops at its
 * maximum (DataTree.createNode never lowers it): after that all nodes have the same sequence, and each would be first.
 * So a node near the maximum never gets a grant: it is deleted when it becomes the first in the queue, and its claim
 * starts over when the container is empty and has been deleted. A claim that holds a grant by an older node keeps
 * it. */
#include "attempt.h"

enum { WORN_OUT = 2147000000 };

bool zookeeper_is_worn(const struct zookeeper_slot *s) {
    return s->view.own && (s->view.own_sequence < 0 || s->view.own_sequence >= WORN_OUT);
}

int zookeeper_retire(struct zookeeper_attempt *a, struct zookeeper_slot *s) {
    int rc = zookeeper_leave(a, s);
    if (rc != 0) return rc;
    *s->word = ZOOKEEPER_WORN;
    return ZOOKEEPER_AGAIN;
}

/* Deletes the slot's container, after the containers of permits in it. Returns the library's answer. */
static int delete_container(struct zookeeper_attempt *a, const struct zookeeper_slot *s) {
    struct zookeeper_call *call = zookeeper_call(a->z, 3);
    char path[ZOOKEEPER_PATH_SIZE];
    if (!call) return ZSYSTEMERROR;
    if (a->n_slots == 1 && zookeeper_join(s->dir, "leases", path)) zookeeper_ask_delete(call, path);
    if (a->n_slots == 1 && zookeeper_join(s->dir, "locks", path)) zookeeper_ask_delete(call, path);
    const struct zookeeper_request *deletion = zookeeper_ask_delete(call, s->dir);
    zookeeper_call_wait(call, a->deadline_us);
    int answer = deletion->rc;
    zookeeper_call_end(call);
    return answer;
}

static int begin_anew(struct zookeeper_attempt *a, struct zookeeper_slot *s) {
    int answer = delete_container(a, s);
    if (zookeeper_unknown(answer)) return zookeeper_attempt_unknown(a);
    if (answer == ZNOTEMPTY) {
        if (!(a->claim->flags & DLOCK_CLAIM_QUEUE)) *s->word = 0;
        return dlock_fail(a->err, DLOCK_EBUSY,
                          "ZooKeeper at %s cannot count the nodes in %.200s any further: the count starts again once "
                          "all of them are gone",
                          a->z->where, s->dir);
    }
    if (answer != ZOK && answer != ZNONODE) return zookeeper_refused(a->z, answer, "delete", s->dir, a->err);
    *s->word = 0;
    a->make = true;
    return 0;
}

int zookeeper_await_container(struct zookeeper_attempt *a) {
    int rc = 0;
    for (size_t i = 0; i < a->n_slots && rc == 0; i++)
        if (zookeeper_slot_has(&a->slots[i], ZOOKEEPER_WORN)) rc = begin_anew(a, &a->slots[i]);
    return rc;
}
