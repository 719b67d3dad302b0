/* Connection strings. First split, then decode: what is encoded never separates. Error texts name parts by their place
 * or key and quote nothing but scheme and keys, since a URI with a mistake may have its password anywhere. */
#include "uri/uri.h"
#include "base/text.h"
#include "uri/uri_keys.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/un.h>

#define SCHEME_MAX 64
#define HOST_MAX 255
#define KEY_MAX 64

struct span {
    const char *at, *end;
};

/* The raw parts; `at` is NULL where one is absent. */
struct split {
    struct span scheme, user, password, hosts, path, query;
};

/* One allocation: the struct, then hosts, params and the decoded strings. */
struct builder {
    struct dlock__uri *uri;
    struct dlock_host *hosts;
    struct dlock_param *params;
    char *strings; /* where the next one goes */
    unsigned keys_seen;
    struct dlock_error *err;
};

static bool is_alnum(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_control(char c) {
    return (c >= 0 && c < 0x20) || c == 0x7f;
}

static const char *find_any(struct span in, const char *set) {
    const char *p = in.at;
    while (p < in.end && !strchr(set, *p)) p++;
    return p;
}

static const char *find_last(struct span in, char c) {
    for (const char *p = in.end; p > in.at; p--)
        if (p[-1] == c) return p - 1;
    return NULL;
}

static size_t count(struct span in, char c) {
    size_t n = 0;
    for (const char *p = in.at; p < in.end; p++) n += *p == c;
    return n;
}

/* ---- splitting --------------------------------------------------------------------------------------------------- */

static int check_text(const char *text, struct dlock_error *err) {
    if (!text) return dlock_fail(err, DLOCK_EINVAL, "the URI is NULL");
    size_t length = strnlen(text, DLOCK__URI_MAX + 1);
    if (length > DLOCK__URI_MAX)
        return dlock_fail(err, DLOCK_EINVAL, "the URI is longer than %d bytes", DLOCK__URI_MAX);
    for (const char *p = text; *p; p++) {
        if (is_control(*p))
            return dlock_fail(err, DLOCK_EINVAL, "URI: byte %d is a control character: write %%%02X for it",
                              (int)(p - text) + 1, (unsigned char)*p);
        if (*p == '#')
            return dlock_fail(err, DLOCK_EINVAL, "URI: byte %d is a '#', and there are no fragments: write %%23 for it",
                              (int)(p - text) + 1);
    }
    return DLOCK_OK;
}

static int split_scheme(const char *text, struct split *split, struct dlock_error *err) {
    const char *p = text;
    while (is_alnum(*p) || *p == '+' || *p == '.' || *p == '-') p++;
    if (p == text || *p != ':')
        return dlock_fail(err, DLOCK_EINVAL, "URI: no scheme: write for example redis://localhost or file:locks");
    if (p - text > SCHEME_MAX)
        return dlock_fail(err, DLOCK_EINVAL, "URI: the scheme is longer than %d bytes", SCHEME_MAX);
    split->scheme = (struct span){text, p};
    return DLOCK_OK;
}

/* user:password@hosts */
static void split_authority(struct span authority, struct split *split) {
    const char *at = find_last(authority, '@');
    split->hosts = (struct span){at ? at + 1 : authority.at, authority.end};
    if (!at) return;
    const char *colon = find_any((struct span){authority.at, at}, ":");
    split->user = (struct span){authority.at, colon};
    if (colon < at) split->password = (struct span){colon + 1, at};
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
        bool userinfo = split->user.at != NULL, path = *rest.at == '/';
        struct span suspect = {rest.at, path ? find_any(rest, "?") : rest.end};
        if (authority.at < authority.end && !userinfo && find_last(suspect, '@'))
            return dlock_fail(err, DLOCK_EINVAL,
                              "URI: an '@' after the hosts: write %%2F for a '/' and %%3F for a '?' in the user or the "
                              "password, or %%40 for an '@' elsewhere");
    }
    const char *mark = find_any(rest, "?");
    split->path = (struct span){rest.at, mark};
    split->query = (struct span){mark < rest.end ? mark + 1 : mark, rest.end};
    return DLOCK_OK;
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Stores the decoded part in *out; `what` names it. */
static int decode(struct builder *b, struct span in, const char *what, const char **out) {
    char *start = b->strings, *to = start;
    for (const char *p = in.at; p < in.end; p++) {
        if (*p != '%') {
            *to++ = *p;
            continue;
        }
        int high = in.end - p > 2 ? hex_digit(p[1]) : -1, low = high >= 0 ? hex_digit(p[2]) : -1;
        if (low < 0)
            return dlock_fail(b->err, DLOCK_EINVAL,
                              "URI: %s has a '%%' without two hex digits behind it: write %%25 for a '%%'", what);
        if (high == 0 && low == 0) return dlock_fail(b->err, DLOCK_EINVAL, "URI: %s has a %%00", what);
        *to++ = (char)(high << 4 | low);
        p += 2;
    }
    *to = '\0';
    b->strings = to + 1;
    *out = start;
    return DLOCK_OK;
}

/* The same for a part that is absent when it is empty. */
static int decode_optional(struct builder *b, struct span in, const char *what, const char **out) {
    return in.at == in.end ? DLOCK_OK : decode(b, in, what, out);
}

/* ---- hosts ------------------------------------------------------------------------------------------------------- */

static int parse_port(struct builder *b, struct span in, size_t nth, int *port) {
    int value = 0;
    const char *p = in.at;
    while (p < in.end && *p >= '0' && *p <= '9' && value <= 65535) value = value * 10 + (*p++ - '0');
    if (p < in.end || value < 1 || value > 65535)
        return dlock_fail(b->err, DLOCK_EINVAL,
                          "URI: the port of host %zu is not a number from 1 to 65535 (a user and password stand before "
                          "the hosts and end in '@'; write %%2F for a '/' in them)",
                          nth);
    *port = value;
    return DLOCK_OK;
}

/* What may stand in a host name; names in other alphabets too. */
static bool is_name(const char *host) {
    for (const char *p = host; *p; p++)
        if (!is_alnum(*p) && !strchr("-._", *p) && (unsigned char)*p < 0x80) return false;
    return true;
}

static bool is_ipv6(const char *host) {
    char address[INET6_ADDRSTRLEN];
    struct in6_addr parsed;
    const char *zone = strchr(host, '%');
    size_t length = zone ? (size_t)(zone - host) : strlen(host);
    if (length >= sizeof address || (zone && (!zone[1] || !is_name(zone + 1)))) return false;
    memcpy(address, host, length);
    address[length] = '\0';
    return inet_pton(AF_INET6, address, &parsed) == 1;
}

/* host, host:port, [ipv6] or [ipv6]:port */
static int parse_host(struct builder *b, struct span in, size_t nth) {
    struct dlock_host *host = &b->hosts[b->uri->parts.n_hosts];
    char what[40];
    snprintf(what, sizeof what, "host %zu", nth);
    bool bracket = in.at < in.end && *in.at == '[';
    const char *end = find_any(in, bracket ? "]" : ":");
    struct span name = {bracket ? in.at + 1 : in.at, end};
    if (bracket && end == in.end) return dlock_fail(b->err, DLOCK_EINVAL, "URI: host %zu has a '[' without a ']'", nth);
    if (bracket) end++;
    if (name.at == name.end)
        return dlock_fail(b->err, DLOCK_EINVAL, "URI: host %zu is empty: write host or host:port", nth);
    if (end < in.end && *end != ':')
        return dlock_fail(b->err, DLOCK_EINVAL, "URI: host %zu has something other than a port behind its ']'", nth);
    if (count((struct span){end, in.end}, ':') > 1)
        return dlock_fail(b->err, DLOCK_EINVAL,
                          "URI: host %zu has several ':': write an IPv6 address as [address]:port", nth);
    int rc = end < in.end ? parse_port(b, (struct span){end + 1, in.end}, nth, &host->port) : DLOCK_OK;
    if (rc == DLOCK_OK) rc = decode(b, name, what, &host->host);
    if (rc != DLOCK_OK) return rc;
    if (bracket && !is_ipv6(host->host))
        return dlock_fail(b->err, DLOCK_EINVAL, "URI: host %zu has something other than an IPv6 address in brackets",
                          nth);
    bool folder = !bracket && *host->host == '/'; /* of a Unix socket, percent-encoded: libpq's way */
    if (!bracket && !folder && (!is_name(host->host) || strlen(host->host) > HOST_MAX))
        return dlock_fail(b->err, DLOCK_EINVAL,
                          "URI: host %zu is no host name: letters, digits, '-', '.' and '_', at most %d", nth,
                          HOST_MAX);
    if (folder && strlen(host->host) >= sizeof((struct sockaddr_un *)NULL)->sun_path)
        return dlock_fail(b->err, DLOCK_EINVAL, "URI: host %zu is a folder with too long a name for a socket", nth);
    b->uri->parts.n_hosts++;
    return DLOCK_OK;
}

static int parse_hosts(struct builder *b, struct span in) {
    if (in.at == in.end) return DLOCK_OK;
    for (size_t nth = 1;; nth++) {
        const char *comma = find_any(in, ",");
        int rc = parse_host(b, (struct span){in.at, comma}, nth);
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
    size_t length = strlen(key), plain = 0;
    while (is_alnum(key[plain]) || (key[plain] && strchr("_.-", key[plain]))) plain++;
    if (length == 0 || length > KEY_MAX || plain < length)
        return dlock_fail(
            b->err, DLOCK_EINVAL,
            "URI: a key after the '?' is empty, longer than 64 bytes, or has other characters than letters, "
            "digits, '_', '.' and '-'");
    snprintf(what, sizeof what, "the value of \"%.64s\"", key);
    rc = decode(b, (struct span){equals < in.end ? equals + 1 : in.end, in.end}, what, &value);
    if (rc != DLOCK_OK) return rc;
    int which = dlock__uri_common_key(key);
    if (which < 0) {
        b->params[b->uri->parts.n_params++] = (struct dlock_param){key, value};
        return DLOCK_OK;
    }
    if (b->keys_seen & 1U << which) return dlock_fail(b->err, DLOCK_EINVAL, "URI: \"%s\" stands twice", key);
    b->keys_seen |= 1U << which;
    return dlock__uri_common_set(b->uri, which, value, b->err);
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

static bool stands_before(const struct dlock_uri *uri, size_t nth) {
    for (size_t i = 0; i < nth; i++)
        if (strcmp(uri->params[i].key, uri->params[nth].key) == 0) return true;
    return false;
}

/* How often a key may stand: 0, 1 or 2 (any number). */
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
        const char *key = uri->parts.params[i].key;
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
        if (limit == 1 && stands_before(&uri->parts, i))
            return dlock_fail(err, DLOCK_EINVAL, "URI: \"%s\" stands twice", key);
    }
    return DLOCK_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static int builder_new(struct builder *b, const char *text, const struct split *split) {
    size_t n_hosts = count(split->hosts, ',') + 1, n_params = count(split->query, '&') + 1;
    size_t arrays = n_hosts * sizeof *b->hosts + n_params * sizeof *b->params;
    /* Every string is at most as long as its part, and there are at most as many more NULs as bytes, plus the last. */
    b->uri = calloc(1, sizeof *b->uri + arrays + 2 * strlen(text) + 8);
    if (!b->uri) return dlock_fail(b->err, DLOCK_ENOMEM, "no memory for the URI");
    b->hosts = (struct dlock_host *)(b->uri + 1);
    b->params = (struct dlock_param *)(b->hosts + n_hosts);
    b->strings = (char *)(b->params + n_params);
    b->uri->parts.hosts = b->hosts;
    b->uri->parts.params = b->params;
    dlock__uri_common_defaults(b->uri);
    return DLOCK_OK;
}

/* One of them would be silently left out. */
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
    if (rc == DLOCK_OK) rc = builder_new(&b, text, &split);
    if (rc == DLOCK_OK) rc = fill(&b, &split);
    if (rc == DLOCK_OK)
        *uri = b.uri;
    else
        dlock__uri_free(b.uri);
    return rc;
}

bool dlock__uri_is_address(const struct dlock_uri *uri, struct dlock_error *err) {
    static const struct {
        int port;
        const char *scheme;
    } usual[] = {{6379, "redis"}, {11211, "memcached"}, {2181, "zookeeper"}, {5432, "postgresql"}};
    const char *scheme = NULL, *p = uri->path ? uri->path : "";
    int port = 0;
    while (*p >= '0' && *p <= '9' && port <= 65535) port = port * 10 + (*p++ - '0');
    if ((*p && *p != '/') || port < 1 || port > 65535 || uri->n_hosts || uri->user || uri->password) return false;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (usual[i].port == port) scheme = usual[i].scheme;
    dlock_fail(err, DLOCK_EINVAL, "URI: \"%s:%d\" has no scheme; %s%s://%s:%d%s", uri->scheme, port,
               scheme ? "did you mean " : "write it in front, as in ", scheme ? scheme : "redis", uri->scheme, port,
               scheme ? "?" : "");
    return true;
}

/* ---- without what is secret -------------------------------------------------------------------------------------- */

/* Whether the value of a key, as it stands in the URI, may be a secret. Backends take keys that nobody here knows. */
static bool is_secret(struct span in) {
    char key[KEY_MAX + 1];
    size_t n = 0;
    for (const char *p = in.at; p < in.end && n < KEY_MAX; p++, n++) {
        char c = *p;
        if (c == '%') {
            c = (char)(hex_digit(p[1]) << 4 | hex_digit(p[2]));
            p += 2;
        }
        key[n] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    key[n] = '\0';
    if (strcmp(key, "password_file") == 0) return false;
    return strcmp(key, "auth") == 0 || strstr(key, "password") || strstr(key, "secret") || strstr(key, "token");
}

static char *put(char *to, struct span part) {
    size_t length = part.at ? (size_t)(part.end - part.at) : 0;
    if (length) memcpy(to, part.at, length);
    return to + length;
}

static char *put_public_query(char *to, struct span query) {
    char mark = '?';
    while (query.at < query.end) {
        const char *end = find_any(query, "&");
        struct span param = {query.at, end};
        struct span key = {param.at, find_any(param, "=")};
        if (end > query.at && !is_secret(key)) {
            *to++ = mark;
            to = put(to, param);
            mark = '&';
        }
        query.at = end < query.end ? end + 1 : end;
    }
    return to;
}

static void put_public(char *to, const struct split *split, bool at) {
    to = put(to, split->scheme);
    *to++ = ':';
    if (split->hosts.at) to = stpcpy(to, "//");
    to = put(to, split->user);
    if (at) *to++ = '@';
    to = put(to, split->hosts);
    to = put(to, split->path);
    *put_public_query(to, split->query) = '\0';
}

int dlock_uri_without_secrets(const char *text, char *out, size_t size, struct dlock_error *err) {
    struct dlock__uri *uri;
    struct split split = {0}, again = {0};
    int rc = dlock__uri_parse(text, &uri, err);
    if (rc != DLOCK_OK) return rc;
    dlock__uri_free(uri);
    if (!out || size <= strlen(text)) return dlock_fail(err, DLOCK_EINVAL, "no room for the URI without its secrets");
    split_text(text, &split, NULL); /* it works: it has just done so */
    put_public(out, &split, split.user.at < split.user.end);
    /* Behind an empty user there may stand another '@', which is only read where this one has ended the user. */
    if (split_text(out, &again, NULL) != DLOCK_OK) put_public(out, &split, true);
    return DLOCK_OK;
}

void dlock__uri_free(struct dlock__uri *uri) {
    if (uri && uri->parts.password) explicit_bzero((char *)uri->parts.password, strlen(uri->parts.password));
    free(uri);
}
