#include "lease.h"

#include <dlock/backend.h>

#include <string.h>

#define URI_LEASE_MAX_MS \
    (INT64_C(365) * 24 * 3600 * 1000) /* of the URI's keys: a little less than DLOCK_LEASE_MAX_MS */

int lease_read(const struct command *command, const char *text, int64_t *ms) {
    struct dlock_error err = {0, ""};
    char bound[32];
    if (dlock_parse_duration(text, ms, &err) != 0) return usage_error(command, "-l: %s", err.message);
    if (*ms < DLOCK_LEASE_MIN_MS)
        return usage_error(command, "-l %s is too short: a lease is at least %s", text,
                           dlock_duration_text(bound, DLOCK_LEASE_MIN_MS));
    if (*ms > DLOCK_LEASE_MAX_MS)
        return usage_error(command, "-l %s is too long: a lease is at most %s", text,
                           dlock_duration_text(bound, DLOCK_LEASE_MAX_MS));
    return STATUS_OK;
}

/* ---- the URI to write -------------------------------------------------------------------------------------------- */

struct text {
    char out[512];
    size_t used;
    char next; /* the separator before the next parameter: '?' or '&' */
};

static void put(struct text *text, const char *from, size_t n) {
    if (n > sizeof text->out - 1 - text->used) n = sizeof text->out - 1 - text->used;
    memcpy(text->out + text->used, from, n);
    text->used += n;
    text->out[text->used] = '\0';
}

/* Appends a parameter. `n` is the length of `key`; a parameter without a value has `value` NULL. */
static void put_param(struct text *text, const char *key, size_t n, const char *value) {
    put(text, &text->next, 1);
    text->next = '&';
    put(text, key, n);
    if (!value) return;
    put(text, "=", 1);
    put(text, value, strlen(value));
}

/* Appends scheme, hosts and path of `uri`, whose first `n` bytes these are; writes "…" for user and password. */
static void put_server(struct text *text, const char *uri, size_t n) {
    size_t hosts = strcspn(uri, ":") + 1;
    if (hosts + 2 <= n && strncmp(uri + hosts, "//", 2) == 0) {
        hosts += 2;
        size_t at = hosts + strcspn(uri + hosts, "/?");
        while (at > hosts && uri[at - 1] != '@') at--;
        put(text, uri, hosts);
        if (at > hosts) put(text, "…@", strlen("…@"));
        put(text, uri + at, n - at);
    } else {
        put(text, uri, n);
    }
}

static bool has_key(const char *param, const char *key) {
    size_t n = strlen(key);
    return strncmp(param, key, n) == 0 && strchr("=&", param[n]); /* strchr finds the terminating 0, too */
}

/* Writes `uri` with `lease` as its quarantine, if it sets one, else as its lease: the bound of a client's leases is the
 * quarantine, which is by default as long as the URI's lease. Shows no value of another key: it may be a secret. */
static void rewrite(const char *uri, const char *lease, struct text *text) {
    const char *query = uri + strcspn(uri, "?"), *bound = "lease";
    bool there = false;
    for (const char *at = query; *at; at += 1 + strcspn(at + 1, "&"))
        if (has_key(at + 1, "quarantine")) bound = "quarantine";
    put_server(text, uri, (size_t)(query - uri));
    for (const char *at = query; *at; at += 1 + strcspn(at + 1, "&")) {
        size_t whole = strcspn(at + 1, "&"), key = strcspn(at + 1, "=&");
        bool is_bound = has_key(at + 1, bound);
        there = there || is_bound;
        if (whole > 0) put_param(text, at + 1, key, is_bound ? lease : whole > key ? "…" : NULL);
    }
    if (!there) put_param(text, bound, strlen(bound), lease);
}

int lease_fits(const char *uri, const char *text, int64_t ms, dlock_client *client) {
    int64_t quarantine_ms = dlock_client_quarantine_ms(client);
    char quarantine[32];
    struct text better = {.next = '?'};
    if (quarantine_ms == 0 || ms <= quarantine_ms) return STATUS_OK;
    if (ms > URI_LEASE_MAX_MS) {
        note("-l %s is too long: a lease is at most %s on a server that forgets locks when it restarts", text,
             dlock_duration_text(quarantine, URI_LEASE_MAX_MS));
        return STATUS_USAGE;
    }
    rewrite(uri_or_default(uri), text, &better);
    note(
        "-l %s is longer than the quarantine of this server (%s), which protects leases when it restarts: use '%s', on "
        "every host",
        text, dlock_duration_text(quarantine, quarantine_ms), better.out);
    return STATUS_USAGE;
}
