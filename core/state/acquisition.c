/* The life cycle of acquisitions and of their slots. */
#include "state/client.h"

#include <stdlib.h>
#include <string.h>

/* Freed acquisitions, and freed slots, that a client keeps. */
enum { SPARE_MAX = 64 };

static void unlist(struct dlock__acquisition *acq) {
    *(acq->all_prev ? &acq->all_prev->all_next : &acq->name->client->acquisitions) = acq->all_next;
    if (acq->all_next) acq->all_next->all_prev = acq->all_prev;
}

static struct dlock__acquisition *make(struct dlock__name *name, size_t token_room) {
    struct dlock_client *client = name->client;
    struct dlock__acquisition *acq = client->spare;
    if (acq && acq->token_room >= token_room) {
        client->spare = acq->all_next;
        client->n_spare--;
        token_room = acq->token_room;
        memset(acq, 0, sizeof *acq);
    } else if (!(acq = calloc(1, sizeof *acq + token_room))) {
        return NULL;
    }
    acq->token_room = (uint8_t)token_room;
    acq->name = name;
    if (!dlock__slot_attach(acq)) {
        free(acq);
        return NULL;
    }
    acq->refs = 1;
    name->refs++;
    acq->session = client->pool.session;
    acq->ask_at_us = acq->renew_at_us = acq->valid_until_us = DLOCK__NEVER;
    acq->all_next = client->acquisitions;
    if (acq->all_next) acq->all_next->all_prev = acq;
    client->acquisitions = acq;
    return acq;
}

struct dlock__acquisition *dlock__timer_acq(struct dlock__timer *timer) {
    return ((struct dlock__slot *)((char *)timer - offsetof(struct dlock__slot, timer)))->hold.acq;
}

/* Makes a slot, and reserves a place for its timer in each heap. */
static struct dlock__slot *new_slot(struct dlock_client *client) {
    size_t n = client->timers.slots + 1;
    struct dlock__slot *slot = NULL;
    if (dlock__heap_reserve(&client->timers.next, n) && dlock__heap_reserve(&client->timers.due, n) &&
        dlock__heap_reserve(&client->engine.orphans, n))
        slot = calloc(1, sizeof *slot);
    if (slot) client->timers.slots = n;
    return slot;
}

bool dlock__slot_attach(struct dlock__acquisition *acq) {
    struct dlock_client *client = acq->name->client;
    struct dlock__slot *slot = client->spare_slots;
    if (acq->op) return true;
    if (slot) {
        client->spare_slots = slot->spare;
        client->n_spare_slots--;
        slot->op.status = DLOCK__OP_NONE; /* the other members are as a new slot's, or are set by the next request */
        slot->op.look = slot->op.woken = slot->op.lost = slot->op.asked = slot->op.resent = false;
        slot->op.extension = NULL;
    } else if (!(slot = new_slot(client))) {
        return false;
    }
    slot->hold.acq = acq;
    acq->op = &slot->op;
    acq->hold = &slot->hold;
    return true;
}

void dlock__slot_detach(struct dlock__acquisition *acq) {
    struct dlock_client *client = acq->name->client;
    struct dlock__slot *slot = (struct dlock__slot *)acq->op;
    if (!slot) return;
    dlock__timer_disarm(&slot->timer);
    dlock__acq_disown(acq);
    acq->op = NULL;
    acq->hold = NULL;
    if (client->n_spare_slots >= SPARE_MAX) {
        client->timers.slots--;
        free(slot);
        return;
    }
    slot->spare = client->spare_slots;
    client->spare_slots = slot;
    client->n_spare_slots++;
}

bool dlock__acq_in_request(const struct dlock__acquisition *acq) {
    const struct dlock__op *op = acq->op;
    return op && (op->status == DLOCK__OP_RUNNING || op->status == DLOCK__OP_PENDING || op->asked);
}

struct dlock__acquisition *dlock__acq_new(struct dlock_lock *lock) {
    struct dlock__acquisition *acq = make(lock->name, dlock__token_room(lock->client));
    if (!acq) return NULL;
    acq->mode = lock->mode;
    acq->limit = lock->limit;
    dlock__token_write(acq);
    acq->flags = lock->flags & 0xff;
    acq->lease_ms = lock->lease_ms;
    if (dlock__guard_enter(acq) == 0) return acq;
    dlock__acq_put(acq);
    return NULL;
}

struct dlock__acquisition *dlock__acq_for_token(struct dlock__name *name, const char *token) {
    size_t size = strlen(token) + 1;
    struct dlock__acquisition *acq = size <= DLOCK_TOKEN_MAX + 1 ? make(name, size) : NULL;
    if (!acq) return NULL;
    memcpy(acq->token, token, size);
    dlock__token_read(acq);
    acq->lease_ms = name->client->uri->lease_ms;
    return acq;
}

void dlock__acq_put(struct dlock__acquisition *acq) {
    if (--acq->refs > 0) return;
    struct dlock_client *client = acq->name->client;
    dlock__check_state(acq);
    dlock__acq_count(acq, -1);
    unlist(acq);
    dlock__slot_detach(acq);
    dlock__guard_leave(acq);
    dlock__name_put(acq->name);
    if (client->n_spare >= SPARE_MAX || acq->token_room < dlock__token_room(client)) {
        free(acq);
        return;
    }
    acq->all_next = client->spare;
    client->spare = acq;
    client->n_spare++;
}

static void hide(const struct dlock__acquisition *acq, struct dlock_lock *handle) {
    if (handle->shown.acq != acq) return;
    atomic_store_explicit(&handle->shown.thread, 0, memory_order_release);
    handle->shown.acq = NULL;
}

/* Publishes the grant for dlock_held. A reader that finds its own number both before and after it reads the time has
 * read its grant's time: only the owner itself could have acquired it again in between. */
static void show(const struct dlock__acquisition *acq, struct dlock_lock *handle) {
    uint64_t thread = acq->owner == DLOCK_OWNER_HANDLE ? DLOCK__ANY_THREAD : acq->thread;
    if (handle->shown.acq != acq) atomic_store_explicit(&handle->shown.thread, 0, memory_order_relaxed);
    atomic_store_explicit(&handle->shown.until_us, acq->valid_until_us, memory_order_release);
    atomic_store_explicit(&handle->shown.thread, thread, memory_order_release);
    handle->shown.acq = acq;
}

void dlock__acq_show(const struct dlock__acquisition *acq) {
    bool held = dlock__acq_held(acq) && acq->count > 0;
    for (const struct dlock__hold *hold = acq->hold; hold; hold = hold->next)
        if (hold->handle) (held ? show : hide)(acq, hold->handle);
}

void dlock__hold_set(struct dlock__hold *hold, struct dlock_lock *handle) {
    if (hold->handle) {
        hide(hold->acq, hold->handle);
        *hold->at = hold->other;
        if (hold->other) hold->other->at = hold->at;
    }
    hold->handle = handle;
    if (!handle) return;
    hold->at = &handle->holds;
    hold->other = handle->holds;
    if (hold->other) hold->other->at = &hold->other;
    handle->holds = hold;
    dlock__acq_show(hold->acq);
}

struct dlock__hold *dlock__acq_hold(struct dlock__acquisition *acq, struct dlock_lock *handle, bool make) {
    struct dlock__hold *hold = acq->hold, *unused = NULL;
    for (; hold; hold = hold->next) {
        if (hold->handle == handle) return hold;
        if (!hold->handle && hold->count == 0) unused = hold;
    }
    if (!make) return NULL;
    if (!unused) {
        unused = calloc(1, sizeof *unused);
        if (!unused) return NULL;
        unused->acq = acq;
        unused->next = acq->hold->next;
        acq->hold->next = unused;
    }
    dlock__hold_set(unused, handle);
    return unused;
}

void dlock__acq_disown(struct dlock__acquisition *acq) {
    acq->count = 0;
    dlock__guard_disown(acq);
    if (!acq->hold) return;
    while (acq->hold->next) {
        struct dlock__hold *hold = acq->hold->next;
        acq->hold->next = hold->next;
        dlock__hold_set(hold, NULL);
        free(hold);
    }
    dlock__hold_set(acq->hold, NULL);
    acq->hold->count = 0;
}

static struct dlock__acquisition *find_in(struct dlock__acquisition *list, const char *token) {
    while (list && strcmp(list->token, token) != 0) list = list->next;
    return list;
}

struct dlock__acquisition *dlock__acq_find(struct dlock_client *client, const char *name, const char *token) {
    const struct dlock__name *entry = dlock__name_find(client, name);
    struct dlock__acquisition *acq = entry ? find_in(entry->held, token) : NULL;
    if (!acq && entry) acq = find_in(entry->lost, token);
    if (acq) return acq;
    /* Orphans, and what a waiter has given up, are in no list of their name; and a server may name it wrongly. */
    for (acq = dlock__acq_first(client); acq && strcmp(acq->token, token) != 0;) acq = acq->all_next;
    return acq;
}

int dlock__acq_by_name(const void *a, const void *b) {
    const struct dlock__acquisition *const *left = a, *const *right = b;
    return strcmp((*left)->name->text, (*right)->name->text);
}
