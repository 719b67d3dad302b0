/* Inspecting, listing and breaking locks. */
#include "zookeeper.h"

#include <inttypes.h>
#include <stdlib.h>

enum { PAGE = 64 };

/* The holders of one name: the first nodes of a sorted listing. */
struct holders {
    struct zookeeper_call *lists; /* owns the names in `nodes`; NULL: the lock is free */
    char dir[ZOOKEEPER_PATH_SIZE];
    char **nodes;
    size_t n;
    enum dlock_mode mode;
    uint32_t waiters, limit;
};

/* What one holder's node says. */
struct seen {
    uint64_t fence, session;
    char token[DLOCK_TOKEN_MAX + 1];
    char name[256];
};

/* ---- contents of a node ------------------------------------------------------------------------------------------ */

static bool token_like(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'z') ||
              (text[i] >= 'A' && text[i] <= 'Z') || strchr("._:@-", text[i])))
            return false;
    return length > 0 && length <= DLOCK_TOKEN_MAX;
}

/* Reads a node's data. In dlock's nodes that is the token, then the name where the container does not show it, then the
 * fence of the node before where the claim was downgraded; in Curator's it is an address, in kazoo's anything. */
static void read_data(const struct zookeeper_request *get, enum dlock_mode mode, struct seen *seen) {
    const char *name = strchr(get->data, '\n');
    uint64_t since = mode == DLOCK_PERMIT ? 0 : zookeeper_since(get->data);
    size_t length = strcspn(get->data, "\n");
    memset(seen, 0, sizeof *seen);
    seen->fence = (uint64_t)get->stat.czxid;
    seen->session = (uint64_t)get->stat.ephemeralOwner;
    if (token_like(get->data, length) && strlen(get->data) == get->size)
        snprintf(seen->token, sizeof seen->token, "%.*s", (int)length, get->data);
    else
        snprintf(seen->token, sizeof seen->token, "session:0x%" PRIx64, seen->session);
    if (name) snprintf(seen->name, sizeof seen->name, "%.*s", (int)strcspn(name + 1, "\n"), name + 1);
    dlock_one_line(seen->name);
    if (since) seen->fence = since;
    if (seen->fence >= ZOOKEEPER_FENCE_END) seen->fence = 0; /* no valid fence */
}

static int show(const struct holders *holders, const struct seen *seen, const char *name, dlock_each each, void *arg) {
    struct dlock_info info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    info.name = name;
    info.token = seen->token;
    info.mode = holders->mode;
    info.limit = holders->limit;
    info.waiters = holders->waiters;
    info.fence = seen->fence;
    info.remaining_ms = DLOCK_FOREVER; /* the grant lives as long as its session */
    return each(&info, arg);
}

/* ---- holders of a name ------------------------------------------------------------------------------------------- */

struct looking {
    struct zookeeper *z;
    int64_t deadline_us;
    bool dead;
    bool cut; /* the container's name is cut: the name in a node's data is used instead */
    struct dlock_error *err;
};

static bool contains(const struct zookeeper_request *list, const char *node) {
    for (size_t i = 0; i < list->n_names; i++)
        if (strcmp(list->names[i], node) == 0) return true;
    return false;
}

static void count_locks(struct holders *holders, struct zookeeper_request *list, size_t members) {
    enum zookeeper_kind kind = ZOOKEEPER_MUTEX;
    int32_t sequence;
    zookeeper_place(list->names[0], &kind, &sequence);
    holders->nodes = list->names;
    holders->n = zookeeper_holders(list->names, members);
    holders->mode = zookeeper_reads(kind) ? DLOCK_SHARED : DLOCK_EXCLUSIVE;
    holders->limit = 1;
    for (size_t i = holders->n; i < members; i++)
        if (zookeeper_place(list->names[i], &kind, &sequence) && !(kind & ZOOKEEPER_TRY)) holders->waiters++;
}

/* Counts permits. The limit is 0 if only Curator's leases are there, which do not name it. */
static void count_permits(struct holders *holders, struct zookeeper_request *leases, struct zookeeper_request *queue) {
    size_t members = zookeeper_sort(leases->names, leases->n_names);
    holders->limit = 0;
    for (size_t i = 0; i < members && holders->limit == 0; i++) holders->limit = zookeeper_limit(leases->names[i]);
    holders->nodes = leases->names;
    holders->n = holders->limit && members > holders->limit ? holders->limit : members;
    holders->mode = DLOCK_PERMIT;
    holders->waiters = (uint32_t)zookeeper_sort(queue->names, queue->n_names);
}

/* The answer is inconclusive: repeat the request. */
enum { AGAIN = 1 };

static int judge(struct looking *looking, int answer, const char *dir) {
    if (answer == ZOK || answer == ZNONODE) return 0;
    if (!zookeeper_unknown(answer)) return zookeeper_refused(looking->z, answer, "read", dir, looking->err);
    if (dlock_now_us() >= looking->deadline_us) return zookeeper_silent(looking->z, looking->err);
    zookeeper_pause(looking->z);
    return AGAIN;
}

/* Lists one or two containers into holders->lists, which the caller has to end. */
static int list(struct looking *looking, struct holders *holders, const char *first, const char *second) {
    holders->lists = zookeeper_call(looking->z, 2);
    if (!holders->lists) return dlock_fail(looking->err, DLOCK_ENOMEM, "out of memory for a request");
    struct zookeeper_request *requests[2] = {zookeeper_ask_children(holders->lists, first), NULL};
    if (second) requests[1] = zookeeper_ask_children(holders->lists, second);
    zookeeper_call_wait(holders->lists, looking->deadline_us);
    int rc = judge(looking, requests[0]->rc, first);
    if (rc == 0 && second) rc = judge(looking, requests[1]->rc, second);
    if (rc == 0) return 0;
    zookeeper_call_end(holders->lists);
    holders->lists = NULL;
    return rc;
}

/* Looks once for the holders of the name whose container is `dir`. */
static int look_once(struct looking *looking, const char *dir, struct holders *holders) {
    char queue[ZOOKEEPER_PATH_SIZE];
    snprintf(holders->dir, sizeof holders->dir, "%s", dir);
    int rc = list(looking, holders, dir, NULL);
    if (rc != 0) return rc;
    struct zookeeper_request *nodes = &holders->lists->requests[0];
    bool permits = contains(nodes, "leases");
    size_t members = zookeeper_sort(nodes->names, nodes->n_names);
    if (members > 0) {
        count_locks(holders, nodes, members);
        return 0;
    }
    zookeeper_call_end(holders->lists);
    holders->lists = NULL;
    if (!permits) return 0;
    zookeeper_join(dir, "locks", queue);
    zookeeper_join(dir, "leases", holders->dir);
    if ((rc = list(looking, holders, holders->dir, queue)) != 0) return rc;
    count_permits(holders, &holders->lists->requests[0], &holders->lists->requests[1]);
    return 0;
}

static int find_holders(struct looking *looking, const char *dir, struct holders *holders) {
    int rc;
    do {
        memset(holders, 0, sizeof *holders);
        rc = zookeeper_ready(looking->z, looking->deadline_us, &looking->dead, looking->err);
        if (rc == 0) rc = look_once(looking, dir, holders);
    } while (rc == AGAIN);
    return rc;
}

static void forget(struct holders *holders) {
    if (holders->lists) zookeeper_call_end(holders->lists);
    holders->lists = NULL;
}

/* Reads the holders' nodes and passes them to `each`. Returns 0, AGAIN (all of them have gone) or an error; *ended:
 * `each` has returned non-zero. */
static int show_all(struct looking *looking, const struct holders *holders, const char *name, const char *prefix,
                    dlock_each each, void *arg, bool *ended) {
    struct zookeeper_call *call = zookeeper_call(looking->z, holders->n);
    char path[ZOOKEEPER_PATH_SIZE];
    struct seen seen;
    size_t gone = 0;
    int rc = 0;
    if (!call) return dlock_fail(looking->err, DLOCK_ENOMEM, "out of memory for a request");
    for (size_t i = 0; i < holders->n; i++) {
        zookeeper_join(holders->dir, holders->nodes[i], path);
        zookeeper_ask_get(call, path, NULL);
    }
    zookeeper_call_wait(call, looking->deadline_us);
    for (size_t i = 0; i < holders->n && rc == 0 && !*ended; i++) {
        const struct zookeeper_request *get = &call->requests[i];
        rc = judge(looking, get->rc, holders->dir);
        if (rc == 0 && get->rc == ZNONODE) gone++;
        if (rc != 0 || get->rc != ZOK) continue;
        read_data(get, holders->mode, &seen);
        const char *shown = looking->cut && seen.name[0] ? seen.name : name;
        if (strncmp(shown, prefix, strlen(prefix)) == 0) *ended = show(holders, &seen, shown, each, arg) != 0;
    }
    zookeeper_call_end(call);
    return rc == 0 && gone == holders->n ? AGAIN : rc;
}

/* Passes the holders of the name whose container is `dir` to `each`. */
static int look(struct looking *looking, const char *dir, const char *name, const char *prefix, dlock_each each,
                void *arg, bool *ended) {
    struct holders holders;
    int rc;
    *ended = false;
    do {
        rc = find_holders(looking, dir, &holders);
        if (rc == 0 && holders.n > 0) rc = show_all(looking, &holders, name, prefix, each, arg, ended);
        forget(&holders);
    } while (rc == AGAIN);
    return rc;
}

int zookeeper_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms,
                      struct dlock_error *err) {
    struct looking looking = {zookeeper_of(conn), dlock_deadline_us(timeout_ms), false, false, err};
    char dir[ZOOKEEPER_PATH_SIZE];
    bool ended;
    zookeeper_path(looking.z, name, dir);
    return look(&looking, dir, name, "", each, arg, &ended);
}

/* Deletes the holders' nodes and counts them in *broken. Returns 0 or an error. */
static int break_all(struct looking *looking, const struct holders *holders, size_t *broken) {
    char path[ZOOKEEPER_PATH_SIZE];
    for (size_t i = 0; i < holders->n; i++) {
        zookeeper_join(holders->dir, holders->nodes[i], path);
        int rc = zookeeper_delete(looking->z, path, looking->deadline_us, &looking->dead, looking->err);
        if (rc == 0) (*broken)++;
        if (rc != 0 && rc != DLOCK_ELOST) return rc;
    }
    return 0;
}

int zookeeper_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err) {
    struct looking looking = {zookeeper_of(conn), dlock_deadline_us(timeout_ms), false, false, err};
    struct holders holders;
    char dir[ZOOKEEPER_PATH_SIZE];
    size_t broken = 0, n;
    zookeeper_path(looking.z, name, dir);
    do {
        int rc = find_holders(&looking, dir, &holders);
        n = holders.n;
        if (rc == 0) rc = break_all(&looking, &holders, &broken);
        forget(&holders);
        if (rc != 0) return rc;
    } while (n > 0 && broken == 0);
    return broken > 0 ? 0 : dlock_fail(err, DLOCK_ELOST, "nobody holds the lock");
}

/* ---- every name -------------------------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Lists the names under the base, sorted. The caller has to end *call. */
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

/* True if a node under the base may be the container of a lock whose name begins with `prefix`; `name` gets as much of
 * it as is known. */
static bool may_be_meant(struct looking *looking, const char *node, const char *prefix, char name[256]) {
    bool plain = zookeeper_name(looking->z, node, name, &looking->cut);
    if (!plain && !looking->cut) return false;
    return looking->cut || strncmp(name, prefix, strlen(prefix)) == 0;
}

int zookeeper_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
                   struct dlock_error *err) {
    struct looking looking = {zookeeper_of(conn), dlock_deadline_us(timeout_ms), false, false, err};
    struct zookeeper_call *call = NULL;
    struct zookeeper_request *names = NULL;
    int rc = read_names(looking.z, looking.deadline_us, &call, &names, err), shown = 0, more = 0;
    bool ended = false;
    for (size_t i = 0; rc == 0 && !ended && i < names->n_names; i++) {
        const char *node = names->names[i];
        char name[256], dir[ZOOKEEPER_PATH_SIZE];
        if (strlen(node) >= ZOOKEEPER_NAME_SIZE || strcmp(node, cursor) <= 0) continue;
        if (!may_be_meant(&looking, node, prefix, name) || !zookeeper_join(looking.z->base, node, dir)) continue;
        if (shown++ == PAGE) {
            more = 1;
            break;
        }
        rc = look(&looking, dir, name, prefix, each, arg, &ended);
        snprintf(cursor, 256, "%s", node);
    }
    if (call) zookeeper_call_end(call);
    return rc != 0 ? rc : more;
}
