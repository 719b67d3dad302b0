#include "uri/uri_keys.h"

/* A name of this length and the longest prefix fill what an acquisition's name may have. */
#define PREFIX_MAX (255 - DLOCK_NAME_MAX)

#define HOUR_MS (INT64_C(3600) * 1000)
#define YEAR_MS (365 * 24 * HOUR_MS)

const char *const dlock__uri_common_keys[] = {
#define X(key) #key,
    DLOCK_URI_KEYS(X)
#undef X
        NULL};

int dlock__uri_common_key(const char *key) {
    for (int i = 0; dlock__uri_common_keys[i]; i++)
        if (strcmp(dlock__uri_common_keys[i], key) == 0) return i;
    return -1;
}

void dlock__uri_common_defaults(struct dlock__uri *uri) {
    uri->lease_ms = 10000;
    uri->timeout_ms = 3000;
    uri->quarantine_ms = -1;
    uri->guardian = -1;
    uri->connections = 4;
    uri->prefix = "";
}

/* A duration in a range, which `range` words. */
static int duration(const char *key, const char *value, int64_t min_ms, int64_t max_ms, const char *range, int64_t *ms,
                    struct dlock_error *err) {
    struct dlock_error why;
    int64_t parsed = 0;
    if (dlock_parse_duration(value, &parsed, &why) != DLOCK_OK)
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"%s\": %s", key, why.message);
    if (parsed < min_ms || parsed > max_ms) return dlock_fail(err, DLOCK_EINVAL, "URI: \"%s\" must be %s", key, range);
    *ms = parsed;
    return DLOCK_OK;
}

static int set_lease(struct dlock__uri *uri, const char *value, struct dlock_error *err) {
    return duration("lease", value, 100, YEAR_MS, "from 100ms to 8760h", &uri->lease_ms, err);
}

static int set_timeout(struct dlock__uri *uri, const char *value, struct dlock_error *err) {
    return duration("timeout", value, 10, HOUR_MS, "from 10ms to 1h", &uri->timeout_ms, err);
}

static int set_quarantine(struct dlock__uri *uri, const char *value, struct dlock_error *err) {
    return duration("quarantine", value, 0, YEAR_MS, "0 (off) or up to 8760h", &uri->quarantine_ms, err);
}

static int set_connections(struct dlock__uri *uri, const char *value, struct dlock_error *err) {
    uint32_t number = 0;
    const char *p = value;
    while (*p >= '0' && *p <= '9' && number <= 1024) number = number * 10 + (uint32_t)(*p++ - '0');
    if (*p || number < 1 || number > 1024)
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"connections\" must be a number from 1 to 1024");
    uri->connections = number;
    return DLOCK_OK;
}

static int set_prefix(struct dlock__uri *uri, const char *value, struct dlock_error *err) {
    if (strlen(value) > PREFIX_MAX)
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"prefix\" is longer than %d bytes", PREFIX_MAX);
    for (const unsigned char *p = (const unsigned char *)value; *p; p++)
        if (*p < 0x20 || *p == 0x7f) return dlock_fail(err, DLOCK_EINVAL, "URI: \"prefix\" has a control character");
    uri->prefix = value;
    return DLOCK_OK;
}

static int set_linger(struct dlock__uri *uri, const char *value, struct dlock_error *err) {
    return duration("linger", value, 0, HOUR_MS, "0 (off) or up to 1h", &uri->linger_ms, err);
}

static int set_guardian(struct dlock__uri *uri, const char *value, struct dlock_error *err) {
    uri->guardian = strcmp(value, "on") == 0;
    if (uri->guardian || strcmp(value, "off") == 0) return DLOCK_OK;
    static const char *const words[] = {"on", "off", NULL};
    char guess[80];
    dlock_guess(guess, sizeof guess, value, words);
    return dlock_fail(err, DLOCK_EINVAL, "URI: \"guardian\" must be on or off%s", guess);
}

/* A relative path would mean another file after a chdir(), and to the processes that inherit the URI. */
static int set_password_file(struct dlock__uri *uri, const char *value, struct dlock_error *err) {
    if (*value != '/')
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"password_file\" must be an absolute path, beginning with '/'");
    for (const unsigned char *p = (const unsigned char *)value; *p; p++)
        if (*p < 0x20 || *p == 0x7f)
            return dlock_fail(err, DLOCK_EINVAL, "URI: \"password_file\" has a control character");
    uri->password_file = value;
    return DLOCK_OK;
}

int dlock__uri_common_set(struct dlock__uri *uri, int which, const char *value, struct dlock_error *err) {
    static int (*const set[])(struct dlock__uri *, const char *, struct dlock_error *) = {
#define X(key) set_##key,
        DLOCK_URI_KEYS(X)
#undef X
    };
    return set[which](uri, value, err);
}
