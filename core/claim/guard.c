/* Everything that the guardian has to know of each claim, in the table that it shares with us. */
#include "claim/guard.h"

#include "claim/client.h"
#include "claim/guard_table.h"

#include <stdio.h>
#include <string.h>

void dlock__guard_call(struct dlock__guard_table *table) {
    atomic_fetch_add(&table->calls, 1);
    dlock__guard_wake(&table->calls);
}

int dlock__guard_enter(struct dlock__claim *claim) {
    struct dlock__guard *guard = claim->name->client->guard;
    if (!guard || claim->guarded) return 0;
    uint32_t number = guard->free ? guard->free : dlock__guard_table_grow(guard->table);
    if (number == 0) return DLOCK_ENOMEM;
    struct dlock__guard_entry *entry = dlock__guard_entry(guard->table, number);
    if (number == guard->free) guard->free = entry->next_free;
    entry->limit = claim->limit;
    entry->fixed = claim->flags & DLOCK_FIXED_LEASE;
    entry->lease_ms = claim->lease_ms;
    atomic_store(&entry->valid_until_us, 0);
    snprintf(entry->token, sizeof entry->token, "%s", claim->token);
    snprintf(entry->name, sizeof entry->name, "%s", claim->name->text);
    claim->guarded = number;
    dlock__guard_note(claim);
    atomic_store(&entry->used, 1);
    return 0;
}

void dlock__guard_note(struct dlock__claim *claim) {
    if (!claim->guarded) return;
    struct dlock__guard_entry *entry = dlock__guard_entry(claim->name->client->guard->table, claim->guarded);
    unsigned other = 1 - atomic_load_explicit(&entry->copy, memory_order_relaxed);
    memcpy(entry->state[other], claim->state, sizeof claim->state);
    atomic_store(&entry->copy, other);
    atomic_store(&entry->mode, claim->mode);
}

void dlock__guard_valid_until(struct dlock__claim *claim) {
    if (!claim->guarded) return;
    bool idle = claim->phase == DLOCK__RELEASING || claim->phase == DLOCK__LINGERING || claim->phase == DLOCK__ORPHAN;
    struct dlock__guard_table *table = claim->name->client->guard->table;
    atomic_store(&dlock__guard_entry(table, claim->guarded)->valid_until_us, idle ? 0 : claim->valid_until_us);
    if (!idle && atomic_load(&table->group) != 0 && claim->valid_until_us < atomic_load(&table->looks_at_us))
        dlock__guard_call(table);
}

void dlock__guard_leave(struct dlock__claim *claim) {
    if (!claim->guarded) return;
    struct dlock__guard *guard = claim->name->client->guard;
    struct dlock__guard_entry *entry = dlock__guard_entry(guard->table, claim->guarded);
    atomic_store(&entry->used, 0);
    entry->next_free = guard->free;
    guard->free = claim->guarded;
    claim->guarded = 0;
}
