/* The rules that every backend must fulfil, wherever it comes from. Plugins are other people's code: errors, never
 * asserts. */
#include "base/text.h"
#include "plugin/module.h"

/* Up to here a struct must reach; everything behind is optional. */
#define MANDATORY_SIZE offsetof(struct dlock_backend, abandon)
#define CONN_SIZE_MAX (1024 * 1024)
/* So that a path of any length leaves room for what is wrong. */
#define WHERE "%.240s: "

static int check_abi(const struct dlock_backend *backend, const char *where, struct dlock_error *err) {
    if (backend->abi == 0)
        return dlock_fail(err, DLOCK_EABI, WHERE "abi is 0: it must be DLOCK_ABI (now %d)", where, DLOCK_ABI);
    if (backend->abi > DLOCK_ABI)
        return dlock_fail(err, DLOCK_EABI, WHERE "made for plugin ABI %u, but this library has %d: update the library",
                          where, backend->abi, DLOCK_ABI);
    if (backend->size < MANDATORY_SIZE)
        return dlock_fail(err, DLOCK_EABI, WHERE "size is %u: it must be sizeof(struct dlock_backend), at least %zu",
                          where, backend->size, MANDATORY_SIZE);
    return DLOCK_OK;
}

static int check_names(const struct dlock_backend *b, const char *name, const char *where, struct dlock_error *err) {
    if (!b->name || strlen(b->name) > DLOCK__WORD_MAX || !dlock__text_is_word(b->name, "_"))
        return dlock_fail(err, DLOCK_EINVAL, WHERE "name must be of a-z, 0-9 and '_', at most %d", where,
                          DLOCK__WORD_MAX);
    if (name && strcmp(b->name, name) != 0)
        return dlock_fail(err, DLOCK_EABI, WHERE "name is \"%s\", but file and symbol say \"%s\"", where, b->name,
                          name);
    if (!b->schemes || !b->schemes[0]) return dlock_fail(err, DLOCK_EINVAL, WHERE "schemes is empty", where);
    for (const char *const *scheme = b->schemes; *scheme; scheme++)
        if (strlen(*scheme) > DLOCK__WORD_MAX || !dlock__text_is_word(*scheme, "+.-"))
            return dlock_fail(err, DLOCK_EINVAL,
                              WHERE "scheme \"%.64s\" must be of a-z, 0-9, '+', '.' and '-', at most %d", where,
                              *scheme, DLOCK__WORD_MAX);
    return DLOCK_OK;
}

static int check_operations(const struct dlock_backend *b, const char *where, struct dlock_error *err) {
    const struct {
        bool there;
        const char *name;
    } mandatory[] = {{b->connect != NULL, "connect"},
                     {b->disconnect != NULL, "disconnect"},
                     {b->acquire != NULL, "acquire"},
                     {b->renew != NULL, "renew"},
                     {b->release != NULL, "release"}};
    for (size_t i = 0; i < sizeof mandatory / sizeof *mandatory; i++)
        if (!mandatory[i].there)
            return dlock_fail(err, DLOCK_EINVAL, WHERE "the mandatory operation %s is missing", where,
                              mandatory[i].name);
    if (b->conn_size == 0 || b->conn_size > CONN_SIZE_MAX)
        return dlock_fail(err, DLOCK_EINVAL, WHERE "conn_size is %zu: it must be from 1 to %d", where, b->conn_size,
                          CONN_SIZE_MAX);
    return DLOCK_OK;
}

/* A capability that was promised, and what it takes. */
static int check_caps(const struct dlock_backend *b, const char *where, struct dlock_error *err) {
#define DLOCK_X(name, bit, word, meaning) | DLOCK_CAP_##name
    const uint32_t known = 0 DLOCK_CAPS(DLOCK_X);
#undef DLOCK_X
    const struct {
        uint32_t cap;
        bool fulfilled;
        const char *text;
    } rules[] = {
        {DLOCK_CAP_WAKE, b->listen && b->wake, "WAKE without listen and wake"},
        {DLOCK_CAP_PENDING, b->listen && b->wake, "PENDING without listen and wake"},
        {DLOCK_CAP_PENDING, !(b->caps & DLOCK_CAP_THREADSAFE), "PENDING together with THREADSAFE"},
        {DLOCK_CAP_PENDING, (b->caps & DLOCK_CAP_SESSION) != 0, "PENDING without SESSION"},
        {DLOCK_CAP_QUEUE, (b->caps & (DLOCK_CAP_WAKE | DLOCK_CAP_PENDING)) != 0, "QUEUE without WAKE or PENDING"},
        {DLOCK_CAP_INSPECT, b->inspect != NULL, "INSPECT without inspect"},
        {DLOCK_CAP_LIST, b->list != NULL, "LIST without list"},
        {DLOCK_CAP_BREAK, b->break_lock != NULL, "BREAK without break_lock"},
        {DLOCK_CAP_EXPORT, !(b->caps & DLOCK_CAP_SESSION), "EXPORT together with SESSION"},
    };
    if (b->caps & ~known)
        return dlock_fail(err, DLOCK_EINVAL, WHERE "caps has unknown bits: 0x%x", where, b->caps & ~known);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (b->caps & rules[i].cap && !rules[i].fulfilled)
            return dlock_fail(err, DLOCK_EINVAL, WHERE "caps has %s", where, rules[i].text);
    return DLOCK_OK;
}

int dlock__backend_check(const struct dlock_backend *backend, const char *name, const char *where,
                         struct dlock_backend *copy, struct dlock_error *err) {
    int rc = check_abi(backend, where, err);
    if (rc != DLOCK_OK) return rc;
    struct dlock_backend known;
    memset(&known, 0, sizeof known);
    memcpy(&known, backend, backend->size < sizeof known ? backend->size : sizeof known);
    rc = check_names(&known, name, where, err);
    if (rc == DLOCK_OK) rc = check_operations(&known, where, err);
    if (rc == DLOCK_OK) rc = check_caps(&known, where, err);
    if (rc == DLOCK_OK) *copy = known;
    return rc;
}

bool dlock__backend_serves(const struct dlock_backend *backend, const char *scheme) {
    for (const char *const *own = backend->schemes; *own; own++)
        if (strcmp(*own, scheme) == 0) return true;
    return false;
}
