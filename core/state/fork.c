/* A forked child inherits copies of handles that must not be used, and descriptors that it must close without a word to
 * any server. The child has one thread and whatever state the other threads left, so the handler takes every client's
 * mutex before the fork. That is quick, since no mutex is ever held across anything that blocks. */
#include "state/client.h"

static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct dlock_client *clients;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int install_result;
atomic_uint dlock__fork_generation;

static void before(void) {
    pthread_mutex_lock(&list_mutex);
    for (struct dlock_client *client = clients; client; client = client->listed) dlock__enter(client);
}

static void release_all(void) {
    for (struct dlock_client *client = clients; client; client = client->listed) dlock__leave(client);
    pthread_mutex_unlock(&list_mutex);
}

static void in_child(void) {
    atomic_fetch_add(&dlock__fork_generation, 1);
    for (struct dlock_client *client = clients; client; client = client->listed) {
        for (struct dlock__conn *conn = client->pool.conns; conn; conn = conn->all)
            if (atomic_exchange(&conn->live, false) && client->backend->abandon) client->backend->abandon(conn->data);
    }
    release_all();
    clients = NULL; /* a child of this child has nothing to close: by then these descriptor numbers may be other
                     * files */
}

static void install(void) {
    install_result = pthread_atfork(before, release_all, in_child);
}

int dlock__forked_error(struct dlock_error *err) {
    return dlock_fail(err, DLOCK_EFORKED, "this handle was made before fork(); open a client in the child");
}

int dlock__fork_prepare(struct dlock_error *err) {
    pthread_once(&once, install);
    return install_result ? dlock_fail(err, DLOCK_ENOMEM, "out of memory for a fork handler") : 0;
}

void dlock__fork_watch(struct dlock_client *client) {
    pthread_mutex_lock(&list_mutex);
    client->fork_generation = atomic_load(&dlock__fork_generation);
    client->listed = clients;
    clients = client;
    pthread_mutex_unlock(&list_mutex);
}

void dlock__fork_unwatch(struct dlock_client *client) {
    pthread_mutex_lock(&list_mutex);
    struct dlock_client **at = &clients;
    while (*at && *at != client) at = &(*at)->listed;
    if (*at) *at = client->listed;
    pthread_mutex_unlock(&list_mutex);
}
