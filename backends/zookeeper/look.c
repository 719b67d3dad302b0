/* What operators ask for: inspect, list, break. The holder of a lock is the first in its line. */
#include "zookeeper.h"

#include <inttypes.h>
#include <stdlib.h>

enum { PAGE = 64 };

/* The line of one name, and the data of its first node. */
struct seen {
    char first[ZOOKEEPER_NODE_SIZE];
    uint32_t members;
    uint64_t fence, session;
    char token[DLOCK_TOKEN_MAX + 1];
    char name[256];
};

/* ---- what stands in a node --------------------------------------------------------------------------------------- */

static bool token_like(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'z') ||
              (text[i] >= 'A' && text[i] <= 'Z') || strchr("._:@-", text[i])))
            return false;
    return length > 0 && length <= DLOCK_TOKEN_MAX;
}

/* Ours is the token and perhaps the name; Curator's an address, kazoo's anything. */
static void read_data(const struct zookeeper_request *get, struct seen *seen) {
    size_t length = strcspn(get->data, "\n");
    seen->fence = (uint64_t)get->stat.czxid;
    seen->session = (uint64_t)get->stat.ephemeralOwner;
    if (token_like(get->data, length) && strlen(get->data) == get->size)
        snprintf(seen->token, sizeof seen->token, "%.*s", (int)length, get->data);
    else
        snprintf(seen->token, sizeof seen->token, "session:0x%" PRIx64, seen->session);
    if (get->data[length] == '\n') snprintf(seen->name, sizeof seen->name, "%.255s", get->data + length + 1);
}

static int show(const struct seen *seen, const char *name, dlock_each each, void *arg) {
    struct dlock_info info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    info.name = name;
    info.token = seen->token;
    info.mode = DLOCK_EXCLUSIVE;
    info.limit = 1;
    info.waiters = seen->members - 1;
    info.fence = seen->fence;
    info.remaining_ms = DLOCK_FOREVER; /* as long as its session lives */
    return each(&info, arg);
}

/* ---- one name ---------------------------------------------------------------------------------------------------- */

/* 1: seen is filled; 0: nobody holds it; else an error. */
static int see(struct zookeeper *z, const char *dir, struct seen *seen, int64_t deadline_us, bool *dead,
               struct dlock_error *err) {
    char path[ZOOKEEPER_PATH_SIZE];
    for (;;) {
        int rc = zookeeper_ready(z, deadline_us, dead, err);
        if (rc != 0) return rc;
        memset(seen, 0, sizeof *seen);
        struct zookeeper_call *call = zookeeper_call(z, 2);
        if (!call) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for a request");
        struct zookeeper_request *list = zookeeper_ask_line(call, dir, NULL, NULL, NULL), *get = NULL;
        zookeeper_call_wait(call, deadline_us);
        int answer = list->rc;
        if (answer == ZOK && !list->sensible) answer = ZMARSHALLINGERROR;
        bool held = answer == ZOK && list->line.members > 0;
        if (held) {
            seen->members = list->line.members;
            memcpy(seen->first, list->line.first, sizeof seen->first);
            zookeeper_join(dir, seen->first, path);
            get = zookeeper_ask_get(call, path, NULL);
            zookeeper_call_wait(call, deadline_us);
            answer = get->rc;
            if (answer == ZOK) read_data(get, seen);
        }
        zookeeper_call_end(call);
        if (answer == ZOK) return held;
        if (answer == ZNONODE && !get) return 0;
        if (answer != ZNONODE && !zookeeper_unknown(answer)) return zookeeper_refused(z, answer, "read", dir, err);
        if (dlock_now_us() >= deadline_us) return zookeeper_silent(z, err);
        if (answer != ZNONODE) zookeeper_pause(z); /* else it has just been released */
    }
}

int zookeeper_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms,
                      struct dlock_error *err) {
    struct zookeeper *z = conn;
    char dir[ZOOKEEPER_PATH_SIZE];
    struct seen seen;
    bool dead;
    zookeeper_path(z, name, dir);
    int rc = see(z, dir, &seen, dlock_deadline_us(timeout_ms), &dead, err);
    if (rc == 1) show(&seen, name, each, arg);
    return rc < 0 ? rc : 0;
}

int zookeeper_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err) {
    struct zookeeper *z = conn;
    int64_t deadline_us = dlock_deadline_us(timeout_ms);
    char dir[ZOOKEEPER_PATH_SIZE], path[ZOOKEEPER_PATH_SIZE];
    struct seen seen;
    bool dead;
    zookeeper_path(z, name, dir);
    for (;;) {
        int rc = see(z, dir, &seen, deadline_us, &dead, err);
        if (rc < 0) return rc;
        if (rc == 0) return dlock_fail(err, DLOCK_ELOST, "nobody holds lock \"%s\"", name);
        zookeeper_join(dir, seen.first, path);
        rc = zookeeper_delete(z, path, deadline_us, &dead, err);
        if (rc != DLOCK_ELOST) return rc;
    }
}

/* ---- every name -------------------------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names under the base, sorted. The caller ends *call. */
static int read_names(struct zookeeper *z, int64_t deadline_us, struct zookeeper_call **call,
                      struct zookeeper_request **names, struct dlock_error *err) {
    bool dead;
    int rc = zookeeper_ready(z, deadline_us, &dead, err);
    if (rc != 0) return rc;
    *call = zookeeper_call(z, 1);
    if (!*call) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for a request");
    *names = zookeeper_ask_children(*call, z->base[0] ? z->base : "/");
    zookeeper_call_wait(*call, deadline_us);
    rc = (*names)->rc;
    if (rc == ZOK && (*names)->n_names > 1) qsort((*names)->names, (*names)->n_names, sizeof(char *), by_text);
    if (rc == ZOK || rc == ZNONODE) return 0;
    return zookeeper_refused(z, rc, "list", z->base, err);
}

/* One node under the base: 0, or what ends the walk: 1, or an error. */
static int show_node(struct zookeeper *z, const char *node, const char *prefix, int64_t deadline_us, dlock_each each,
                     void *arg, struct dlock_error *err) {
    char name[256], dir[ZOOKEEPER_PATH_SIZE];
    struct seen seen;
    bool cut, dead, plain = zookeeper_name(z, node, name, &cut);
    if (!plain && !cut) return 0;
    if (plain && !cut && strncmp(name, prefix, strlen(prefix)) != 0) return 0;
    if (!zookeeper_join(z->base, node, dir)) return 0;
    int rc = see(z, dir, &seen, deadline_us, &dead, err);
    if (rc != 1) return rc;
    if (cut && seen.name[0]) snprintf(name, sizeof name, "%s", seen.name);
    if (strncmp(name, prefix, strlen(prefix)) != 0) return 0;
    return show(&seen, name, each, arg) != 0;
}

int zookeeper_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
                   struct dlock_error *err) {
    struct zookeeper *z = conn;
    int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct zookeeper_call *call = NULL;
    struct zookeeper_request *names = NULL;
    int rc = read_names(z, deadline_us, &call, &names, err), shown = 0, more = 0;
    for (size_t i = 0; rc == 0 && i < names->n_names; i++) {
        const char *node = names->names[i];
        if (strlen(node) >= ZOOKEEPER_NAME_SIZE || strcmp(node, cursor) <= 0) continue;
        if (shown++ == PAGE) {
            more = 1;
            break;
        }
        rc = show_node(z, node, prefix, deadline_us, each, arg, err);
        snprintf(cursor, 256, "%s", node);
    }
    if (call) zookeeper_call_end(call);
    if (rc != 0) return rc < 0 ? rc : 0;
    return more;
}
