/* The scripted backends: see fake_backend.h. One mutex guards everything; a slow call waits on the fake clock. */
#include "fake_backend.h"

#include "fake_env.h"
#include "fake_log.h"

#include "base/env.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { MAX_FAULTS = 64, MAX_CONNS = 256 };

struct script {
    enum fake_fault fault;
    void (*edit)(struct dlock_claim *);
    int number;
    unsigned times;
};

static _Atomic unsigned abandoned;
static pthread_cond_t slow_cond;
static unsigned slow_waiting, slow_generation;
static struct script scripts[FAKE_OPS][MAX_FAULTS];
static struct fake_conn *conns[MAX_CONNS];
static unsigned conns_serial;
static bool server_is_down, wakes_held;
static bool stuck; /* the listeners' descriptors stay readable */
static int flood;  /* remaining wakes for a name that no client knows */
static pthread_t wake_reader;
static int64_t quarantine_ms;

static const struct server_rules queue_rules = {.queue = true};
static const struct server_rules poll_rules = {.queue = false, .tells = true};
static const struct server_rules forever_rules = {.look = true, .forever = true};

enum {
    WAKING = DLOCK_CAP_QUEUE | DLOCK_CAP_WAKE,
    SESSION = DLOCK_CAP_SESSION | DLOCK_CAP_THREADSAFE,
    MODES = DLOCK_CAP_SHARED | DLOCK_CAP_PERMIT
};
static const struct fake_kind kinds[] = {
    {"fake", DLOCK_CAP_FENCE | WAKING, &queue_rules, false},
    {"fakefull", DLOCK_CAP_FENCE | WAKING | MODES | DLOCK_CAP_EXPORT | DLOCK_CAP_WANTED, &queue_rules, false},
    {"fakepoll", DLOCK_CAP_FENCE, &poll_rules, true},
    {"fakevolatile", DLOCK_CAP_FENCE | DLOCK_CAP_VOLATILE, &poll_rules, true},
    {"fakeshared", DLOCK_CAP_FENCE | DLOCK_CAP_THREADSAFE, &poll_rules, true},
    {"fakesession", DLOCK_CAP_FENCE | WAKING | SESSION, &queue_rules, true},
    {"fakeforever", DLOCK_CAP_FENCE | DLOCK_CAP_WAKE | SESSION, &forever_rules, true},
    {"fakelocal", DLOCK_CAP_FENCE | DLOCK_CAP_WAKE | SESSION | DLOCK_CAP_LOCAL, &forever_rules, true},
};

/* ---- script ---------- */

static struct script next_script(enum fake_op op) {
    for (size_t i = 0; i < MAX_FAULTS; i++) {
        if (scripts[op][i].times == 0) continue;
        scripts[op][i].times--;
        return scripts[op][i];
    }
    return (struct script){.fault = FAKE_PASS};
}

static void script_add(enum fake_op op, struct script script) {
    pthread_mutex_lock(&fake_guard);
    size_t at = MAX_FAULTS;
    while (at > 0 && scripts[op][at - 1].times == 0) at--;
    if (at == MAX_FAULTS) abort();
    scripts[op][at] = script;
    pthread_mutex_unlock(&fake_guard);
}

void fake_fault(enum fake_op op, enum fake_fault fault, unsigned times) {
    script_add(op, (struct script){fault, NULL, 0, times});
}

void fake_edit(enum fake_op op, void (*edit)(struct dlock_claim *claim), unsigned times) {
    script_add(op, (struct script){FAKE_EDIT, edit, 0, times});
}

void fake_return(enum fake_op op, int number, unsigned times) {
    script_add(op, (struct script){FAKE_RETURN, NULL, number, times});
}

/* ---- wakes ------------------------------------------------------------------------------------------------------- */

static bool hears(const struct fake_conn *conn) {
    return conn && conn->listening && !conn->dead;
}

static const char *copied(char *to, size_t size, const char *from) {
    if (!from) return NULL;
    snprintf(to, size, "%s", from);
    return to;
}

static void wake_put(struct fake_conn *conn, const struct dlock_wake *wake) {
    if (conn->hushed) return;
    if (conn->wakes_end == conn->wakes_begin + FAKE_WAKES) abort();
    struct fake_wake *slot = &conn->wakes[conn->wakes_end++ % FAKE_WAKES];
    slot->wake = *wake;
    slot->wake.name = copied(slot->name, sizeof slot->name, wake->name);
    slot->wake.token = copied(slot->token, sizeof slot->token, wake->token);
    if (!wakes_held) eventfd_write(conn->fd, 1);
}

static bool of_client(const struct fake_conn *conn, const char *token) {
    size_t length = strlen(conn->client);
    return strncmp(token, conn->client, length) == 0 && token[length] == '.';
}

/* Whether this connection is told of the entry's grant. */
static bool is_told(const struct fake_conn *conn, const struct server_entry *entry) {
    return hears(conn) && !conn->astray && of_client(conn, entry->token);
}

static bool client_listens(const struct server_entry *entry) {
    if (entry->conn == 0) return true;
    for (size_t i = 0; i < MAX_CONNS; i++)
        if (is_told(conns[i], entry)) return true;
    return false;
}

/* The server has no listener of the client that asked. */
static bool is_unheard(const struct fake_conn *asking) {
    if (!(asking->kind->caps & DLOCK_CAP_WAKE)) return false;
    for (size_t i = 0; i < MAX_CONNS; i++)
        if (hears(conns[i]) && !conns[i]->astray && strcmp(conns[i]->client, asking->client) == 0) return false;
    return true;
}

static bool client_is_heard(const struct fake_conn *asking) {
    for (size_t i = 0; i < MAX_CONNS; i++)
        if (hears(conns[i]) && strcmp(conns[i]->client, asking->client) == 0) return true;
    return false;
}

static void client_tell(const struct server_entry *entry, const char *name, int64_t kept_ms) {
    struct dlock_wake wake = {.kind = DLOCK_WAKE_LOOK, .name = name};
    if (entry && entry->conn == 0) return;
    if (entry)
        wake = (struct dlock_wake){DLOCK_WAKE_GRANTED, name, entry->token, entry->fence, server_now_us(), kept_ms};
    for (size_t i = 0; i < MAX_CONNS; i++)
        if (entry ? is_told(conns[i], entry) : hears(conns[i])) wake_put(conns[i], &wake);
}

static void client_want(const struct server_entry *entry) {
    struct dlock_wake wake = {.kind = DLOCK_WAKE_WANTED, .name = entry->name};
    for (size_t i = 0; i < MAX_CONNS; i++)
        if (hears(conns[i]) && of_client(conns[i], entry->token)) wake_put(conns[i], &wake);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static int conn_fail(struct fake_conn *conn, int code, struct dlock_error *err, const char *what) {
    conn->failed = true;
    return dlock_fail(err, code, "fake server: %s", what);
}

/* False if the call times out or its connection dies before the test resumes it. */
static bool slow(struct fake_conn *conn, int64_t until_us) {
    unsigned generation = slow_generation;
    slow_waiting++;
    while (generation == slow_generation && !conn->dead && dlock__now_us() < until_us)
        dlock__cond_wait(&slow_cond, &fake_guard, until_us);
    slow_waiting--;
    return generation != slow_generation && !conn->dead;
}

/* The result of a request without claims. `fake_guard` is held here and in the functions below. */
static int meet_fault(enum fake_op op, struct fake_conn *conn, int timeout_ms, struct dlock_error *err) {
    int64_t until_us = dlock__now_us() + (int64_t)timeout_ms * 1000;
    if (server_is_down || conn->dead) return conn_fail(conn, DLOCK_EUNAVAILABLE, err, "connection refused or reset");
    struct script script = next_script(op);
    switch (script.fault) {
    case FAKE_RETURN: return conn_fail(conn, script.number, err, "a number of the test");
    case FAKE_LOST_BEFORE:
    case FAKE_LOST_AFTER: return conn_fail(conn, DLOCK_EUNAVAILABLE, err, "connection reset");
    case FAKE_SLOW:
    case FAKE_SLOW_AFTER:
        if (slow(conn, until_us)) return 0;
        return conn_fail(conn, DLOCK_EUNAVAILABLE, err, "no answer in time");
    case FAKE_AUTH: return conn_fail(conn, DLOCK_EAUTH, err, "wrong password");
    case FAKE_PROTO: return conn_fail(conn, DLOCK_EPROTO, err, "this is not a lock server");
    case FAKE_NOTSUP: return conn_fail(conn, DLOCK_ENOTSUP, err, "not with this server's settings");
    default: return 0;
    }
}

static int fake_connect(void *memory, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                        struct dlock_error *err) {
    struct fake_conn *conn = memory;
    pthread_mutex_lock(&fake_guard);
    contract_connect(conn, uri, peer, timeout_ms);
    conn->id = ++conns_serial;
    conn->fd = -1;
    snprintf(conn->client, sizeof conn->client, "%s", peer->client);
    quarantine_ms = peer->quarantine_ms;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, uri->scheme) == 0) conn->kind = &kinds[i];
    struct log_place place = log_begin(FAKE_CONNECT, conn, NULL, 0, timeout_ms);
    size_t slot = 0;
    while (slot < MAX_CONNS && conns[slot]) slot++;
    if (slot == MAX_CONNS) abort();
    conns[slot] = conn;
    int result = meet_fault(FAKE_CONNECT, conn, timeout_ms, err);
    conn->failed = result != 0;
    conn->connected = result == 0;
    log_answer(place, 0, result, 0);
    pthread_mutex_unlock(&fake_guard);
    return result;
}

static void (*_Atomic on_disconnect)(void);

void fake_on_disconnect(void (*look)(void)) {
    on_disconnect = look;
}

static void fake_disconnect(void *memory) {
    struct fake_conn *conn = memory;
    void (*look)(void) = on_disconnect;
    if (look) look();
    pthread_mutex_lock(&fake_guard);
    contract_disconnect(conn);
    if (next_script(FAKE_DISCONNECT).fault == FAKE_HANG) slow(conn, INT64_MAX);
    log_answer(log_begin(FAKE_DISCONNECT, conn, NULL, 0, 0), 0, 0, 0);
    for (size_t i = 0; i < MAX_CONNS; i++)
        if (conns[i] == conn) conns[i] = NULL;
    if (conn->fd >= 0) close(conn->fd);
    if (conn->kind->caps & DLOCK_CAP_SESSION) server_drop_conn(conn->kind->rules, conn->id);
    pthread_mutex_unlock(&fake_guard);
}

static void fake_abandon(void *memory) {
    struct fake_conn *conn = memory;
    abandoned++;
    if (conn->fd >= 0) close(conn->fd);
}

unsigned fake_abandoned(void) {
    return abandoned;
}

static int fake_listen(void *memory, int *fd, int timeout_ms, struct dlock_error *err) {
    struct fake_conn *conn = memory;
    pthread_mutex_lock(&fake_guard);
    contract_begin(conn, FAKE_LISTEN, NULL, 0, timeout_ms, false);
    struct log_place place = log_begin(FAKE_LISTEN, conn, NULL, 0, timeout_ms);
    int result = meet_fault(FAKE_LISTEN, conn, timeout_ms, err);
    if (result == 0) {
        conn->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        conn->listening = true;
        *fd = conn->fd;
    }
    log_answer(place, 0, result, 0);
    contract_end(conn);
    pthread_mutex_unlock(&fake_guard);
    return result;
}

static int fake_wake(void *memory, struct dlock_wake *out, struct dlock_error *err) {
    struct fake_conn *conn = memory;
    eventfd_t drained;
    int result = 0;
    pthread_mutex_lock(&fake_guard);
    contract_wake(conn);
    struct script script = next_script(FAKE_WAKE);
    if (script.fault == FAKE_SLOW) slow(conn, INT64_MAX);
    if (script.fault == FAKE_RETURN) { /* and says nothing */
        conn->failed = true;
        result = script.number;
    } else if (conn->dead) {
        result = conn_fail(conn, DLOCK_EUNAVAILABLE, err, "connection reset");
    } else if (flood > 0) {
        if (--flood % 16 == 0) fake_jump_ms(1);
        *out = (struct dlock_wake){.kind = DLOCK_WAKE_LOOK, .name = "flood"};
        conn->probed = false;
        result = 1;
    } else if (conn->wakes_begin == conn->wakes_end || wakes_held) {
        if (!stuck) eventfd_read(conn->fd, &drained);
    } else {
        conn->last = conn->wakes[conn->wakes_begin++ % FAKE_WAKES];
        *out = conn->last.wake;
        conn->probed = false;
        wake_reader = pthread_self();
        out->name = out->name ? conn->last.name : NULL;
        out->token = out->token ? conn->last.token : NULL;
        log_wake(conn, out);
        result = 1;
    }
    pthread_mutex_unlock(&fake_guard);
    return result;
}

static int fake_probe(void *memory, struct dlock_error *err) {
    struct fake_conn *conn = memory;
    int result = 0;
    pthread_mutex_lock(&fake_guard);
    contract_probe(conn);
    log_answer(log_begin(FAKE_PROBE, conn, NULL, 0, 0), 0, 0, 0);
    if (conn->dead) result = conn_fail(conn, DLOCK_EUNAVAILABLE, err, "connection reset");
    conn->probed = true;
    if (result == 0) wake_put(conn, &(struct dlock_wake){.kind = DLOCK_WAKE_HEARD});
    pthread_mutex_unlock(&fake_guard);
    return result;
}

/* A question of an operator's. A break that has no answer was not carried out. Where one connection serves everything it
 * outlives a request that fails, and any connection outlives one that is refused. */
static int ask(enum fake_op op, struct fake_conn *conn, const char *name, int timeout_ms, struct dlock_error *err) {
    pthread_mutex_lock(&fake_guard);
    contract_begin(conn, op, NULL, 0, timeout_ms, false);
    struct log_place place = log_begin(op, conn, NULL, 0, timeout_ms);
    bool lives = !conn->failed && !conn->dead && !server_is_down && conn->kind->caps & DLOCK_CAP_THREADSAFE;
    int result = meet_fault(op, conn, timeout_ms, err);
    if (lives || (result != DLOCK_EUNAVAILABLE && result != DLOCK_EPROTO)) conn->failed = false;
    if (op == FAKE_BREAK && result == 0) result = server_break(conn->kind->rules, name);
    log_answer(place, 0, result, 0);
    contract_end(conn);
    pthread_mutex_unlock(&fake_guard);
    return result;
}

/* Shows one holder, if there is any. */
static int fake_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms,
                        struct dlock_error *err) {
    int rc = ask(FAKE_INSPECT, conn, name, timeout_ms, err);
    struct fake_grant holder = fake_holder(name);
    struct dlock_info info = {.name = name, .token = holder.token, .fence = holder.fence};
    if (rc == 0 && *holder.token) each(&info, arg);
    return rc;
}

static int fake_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err) {
    return ask(FAKE_BREAK, conn, name, timeout_ms, err);
}

static void execute(enum fake_op op, const struct fake_conn *conn, struct dlock_claim *claim) {
    if (op == FAKE_ACQUIRE) server_acquire(conn->kind->rules, conn->id, claim);
    if (op == FAKE_ACQUIRE && claim->result == DLOCK_EBUSY && claim->flags & DLOCK_CLAIM_QUEUE && is_unheard(conn))
        claim->hints = DLOCK_HINT_UNHEARD;
    if (op == FAKE_RENEW) server_renew(conn->kind->rules, conn->id, claim);
    if (op == FAKE_RELEASE) server_release(conn->kind->rules, conn->id, claim);
}

/* An unknown outcome: of the connection, or, where one connection serves everything, of each claim. */
static int lost(struct fake_conn *conn, struct dlock_claim *const *claims, size_t n, struct dlock_error *err) {
    if (!(conn->kind->caps & DLOCK_CAP_THREADSAFE) || conn->dead)
        return conn_fail(conn, DLOCK_EUNAVAILABLE, err, "no answer");
    for (size_t i = 0; i < n; i++) claims[i]->result = DLOCK_EUNAVAILABLE;
    dlock_fail(err, DLOCK_EUNAVAILABLE, "fake server: no answer");
    return 0;
}

/* Executes the request on the claims. If the answer is then lost, the core must not believe the claims' fields. */
static int meet_request(enum fake_op op, struct fake_conn *conn, struct dlock_claim *const *claims, size_t n,
                        int timeout_ms, struct dlock_error *err) {
    int64_t until_us = dlock__now_us() + (int64_t)timeout_ms * 1000;
    if (server_is_down || conn->dead) return conn_fail(conn, DLOCK_EUNAVAILABLE, err, "connection refused or reset");
    struct script script = next_script(op);
    if (script.fault == FAKE_AUTH) return conn_fail(conn, DLOCK_EAUTH, err, "wrong password");
    if (script.fault == FAKE_PROTO) return conn_fail(conn, DLOCK_EPROTO, err, "this is not a lock server");
    if (script.fault == FAKE_RETURN) return conn_fail(conn, script.number, err, "a number of the test");
    if (script.fault == FAKE_LOST_BEFORE) return lost(conn, claims, n, err);
    if (script.fault == FAKE_SLOW && !slow(conn, until_us)) return lost(conn, claims, n, err);
    if (script.fault == FAKE_HANG) slow(conn, INT64_MAX);
    for (size_t i = 0; i < n; i++) execute(op, conn, claims[i]);
    if (script.fault == FAKE_LOST_AFTER) return lost(conn, claims, n, err);
    if (script.fault == FAKE_SLOW_AFTER && !slow(conn, until_us)) return lost(conn, claims, n, err);
    for (size_t i = 0; i < n; i++) {
        if (op != FAKE_RELEASE) contract_told(conn, claims[i], server_find(claims[i]->name, claims[i]->token));
        if (script.fault == FAKE_EDIT) script.edit(claims[i]);
    }
    return 0;
}

static int request(enum fake_op op, void *memory, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                   struct dlock_error *err) {
    struct fake_conn *conn = memory;
    pthread_mutex_lock(&fake_guard);
    contract_begin(conn, op, claims, n, timeout_ms, client_is_heard(conn));
    struct log_place place = log_begin(op, conn, claims, n, timeout_ms);
    int result = meet_request(op, conn, claims, n, timeout_ms, err);
    for (size_t i = 0; i < n; i++) log_answer(place, i, result ? result : claims[i]->result, claims[i]->fence);
    contract_end(conn);
    pthread_mutex_unlock(&fake_guard);
    return result;
}

static int fake_acquire(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                        struct dlock_error *err) {
    return request(FAKE_ACQUIRE, conn, claims, n, timeout_ms, err);
}

static int fake_renew(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                      struct dlock_error *err) {
    return request(FAKE_RENEW, conn, claims, n, timeout_ms, err);
}

static int fake_release(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                        struct dlock_error *err) {
    return request(FAKE_RELEASE, conn, claims, n, timeout_ms, err);
}

/* ---- what the test does to the server ---------------------------------------------------------------------------- */

void fake_backend_reset(void) {
    static const char *const any_key[] = {"*", NULL};
    static const char *schemes[sizeof kinds / sizeof *kinds][2];
    static bool registered;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !registered; i++) {
        schemes[i][0] = kinds[i].name;
        struct dlock_backend backend = {.abi = DLOCK_ABI,
                                        .size = sizeof backend,
                                        .name = kinds[i].name,
                                        .schemes = schemes[i],
                                        .keys = any_key,
                                        .caps = kinds[i].caps,
                                        .conn_size = sizeof(struct fake_conn),
                                        .connect = fake_connect,
                                        .disconnect = fake_disconnect,
                                        .acquire = fake_acquire,
                                        .renew = fake_renew,
                                        .release = fake_release,
                                        .abandon = fake_abandon,
                                        .inspect = fake_inspect,
                                        .break_lock = fake_break};
        if (kinds[i].caps & DLOCK_CAP_WAKE) {
            backend.listen = fake_listen;
            backend.wake = fake_wake;
        }
        if (kinds[i].caps & DLOCK_CAP_WAKE && !(kinds[i].caps & DLOCK_CAP_THREADSAFE)) backend.probe = fake_probe;
        struct dlock_error err;
        if (dlock_register(&backend, &err) != 0) {
            fprintf(stderr, "dlock_register: %s\n", err.message);
            abort();
        }
    }
    if (!registered) dlock__cond_init(&slow_cond);
    registered = true;
    pthread_mutex_lock(&fake_guard);
    server_reset(client_tell, client_want, client_listens);
    memset(scripts, 0, sizeof scripts);
    server_is_down = wakes_held = false;
    stuck = false;
    flood = 0;
    pthread_mutex_unlock(&fake_guard);
    contract_reset();
    fake_log_clear();
}

void fake_faults_clear(void) {
    pthread_mutex_lock(&fake_guard);
    memset(scripts, 0, sizeof scripts);
    pthread_mutex_unlock(&fake_guard);
}

unsigned fake_faults_left(void) {
    unsigned left = 0;
    pthread_mutex_lock(&fake_guard);
    for (size_t op = 0; op < FAKE_OPS; op++)
        for (size_t i = 0; i < MAX_FAULTS; i++) left += scripts[op][i].times;
    pthread_mutex_unlock(&fake_guard);
    return left;
}

unsigned fake_slow_waiting(void) {
    pthread_mutex_lock(&fake_guard);
    unsigned waiting = slow_waiting;
    pthread_mutex_unlock(&fake_guard);
    return waiting;
}

void fake_slow_go(void) {
    pthread_mutex_lock(&fake_guard);
    slow_generation++;
    pthread_cond_broadcast(&slow_cond);
    pthread_mutex_unlock(&fake_guard);
}

/* All connections, or those of one client only. */
static void kill_connections(const char *client) {
    for (size_t i = 0; i < MAX_CONNS; i++) {
        if (!conns[i] || (client && strcmp(conns[i]->client, client) != 0)) continue;
        conns[i]->dead = true;
        if (conns[i]->fd >= 0) eventfd_write(conns[i]->fd, 1);
        if (conns[i]->kind->caps & DLOCK_CAP_SESSION) server_drop_conn(conns[i]->kind->rules, conns[i]->id);
    }
    pthread_cond_broadcast(&slow_cond);
}

void fake_listeners_hush(void) {
    pthread_mutex_lock(&fake_guard);
    for (size_t i = 0; i < MAX_CONNS; i++)
        if (hears(conns[i])) conns[i]->hushed = true;
    pthread_mutex_unlock(&fake_guard);
}

void fake_listeners_stray(void) {
    pthread_mutex_lock(&fake_guard);
    for (size_t i = 0; i < MAX_CONNS; i++)
        if (hears(conns[i])) conns[i]->astray = true;
    pthread_mutex_unlock(&fake_guard);
}

void fake_server_down(bool down) {
    pthread_mutex_lock(&fake_guard);
    server_is_down = down;
    if (down) kill_connections(NULL);
    pthread_mutex_unlock(&fake_guard);
}

void fake_server_cut(void) {
    pthread_mutex_lock(&fake_guard);
    kill_connections(NULL);
    pthread_mutex_unlock(&fake_guard);
}

void fake_server_cut_listeners(void) {
    pthread_mutex_lock(&fake_guard);
    for (size_t i = 0; i < MAX_CONNS; i++) {
        if (!hears(conns[i])) continue;
        conns[i]->dead = true;
        eventfd_write(conns[i]->fd, 1);
    }
    pthread_mutex_unlock(&fake_guard);
}

void fake_server_cut_holder(const char *name) {
    char client[25] = "";
    pthread_mutex_lock(&fake_guard);
    const struct server_entry *holder = server_holder(name);
    if (holder) memcpy(client, holder->token, sizeof client - 1);
    kill_connections(client);
    pthread_mutex_unlock(&fake_guard);
}

void fake_server_forget(void) {
    pthread_mutex_lock(&fake_guard);
    server_forget();
    pthread_mutex_unlock(&fake_guard);
}

void fake_server_restart(void) {
    fake_server_forget();
    fake_server_cut();
}

void fake_server_step_ms(int64_t ms) {
    pthread_mutex_lock(&fake_guard);
    server_step_us(ms * 1000);
    pthread_mutex_unlock(&fake_guard);
}

void fake_server_ready_in_ms(int64_t ms) {
    pthread_mutex_lock(&fake_guard);
    server_ready_in_ms(ms);
    pthread_mutex_unlock(&fake_guard);
}

void fake_server_handover_ms(int64_t ms) {
    pthread_mutex_lock(&fake_guard);
    server_handover_ms(ms);
    pthread_mutex_unlock(&fake_guard);
}

void fake_server_break(const char *name) {
    pthread_mutex_lock(&fake_guard);
    server_break(&queue_rules, name);
    pthread_mutex_unlock(&fake_guard);
}

pthread_t fake_wake_reader(void) {
    pthread_mutex_lock(&fake_guard);
    pthread_t reader = wake_reader;
    pthread_mutex_unlock(&fake_guard);
    return reader;
}

void fake_wakes_hold(bool hold) {
    pthread_mutex_lock(&fake_guard);
    wakes_held = hold;
    for (size_t i = 0; i < MAX_CONNS && !hold; i++)
        if (conns[i] && conns[i]->fd >= 0) eventfd_write(conns[i]->fd, 1);
    pthread_mutex_unlock(&fake_guard);
}

void fake_wakes_stick(bool stick) {
    pthread_mutex_lock(&fake_guard);
    stuck = stick;
    for (size_t i = 0; i < MAX_CONNS; i++)
        if (hears(conns[i])) eventfd_write(conns[i]->fd, 1);
    pthread_mutex_unlock(&fake_guard);
}

void fake_wakes_flood(int n) {
    pthread_mutex_lock(&fake_guard);
    flood = n;
    for (size_t i = 0; i < MAX_CONNS; i++)
        if (hears(conns[i])) eventfd_write(conns[i]->fd, 1);
    pthread_mutex_unlock(&fake_guard);
}

void fake_wake_push(const struct dlock_wake *wake) {
    pthread_mutex_lock(&fake_guard);
    for (size_t i = 0; i < MAX_CONNS; i++)
        if (hears(conns[i])) wake_put(conns[i], wake);
    pthread_mutex_unlock(&fake_guard);
}

static unsigned conns_count(bool listeners) {
    unsigned count = 0;
    pthread_mutex_lock(&fake_guard);
    for (size_t i = 0; i < MAX_CONNS; i++) count += listeners ? hears(conns[i]) : conns[i] != NULL;
    pthread_mutex_unlock(&fake_guard);
    return count;
}

int64_t fake_last_quarantine_ms(void) {
    pthread_mutex_lock(&fake_guard);
    int64_t ms = quarantine_ms;
    pthread_mutex_unlock(&fake_guard);
    return ms;
}

unsigned fake_connections(void) {
    return conns_count(false);
}
unsigned fake_listeners(void) {
    return conns_count(true);
}
