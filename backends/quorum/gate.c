/* Waiters queue at one member, the gate: the first, in the order of the URIs, that is up and can send wake-ups. Each
 * client has a further connection to its gate, the ear, which receives them.
 *
 * A client that reaches that member but cannot listen there has no gate, and polls: at the next member it would keep a
 * vote while clients of the first keep another. If a majority needed both of these members, all would wait for each
 * other. If clients reach different members, the ones whose gate comes last in that order need no vote that the others
 * keep. */
#include "quorum.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

enum {
    SILENT_US = 100000, /* a member that takes longer is considered silent */
    LISTEN_MS = 1000,   /* time limit of an attempt to listen */
    PAUSE_US = 1000000, /* pause after a failed attempt, and least interval between two ears of a member */
    PROBE_US = 1000000  /* interval between two probes, and the time for an answer */
};

bool quorum_is_silent(const struct quorum_member *member, int64_t now_us, int64_t *at_us) {
    if (member->state != QUORUM_UP && member->tried) return true;
    const int64_t since_us = member->busy_us ? member->busy_us : now_us; /* idle: it begins now */
    if (since_us + SILENT_US <= now_us) return true;
    if (since_us + SILENT_US < *at_us) *at_us = since_us + SILENT_US;
    return false;
}

/* ---- which one it is --------------------------------------------------------------------------------------------- */

static bool tells(const struct quorum_member *member) {
    const struct dlock_backend *backend = member->server.backend;
    const uint32_t caps = DLOCK_CAP_QUEUE | DLOCK_CAP_WAKE;
    return (backend->caps & caps) == caps;
}

/* A member that is in its first attempt to connect may be. */
static bool is_usable(const struct quorum_member *member, int64_t now_us) {
    int64_t ignored = INT64_MAX;
    return (member->state == QUORUM_UP || !member->tried) && tells(member) && now_us >= member->unready_until_us &&
           !quorum_is_silent(member, now_us, &ignored);
}

struct quorum_member *quorum_first(struct quorum *quorum, int64_t now_us) {
    for (size_t i = 0; i < quorum->n; i++)
        if (is_usable(&quorum->members[i], now_us)) return &quorum->members[i];
    return NULL;
}

struct quorum_member *quorum_gate(struct quorum *quorum, int64_t now_us) {
    struct quorum_member *first = quorum->listening ? quorum_first(quorum, now_us) : NULL;
    if (!first || first->hears) return first;
    if (now_us >= first->listen_us) pthread_cond_signal(&first->work); /* the worker begins to listen */
    return NULL;
}

/* True if no earlier member can be the gate. */
static bool is_first(const struct quorum_member *member, int64_t now_us) {
    const struct quorum_member *first = quorum_first(member->quorum, now_us);
    return !first || first >= member;
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

void quorum_gate_moved(struct quorum *quorum) {
    if (!quorum->listening) return;
    quorum->look = true;
    eventfd_write(quorum->event, 1);
    for (size_t i = 0; i < quorum->n; i++) pthread_cond_signal(&quorum->members[i].work);
}

/* Returns the entry of a name's hash. Two names with one entry cost a round trip more or less. */
static uint64_t *handed(struct quorum *quorum, uint64_t hash) {
    return &quorum->handed[hash % (sizeof quorum->handed / sizeof quorum->handed[0])];
}

bool quorum_was_handed(struct quorum *quorum, const char *name) {
    const uint64_t hash = dlock_hash(name, strlen(name), DLOCK_HASH_SEED);
    const bool was = *handed(quorum, hash) == hash;
    if (was) *handed(quorum, hash) = 0;
    return was;
}

/* Turns a member's wake-up into one for the core. A grant by the gate is only one vote, so it becomes a LOOK, after
 * which the others are asked at once. Wake-ups that are irrelevant to the core become HEARD, which it ignores but
 * counts, so that a member that never stops sending cannot keep it busy. */
static void translate(struct quorum_member *member, struct dlock_wake *wake) {
    struct quorum *quorum = member->quorum;
    if (wake->kind == DLOCK_WAKE_HEARD) member->probing = false;
    if ((wake->kind != DLOCK_WAKE_GRANTED && wake->kind != DLOCK_WAKE_LOOK) || !wake->name) {
        *wake = (struct dlock_wake){.kind = DLOCK_WAKE_HEARD};
        return;
    }
    snprintf(quorum->woken, sizeof quorum->woken, "%s", wake->name);
    if (wake->kind == DLOCK_WAKE_GRANTED) {
        const uint64_t hash = dlock_hash(wake->name, strlen(wake->name), DLOCK_HASH_SEED);
        *handed(quorum, hash) = hash;
    }
    *wake = (struct dlock_wake){.kind = DLOCK_WAKE_LOOK, .name = quorum->woken};
}

/* Reads one wake-up of a member. False: there is none. */
static bool read_wake(struct quorum_member *member, struct dlock_wake *out) {
    struct dlock_error err;
    int rc = member->hears ? member->server.backend->wake(member->ear, out, &err) : 0;
    if (rc == 1)
        translate(member, out);
    else if (rc != 0)
        quorum_deafen(member);
    return rc == 1;
}

int quorum_wake(void *memory, struct dlock_wake *out, struct dlock_error *err) {
    struct quorum *quorum = ((struct quorum_conn *)memory)->quorum;
    bool found = false;
    (void)err;
    pthread_mutex_lock(&quorum->mutex);
    for (size_t i = 0; !found && i < quorum->n; i++) found = read_wake(&quorum->members[i], out);
    if (!found && quorum->look) {
        eventfd_t drained;
        eventfd_read(quorum->event, &drained);
        quorum->look = false;
        *out = (struct dlock_wake){.kind = DLOCK_WAKE_LOOK};
        found = true;
    }
    pthread_mutex_unlock(&quorum->mutex);
    return found;
}

/* ---- listening --------------------------------------------------------------------------------------------------- */

static int open_descriptors(struct quorum *quorum, struct dlock_error *err) {
    struct epoll_event event = {.events = EPOLLIN};
    if (quorum->event < 0) quorum->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (quorum->epoll < 0) quorum->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (quorum->event >= 0 && quorum->epoll >= 0 &&
        (epoll_ctl(quorum->epoll, EPOLL_CTL_ADD, quorum->event, &event) == 0 || errno == EEXIST))
        return 0;
    return dlock_fail(err, DLOCK_ENOMEM, "no descriptors left for wake-ups; raise the limit (ulimit -n)");
}

int quorum_listen(void *memory, int *fd, int timeout_ms, struct dlock_error *err) {
    struct quorum *quorum = ((struct quorum_conn *)memory)->quorum;
    bool any = false;
    (void)timeout_ms;
    for (size_t i = 0; i < quorum->n; i++) any = any || tells(&quorum->members[i]);
    if (!any) return dlock_fail(err, DLOCK_ENOTSUP, "no member of the quorum tells waiters of their turn");
    pthread_mutex_lock(&quorum->mutex);
    int rc = open_descriptors(quorum, err);
    quorum->listening = rc == 0;
    quorum_gate_moved(quorum);
    if (rc == 0) *fd = quorum->epoll;
    pthread_mutex_unlock(&quorum->mutex);
    return rc;
}

void quorum_deafen(struct quorum_member *member) {
    if (!member->hears) return;
    member->hears = false;
    epoll_ctl(member->quorum->epoll, EPOLL_CTL_DEL, member->ear_fd, NULL);
    quorum_gate_moved(member->quorum);
}

void quorum_unheard(struct quorum_member *member, int64_t now_us) {
    if (now_us >= member->listen_us) quorum_deafen(member);
}

void quorum_probe_gate(struct quorum_member *member, int64_t now_us) {
    struct dlock_error err;
    if (!member->hears || !member->server.backend->probe) return; /* the ear may have been closed since the question */
    if (now_us < member->probed_us + PROBE_US || now_us < member->listen_us) return;
    if (member->probing || member->server.backend->probe(member->ear, &err) != 0) quorum_deafen(member);
    member->probing = true;
    member->probed_us = now_us;
}

/* Closes the member's ear. Releases the mutex while doing so. */
static void stop_listening(struct quorum_member *member) {
    quorum_deafen(member);
    pthread_mutex_unlock(&member->quorum->mutex);
    member->server.backend->disconnect(member->ear);
    atomic_store(&member->ear_live, false);
    pthread_mutex_lock(&member->quorum->mutex);
}

static int connect_ear(struct quorum_member *member) {
    const int64_t deadline_us = dlock_deadline_us(LISTEN_MS);
    struct dlock_error err;
    memset(member->ear, 0, member->server.backend->conn_size);
    member->ear_fd = -1;
    atomic_store(&member->ear_live, true);
    int rc = member->server.connect(&member->server, member->ear, LISTEN_MS, &err);
    if (rc == 0) rc = member->server.backend->listen(member->ear, &member->ear_fd, dlock_left_ms(deadline_us), &err);
    return rc == 0 && member->ear_fd < 0 ? DLOCK_EPROTO : rc;
}

/* Connects the member's ear. Releases the mutex while doing so. */
static void start_listening(struct quorum_member *member) {
    struct quorum *quorum = member->quorum;
    struct epoll_event event = {.events = EPOLLIN};
    member->busy_us = dlock_now_us();
    pthread_mutex_unlock(&quorum->mutex);
    int rc = connect_ear(member);
    pthread_mutex_lock(&quorum->mutex);
    member->busy_us = 0;
    member->listen_us = dlock_now_us() + PAUSE_US;
    member->probing = false;
    member->hears = rc == 0 && epoll_ctl(quorum->epoll, EPOLL_CTL_ADD, member->ear_fd, &event) == 0;
    if (member->hears)
        quorum_gate_moved(quorum);
    else
        stop_listening(member);
}

void quorum_tend_ear(struct quorum_member *member, int64_t now_us) {
    const bool first = is_first(member, now_us) && member->state == QUORUM_UP;
    if (atomic_load(&member->ear_live) && (!member->hears || !first || member->quorum->closing)) stop_listening(member);
    if (member->quorum->listening && !member->quorum->closing && first && !member->hears && is_usable(member, now_us) &&
        now_us >= member->listen_us && !member->busy_us)
        start_listening(member);
}
