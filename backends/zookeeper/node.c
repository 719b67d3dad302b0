/* Making containers and deleting nodes. */
#include "zookeeper.h"

size_t zookeeper_depth(const char *dir) {
    size_t n = 0;
    for (; *dir; dir++) n += *dir == '/';
    return n;
}

/* Makes container nodes, as Curator does: the server removes one some time after its last child has gone. The answers
 * matter only to the request that follows. */
void zookeeper_ask_containers(struct zookeeper_call *call, const char *dir, bool deep) {
    char path[ZOOKEEPER_PATH_SIZE];
    for (const char *end = strchr(dir + 1, '/'); deep && end; end = strchr(end + 1, '/')) {
        memcpy(path, dir, (size_t)(end - dir));
        path[end - dir] = '\0';
        zookeeper_ask_container(call, path);
    }
    zookeeper_ask_container(call, dir);
}

struct zookeeper_call *zookeeper_delete_begin(struct zookeeper *z, const char *path) {
    struct zookeeper_call *call = zookeeper_call(z, 1);
    if (call) zookeeper_ask_delete(call, path);
    return call;
}

int zookeeper_delete_end(struct zookeeper *z, struct zookeeper_call *call, const char *path, int64_t deadline_us,
                         bool *dead, struct dlock_error *err) {
    bool uncertain = false; /* an earlier, unanswered request may have deleted it */
    for (;; call = NULL) {
        if (!call && zookeeper_ready(z, deadline_us, dead, err) != 0) return DLOCK_EUNAVAILABLE;
        if (!call) call = zookeeper_delete_begin(z, path);
        if (!call) return dlock_fail(err, DLOCK_EUNAVAILABLE, "out of memory for a request");
        zookeeper_call_wait(call, deadline_us);
        int answer = call->requests[0].rc;
        if (answer == ZOK) zookeeper_wrote(z, call->sent_us);
        zookeeper_call_end(call);
        if (answer == ZOK || (answer == ZNONODE && uncertain)) return 0;
        if (answer == ZNONODE) return DLOCK_ELOST;
        if (!zookeeper_unknown(answer)) return zookeeper_refused(z, answer, "delete", path, err);
        if (dlock_now_us() >= deadline_us) return zookeeper_silent(z, err);
        uncertain = true;
        zookeeper_pause(z);
    }
}

int zookeeper_delete(struct zookeeper *z, const char *path, int64_t deadline_us, bool *dead, struct dlock_error *err) {
    return zookeeper_delete_end(z, NULL, path, deadline_us, dead, err);
}
