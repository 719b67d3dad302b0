/* ZooKeeper: names and data of nodes, and the results of requests. libzookeeper itself is not tested: this file
 * replaces its functions that send a request, and answers each at once with a line of the input:
 *
 *   n e t a c x b         no node, it exists, not empty, no right, connection lost, session expired, nonsense; or:
 *   0<number>,<number>,<number>;<text>   done. For a get: the node's czxid, owner, and time of creation, and its data,
 *                         where \ is the end of a line. For a list: the names, separated by commas. For a create: the
 *                         sequence number. In names @ is the node that was created last.
 *   !…                    the same, and the watch that was set fires at once
 *
 * A create with a negative time is by another session. The session ends with the input. */
#include "operate.h"

#include <stdlib.h>
#include <zookeeper.h>

/* The linker puts the functions named __wrap_… in the place of others: nothing else names them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { LINE_MAX = 4096, NAMES_MAX = 64, SESSION = 4711 };

static const char *at, *end;
static char created[ZOOKEEPER_NODE_SIZE];

/* ---- the next answer --------------------------------------------------------------------------------------------- */

struct answer {
    int rc;
    bool fires;
    int64_t number[3];
    char text[LINE_MAX];
};

static int rc_of(char letter) {
    switch (letter) {
    case '0': return ZOK;
    case 'n': return ZNONODE;
    case 'e': return ZNODEEXISTS;
    case 't': return ZNOTEMPTY;
    case 'a': return ZNOAUTH;
    case 'c': return ZCONNECTIONLOSS;
    case 'x': return ZSESSIONEXPIRED;
    default: return ZBADVERSION;
    }
}

static void take_answer(struct answer *answer) {
    char line[LINE_MAX], *p = line;
    size_t n = 0;
    *answer = (struct answer){.rc = ZSESSIONEXPIRED};
    if (at >= end) return;
    for (; at < end && *at != '\n'; at++)
        if (n + 1 < sizeof line && *at) line[n++] = *at;
    line[n] = '\0';
    if (at < end) at++;
    answer->fires = *p == '!';
    if (answer->fires) p++;
    answer->rc = rc_of(*p);
    if (*p) p++;
    for (size_t i = 0; i < 3; i++) {
        answer->number[i] = strtoll(p, &p, 10);
        if (*p == ',') p++;
    }
    p = strchr(p, ';');
    n = 0;
    for (p = p ? p + 1 : line + strlen(line); *p; p++) {
        bool last = *p == '@' && *created;
        if (last && n + strlen(created) + 1 < sizeof answer->text)
            n += (size_t)sprintf(answer->text + n, "%s", created);
        if (!last && n + 1 < sizeof answer->text) answer->text[n++] = *p == '\\' ? '\n' : *p;
    }
}

static void fire(const struct answer *answer, watcher_fn watcher, void *context, int type) {
    if (answer->fires && watcher && answer->rc == ZOK) watcher(NULL, type, ZOO_CONNECTED_STATE, "", context);
}

/* ---- libzookeeper's part ----------------------------------------------------------------------------------------- */

int __wrap_zoo_acreate(zhandle_t *handle, const char *path, const char *data, int length, const struct ACL_vector *acl,
                       int mode, string_completion_t told, const void *arg) {
    struct answer answer;
    (void)handle, (void)data, (void)length, (void)acl, (void)mode;
    take_answer(&answer);
    told(answer.rc, answer.rc == ZOK ? path : NULL, arg);
    return ZOK;
}

int __wrap_zoo_acreate2(zhandle_t *handle, const char *path, const char *data, int length, const struct ACL_vector *acl,
                        int mode, string_stat_completion_t told, const void *arg) {
    struct answer answer;
    char made[ZOOKEEPER_PATH_SIZE + LINE_MAX];
    (void)handle, (void)data, (void)length, (void)acl, (void)mode;
    take_answer(&answer);
    const struct Stat stat = {.czxid = answer.number[1],
                              .ctime = answer.number[2],
                              .ephemeralOwner = SESSION + (answer.number[2] < 0)};
    snprintf(made, sizeof made, "%s%010d%s", path, (int)answer.number[0], answer.text);
    if (answer.rc == ZOK) snprintf(created, sizeof created, "%.255s", strrchr(made, '/') + 1);
    told(answer.rc, answer.rc == ZOK ? made : NULL, answer.rc == ZOK ? &stat : NULL, arg);
    return ZOK;
}

static void list(const struct answer *answer, strings_completion_t told, const void *arg) {
    char text[LINE_MAX], *names[NAMES_MAX], *rest = text;
    struct String_vector nodes = {0, names};
    memcpy(text, answer->text, sizeof text);
    while (*text && nodes.count < NAMES_MAX && (names[nodes.count] = strsep(&rest, ","))) nodes.count++;
    told(answer->rc, answer->rc == ZOK ? &nodes : NULL, arg);
}

int __wrap_zoo_awget_children(zhandle_t *handle, const char *path, watcher_fn watcher, void *context,
                              strings_completion_t told, const void *arg) {
    struct answer answer;
    (void)handle, (void)path;
    take_answer(&answer);
    list(&answer, told, arg);
    fire(&answer, watcher, context, ZOO_CHILD_EVENT);
    return ZOK;
}

int __wrap_zoo_aget_children(zhandle_t *handle, const char *path, int watch, strings_completion_t told,
                             const void *arg) {
    (void)watch;
    return __wrap_zoo_awget_children(handle, path, NULL, NULL, told, arg);
}

int __wrap_zoo_awget(zhandle_t *handle, const char *path, watcher_fn watcher, void *context, data_completion_t told,
                     const void *arg) {
    struct answer answer;
    (void)handle, (void)path;
    take_answer(&answer);
    const struct Stat stat = {.czxid = answer.number[0], .ephemeralOwner = answer.number[1], .ctime = answer.number[2]};
    told(answer.rc, answer.text, (int)strlen(answer.text), answer.rc == ZOK ? &stat : NULL, arg);
    fire(&answer, watcher, context, ZOO_DELETED_EVENT);
    return ZOK;
}

int __wrap_zoo_adelete(zhandle_t *handle, const char *path, int version, void_completion_t told, const void *arg) {
    struct answer answer;
    (void)handle, (void)path, (void)version;
    take_answer(&answer);
    told(answer.rc, arg);
    return ZOK;
}

int __wrap_zoo_aexists(zhandle_t *handle, const char *path, int watch, stat_completion_t told, const void *arg) {
    const struct Stat stat = {0};
    struct answer answer;
    (void)handle, (void)path, (void)watch;
    take_answer(&answer);
    told(answer.rc, answer.rc == ZOK ? &stat : NULL, arg);
    return ZOK;
}

int __wrap_zoo_amulti(zhandle_t *handle, int n, const zoo_op_t *parts, zoo_op_result_t *results, void_completion_t told,
                      const void *arg) {
    struct answer answer;
    (void)handle, (void)parts;
    take_answer(&answer);
    for (int i = 0; i < n; i++) results[i].err = i == (int)answer.number[0] ? answer.rc : ZOK;
    told(answer.rc, arg);
    return ZOK;
}

/* Skips the backend's pauses between its requests. */
void __wrap_zookeeper_pause(struct zookeeper *z) {
    (void)z;
}

/* ---- the target -------------------------------------------------------------------------------------------------- */

static const struct dlock_backend backend = {.caps = DLOCK_CAP_SESSION | DLOCK_CAP_THREADSAFE,
                                             .acquire = zookeeper_acquire,
                                             .renew = zookeeper_renew,
                                             .release = zookeeper_release,
                                             .listen = zookeeper_listen,
                                             .wake = zookeeper_wake,
                                             .inspect = zookeeper_inspect,
                                             .list = zookeeper_list,
                                             .break_lock = zookeeper_break};

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    struct dlock_error err;
    char script[32];
    if (!fuzz_script(&data, &size, script)) return 0;
    at = (const char *)data;
    end = at + size;
    *created = '\0';
    struct zookeeper *z = zookeeper_new(&err);
    if (!z) abort();
    z->acl = &ZOO_OPEN_ACL_UNSAFE;
    z->writer = *script == '!' ? ZOOKEEPER_WRITER : ZOOKEEPER_MUTEX;
    z->handle = (zhandle_t *)&backend; /* never dereferenced */
    z->state = ZOOKEEPER_CONNECTED;
    z->was_connected = true;
    z->session = SESSION;
    z->session_ms = 30000;
    snprintf(z->where, sizeof z->where, "fuzz");
    pthread_mutex_lock(&z->mutex);
    zookeeper_began(z, dlock_now_us());
    pthread_mutex_unlock(&z->mutex);
    fuzz_operate(&backend, &z, script + (*script == '!'));
    zookeeper_leave_session(z);
    return 0;
}
