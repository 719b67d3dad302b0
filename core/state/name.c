#include "state/client.h"

#include <stdlib.h>
#include <string.h>

static uint32_t hash_of(const char *text) {
    uint64_t hash = dlock_hash(text, strlen(text), DLOCK_HASH_SEED);
    return (uint32_t)(hash ^ hash >> 32);
}

static struct dlock__name *find(struct dlock_client *client, const char *text, uint32_t hash) {
    if (client->n_buckets == 0) return NULL;
    struct dlock__name *name = client->names[hash & (client->n_buckets - 1)];
    while (name && (name->hash != hash || strcmp(name->text, text) != 0)) name = name->chain;
    return name;
}

static bool grow(struct dlock_client *client) {
    size_t n = client->n_buckets ? client->n_buckets * 2 : 16;
    struct dlock__name **names = calloc(n, sizeof *names);
    if (!names) return client->n_buckets > 0; /* longer chains will do */
    for (size_t i = 0; i < client->n_buckets; i++) {
        for (struct dlock__name *name = client->names[i], *next; name; name = next) {
            next = name->chain;
            name->chain = names[name->hash & (n - 1)];
            names[name->hash & (n - 1)] = name;
        }
    }
    free(client->names);
    client->names = names;
    client->n_buckets = n;
    return true;
}

struct dlock__name *dlock__name_find(struct dlock_client *client, const char *text) {
    return find(client, text, hash_of(text));
}

struct dlock__name *dlock__name_get(struct dlock_client *client, const char *text) {
    uint32_t hash = hash_of(text);
    struct dlock__name *name = find(client, text, hash);
    if (name) {
        name->refs++;
        return name;
    }
    if (client->n_names >= client->n_buckets && !grow(client)) return NULL;
    size_t size = strlen(text) + 1;
    name = calloc(1, sizeof *name + size);
    if (!name) return NULL;
    memcpy(name->text, text, size);
    name->client = client;
    name->hash = hash;
    name->refs = 1;
    name->chain = client->names[hash & (client->n_buckets - 1)];
    client->names[hash & (client->n_buckets - 1)] = name;
    client->n_names++;
    return name;
}

void dlock__name_put(struct dlock__name *name) {
    if (--name->refs > 0) return;
    struct dlock_client *client = name->client;
    struct dlock__name **at = &client->names[name->hash & (client->n_buckets - 1)];
    while (*at != name) at = &(*at)->chain;
    *at = name->chain;
    client->n_names--;
    free(name->rhythm);
    free(name);
}

const char *dlock__name_shown(const struct dlock__name *name) {
    return name->text + strlen(name->client->uri->prefix);
}

int dlock__name_check(const char *name, struct dlock_error *err) {
    if (!name) return dlock_fail(err, DLOCK_EINVAL, "a lock needs a name, got NULL");
    size_t n = strnlen(name, DLOCK_NAME_MAX + 1);
    if (n == 0) return dlock_fail(err, DLOCK_EINVAL, "a lock name has at least one byte, got \"\"");
    if (n > DLOCK_NAME_MAX)
        return dlock_fail(err, DLOCK_EINVAL, "a lock name has at most %d bytes, \"%.40s…\" has more", DLOCK_NAME_MAX,
                          name);
    for (const unsigned char *p = (const unsigned char *)name; *p; p++)
        if (*p < 0x20 || *p == 0x7f)
            return dlock_fail(err, DLOCK_EINVAL, "a lock name has no control characters, byte %zu is 0x%02x",
                              (size_t)(p - (const unsigned char *)name), *p);
    return 0;
}

void dlock__name_insert(struct dlock__name *name, struct dlock__waiter *waiter, struct dlock__waiter *before) {
    waiter->in_line = true;
    waiter->prev = before;
    waiter->next = before ? before->next : name->head;
    *(before ? &before->next : &name->head) = waiter;
    *(waiter->next ? &waiter->next->prev : &name->tail) = waiter;
}

void dlock__name_remove(struct dlock__name *name, struct dlock__waiter *waiter) {
    waiter->in_line = false;
    *(waiter->prev ? &waiter->prev->next : &name->head) = waiter->next;
    *(waiter->next ? &waiter->next->prev : &name->tail) = waiter->prev;
}

void dlock__name_signal(struct dlock__name *name) {
    if (name->head) dlock__waiter_wake(name->head);
}

void dlock__name_hold(struct dlock__name *name, struct dlock__acquisition *acq) {
    acq->next = name->held;
    name->held = acq;
}

bool dlock__name_unhold(struct dlock__name *name, struct dlock__acquisition *acq) {
    struct dlock__acquisition **at = &name->held;
    while (*at && *at != acq) at = &(*at)->next;
    if (!*at) return false;
    *at = acq->next;
    return true;
}

int dlock__name_ready(const struct dlock__name *name, struct dlock_error *err) {
    return name->ready_at_us <= dlock__now(name->client) ? 0 : dlock__name_not_ready(name, err);
}

int dlock__name_not_ready(const struct dlock__name *name, struct dlock_error *err) {
    int64_t left_us = name->ready_at_us - dlock__now(name->client);
    char text[64];
    dlock_not_ready_text(text, name->ready_at_us == DLOCK__NEVER ? -1 : left_us > 0 ? (left_us + 999) / 1000 : 1);
    if (name->client->quarantine_ms == 0)
        return dlock_fail(err, DLOCK_ENOTREADY, "lock \"%s\": the server %s: it has just started",
                          dlock__name_shown(name), text);
    return dlock_fail(err, DLOCK_ENOTREADY,
                      "lock \"%s\": the server %s: quarantine after a restart, because it may have lost grants; the "
                      "URI's quarantine= (default: the lease) sets its length",
                      dlock__name_shown(name), text);
}
