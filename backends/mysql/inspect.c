/* Inspecting, listing and breaking locks that are rows. */
#include "maria.h"

/* Names in one page of a list. */
#define PAGE 500

enum { NAME, TOKEN, FENCE, LEFT_US, NOW_US, WAITERS, COLUMNS };

static void say_held(struct maria *maria) {
    maria_begin(maria);
    maria_say(maria,
              "SELECT name, token, fence, until_us - " MARIA_NOW_US ", " MARIA_NOW_US
              ", (SELECT COUNT(*) FROM dlock_claims c WHERE c.name = dlock_locks.name AND c.until_us > " MARIA_NOW_US
              ") FROM dlock_locks WHERE "
              "name <> '' AND token <> '' AND until_us > " MARIA_NOW_US);
}

static bool has_controls(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f) return true;
    return false;
}

/* Passes all rows to `each`. Returns the number of rows or an error; `name` gets the last one. */
static int tell(struct maria *maria, const char *prefix, char name[MARIA_NAME_MAX + 1], dlock_each each, void *arg,
                bool *ended, struct dlock_error *err) {
    char token[256];
    int64_t fence, left_us, now_us, waiters;
    int n = 0;
    *ended = false;
    if (maria->n_answers != 1 || !maria->answers[0].columns)
        return maria_nonsense(maria, "no result with holders", err);
    /* `each` may use other clients, which is safe: all rows have been read. */
    for (const struct maria_value *row; !*ended && (row = maria_row(maria, 0, COLUMNS)); n++) {
        if (!maria_bytes(&row[NAME], 1, name, MARIA_NAME_MAX + 1) ||
            !maria_bytes(&row[TOKEN], 1, token, sizeof token) || !maria_number(&row[FENCE], &fence) ||
            !maria_number(&row[LEFT_US], &left_us) || !maria_number(&row[NOW_US], &now_us) ||
            !maria_number(&row[WAITERS], &waiters) || waiters > UINT32_MAX || fence <= 0 || fence >= MARIA_FENCE_END ||
            strncmp(name, prefix, strlen(prefix)) != 0 || n == PAGE)
            return maria_nonsense(maria, "a row about a holder", err);
        if (has_controls(name)) continue; /* not a valid name of a lock */
        token[DLOCK_TOKEN_MAX] = '\0';    /* the column has room for longer tokens, which are not dlock's */
        dlock_one_line(token);
        const struct dlock_info info = {.size = sizeof info,
                                        .name = name,
                                        .token = token,
                                        .mode = DLOCK_EXCLUSIVE,
                                        .waiters = (uint32_t)waiters,
                                        .limit = 1,
                                        .fence = (uint64_t)fence,
                                        .remaining_ms = left_us / 1000,
                                        .held_ms = dlock_held_ms(now_us, fence)};
        *ended = each(&info, arg) != 0;
    }
    return n;
}

int maria_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err) {
    struct maria *maria = conn;
    char found[MARIA_NAME_MAX + 1];
    bool ended;
    say_held(maria);
    maria_say(maria, " AND name = ");
    maria_say_bytes(maria, name, strlen(name));
    int rc = maria_call(maria, dlock_deadline_us(timeout_ms), err);
    if (rc != 0) return maria_lacks_objects(maria) ? 0 : rc;
    int n = tell(maria, name, found, each, arg, &ended, err);
    return n < 0 ? n : 0;
}

int maria_waiters(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err) {
    enum { MOST = 10000 };
    struct maria *maria = conn;
    char token[256];
    int64_t waited_us;
    bool ended = false;
    maria_begin(maria);
    maria_say(maria, "SELECT token, GREATEST(" MARIA_NOW_US " - since_us, 0) FROM dlock_claims WHERE name = ");
    maria_say_bytes(maria, name, strlen(name));
    maria_say(maria, " AND until_us > " MARIA_NOW_US " ORDER BY ticket LIMIT %d", MOST);
    int rc = maria_call(maria, dlock_deadline_us(timeout_ms), err);
    if (rc != 0) return maria_lacks_objects(maria) ? 0 : rc;
    for (const struct maria_value *row; !ended && (row = maria_row(maria, 0, 2));) {
        if (!maria_bytes(&row[0], 1, token, sizeof token) || !maria_number(&row[1], &waited_us))
            return maria_nonsense(maria, "a row about a waiter", err);
        token[DLOCK_TOKEN_MAX] = '\0';
        dlock_one_line(token);
        const struct dlock_info info = {.size = sizeof info,
                                        .name = name,
                                        .token = token,
                                        .mode = DLOCK_EXCLUSIVE,
                                        .limit = 1,
                                        .held_ms = waited_us / 1000 + 1};
        ended = each(&info, arg) != 0;
    }
    return 0;
}

/* Writes the first byte string after all that begin with the prefix. Returns its length; 0: there is none. */
static size_t after_prefix(const char *prefix, char out[MARIA_NAME_MAX + 1]) {
    size_t length = strlen(prefix);
    memcpy(out, prefix, length);
    while (length && out[length - 1] == (char)0xff) length--;
    if (length) out[length - 1] = (char)(out[length - 1] + 1);
    return length;
}

int maria_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
               struct dlock_error *err) {
    struct maria *maria = conn;
    char end[MARIA_NAME_MAX + 1], last[MARIA_NAME_MAX + 1];
    bool ended;
    if (strlen(prefix) > MARIA_NAME_MAX) return 0;
    size_t end_length = after_prefix(prefix, end);
    say_held(maria);
    maria_say(maria, *cursor ? " AND name > " : " AND name >= ");
    maria_say_bytes(maria, *cursor ? cursor : prefix, strlen(*cursor ? cursor : prefix));
    if (end_length) {
        maria_say(maria, " AND name < ");
        maria_say_bytes(maria, end, end_length);
    }
    maria_say(maria, " ORDER BY name LIMIT %d", PAGE);
    int rc = maria_call(maria, dlock_deadline_us(timeout_ms), err);
    if (rc != 0) return maria_lacks_objects(maria) ? 0 : rc;
    int n = tell(maria, prefix, last, each, arg, &ended, err);
    if (n < 0) return n;
    if (ended || n < PAGE) return 0;
    memcpy(cursor, last, strlen(last) + 1);
    return 1;
}

/* Keeps the fence in the row. */
int maria_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err) {
    struct maria *maria = conn;
    maria_begin(maria);
    maria_say_hand_over(maria);
    maria_say_bytes(maria, name, strlen(name));
    int64_t deadline_us = dlock_deadline_us(timeout_ms);
    int rc = maria_call(maria, deadline_us, err);
    if (rc != 0 && !maria_lacks_objects(maria)) return rc;
    if (rc == 0 && maria->n_answers == 1 && maria->answers[0].affected > 0) {
        maria_wake_ear(maria, maria->answers[0].id, deadline_us);
        return 0;
    }
    return dlock_fail(err, DLOCK_ELOST, "nobody holds the lock");
}
