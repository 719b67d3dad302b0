/* The URI parser with arbitrary bytes. Called by libFuzzer, or by replay.c with the files of the corpus.
 *
 * Must hold: no crash, no access out of bounds (sanitizers); outputs are untouched on failure; error messages are one
 * line and contain no password and no query value; a parsed URI that is written again, completely encoded, is parsed to
 * the same. */
#include "uri/uri.h"
#include "base/text.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

/* Used as password or value. No error message contains it by chance. */
#define SECRET "Hunter2Zq7"
#define ROOM (4 * DLOCK__URI_MAX + 256)

static void require(bool holds, const char *what, const char *text) {
    if (holds) return;
    fprintf(stderr, "%s: %s\n", what, text);
    abort();
}

static void check_message(int rc, const struct dlock_error *err, const char *text) {
    require(rc < 0 && err->code == rc, "code", text);
    size_t length = strnlen(err->message, sizeof err->message);
    require(length > 0 && length < sizeof err->message, "no message", text);
    for (const char *p = err->message; *p; p++) require(*p >= 0x20 && *p < 0x7f, "not one plain line", err->message);
    require(!strstr(err->message, SECRET), "a secret", err->message);
}

/* Parses the text. NULL: the parser has refused it, with a correct error. */
static struct dlock__uri *parse(const char *text) {
    struct dlock__uri *untouched = (struct dlock__uri *)&untouched, *uri = untouched;
    struct dlock_error err = {0};
    int rc = dlock__uri_parse(text, &uri, &err);
    if (rc == DLOCK_OK) {
        require(uri != untouched && err.code == 0 && !*err.message, "an error on success", text);
        return uri;
    }
    check_message(rc, &err, text);
    require(uri == untouched, "an output on failure", text);
    return NULL;
}

static void check_parts(const struct dlock__uri *uri, const char *text) {
    const struct dlock_uri *parts = &uri->parts;
    require(dlock__text_is_word(parts->scheme, "+.-"), "scheme", text);
    require(!parts->user || *parts->user, "user", text);
    require(!parts->password || *parts->password, "password", text);
    require(!parts->path || *parts->path, "path", text);
    for (size_t i = 0; i < parts->n_hosts; i++) {
        const struct dlock_host *host = &parts->hosts[i];
        require(*host->host && !host->address && host->port >= 0 && host->port <= 65535, "host", text);
    }
    for (size_t i = 0; i < parts->n_params; i++) {
        require(*parts->params[i].key && parts->params[i].value, "param", text);
        require(strcmp(parts->params[i].key, "lease") != 0, "a common key is left", text);
    }
    require(uri->lease_ms >= 100 && uri->timeout_ms >= 10 && uri->timeout_ms <= 3600000, "times", text);
    require(uri->quarantine_ms >= -1 && uri->connections >= 1 && uri->connections <= 1024, "numbers", text);
    require(strlen(uri->prefix) <= 55, "prefix", text);
    require(!uri->password_file || (*uri->password_file == '/' && !parts->password), "password_file", text);
}

static void check_keys(const struct dlock__uri *uri, const char *text) {
    static const char *const some[] = {"db", "node*", NULL}, *const any[] = {"*", NULL};
    const char *const *const lists[] = {NULL, some, any};
    for (size_t i = 0; i < 3; i++) {
        struct dlock_backend backend = {.name = "toy", .keys = lists[i]};
        struct dlock_error err = {0};
        int rc = dlock__uri_check_keys(uri, &backend, &err);
        if (rc != DLOCK_OK) check_message(rc, &err, text);
        require(rc == DLOCK_OK || lists[i] != any, "any key", text);
        require(rc != DLOCK_OK || lists[i] != NULL || uri->parts.n_params == 0, "no key", text);
    }
}

/* ---- there and back ---------------------------------------------------------------------------------------------- */

static void put(char **out, const char *before, const char *part, const char *after) {
    if (!part) return;
    *out = stpcpy(*out, before);
    for (const unsigned char *p = (const unsigned char *)part; *p; p++) *out += sprintf(*out, "%%%02x", *p);
    *out = stpcpy(*out, after);
}

static void write_down(const struct dlock__uri *uri, char *out) {
    const struct dlock_uri *parts = &uri->parts;
    bool userinfo = parts->user || parts->password, slash = parts->path && *parts->path == '/';
    out = stpcpy(out, parts->scheme);
    out = stpcpy(out, ":");
    if (parts->n_hosts || userinfo) out = stpcpy(out, "//");
    put(&out, "", parts->user, "");
    put(&out, ":", parts->password, "");
    if (userinfo) out = stpcpy(out, "@");
    for (size_t i = 0; i < parts->n_hosts; i++) {
        bool bracket = *parts->hosts[i].host != '/' && strchr(parts->hosts[i].host, ':') != NULL;
        put(&out, i ? bracket ? ",[" : "," : bracket ? "[" : "", parts->hosts[i].host, bracket ? "]" : "");
        if (parts->hosts[i].port) out += sprintf(out, ":%d", parts->hosts[i].port);
    }
    put(&out, slash ? "/" : "", slash ? parts->path + 1 : parts->path, "");
    out += sprintf(out, "?lease=%lldms&timeout=%lldms&connections=%u", (long long)uri->lease_ms,
                   (long long)uri->timeout_ms, uri->connections);
    put(&out, "&prefix=", uri->prefix, "");
    put(&out, "&password_file=", uri->password_file, "");
    if (uri->quarantine_ms >= 0) out += sprintf(out, "&quarantine=%lldms", (long long)uri->quarantine_ms);
    for (size_t i = 0; i < parts->n_params; i++) {
        put(&out, "&", parts->params[i].key, "");
        put(&out, "=", parts->params[i].value, "");
    }
}

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static void check_same(const struct dlock__uri *a, const struct dlock__uri *b, const char *text) {
    const struct dlock_uri *p = &a->parts, *q = &b->parts;
    require(same_text(p->scheme, q->scheme) && same_text(p->user, q->user) && same_text(p->password, q->password) &&
                same_text(p->path, q->path),
            "other parts", text);
    require(p->n_hosts == q->n_hosts && p->n_params == q->n_params, "other numbers", text);
    for (size_t i = 0; i < p->n_hosts; i++)
        require(same_text(p->hosts[i].host, q->hosts[i].host) && p->hosts[i].port == q->hosts[i].port, "other hosts",
                text);
    for (size_t i = 0; i < p->n_params; i++)
        require(same_text(p->params[i].key, q->params[i].key) && same_text(p->params[i].value, q->params[i].value),
                "other params", text);
    require(a->lease_ms == b->lease_ms && a->timeout_ms == b->timeout_ms && a->quarantine_ms == b->quarantine_ms &&
                a->connections == b->connections && same_text(a->prefix, b->prefix) &&
                same_text(a->password_file, b->password_file),
            "other common keys", text);
}

static void check_round_trip(const struct dlock__uri *uri, const char *text) {
    char *again = malloc(ROOM);
    require(again != NULL, "memory", text);
    write_down(uri, again);
    if (strlen(again) <= DLOCK__URI_MAX) {
        struct dlock__uri *same = parse(again);
        require(same != NULL, "written down and refused", again);
        check_same(uri, same, again);
        dlock__uri_free(same);
    }
    free(again);
}

/* ---- secrets ----------------------------------------------------------------------------------------------------- */

static void check_quietly(const char *text) {
    struct dlock__uri *uri = parse(text);
    if (uri) check_keys(uri, text);
    dlock__uri_free(uri);
}

/* Checks that dlock_uri_without_secrets() removes every secret, and that the result is unchanged by a second call. */
static void check_public(const char *text) {
    static const char *const keys[] = {"password=", "auth=digest:", "a%53ecret=", "sslpassword="};
    char *with = malloc(ROOM), *public = malloc(ROOM), *again = malloc(ROOM);
    require(with && public && again, "memory", text);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(with, ROOM, "%s%c%s" SECRET, text, strchr(text, '?') ? '&' : '?', keys[i]);
        if (dlock_uri_without_secrets(with, public, ROOM, NULL) != DLOCK_OK) continue;
        require(!strstr(public, SECRET), "a secret", public);
        require(dlock_uri_without_secrets(public, again, ROOM, NULL) == DLOCK_OK, "refused without secrets", public);
        require(strcmp(public, again) == 0, "more left out the second time", public);
    }
    free(with);
    free(public);
    free(again);
}

/* Checks the same URI with a password, also one with a slash, which ends the host part too early, and with query
 * values. */
static void check_secrets(const char *text) {
    static const char *const passwords[] = {"u:" SECRET "@", ":" SECRET "@", "u:" SECRET "/x@", "u:" SECRET "/",
                                            ("u:x" SECRET)};
    static const char *const values[] = {"other=" SECRET,    "lease=" SECRET,         "db=1&db=" SECRET "%",
                                         "guardian=" SECRET, "password_file=" SECRET, "password_file=/" SECRET};
    char *with = malloc(ROOM);
    require(with != NULL, "memory", text);
    const char *slashes = strstr(text, "://");
    for (size_t i = 0; slashes && i < sizeof passwords / sizeof *passwords; i++) {
        snprintf(with, ROOM, "%.*s%s%s", (int)(slashes + 3 - text), text, passwords[i], slashes + 3);
        check_quietly(with);
    }
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        snprintf(with, ROOM, "%s%c%s", text, strchr(text, '?') ? '&' : '?', values[i]);
        check_quietly(with);
    }
    free(with);
}

static void check_duration(const char *text) {
    int64_t ms = -7;
    struct dlock_error err = {0};
    int rc = dlock_parse_duration(text, &ms, &err);
    if (rc == DLOCK_OK) {
        require(ms >= 0 && ms <= INT64_MAX / 1000000, "a duration out of range", text);
    } else {
        check_message(rc, &err, text);
        require(ms == -7, "a duration on failure", text);
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    if (size > DLOCK__URI_MAX + 16) return 0;
    char *text = malloc(size + 1);
    if (!text) return 0;
    if (size) memcpy(text, data, size);
    text[size] = '\0';
    if (strstr(text, SECRET)) { /* the fuzzer may take it from our constants; as a key it may be shown */
        free(text);
        return 0;
    }
    struct dlock__uri *uri = parse(text);
    if (uri) {
        check_parts(uri, text);
        check_keys(uri, text);
        check_round_trip(uri, text);
    }
    dlock__uri_free(uri);
    check_secrets(text);
    check_public(text);
    check_duration(text);
    free(text);
    return 0;
}
