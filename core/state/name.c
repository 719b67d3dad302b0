/* The names that a client knows: finding and making one, its line of waiters, and its lists of acquisitions. */
#include "state/client.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_BUCKETS = 16 };

static uint32_t hash_of(const char *text) {
    uint64_t hash = dlock_hash(text, strlen(text), DLOCK_HASH_SEED);
    return (uint32_t)(hash ^ hash >> 32);
}

static struct dlock__name **bucket_of(const struct dlock_client *client, uint32_t hash) {
    size_t at = hash & (2 * client->bucket_half - 1);
    return &client->names[at < client->n_buckets ? at : at - client->bucket_half];
}

static struct dlock__name *find(struct dlock_client *client, const char *text, uint32_t hash) {
    if (client->n_buckets == 0) return NULL;
    struct dlock__name *name = *bucket_of(client, hash);
    while (name && (name->hash != hash || strcmp(name->text, text) != 0)) name = name->chain;
    return name;
}

static bool make_room(struct dlock_client *client) {
    size_t room = client->bucket_room ? client->bucket_room * 2 : FIRST_BUCKETS;
    struct dlock__name **names = realloc(client->names, room * sizeof *names);
    if (!names) return false;
    client->names = names;
    client->bucket_room = room;
    return true;
}

/* Adds a bucket, and moves the names that belong there from the one bucket in which they were (Litwin, "Linear Hashing",
 * VLDB 1980), so that no call stops all others for as long as it takes to move 100,000 names. */
static bool grow(struct dlock_client *client) {
    if (client->n_buckets == client->bucket_room && !make_room(client))
        return client->n_buckets > 0; /* longer chains will do */
    size_t half = client->bucket_half, added = client->n_buckets++;
    struct dlock__name **bucket = &client->names[added], **at = &client->names[added - half], *name;
    *bucket = NULL;
    if (client->n_buckets == 2 * half || added == 0) client->bucket_half = client->n_buckets;
    while ((name = *at)) {
        if (bucket_of(client, name->hash) != bucket) {
            at = &name->chain;
            continue;
        }
        *at = name->chain;
        name->chain = *bucket;
        *bucket = name;
    }
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
    struct dlock__name **bucket = bucket_of(client, hash);
    name->chain = *bucket;
    *bucket = name;
    client->n_names++;
    return name;
}

void dlock__name_put(struct dlock__name *name) {
    if (--name->refs > 0) return;
    struct dlock_client *client = name->client;
    struct dlock__name **at = bucket_of(client, name->hash);
    while (*at != name) at = &(*at)->chain;
    *at = name->chain;
    client->n_names--;
    free(name->rhythm);
    free(name->outage);
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
    waiter->prev = before;
    waiter->next = before ? before->next : name->head;
    *(before ? &before->next : &name->head) = waiter;
    *(waiter->next ? &waiter->next->prev : &name->tail) = waiter;
}

void dlock__name_remove(struct dlock__name *name, struct dlock__waiter *waiter) {
    *(waiter->prev ? &waiter->prev->next : &name->head) = waiter->next;
    *(waiter->next ? &waiter->next->prev : &name->tail) = waiter->prev;
    waiter->prev = NULL;
}

void dlock__name_signal(struct dlock__name *name) {
    if (name->head) dlock__waiter_wake(name->head);
}

void dlock__held_add(struct dlock__name *name, struct dlock__acquisition *acq) {
    acq->next = name->held;
    name->held = acq;
}

bool dlock__held_remove(struct dlock__name *name, struct dlock__acquisition *acq) {
    struct dlock__acquisition **at = &name->held;
    while (*at && *at != acq) at = &(*at)->next;
    if (!*at) return false;
    *at = acq->next;
    return true;
}

int dlock__name_ready(const struct dlock__name *name, struct dlock_error *err) {
    return name->ready_at_us <= dlock__now(name->client) ? 0 : dlock__name_not_ready(name, err);
}

void dlock__name_unanswered(struct dlock__name *name, const struct dlock_error *why) {
    if (!why) {
        free(name->outage);
        name->outage = NULL;
        return;
    }
    if (!name->outage) name->outage = malloc(sizeof *name->outage);
    if (name->outage) *name->outage = *why;
}

int dlock__name_outage(const struct dlock__name *name, struct dlock_error *err) {
    return name->outage ? dlock_fail(err, name->outage->code, "%s", name->outage->message) : 0;
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
