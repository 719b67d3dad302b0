/* A backend whose server is tests/unit/fake_server.c, at the other end of simulated connections: see network.h. */
#include "network.h"

#include "checker.h"
#include "fake_server.h"

enum {
    CONNS = 512,
    WAKES = 256,
    GENERATIONS = 1 << 20,
    KEEPALIVE_US = 5000000,
    SESSION_US = 3500000 /* longer than any lease */
};

/* As the server has it: it may live longer there than the client's end. */
struct link {
    bool open, listening, silent;
    struct sim_host *host;
    char client[25];
    unsigned generation;          /* the client's end is this one's, or gone */
    int64_t asked_us, brought_us; /* the last message that way arrives then: none overtakes another */
    int fd;
    struct wake {
        struct dlock_wake wake;
        char name[DLOCK_NAME_MAX + 56], token[DLOCK_TOKEN_MAX + 1];
    } * wakes[WAKES];
    size_t wakes_begin, wakes_end;
};

struct conn {
    unsigned link, generation;
    bool connected;
    char token[DLOCK_TOKEN_MAX + 1]; /* PENDING: whose wake-ups are read */
    struct wake *last;               /* its strings live until the next one */
};

enum operation { ACQUIRE, RENEW, RELEASE, PING };

/* Kept until the last copy has arrived, and its sender has gone on. */
struct request {
    enum operation operation;
    unsigned link, generation, refs;
    bool answered;
    size_t n;
    struct item {
        struct dlock_claim claim;
        char name[DLOCK_NAME_MAX + 1], token[DLOCK_TOKEN_MAX + 1];
    } items[];
};

struct sim_faults sim_faults;
struct sim_host sim_server = {.name = "server"};
uint64_t sim_requests;

static struct link links[CONNS];
static unsigned generations;
static bool ended_sessions[GENERATIONS];
static const struct sim_kind *kind;
static const struct server_rules *rules;
static bool away;
static int64_t quarantine_ms;

static const struct server_rules queue_rules = {.queue = true}, poll_rules = {.queue = false},
                                 look_rules = {.look = true}, forever_rules = {.forever = true},
                                 session_rules = {.queue = true, .session = true};

enum {
    MODES = DLOCK_CAP_FENCE | DLOCK_CAP_SHARED | DLOCK_CAP_PERMIT | DLOCK_CAP_EXPORT,
    QUEUE = MODES | DLOCK_CAP_QUEUE | DLOCK_CAP_WAKE | DLOCK_CAP_WANTED
};
static const struct sim_kind kinds[] = {
    {"simqueue", QUEUE},
    {"simforgets", QUEUE | DLOCK_CAP_VOLATILE},
    {"simpoll", MODES},
    {"simlook", MODES | DLOCK_CAP_WAKE},
    {"simsession", (QUEUE & ~(DLOCK_CAP_EXPORT | DLOCK_CAP_WANTED)) | DLOCK_CAP_SESSION | DLOCK_CAP_THREADSAFE},
    {"simpending", (MODES & ~DLOCK_CAP_EXPORT) | DLOCK_CAP_QUEUE | DLOCK_CAP_SESSION | DLOCK_CAP_PENDING},
    {"simlocal", (MODES & ~DLOCK_CAP_EXPORT) | DLOCK_CAP_SESSION},
};

size_t sim_kinds(const struct sim_kind **all) {
    *all = kinds;
    return sizeof kinds / sizeof *kinds;
}

void sim_uri(char *out, size_t size, const char *keys) {
    snprintf(out, size, "%s://127.0.0.1:1?%s", kind->scheme, keys);
}

/* ---- connections ---- */

static bool is_open(unsigned link, unsigned generation) {
    return links[link].open && links[link].generation == generation;
}

/* Where grants live in connections, they end with those that the client closed. One that broke may come back, as far
 * as the server knows: its grants end with their leases. */
static void end_session(unsigned generation) {
    struct sim_host *host = sim_host();
    if (!(kind->caps & DLOCK_CAP_SESSION)) return;
    sim_visit(&sim_server);
    server_drop_conn(rules, generation);
    sim_visit(host);
    ended_sessions[generation] = true;
}

static void end_session_of(void *arg) {
    end_session((unsigned)(uintptr_t)arg);
}

static void break_link(struct link *link) {
    if (!link->open) return;
    link->open = link->listening = false;
    if (link->fd >= 0) sim_signal(link->fd); /* the client's end reads: it is over */
    if (rules->session) sim_at(sim_now_us() + SESSION_US, end_session_of, (void *)(uintptr_t)link->generation);
}

static int64_t latency(void) {
    return sim_between(sim_faults.latency_us / 4 + 1, sim_faults.latency_us + 1);
}

/* When a message that is sent now arrives: in order. */
static int64_t arrival(int64_t *last_us) {
    int64_t at = sim_now_us() + latency();
    if (at <= *last_us) at = *last_us + 1;
    return *last_us = at;
}

/* ---- wake-ups ---- */

struct delivery {
    unsigned link, generation;
    struct wake *wake;
};

static void deliver(void *arg) {
    struct delivery *delivery = arg;
    struct link *link = &links[delivery->link];
    if (!is_open(delivery->link, delivery->generation) || link->silent ||
        link->wakes_end - link->wakes_begin == WAKES) {
        sim_free(delivery->wake);
    } else {
        link->wakes[link->wakes_end++ % WAKES] = delivery->wake;
        sim_signal(link->fd);
    }
    sim_free(delivery);
}

static void send_wake(struct link *link, const struct dlock_wake *wake) {
    struct delivery *delivery = sim_new(sizeof *delivery);
    delivery->link = (unsigned)(link - links);
    delivery->generation = link->generation;
    delivery->wake = sim_new(sizeof *delivery->wake);
    delivery->wake->wake = *wake;
    if (wake->name) snprintf(delivery->wake->name, sizeof delivery->wake->name, "%s", wake->name);
    if (wake->token)
        snprintf(delivery->wake->token, sizeof delivery->wake->token, "%.*s", (int)strcspn(wake->token, "#"),
                 wake->token);
    sim_at(arrival(&link->brought_us), deliver, delivery);
}

static bool is_told(const struct link *link, const struct server_entry *entry) {
    if (!link->open || !link->listening) return false;
    if (kind->caps & DLOCK_CAP_SESSION) return link->generation == entry->conn;
    return strncmp(entry->token, link->client, 24) == 0;
}

static bool listens(const struct server_entry *entry) {
    for (size_t i = 0; i < CONNS; i++)
        if (is_told(&links[i], entry)) return true;
    return false;
}

static void tell(const struct server_entry *entry, const char *name, int64_t kept_ms) {
    struct dlock_wake wake = {DLOCK_WAKE_LOOK, name, NULL, 0, 0, 0};
    if (entry)
        wake = (struct dlock_wake){DLOCK_WAKE_GRANTED, name, entry->token, entry->fence, server_now_us(), kept_ms};
    for (size_t i = 0; i < CONNS; i++)
        if (links[i].open && links[i].listening && (!entry || is_told(&links[i], entry))) send_wake(&links[i], &wake);
}

static void want(const struct server_entry *entry) {
    const struct dlock_wake wake = {DLOCK_WAKE_WANTED, entry->name, entry->token, 0, 0, 0};
    for (size_t i = 0; i < CONNS; i++)
        if (is_told(&links[i], entry)) send_wake(&links[i], &wake);
}

/* ---- requests ---- */

static struct request *request_new(enum operation operation, size_t n) {
    struct request *request = sim_new(sizeof *request + n * sizeof *request->items);
    request->operation = operation;
    request->n = n;
    request->refs = 1;
    return request;
}

static void point_to_own(struct request *request) {
    for (size_t i = 0; i < request->n; i++) {
        request->items[i].claim.name = request->items[i].name;
        request->items[i].claim.token = request->items[i].token;
    }
}

static void drop(struct request *request) {
    if (--request->refs == 0) sim_free(request);
}

static void answered(void *arg) {
    struct request *request = arg;
    if (is_open(request->link, request->generation) && !links[request->link].silent && !request->answered) {
        request->answered = true;
        sim_wake(request, 1, 1);
    }
    drop(request);
}

/* Where grants live in sessions, so do tokens: what is asked in one has nothing to do with what stands in another one. */
static void operate(const struct request *request, struct dlock_claim *claim) {
    static void (*const operations[])(const struct server_rules *, unsigned,
                                      struct dlock_claim *) = {server_acquire, server_renew, server_release};
    char here[DLOCK_TOKEN_MAX + 1];
    const char *token = claim->token;
    snprintf(here, sizeof here, "%s#%u", token, request->generation);
    if (kind->caps & DLOCK_CAP_SESSION) claim->token = here;
    operations[request->operation](rules, request->generation, claim);
    claim->token = token;
}

static void work(struct request *request) {
    static const char *const words[] = {"acquire", "renewal", "release"};
    sim_visit(&sim_server);
    for (size_t i = 0; i < request->n && request->operation != PING; i++) {
        struct dlock_claim *claim = &request->items[i].claim;
        claim->result = DLOCK_EPROTO;
        claim->retry_ms = -1;
        claim->ready_ms = -1;
        claim->kept_ms = claim->lease_ms;
        claim->hints = 0;
        operate(request, claim);
        sim_say("%s of %s by %s in %u for %lld ms: %s", words[request->operation], claim->name, claim->token,
                request->generation, (long long)claim->lease_ms, dlock_strerror(claim->result));
        sim_requests++;
    }
    sim_check();
}

static void arrived(void *arg) {
    struct request *request = arg;
    if (away || ended_sessions[request->generation]) {
        drop(request);
        return;
    }
    work(request);
    if (!is_open(request->link, request->generation) || sim_chance(sim_faults.lose_answer)) {
        drop(request);
        return;
    }
    sim_at(arrival(&links[request->link].brought_us), answered, request);
}

/* A copy of what was sent arrives as well, or late. */
static void post(struct request *request, bool late) {
    struct request *copy = request_new(request->operation, request->n);
    memcpy(copy, request, sizeof *copy + request->n * sizeof *request->items);
    copy->refs = 1;
    copy->answered = true; /* nobody waits for it */
    point_to_own(copy);
    sim_at(sim_now_us() + (late ? sim_between(1000, 1500000) : latency()), arrived, copy);
}

static void send_request(struct request *request) {
    struct link *link = &links[request->link];
    if (sim_chance(sim_faults.late_request)) {
        post(request, true);
        return;
    }
    if (sim_chance(sim_faults.lose_request) || link->silent) return;
    if (sim_chance(sim_faults.twice)) post(request, false);
    request->refs++;
    sim_at(arrival(&link->asked_us), arrived, request);
}

static int64_t deadline(int timeout_ms) {
    return sim_global_us(sim_host(), sim_local_us(sim_host(), sim_now_us()) + timeout_ms * INT64_C(1000));
}

static int failed(struct dlock_error *err, const char *why) {
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "%s", why);
}

static void break_later(void *arg) {
    struct delivery *delivery = arg;
    if (is_open(delivery->link, delivery->generation)) break_link(&links[delivery->link]);
    sim_free(delivery);
}

/* A blocking request may wait for ever; that its connection is dead, the keepalive of its backend finds out. */
static void fall_silent(const struct conn *conn) {
    links[conn->link].silent = true;
    if (!(kind->caps & DLOCK_CAP_PENDING)) return;
    struct delivery *delivery = sim_new(sizeof *delivery);
    delivery->link = conn->link;
    delivery->generation = conn->generation;
    sim_at(sim_now_us() + KEEPALIVE_US, break_later, delivery);
}

static int exchange(struct conn *conn, struct request *request, int timeout_ms, struct dlock_error *err) {
    int64_t until_us = deadline(timeout_ms);
    request->link = conn->link;
    request->generation = conn->generation;
    if (!is_open(conn->link, conn->generation)) {
        drop(request);
        return failed(err, "the connection is broken");
    }
    if (sim_chance(sim_faults.silent)) fall_silent(conn);
    send_request(request);
    if (sim_chance(sim_faults.reset)) break_link(&links[conn->link]);
    while (!request->answered && sim_now_us() < until_us && is_open(conn->link, conn->generation))
        sim_wait(request, 1, until_us < sim_now_us() + 20000 ? until_us : sim_now_us() + 20000);
    if (request->answered) return 0;
    request->answered = true;
    drop(request);
    return failed(err, "no answer");
}

static int batch(void *at, enum operation operation, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                 struct dlock_error *err) {
    struct request *request = request_new(operation, n);
    for (size_t i = 0; i < n; i++) {
        struct item *item = &request->items[i];
        item->claim = *claims[i];
        snprintf(item->name, sizeof item->name, "%s", claims[i]->name);
        snprintf(item->token, sizeof item->token, "%s", claims[i]->token);
    }
    point_to_own(request);
    int rc = exchange(at, request, timeout_ms, err);
    if (rc != 0) return rc;
    for (size_t i = 0; i < n; i++) {
        struct dlock_claim *to = claims[i], from = request->items[i].claim;
        from.name = to->name;
        from.token = to->token;
        *to = from;
        if (to->result == DLOCK_EINVAL) dlock_fail(err, DLOCK_EINVAL, "used otherwise");
    }
    drop(request);
    return 0;
}

static int acquire(void *at, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    struct conn *conn = at;
    if (kind->caps & DLOCK_CAP_PENDING) snprintf(conn->token, sizeof conn->token, "%s", claims[0]->token);
    return batch(at, ACQUIRE, claims, n, timeout_ms, err);
}

static int renew(void *at, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    return batch(at, RENEW, claims, n, timeout_ms, err);
}

static int release(void *at, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    return batch(at, RELEASE, claims, n, timeout_ms, err);
}

/* ---- connecting ---- */

static int ping(struct conn *conn, int timeout_ms, struct dlock_error *err) {
    struct request *request = request_new(PING, 0);
    int rc = exchange(conn, request, timeout_ms, err);
    if (rc == 0) drop(request);
    return rc;
}

static int connect(void *at, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                   struct dlock_error *err) {
    struct conn *conn = at;
    (void)uri;
    if (sim_chance(sim_faults.refuse)) return dlock_fail(err, DLOCK_EUNAVAILABLE, "refused");
    size_t free = 0;
    while (free < CONNS && (links[free].open || links[free].fd >= 0)) free++;
    if (free == CONNS) sim_fail("connections are not closed");
    struct link *link = &links[free];
    memset(link, 0, sizeof *link);
    link->open = true;
    link->host = sim_host();
    if (++generations == GENERATIONS) sim_fail("too many connections");
    link->generation = conn->generation = generations;
    link->fd = -1;
    snprintf(link->client, sizeof link->client, "%s", peer->client);
    conn->link = (unsigned)free;
    conn->connected = true;
    if (peer->quarantine_ms > quarantine_ms) quarantine_ms = peer->quarantine_ms;
    return ping(conn, timeout_ms, err);
}

static void close_later(void *arg) {
    struct delivery *delivery = arg;
    end_session(delivery->generation);
    if (is_open(delivery->link, delivery->generation)) break_link(&links[delivery->link]);
    sim_free(delivery);
}

/* The server hears of it, some time. */
static void leave(unsigned link, unsigned generation) {
    struct delivery *delivery = sim_new(sizeof *delivery);
    delivery->link = link;
    delivery->generation = generation;
    sim_at(sim_now_us() + (sim_chance(100) ? sim_between(1000, 2000000) : latency()), close_later, delivery);
}

static void forget_wakes(struct link *link) {
    while (link->wakes_begin < link->wakes_end) sim_free(link->wakes[link->wakes_begin++ % WAKES]);
}

static void disconnect(void *at) {
    struct conn *conn = at;
    if (!conn->connected) return;
    conn->connected = false;
    sim_free(conn->last);
    conn->last = NULL;
    struct link *link = &links[conn->link];
    if (link->generation != conn->generation) return;
    forget_wakes(link);
    if (link->fd >= 0) sim_close(link->fd);
    link->fd = -1;
    if (kind->caps & DLOCK_CAP_SESSION && rules->forever) end_session(conn->generation); /* as a file does */
    if (!link->open) return;
    link->silent = true; /* nothing reaches the client any more */
    leave(conn->link, conn->generation);
}

static int listen(void *at, int *fd, int timeout_ms, struct dlock_error *err) {
    struct conn *conn = at;
    struct link *link = &links[conn->link];
    if (!is_open(conn->link, conn->generation)) return failed(err, "the connection is broken");
    if ((link->fd = sim_descriptor()) < 0) return dlock_fail(err, DLOCK_EUNAVAILABLE, "no descriptors left");
    *fd = link->fd;
    int rc = ping(conn, timeout_ms, err);
    if (rc == 0) link->listening = link->open;
    return rc;
}

static int wake(void *at, struct dlock_wake *out, struct dlock_error *err) {
    struct conn *conn = at;
    struct link *link = &links[conn->link];
    sim_free(conn->last);
    conn->last = NULL;
    sim_drain(link->fd);
    if (link->wakes_begin == link->wakes_end) {
        if (!is_open(conn->link, conn->generation)) return failed(err, "the connection is broken");
        return 0;
    }
    conn->last = link->wakes[link->wakes_begin++ % WAKES];
    if (link->wakes_begin < link->wakes_end || !link->open) sim_signal(link->fd);
    *out = conn->last->wake;
    if (out->name) out->name = conn->last->name;
    if (out->token) out->token = conn->last->token;
    if (*conn->token && strcmp(conn->token, out->token) != 0) return wake(at, out, err);
    return 1;
}

static void probed(void *arg) {
    struct delivery *delivery = arg;
    const struct dlock_wake heard = {DLOCK_WAKE_HEARD, NULL, NULL, 0, 0, 0};
    if (!away && is_open(delivery->link, delivery->generation)) send_wake(&links[delivery->link], &heard);
    sim_free(delivery);
}

static int probe(void *at, struct dlock_error *err) {
    struct conn *conn = at;
    struct link *link = &links[conn->link];
    if (!is_open(conn->link, conn->generation)) return failed(err, "the connection is broken");
    if (link->silent) return 0;
    struct delivery *delivery = sim_new(sizeof *delivery);
    delivery->link = conn->link;
    delivery->generation = conn->generation;
    sim_at(arrival(&link->asked_us), probed, delivery);
    return 0;
}

/* ---- the server ---- */

static void come_back(void *arg) {
    (void)arg;
    away = false;
    sim_say("the server is back");
}

void sim_server_restart(int64_t away_us, bool forget) {
    sim_say("the server ends%s", forget ? " and forgets" : "");
    struct sim_host *host = sim_host();
    for (size_t i = 0; i < CONNS; i++) break_link(&links[i]);
    sim_visit(&sim_server);
    if (forget) {
        server_forget();
        server_ready_in_ms(quarantine_ms + away_us / 1000);
    }
    sim_visit(host);
    away = true;
    sim_at(sim_now_us() + away_us, come_back, NULL);
}

void sim_host_gone(const struct sim_host *host) {
    for (size_t i = 0; i < CONNS; i++) {
        if (links[i].host != host) continue;
        if (rules->forever) end_session(links[i].generation);
        if (links[i].open) leave((unsigned)i, links[i].generation);
        forget_wakes(&links[i]);
        links[i].silent = true;
        if (links[i].fd >= 0) sim_close(links[i].fd);
        links[i].fd = -1;
    }
}

void sim_network_start(const struct sim_kind *chosen) {
    static const struct server_rules *const rules_of[] = {&queue_rules, &queue_rules,   &poll_rules,   &look_rules,
                                                          &queue_rules, &session_rules, &forever_rules};
    static struct dlock_backend backend;
    static const char *schemes[2];
    kind = chosen;
    rules = rules_of[chosen - kinds];
    for (size_t i = 0; i < CONNS; i++) links[i].fd = -1;
    schemes[0] = chosen->scheme;
    backend = (struct dlock_backend){.abi = DLOCK_ABI,
                                     .size = sizeof backend,
                                     .name = chosen->scheme,
                                     .schemes = schemes,
                                     .caps = chosen->caps,
                                     .conn_size = sizeof(struct conn),
                                     .connect = connect,
                                     .disconnect = disconnect,
                                     .acquire = acquire,
                                     .renew = renew,
                                     .release = release};
    if (chosen->caps & (DLOCK_CAP_WAKE | DLOCK_CAP_PENDING)) {
        backend.listen = listen;
        backend.wake = wake;
    }
    if (chosen->caps & DLOCK_CAP_WAKE && !(chosen->caps & DLOCK_CAP_THREADSAFE)) backend.probe = probe;
    server_reset(tell, want, listens);
    if (dlock_register(&backend, NULL) != 0) sim_fail("the backend is refused");
}
