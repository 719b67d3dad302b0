/* Inspecting, listing and breaking locks. */
#include "zookeeper.h"

#include <inttypes.h>
#include <stdlib.h>

enum { PAGE = 500 };

/* The holders of one name: the first nodes of a sorted listing. */
struct holders {
    struct zookeeper_call *lists; /* owns the names in `nodes`; NULL: the lock is free */
    char dir[ZOOKEEPER_PATH_SIZE];
    char **nodes;
    size_t n;
    char **queued; /* the waiters' nodes, in the container `queue` */
    size_t n_queued;
    char queue[ZOOKEEPER_PATH_SIZE];
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

static int no_memory(const struct looking *looking) {
    return dlock_fail(looking->err, DLOCK_ENOMEM, "out of memory for a request");
}

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
    holders->queued = list->names + holders->n;
    holders->n_queued = members - holders->n;
    memcpy(holders->queue, holders->dir, sizeof holders->queue);
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
    holders->queued = queue->names;
    holders->n_queued = zookeeper_sort(queue->names, queue->n_names);
    holders->waiters = (uint32_t)holders->n_queued;
}

/* AGAIN: the answer is inconclusive: repeat the request. ENDED: `each` has returned non-zero. */
enum { AGAIN = 1, ENDED = 2 };

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
    if (!holders->lists) return no_memory(looking);
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
    zookeeper_join(dir, "locks", holders->queue);
    zookeeper_join(dir, "leases", holders->dir);
    if ((rc = list(looking, holders, holders->dir, holders->queue)) != 0) return rc;
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

static void end_call(struct zookeeper_call *call) {
    if (call) zookeeper_call_end(call);
}

static void ask_nodes(const struct holders *holders, struct zookeeper_call *call) {
    char path[ZOOKEEPER_PATH_SIZE];
    for (size_t i = 0; i < holders->n; i++) {
        zookeeper_join(holders->dir, holders->nodes[i], path);
        zookeeper_ask_get(call, path, NULL);
    }
}

/* Passes the holders, whose nodes these answers show, to `each`. Returns 0, AGAIN (all of them have gone, or an answer is
 * missing) or an error; *ended: `each` has returned non-zero. */
static int show_nodes(struct looking *looking, const struct holders *holders, const struct zookeeper_request *gets,
                      const char *name, const char *prefix, dlock_each each, void *arg, bool *ended) {
    struct seen seen;
    size_t gone = 0;
    for (size_t i = 0; i < holders->n; i++) {
        int rc = judge(looking, gets[i].rc, holders->dir);
        if (rc != 0) return rc;
        if (gets[i].rc == ZNONODE) gone++;
    }
    for (size_t i = 0; i < holders->n && !*ended; i++) {
        if (gets[i].rc != ZOK) continue;
        read_data(&gets[i], holders->mode, &seen);
        const char *shown = looking->cut && seen.name[0] ? seen.name : name;
        if (strncmp(shown, prefix, strlen(prefix)) == 0) *ended = show(holders, &seen, shown, each, arg) != 0;
    }
    return gone == holders->n ? AGAIN : 0;
}

static int show_all(struct looking *looking, const struct holders *holders, const char *name, const char *prefix,
                    dlock_each each, void *arg, bool *ended) {
    struct zookeeper_call *call = zookeeper_call(looking->z, holders->n);
    if (!call) return no_memory(looking);
    ask_nodes(holders, call);
    zookeeper_call_wait(call, looking->deadline_us);
    int rc = show_nodes(looking, holders, call->requests, name, prefix, each, arg, ended);
    zookeeper_call_end(call);
    return rc;
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
        end_call(holders.lists);
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

/* Passes those waiters to `each` whose nodes are still there. */
static int show_queue(struct looking *looking, const struct holders *holders, const char *name, dlock_each each,
                      void *arg) {
    struct zookeeper_call *call = zookeeper_call(looking->z, holders->n_queued);
    char path[ZOOKEEPER_PATH_SIZE];
    int rc = 0, ended = 0;
    if (!call) return no_memory(looking);
    for (size_t i = 0; i < holders->n_queued; i++) {
        zookeeper_join(holders->queue, holders->queued[i], path);
        zookeeper_ask_get(call, path, NULL);
    }
    zookeeper_call_wait(call, looking->deadline_us);
    for (size_t i = 0; i < holders->n_queued && rc == 0; i++) rc = judge(looking, call->requests[i].rc, holders->queue);
    for (size_t i = 0; i < holders->n_queued && rc == 0 && !ended; i++) {
        struct holders one = {.mode = holders->mode, .limit = holders->limit};
        enum zookeeper_kind kind = ZOOKEEPER_MUTEX;
        struct seen seen;
        int32_t sequence;
        if (call->requests[i].rc != ZOK) continue;
        if (one.mode != DLOCK_PERMIT &&
            (!zookeeper_place(holders->queued[i], &kind, &sequence) || kind & ZOOKEEPER_TRY))
            continue;
        if (one.mode != DLOCK_PERMIT) one.mode = zookeeper_reads(kind) ? DLOCK_SHARED : DLOCK_EXCLUSIVE;
        read_data(&call->requests[i], one.mode, &seen);
        seen.fence = 0;
        ended = show(&one, &seen, name, each, arg);
    }
    zookeeper_call_end(call);
    return rc;
}

int zookeeper_waiters(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms,
                      struct dlock_error *err) {
    struct looking looking = {zookeeper_of(conn), dlock_deadline_us(timeout_ms), false, false, err};
    struct holders holders;
    char dir[ZOOKEEPER_PATH_SIZE];
    int rc;
    zookeeper_path(looking.z, name, dir);
    do {
        rc = find_holders(&looking, dir, &holders);
        if (rc == 0 && holders.n_queued > 0) rc = show_queue(&looking, &holders, name, each, arg);
        end_call(holders.lists);
    } while (rc == AGAIN);
    return rc;
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
        end_call(holders.lists);
        if (rc != 0) return rc;
    } while (n > 0 && broken == 0);
    return broken > 0 ? 0 : dlock_fail(err, DLOCK_ELOST, "nobody holds the lock");
}

/* ---- every name -------------------------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Lists the names under the base, sorted. The caller has to end *call. */
static int read_names(struct looking *looking, struct zookeeper_call **call) {
    struct zookeeper *z = looking->z;
    int rc = zookeeper_ready(z, looking->deadline_us, &looking->dead, looking->err);
    if (rc != 0) return rc;
    *call = zookeeper_call(z, 1);
    if (!*call) return no_memory(looking);
    struct zookeeper_request *names = zookeeper_ask_children(*call, z->base[0] ? z->base : "/");
    zookeeper_call_wait(*call, looking->deadline_us);
    if (names->rc == ZOK && names->n_names > 1) qsort(names->names, names->n_names, sizeof(char *), by_text);
    if (names->rc == ZOK || names->rc == ZNONODE) return 0;
    return zookeeper_refused(z, names->rc, "list", z->base, looking->err);
}

/* Exchanges the list that is kept from one page to the next. */
static struct zookeeper_call *swap_names(struct zookeeper *z, struct zookeeper_call *call) {
    pthread_mutex_lock(&z->mutex);
    struct zookeeper_call *kept = z->names;
    z->names = call;
    pthread_mutex_unlock(&z->mutex);
    return kept;
}

/* Returns the place of the first name after the cursor. */
static size_t place_after(const struct zookeeper_request *names, const char *cursor) {
    size_t from = 0, to = names->n_names;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (strcmp(names->names[middle], cursor) <= 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

struct page {
    size_t n;
    struct entry {
        char name[256]; /* of the lock, as much as is known */
        bool cut;
        bool alone; /* its holders have to be looked for separately */
        struct holders holders;
    } entries[PAGE];
};

/* Adds a node under the base if it may be the container of a lock whose name begins with `prefix`. */
static void add_entry(struct looking *looking, struct page *page, const char *node, const char *prefix) {
    struct entry *entry = &page->entries[page->n];
    bool plain = zookeeper_name(looking->z, node, entry->name, &entry->cut);
    if (!plain && !entry->cut) return;
    if (!entry->cut && strncmp(entry->name, prefix, strlen(prefix)) != 0) return;
    if (zookeeper_join(looking->z->base, node, entry->holders.dir)) page->n++;
}

/* Finds the holders of a lock in the listing of its container, and returns their number. Permits are left alone. */
static size_t read_entry(struct entry *entry, struct zookeeper_request *nodes) {
    size_t members = nodes->rc == ZOK ? zookeeper_sort(nodes->names, nodes->n_names) : 0;
    entry->alone = nodes->rc == ZOK ? members == 0 && contains(nodes, "leases") : nodes->rc != ZNONODE;
    if (members > 0) count_locks(&entry->holders, nodes, members);
    return entry->holders.n;
}

static int show_entries(struct looking *looking, struct page *page, const struct zookeeper_request *gets,
                        const char *prefix, dlock_each each, void *arg) {
    bool ended = false;
    int rc = 0;
    for (struct entry *entry = page->entries; entry < page->entries + page->n && rc == 0 && !ended; entry++) {
        looking->cut = entry->cut;
        rc = entry->alone ? AGAIN : 0;
        if (entry->holders.n > 0)
            rc = show_nodes(looking, &entry->holders, gets, entry->name, prefix, each, arg, &ended);
        gets += entry->holders.n;
        if (rc == AGAIN) rc = look(looking, entry->holders.dir, entry->name, prefix, each, arg, &ended);
    }
    return rc != 0 ? rc : ended ? ENDED : 0;
}

/* Looks at all names of the page at once, and then at all their holders. Returns 0, ENDED or an error. */
static int show_page(struct looking *looking, struct page *page, const char *prefix, dlock_each each, void *arg) {
    struct zookeeper_call *lists = zookeeper_call(looking->z, page->n), *gets;
    size_t holders = 0;
    if (!lists) return no_memory(looking);
    for (size_t i = 0; i < page->n; i++) zookeeper_ask_children(lists, page->entries[i].holders.dir);
    zookeeper_call_wait(lists, looking->deadline_us);
    for (size_t i = 0; i < page->n; i++) holders += read_entry(&page->entries[i], &lists->requests[i]);
    gets = zookeeper_call(looking->z, holders);
    for (size_t i = 0; gets && i < page->n; i++) ask_nodes(&page->entries[i].holders, gets);
    if (gets) zookeeper_call_wait(gets, looking->deadline_us);
    int rc = gets ? show_entries(looking, page, gets->requests, prefix, each, arg) : no_memory(looking);
    end_call(gets);
    end_call(lists);
    return rc;
}

int zookeeper_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
                   struct dlock_error *err) {
    struct looking looking = {zookeeper_of(conn), dlock_deadline_us(timeout_ms), false, false, err};
    struct zookeeper_call *call = swap_names(looking.z, NULL);
    struct page *page = calloc(1, sizeof *page);
    char last[256] = "";
    int rc = page ? 0 : no_memory(&looking);
    if (rc == 0 && (!call || !*cursor)) {
        end_call(call);
        call = NULL;
        rc = read_names(&looking, &call);
    }
    bool more = false;
    if (rc == 0) {
        const struct zookeeper_request *names = &call->requests[0];
        size_t i = place_after(names, cursor);
        for (; page->n < PAGE && i < names->n_names; i++) {
            if (strlen(names->names[i]) >= ZOOKEEPER_NAME_SIZE) continue;
            add_entry(&looking, page, names->names[i], prefix);
            snprintf(last, sizeof last, "%s", names->names[i]);
        }
        more = i < names->n_names;
        rc = show_page(&looking, page, prefix, each, arg);
    }
    free(page);
    if (rc != 0 || !more) {
        end_call(call);
        return rc == ENDED ? 0 : rc;
    }
    end_call(swap_names(looking.z, call));
    snprintf(cursor, 256, "%s", last);
    return 1;
}
