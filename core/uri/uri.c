/* Connection strings. They are split first and decoded afterwards, so that an encoded character never separates parts.
 * Error texts name parts by their place or key and quote nothing but the scheme and keys, since the password may be
 * anywhere in a URI with a mistake. */
#include "uri/uri.h"
#include "base/text.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/un.h>

#define HOST_MAX 255
#define KEY_MAX 64
#define ALPHANUMERIC "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

struct span {
    const char *at, *end;
};

/* The parts before decoding; `at` is NULL for an absent part. */
struct split {
    struct span scheme, user, password, hosts, path, query;
};

/* A URI being built, in one allocation: the struct, then hosts, params and the decoded strings. */
struct builder {
    struct dlock__uri *uri;
    struct dlock_host *hosts;
    struct dlock_param *params;
    char *strings; /* where the next string goes */
    struct dlock_error *err;
};

static bool is_control(char c) {
    return (unsigned char)c < 0x20 || c == 0x7f;
}

static const char *find_any(struct span in, const char *set) {
    const char *p = in.at;
    while (p < in.end && !strchr(set, *p)) p++;
    return p;
}

/* ---- splitting --------------------------------------------------------------------------------------------------- */

static int check_text(const char *text, struct dlock_error *err) {
    if (!text) return dlock_fail(err, DLOCK_EINVAL, "the URI is NULL");
    if (strlen(text) > DLOCK__URI_MAX)
        return dlock_fail(err, DLOCK_EINVAL, "the URI is longer than %d bytes", DLOCK__URI_MAX);
    for (const char *p = text; *p; p++)
        if (is_control(*p) || *p == '#')
            return dlock_fail(err, DLOCK_EINVAL, "URI: byte %d is %s: write %%%02X for it", (int)(p - text) + 1,
                              *p == '#' ? "a '#', and there are no fragments" : "a control character",
                              (unsigned char)*p);
    return DLOCK_OK;
}

static int split_scheme(const char *text, struct split *split, struct dlock_error *err) {
    const char *p = text + strspn(text, ALPHANUMERIC "+.-");
    if (p == text || *p != ':')
        return dlock_fail(err, DLOCK_EINVAL, "URI: no scheme: write for example redis://localhost or file:locks");
    if (p - text > DLOCK__WORD_MAX)
        return dlock_fail(err, DLOCK_EINVAL, "URI: the scheme is longer than %d bytes", DLOCK__WORD_MAX);
    split->scheme = (struct span){text, p};
    return DLOCK_OK;
}

/* Splits user:password@hosts. */
static void split_authority(struct span authority, struct split *split) {
    const char *at = memrchr(authority.at, '@', (size_t)(authority.end - authority.at));
    split->hosts = (struct span){at ? at + 1 : authority.at, authority.end};
    if (!at) return;
    const char *colon = find_any((struct span){authority.at, at}, ":");
    split->user = (struct span){authority.at, colon};
    if (colon < at) split->password = (struct span){colon + 1, at};
}

/* Refuses a path like /user:password@host where the authority is missing or empty: a URI with one or three slashes
 * would mean the standard host, and the password would be shown as a part of the path. Without any slash the backends
 * that have hosts refuse it. */
static int check_path(const struct split *split, struct dlock_error *err) {
    struct span path = split->path;
    path.at = find_any(path, ":");
    if (split->user.at || split->hosts.at < split->hosts.end || find_any(path, "@") == path.end) return DLOCK_OK;
    return dlock_fail(err, DLOCK_EINVAL,
                      "URI: the path looks like a user and a password: two slashes stand before these, as in "
                      "redis://user:password@host; in a path write %%40 for the '@'");
}

/* Refuses host1/path,host2/path, as some programs write ZooKeeper's servers: it would mean one host, and the others a part
 * of the path. */
static int check_commas(const struct split *split, struct dlock_error *err) {
    if (split->hosts.at == split->hosts.end || find_any(split->path, ",") == split->path.end) return DLOCK_OK;
    return dlock_fail(
        err, DLOCK_EINVAL,
        "URI: a ',' in the path: all hosts stand before the path, as in %.*s://host1,host2/path; write %%2C "
        "for a ',' that belongs to the path",
        (int)(split->scheme.end - split->scheme.at), split->scheme.at);
}

static int split_text(const char *text, struct split *split, struct dlock_error *err) {
    int rc = check_text(text, err);
    if (rc == DLOCK_OK) rc = split_scheme(text, split, err);
    if (rc != DLOCK_OK) return rc;
    struct span rest = {split->scheme.end + 1, text + strlen(text)};
    if (strncmp(rest.at, "//", 2) == 0) {
        rest.at += 2;
        struct span authority = {rest.at, find_any(rest, "/?")};
        rest.at = authority.end;
        split_authority(authority, split);
        struct span suspect = {rest.at, *rest.at == '/' ? find_any(rest, "?") : rest.end};
        if (authority.at < authority.end && find_any(suspect, "@") < suspect.end)
            return dlock_fail(err, DLOCK_EINVAL,
                              "URI: an '@' after the hosts: write %%2F for a '/' and %%3F for a '?' in the user or the "
                              "password, or %%40 for an '@' elsewhere");
    }
    const char *mark = find_any(rest, "?");
    split->path = (struct span){rest.at, mark};
    split->query = (struct span){mark < rest.end ? mark + 1 : mark, rest.end};
    rc = *split->path.at == '/' ? check_path(split, err) : DLOCK_OK;
    return rc == DLOCK_OK ? check_commas(split, err) : rc;
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

/* Decodes one part and stores it in *out. `what` names the part in an error. */
static int decode(struct builder *b, struct span in, const char *what, const char **out) {
    char *start = b->strings, *to = start;
    for (const char *p = in.at; p < in.end; p++) {
        if (*p != '%') {
            *to++ = *p;
            continue;
        }
        const char digits[] = {p[1], p[1] ? p[2] : '\0', '\0'}; /* a terminator of the part is no hex digit */
        if (strspn(digits, "0123456789abcdefABCDEF") < 2)
            return dlock_fail(b->err, DLOCK_EINVAL,
                              "URI: %s has a '%%' without two hex digits behind it: write %%25 for a '%%'", what);
        *to = (char)strtoul(digits, NULL, 16);
        if (*to++ == '\0') return dlock_fail(b->err, DLOCK_EINVAL, "URI: %s has a %%00", what);
        p += 2;
    }
    *to = '\0';
    b->strings = to + 1;
    *out = start;
    return DLOCK_OK;
}

/* The same for a part that counts as absent when it is empty. */
static int decode_optional(struct builder *b, struct span in, const char *what, const char **out) {
    return in.at == in.end ? DLOCK_OK : decode(b, in, what, out);
}

/* ---- hosts ------------------------------------------------------------------------------------------------------- */

static int refuse_host(const struct builder *b, const char *why) {
    return dlock_fail(b->err, DLOCK_EINVAL, "URI: host %zu %s", b->uri->parts.n_hosts + 1, why);
}

/* True if this may be a host name. Non-ASCII letters are allowed. */
static bool is_name(const char *host) {
    for (const char *p = host; *p; p++)
        if ((unsigned char)*p < 0x80 && !strchr(ALPHANUMERIC "-._", *p)) return false;
    return true;
}

static bool is_ipv6(const char *host) {
    char address[INET6_ADDRSTRLEN];
    struct in6_addr parsed;
    size_t length = strcspn(host, "%");
    const char *zone = host + length;
    if (length >= sizeof address || (*zone && (!zone[1] || !is_name(zone + 1)))) return false;
    snprintf(address, sizeof address, "%.*s", (int)length, host);
    return inet_pton(AF_INET6, address, &parsed) == 1;
}

/* Parses host, host:port, [ipv6] or [ipv6]:port. */
static int parse_host(struct builder *b, struct span in) {
    size_t nth = b->uri->parts.n_hosts + 1;
    struct dlock_host *host = &b->hosts[nth - 1];
    char what[40];
    snprintf(what, sizeof what, "host %zu", nth);
    bool bracket = *in.at == '[';
    const char *end = find_any(in, bracket ? "]" : ":");
    struct span name = {bracket ? in.at + 1 : in.at, end};
    if (bracket && end == in.end) return refuse_host(b, "has a '[' without a ']'");
    if (bracket) end++;
    if (name.at == name.end) return refuse_host(b, "is empty: write host or host:port");
    if (end < in.end && *end != ':') return refuse_host(b, "has something other than a port behind its ']'");
    if (end < in.end && find_any((struct span){end + 1, in.end}, ":") < in.end)
        return refuse_host(b, "has several ':': write an IPv6 address as [address]:port");
    if (end < in.end) {
        host->port = (int)dlock__text_number(end + 1, 65535, &end);
        if (!host->port || end < in.end)
            return dlock_fail(b->err, DLOCK_EINVAL,
                              "URI: the port of host %zu is not a number from 1 to 65535 (a user and password stand "
                              "before the hosts and end in '@'; write %%2F for a '/' in them)",
                              nth);
    }
    int rc = decode(b, name, what, &host->host);
    if (rc != DLOCK_OK) return rc;
    if (bracket && !is_ipv6(host->host)) return refuse_host(b, "has something other than an IPv6 address in brackets");
    bool folder = !bracket && *host->host == '/'; /* of a Unix socket, percent-encoded, as libpq has it */
    if (!bracket && !folder && (!is_name(host->host) || strlen(host->host) > HOST_MAX))
        return refuse_host(b, "is not a host name: letters, digits, '-', '.' and '_', at most 255");
    if (folder && strlen(host->host) >= sizeof((struct sockaddr_un *)NULL)->sun_path)
        return refuse_host(b, "is a folder with too long a name for a socket");
    b->uri->parts.n_hosts++;
    return DLOCK_OK;
}

static int parse_hosts(struct builder *b, struct span in) {
    if (in.at == in.end) return DLOCK_OK;
    for (;;) {
        const char *comma = find_any(in, ",");
        int rc = parse_host(b, (struct span){in.at, comma});
        if (rc != DLOCK_OK || comma == in.end) return rc;
        in.at = comma + 1;
    }
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static int parse_param(struct builder *b, struct span in) {
    const char *equals = find_any(in, "="), *key = NULL, *value = NULL;
    char what[KEY_MAX + sizeof "the value of \"\""];
    int rc = decode(b, (struct span){in.at, equals}, "a key", &key);
    if (rc != DLOCK_OK) return rc;
    if (!*key || strlen(key) > KEY_MAX || key[strspn(key, ALPHANUMERIC "_.-")])
        return dlock_fail(
            b->err, DLOCK_EINVAL,
            "URI: a key after the '?' is empty, longer than 64 bytes, or has other characters than letters, "
            "digits, '_', '.' and '-'");
    snprintf(what, sizeof what, "the value of \"%.64s\"", key);
    rc = decode(b, (struct span){equals < in.end ? equals + 1 : in.end, in.end}, what, &value);
    if (rc != DLOCK_OK) return rc;
    rc = dlock__uri_common_set(b->uri, key, value, &b->uri->common_seen, b->err);
    if (rc != 1) return rc;
    b->params[b->uri->parts.n_params++] = (struct dlock_param){key, value};
    return DLOCK_OK;
}

static int parse_query(struct builder *b, struct span in) {
    int rc = DLOCK_OK;
    while (rc == DLOCK_OK && in.at < in.end) {
        const char *end = find_any(in, "&");
        if (end > in.at) rc = parse_param(b, (struct span){in.at, end});
        in.at = end < in.end ? end + 1 : end;
    }
    return rc;
}

/* How often a key may occur: 0, 1 or 2 (any number of times). */
static int key_limit(const struct dlock_backend *backend, const char *key) {
    size_t length = strlen(key);
    for (const char *const *entry = backend->keys; entry && *entry; entry++) {
        if (strcmp(*entry, "*") == 0) return 2;
        if (strncmp(*entry, key, length) != 0) continue;
        if (strcmp(*entry + length, "") == 0) return 1;
        if (strcmp(*entry + length, "*") == 0) return 2;
    }
    return 0;
}

int dlock__uri_check_keys(const struct dlock__uri *uri, const struct dlock_backend *backend, struct dlock_error *err) {
    for (size_t i = 0; i < uri->parts.n_params; i++) {
        const char *key = uri->parts.params[i].key, *value = uri->parts.params[i].value;
        int limit = key_limit(backend, key);
        if (limit == 0) {
            char own[200], common[128], guess[80];
            if (dlock_guess(guess, sizeof guess, key, backend->keys) ||
                dlock_guess(guess, sizeof guess, key, dlock__uri_common_keys))
                return dlock_fail(err, DLOCK_EINVAL, "URI: %.32s does not know the key \"%s\"%s", backend->name, key,
                                  guess);
            dlock__text_join(own, sizeof own, backend->keys);
            dlock__text_join(common, sizeof common, dlock__uri_common_keys);
            return dlock_fail(err, DLOCK_EINVAL,
                              "URI: %.32s does not know the key \"%s\"; it takes %s, and as every "
                              "backend %s",
                              backend->name, key, own, common);
        }
        if (limit == 1 && dlock_uri_get(&uri->parts, key) != value)
            return dlock_fail(err, DLOCK_EINVAL, "URI: \"%s\" stands twice", key);
    }
    return DLOCK_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static int builder_new(struct builder *b, const char *text) {
    /* Each host and each param has at least one byte and a separator. No decoded string is longer than its part, and at
     * most one NUL is added for each byte, plus the last. */
    size_t length = strlen(text), n = length / 2 + 1;
    b->uri = calloc(1, sizeof *b->uri + n * (sizeof *b->hosts + sizeof *b->params) + 2 * length + 8);
    if (!b->uri) return dlock_fail(b->err, DLOCK_ENOMEM, "out of memory for the URI");
    b->hosts = (struct dlock_host *)(b->uri + 1);
    b->params = (struct dlock_param *)(b->hosts + n);
    b->strings = (char *)(b->params + n);
    *b->uri = (struct dlock__uri){.parts = {.hosts = b->hosts, .params = b->params},
                                  .lease_ms = 10000,
                                  .timeout_ms = 3000,
                                  .quarantine_ms = -1,
                                  .connections = 4,
                                  .guardian = -1,
                                  .prefix = "",
                                  .label = ""};
    return DLOCK_OK;
}

/* Refuses a password beside a password file: one of them would be silently ignored. */
static int check_password(const struct dlock__uri *uri, struct dlock_error *err) {
    if (!uri->password_file || (!uri->parts.password && !dlock_uri_get(&uri->parts, "password"))) return DLOCK_OK;
    return dlock_fail(err, DLOCK_EINVAL,
                      "URI: there is a password, and a \"password_file\", too: leave one of them out");
}

static int fill(struct builder *b, const struct split *split) {
    struct dlock_uri *parts = &b->uri->parts;
    char *scheme = b->strings;
    int rc = decode(b, split->scheme, "the scheme", &parts->scheme);
    for (char *p = scheme; rc == DLOCK_OK && *p; p++)
        if (*p >= 'A' && *p <= 'Z') *p = (char)(*p - 'A' + 'a');
    if (rc == DLOCK_OK) rc = decode_optional(b, split->user, "the user", &parts->user);
    if (rc == DLOCK_OK) rc = decode_optional(b, split->password, "the password", &parts->password);
    if (rc == DLOCK_OK) rc = parse_hosts(b, split->hosts);
    if (rc == DLOCK_OK) rc = decode_optional(b, split->path, "the path", &parts->path);
    if (rc == DLOCK_OK) rc = parse_query(b, split->query);
    return rc == DLOCK_OK ? check_password(b->uri, b->err) : rc;
}

int dlock__uri_parse(const char *text, struct dlock__uri **uri, struct dlock_error *err) {
    struct split split = {0};
    struct builder b = {.err = err};
    int rc = split_text(text, &split, err);
    if (rc == DLOCK_OK) rc = builder_new(&b, text);
    if (rc == DLOCK_OK) rc = fill(&b, &split);
    if (rc == DLOCK_OK)
        *uri = b.uri;
    else
        dlock__uri_free(b.uri);
    return rc;
}

/* ---- the URI without secrets ------------------------------------------------------------------------------------- */

static struct span key_of(struct span param) {
    return (struct span){param.at, find_any(param, "=")};
}

/* Takes the next parameter out of a query, without decoding it. Returns false at the end. */
static bool next_param(struct span *query, struct span *param) {
    while (query->at < query->end && *query->at == '&') query->at++;
    *param = (struct span){query->at, find_any(*query, "&")};
    query->at = param->end;
    return param->at < param->end;
}

/* True if the value of this parameter may be a secret. Judges by the key's spelling, since backends take keys that the
 * core does not know. */
static bool has_secret_key(struct span param) {
    char room[KEY_MAX + 1];
    const char *key = "";
    decode(&(struct builder){.strings = room}, key_of(param), "a key", &key); /* cannot fail: see is_secret() */
    if (strcasecmp(key, "password_file") == 0) return false;
    return strcasecmp(key, "auth") == 0 || strcasestr(key, "password") || strcasestr(key, "secret") ||
           strcasestr(key, "token");
}

/* True if the value of this parameter is a URI, as of a quorum's member, with something secret in it. */
static bool has_secret_uri(struct span param) {
    char room[DLOCK__URI_MAX + 1];
    const char *value = "", *equals = key_of(param).end;
    struct split split = {0};
    struct span inner;
    decode(&(struct builder){.strings = room}, (struct span){equals < param.end ? equals + 1 : equals, param.end},
           "a value", &value); /* cannot fail: see is_secret() */
    if (split_scheme(value, &split, NULL) != DLOCK_OK) return false;
    if (split_text(value, &split, NULL) != DLOCK_OK || check_path(&split, NULL) != DLOCK_OK)
        return strchr(value, '@') != NULL;
    if (split.password.at < split.password.end) return true;
    while (next_param(&split.query, &inner))
        if (key_of(inner).end - inner.at > KEY_MAX || has_secret_key(inner)) return true;
    return false;
}

/* The parameter is given as it is in a URI that was parsed before, so it can be decoded. */
static bool is_secret(struct span param) {
    return has_secret_key(param) || has_secret_uri(param);
}

static char *put(char *to, struct span part) {
    size_t length = part.at ? (size_t)(part.end - part.at) : 0;
    if (length) memcpy(to, part.at, length);
    return to + length;
}

static char *put_public_query(char *to, struct span query) {
    char mark = '?';
    for (struct span param; next_param(&query, &param);) {
        if (is_secret(param)) continue;
        *to++ = mark;
        to = put(to, param);
        mark = '&';
    }
    return to;
}

static void put_public(char *to, const struct split *split) {
    to = put(to, split->scheme);
    *to++ = ':';
    if (split->hosts.at) to = stpcpy(to, "//");
    to = put(to, split->user);
    if (split->user.at < split->user.end) *to++ = '@';
    to = put(to, split->hosts);
    to = put(to, split->path);
    *put_public_query(to, split->query) = '\0';
}

int dlock_uri_without_secrets(const char *text, char *out, size_t size, struct dlock_error *err) {
    struct dlock__uri *uri;
    struct split split = {0};
    int rc = dlock__uri_parse(text, &uri, err);
    if (rc != DLOCK_OK) return rc;
    dlock__uri_free(uri);
    if (!out || size <= strlen(text)) return dlock_fail(err, DLOCK_EINVAL, "no room for the URI without its secrets");
    split_text(text, &split, NULL); /* cannot fail: the URI was parsed before */
    rc = check_path(&split, err);
    if (rc != DLOCK_OK) return rc;
    put_public(out, &split);
    return DLOCK_OK;
}

void dlock__uri_free(struct dlock__uri *uri) {
    if (uri && uri->parts.password) explicit_bzero((char *)uri->parts.password, strlen(uri->parts.password));
    free(uri);
}

void dlock__uri_where(const struct dlock__uri *uri, char *out, size_t size) {
    size_t used = 0;
    snprintf(out, size, "%s", uri->parts.path ? uri->parts.path : uri->parts.scheme);
    for (size_t i = 0; i < uri->parts.n_hosts && used < size; i++) {
        const struct dlock_host *host = &uri->parts.hosts[i];
        used += (size_t)snprintf(out + used, size - used, host->port ? "%s%s:%d" : "%s%s", i ? "," : "", host->host,
                                 host->port);
    }
}
