/* Keeps the table that a client shares with its guardian up to date: an entry for each acquisition. */
#include "state/guard.h"

#include "state/client.h"
#include "state/guard_table.h"

#include <stdio.h>
#include <string.h>

void dlock__guard_call(struct dlock__guard_table *table) {
    atomic_fetch_add(&table->calls, 1);
    dlock__guard_wake(&table->calls);
}

int dlock__guard_enter(struct dlock__acquisition *acq) {
    struct dlock__guard *guard = acq->name->client->guard;
    if (!guard || acq->guarded) return 0;
    uint32_t number = guard->free ? guard->free : dlock__guard_table_grow(guard->table);
    if (number == 0) return DLOCK_ENOMEM;
    struct dlock__guard_entry *entry = dlock__guard_entry(guard->table, number);
    if (number == guard->free) guard->free = entry->next_free;
    entry->limit = acq->limit;
    atomic_store(&entry->lease_ms, 0);
    snprintf(entry->token, sizeof entry->token, "%s", acq->token);
    snprintf(entry->name, sizeof entry->name, "%s", acq->name->text);
    acq->guarded = number;
    dlock__guard_note(acq);
    atomic_store(&entry->used, 1);
    return 0;
}

void dlock__guard_note(struct dlock__acquisition *acq) {
    if (!acq->guarded) return;
    struct dlock__guard_table *table = acq->name->client->guard->table;
    struct dlock__guard_entry *entry = dlock__guard_entry(table, acq->guarded);
    unsigned other = 1 - atomic_load_explicit(&entry->copy, memory_order_relaxed);
    bool works = dlock__acq_held(acq) || dlock__acq_lost(acq);
    int64_t lease_ms = acq->op && acq->op->extension ? acq->op->extension->lease_ms : acq->lease_ms;
    entry->fixed = acq->flags & DLOCK_FIXED_LEASE;
    memcpy(entry->state[other], acq->backend_state, sizeof acq->backend_state);
    atomic_store(&entry->copy, other);
    atomic_store(&entry->mode, acq->mode);
    if (lease_ms > atomic_load(&entry->lease_ms)) atomic_store(&entry->lease_ms, lease_ms);
    atomic_store(&entry->valid_until_us, works ? acq->valid_until_us : 0);
    int group = atomic_load(&entry->group.number);
    if (group == 0) group = atomic_load(&table->group.number);
    if (works && group > 0 && acq->valid_until_us < atomic_load(&table->looks_at_us)) dlock__guard_call(table);
}

/* In this order: else the end of a lost grant would be one of the client's group. */
void dlock__guard_disown(struct dlock__acquisition *acq) {
    if (!acq->guarded) return;
    struct dlock__guard_entry *entry = dlock__guard_entry(acq->name->client->guard->table, acq->guarded);
    if (atomic_load(&entry->group.number) == 0) return;
    atomic_store(&entry->valid_until_us, 0);
    atomic_store(&entry->group.number, 0);
}

bool dlock__guard_has_group(const struct dlock__guard_table *table) {
    uint32_t n = atomic_load(&table->n_entries);
    if (atomic_load(&table->group.number) != 0) return true;
    for (uint32_t i = 1; i <= n; i++) {
        const struct dlock__guard_entry *entry = dlock__guard_entry(table, i);
        if (atomic_load(&entry->used) && atomic_load(&entry->group.number) > 0) return true;
    }
    return false;
}

void dlock__guard_leave(struct dlock__acquisition *acq) {
    if (!acq->guarded) return;
    struct dlock__guard *guard = acq->name->client->guard;
    struct dlock__guard_entry *entry = dlock__guard_entry(guard->table, acq->guarded);
    atomic_store(&entry->used, 0);
    entry->next_free = guard->free;
    guard->free = acq->guarded;
    acq->guarded = 0;
}
