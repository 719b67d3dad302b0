/* The rules that every backend must fulfil, wherever it comes from. Plugins are other people's code: a violation is an
 * error, never an assertion. */
#include "base/text.h"
#include "plugin/plugin.h"

/* The size of the struct in ABI 1, and so the smallest one: later versions append members, which are optional. */
#define FIRST_SIZE (offsetof(struct dlock_backend, waiters) + sizeof((struct dlock_backend *)NULL)->waiters)
#define CONN_SIZE_MAX (1024 * 1024)
/* Paths are cut, so that the message has room for what is wrong. */
#define WHERE "%.240s: "

static int check_abi(const struct dlock_backend *backend, const char *where, struct dlock_error *err) {
    if (backend->abi == 0)
        return dlock_fail(err, DLOCK_EABI, WHERE "abi is 0: it must be DLOCK_ABI (now %d)", where, DLOCK_ABI);
    if (backend->abi > DLOCK_ABI)
        return dlock_fail(err, DLOCK_EABI, WHERE "made for plugin ABI %u, but this library has %d: update the library",
                          where, backend->abi, DLOCK_ABI);
    if (backend->size < FIRST_SIZE)
        return dlock_fail(err, DLOCK_EABI, WHERE "size is %u: it must be sizeof(struct dlock_backend), at least %zu",
                          where, backend->size, FIRST_SIZE);
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

/* Reports a missing operation, or capabilities that contradict each other. */
static int check_rules(const struct dlock_backend *b, const char *where, struct dlock_error *err) {
#define DLOCK_X(name, bit, word, meaning) | DLOCK_CAP_##name
    const uint32_t caps = b->caps, known = 0 DLOCK_CAPS(DLOCK_X);
#undef DLOCK_X
#define MANDATORY(operation) \
    { !b->operation, "the mandatory operation " #operation " is missing" }
    const bool listens = b->listen && b->wake;
    const struct {
        bool broken;
        const char *text;
    } rules[] = {
        MANDATORY(connect),
        MANDATORY(disconnect),
        MANDATORY(acquire),
        MANDATORY(renew),
        MANDATORY(release),
        {caps & DLOCK_CAP_WAKE && !listens, "caps has WAKE without listen and wake"},
        {caps & DLOCK_CAP_QUEUE && !(caps & DLOCK_CAP_WAKE), "caps has QUEUE without WAKE"},
        {caps & DLOCK_CAP_WANTED && !(caps & DLOCK_CAP_WAKE), "caps has WANTED without WAKE"},
        {caps & DLOCK_CAP_INSPECT && !b->inspect, "caps has INSPECT without inspect"},
        {caps & DLOCK_CAP_LIST && !b->list, "caps has LIST without list"},
        {caps & DLOCK_CAP_BREAK && !b->break_lock, "caps has BREAK without break_lock"},
        {caps & DLOCK_CAP_SESSION && !(caps & DLOCK_CAP_THREADSAFE),
         "caps has SESSION without THREADSAFE: see dlock/backend_sessions.h"},
        {caps & DLOCK_CAP_EXPORT && caps & DLOCK_CAP_SESSION, "caps has EXPORT together with SESSION"},
        {caps & DLOCK_CAP_PRIVATE && !(caps & DLOCK_CAP_LOCAL), "caps has PRIVATE without LOCAL"},
    };
    if (b->conn_size == 0 || b->conn_size > CONN_SIZE_MAX)
        return dlock_fail(err, DLOCK_EINVAL, WHERE "conn_size is %zu: it must be from 1 to %d", where, b->conn_size,
                          CONN_SIZE_MAX);
    if (caps & ~known) return dlock_fail(err, DLOCK_EINVAL, WHERE "caps has unknown bits: 0x%x", where, caps & ~known);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].broken) return dlock_fail(err, DLOCK_EINVAL, WHERE "%s", where, rules[i].text);
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
    if (rc == DLOCK_OK) rc = check_rules(&known, where, err);
    if (rc == DLOCK_OK) *copy = known;
    return rc;
}

bool dlock__backend_serves(const struct dlock_backend *backend, const char *scheme) {
    for (const char *const *own = backend->schemes; *own; own++)
        if (strcmp(*own, scheme) == 0) return true;
    return false;
}
