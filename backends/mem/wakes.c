/* Wake-ups: each connection that listens has a list of them and an eventfd. */
#include "mem.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

int mem_listen(void *memory, int *fd, int timeout_ms, struct dlock_error *err) {
    struct mem_conn *conn = memory;
    (void)timeout_ms;
    conn->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (conn->fd < 0)
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "mem: no descriptor for wake-ups: %s", strerror(errno));
    *fd = conn->fd;
    mem_lock();
    conn->listening = true;
    conn->next = conn->space->listeners;
    conn->space->listeners = conn;
    mem_unlock();
    return 0;
}

void mem_listen_end(struct mem_conn *conn) {
    if (!conn->listening) return;
    mem_lock();
    struct mem_conn **at = &conn->space->listeners;
    while (*at != conn) at = &(*at)->next;
    *at = conn->next;
    mem_unlock();
    conn->listening = false;
    for (struct mem_wake *wake = conn->first, *next; wake; wake = next) {
        next = wake->next;
        free(wake);
    }
    free(conn->read);
    int fd = conn->fd;
    conn->fd = -1;
    close(fd);
}

static bool is_clients(const struct mem_conn *conn, const char *token) {
    return strncmp(conn->client, token, MEM_CLIENT) == 0;
}

bool mem_listens(const struct mem_space *space, const char *token) {
    const struct mem_conn *conn = space->listeners;
    while (conn && !is_clients(conn, token)) conn = conn->next;
    return conn;
}

static void put(struct mem_conn *conn, const struct dlock_wake *wake) {
    struct mem_wake *entry = calloc(1, sizeof *entry);
    if (entry) {
        entry->wake = *wake;
        if (wake->name) snprintf(entry->name, sizeof entry->name, "%s", wake->name);
        if (wake->token) snprintf(entry->token, sizeof entry->token, "%s", wake->token);
        entry->wake.name = wake->name ? entry->name : NULL;
        entry->wake.token = wake->token ? entry->token : NULL;
        *(conn->first ? &conn->last->next : &conn->first) = entry;
        conn->last = entry;
    }
    conn->overrun = conn->overrun || !entry;
    eventfd_write(conn->fd, 1);
}

void mem_tell(struct mem_space *space, enum dlock_wake_kind kind, const char *name, const struct mem_entry *entry) {
    int64_t now = mem_now_us();
    const struct dlock_wake wake = {kind, name, entry->token, entry->fence, now, (entry->until_us - now + 999) / 1000};
    for (struct mem_conn *conn = space->listeners; conn; conn = conn->next)
        if (is_clients(conn, entry->token)) put(conn, &wake);
}

int mem_probe(void *memory, struct dlock_error *err) {
    (void)err;
    mem_lock();
    put(memory, &(struct dlock_wake){.kind = DLOCK_WAKE_HEARD});
    mem_unlock();
    return 0;
}

int mem_wake(void *memory, struct dlock_wake *out, struct dlock_error *err) {
    struct mem_conn *conn = memory;
    eventfd_t drained;
    mem_lock();
    bool overrun = conn->overrun;
    struct mem_wake *wake = overrun ? NULL : conn->first;
    if (wake)
        conn->first = wake->next;
    else
        eventfd_read(conn->fd, &drained);
    mem_unlock();
    if (overrun) return dlock_fail(err, DLOCK_EUNAVAILABLE, "mem: out of memory for a wake-up");
    if (!wake) return 0;
    free(conn->read);
    conn->read = wake;
    *out = wake->wake;
    return 1;
}
