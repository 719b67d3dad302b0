/* The keys that every URI takes: their ranges, and where their values go. */
#include "base/text.h"
#include "uri/uri.h"

/* The longest prefix: with it, a name of DLOCK_NAME_MAX bytes is as long as a backend's may be. */
#define PREFIX_MAX (DLOCK_FULL_NAME_MAX - DLOCK_NAME_MAX)

#define HOUR_MS (INT64_C(3600) * 1000)
#define YEAR_MS (365 * 24 * HOUR_MS)

const char *const dlock__uri_common_keys[] = {
#define X(key) #key,
    DLOCK_URI_KEYS(X)
#undef X
        NULL};

enum key {
#define X(key) KEY_##key,
    DLOCK_URI_KEYS(X)
#undef X
};

/* Stores a duration that must be in a range; `range` is that range in words. */
static int set_duration(int64_t *ms, const char *key, const char *value, int64_t min_ms, int64_t max_ms,
                        const char *range, struct dlock_error *err) {
    struct dlock_error why;
    int64_t parsed = 0;
    if (dlock_parse_duration(value, &parsed, &why) != DLOCK_OK)
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"%s\": %s", key, why.message);
    if (parsed < min_ms || parsed > max_ms) return dlock_fail(err, DLOCK_EINVAL, "URI: \"%s\" must be %s", key, range);
    *ms = parsed;
    return DLOCK_OK;
}

static bool has_control(const char *text) {
    while ((unsigned char)*text >= 0x20 && *text != 0x7f) text++;
    return *text != '\0';
}

/* Stores a text, which must have no control characters. */
static int set_text(const char **text, const char *key, const char *value, struct dlock_error *err) {
    if (has_control(value)) return dlock_fail(err, DLOCK_EINVAL, "URI: \"%s\" has a control character", key);
    *text = value;
    return DLOCK_OK;
}

static int set_connections(struct dlock__uri *uri, const char *value, struct dlock_error *err) {
    unsigned number = dlock__text_number(value, 1024, &value);
    if (!number || *value) return dlock_fail(err, DLOCK_EINVAL, "URI: \"connections\" must be a number from 1 to 1024");
    uri->connections = number;
    return DLOCK_OK;
}

static int set_prefix(struct dlock__uri *uri, const char *value, struct dlock_error *err) {
    if (strlen(value) > PREFIX_MAX)
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"prefix\" is longer than %d bytes", PREFIX_MAX);
    return set_text(&uri->prefix, "prefix", value, err);
}

static int set_guardian(struct dlock__uri *uri, const char *value, struct dlock_error *err) {
    uri->guardian = strcmp(value, "on") == 0;
    if (uri->guardian || strcmp(value, "off") == 0) return DLOCK_OK;
    static const char *const words[] = {"on", "off", NULL};
    char guess[80];
    dlock_guess(guess, sizeof guess, value, words);
    return dlock_fail(err, DLOCK_EINVAL, "URI: \"guardian\" must be on or off%s", guess);
}

/* Refuses relative paths: after a chdir(), and in processes that inherit the URI, they would name another file. */
static int set_password_file(struct dlock__uri *uri, const char *value, struct dlock_error *err) {
    if (*value != '/')
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"password_file\" must be an absolute path, beginning with '/'");
    return set_text(&uri->password_file, "password_file", value, err);
}

int dlock__label_check(const char *label, const char *what, struct dlock_error *err) {
    if (strlen(label) > DLOCK_LABEL_MAX)
        return dlock_fail(err, DLOCK_EINVAL, "%s is longer than %d bytes", what, DLOCK_LABEL_MAX);
    return has_control(label) ? dlock_fail(err, DLOCK_EINVAL, "%s has a control character", what) : DLOCK_OK;
}

static int set_label(struct dlock__uri *uri, const char *value, struct dlock_error *err) {
    int rc = dlock__label_check(value, "URI: \"label\"", err);
    if (rc == 0) uri->label = value;
    return rc;
}

int dlock__uri_common_set(struct dlock__uri *uri, const char *key, const char *value, uint32_t *seen,
                          struct dlock_error *err) {
    int which = 0;
    while (dlock__uri_common_keys[which] && strcmp(dlock__uri_common_keys[which], key) != 0) which++;
    if (!dlock__uri_common_keys[which]) return 1;
    if (*seen & 1U << which) return dlock_fail(err, DLOCK_EINVAL, "URI: \"%s\" stands twice", key);
    *seen |= 1U << which;
    switch ((enum key)which) {
    case KEY_lease: return set_duration(&uri->lease_ms, key, value, 100, YEAR_MS, "from 100ms to 8760h", err);
    case KEY_timeout: return set_duration(&uri->timeout_ms, key, value, 10, HOUR_MS, "from 10ms to 1h", err);
    case KEY_linger: return set_duration(&uri->linger_ms, key, value, 0, HOUR_MS, "0 (off) or up to 1h", err);
    case KEY_quarantine:
        return set_duration(&uri->quarantine_ms, key, value, 0, YEAR_MS, "0 (off) or up to 8760h", err);
    case KEY_connections: return set_connections(uri, value, err);
    case KEY_prefix: return set_prefix(uri, value, err);
    case KEY_guardian: return set_guardian(uri, value, err);
    case KEY_label: return set_label(uri, value, err);
    case KEY_password_file: break;
    }
    return set_password_file(uri, value, err);
}
