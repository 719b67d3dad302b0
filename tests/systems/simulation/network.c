/* A backend whose server is tests/unit/fake_server.c, at the other end of simulated connections: see network.h. */
#include "checker.h"
#include "wire.h"

struct conn {
    unsigned link, generation;
    bool connected;
    struct wake *last; /* its strings are valid until the next one */
};

struct sim_faults sim_faults;

static const struct sim_kind *kind;
static unsigned generations;
void sim_uri(char *out, size_t size, const char *keys) {
    snprintf(out, size, "%s://127.0.0.1:1?%s", kind->scheme, keys);
}

/* ---- connections ---- */

static int64_t latency(void) {
    return sim_between(sim_faults.latency_us / 4 + 1, sim_faults.latency_us + 1);
}

/* When a message that is sent now arrives; messages keep their order. */
static int64_t arrival(int64_t *last_us) {
    int64_t at = sim_now_us() + latency();
    if (at <= *last_us) at = *last_us + 1;
    return *last_us = at;
}

/* When a message to the client arrives. A lost packet delays what comes behind it in the same connection until it is
 * sent again; answers over other connections may then be newer. */
static int64_t brought(struct link *link) {
    int64_t again_us = sim_chance(sim_faults.stall) ? sim_now_us() + sim_between(100000, 1000000) : 0;
    if (link->brought_us < again_us) link->brought_us = again_us;
    return arrival(&link->brought_us);
}

/* ---- wake-ups ---- */

struct delivery {
    unsigned link, generation;
    struct wake *wake;
};

static void deliver(void *arg) {
    struct delivery *delivery = arg;
    struct link *link = &sim_links[delivery->link];
    if (!sim_link_is_open(delivery->link, delivery->generation) || link->silent ||
        link->wakes_end - link->wakes_begin == WAKES) {
        sim_free(delivery->wake);
    } else {
        delivery->wake->arrived_us = sim_now_us();
        link->wakes[link->wakes_end++ % WAKES] = delivery->wake;
        sim_signal(link->fd);
    }
    sim_free(delivery);
}

void sim_wake_send(struct link *link, const struct dlock_wake *wake) {
    struct delivery *delivery = sim_new(sizeof *delivery);
    delivery->link = (unsigned)(link - sim_links);
    delivery->generation = link->generation;
    delivery->wake = sim_new(sizeof *delivery->wake);
    delivery->wake->wake = *wake;
    if (wake->name) snprintf(delivery->wake->name, sizeof delivery->wake->name, "%s", wake->name);
    if (wake->token)
        snprintf(delivery->wake->token, sizeof delivery->wake->token, "%.*s", (int)strcspn(wake->token, "#"),
                 wake->token);
    sim_at(brought(link), deliver, delivery);
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
    if (sim_link_is_open(request->link, request->generation) && !sim_links[request->link].silent &&
        !request->answered) {
        request->answered = true;
        sim_wake(request, 1, 1);
    }
    drop(request);
}

static void arrived(void *arg) {
    struct request *request = arg;
    if (!sim_server_work(request) || !sim_link_is_open(request->link, request->generation) ||
        sim_chance(sim_faults.lose_answer)) {
        drop(request);
        return;
    }
    sim_at(brought(&sim_links[request->link]), answered, request);
}

/* How late a request may arrive: within one lease, which the core allows for, by its own clock. */
static int64_t latest_us(const struct request *request) {
    int64_t latest = 1500000;
    for (size_t i = 0; i < request->n; i++)
        if (request->items[i].claim.lease_ms * 990 < latest) latest = request->items[i].claim.lease_ms * 990;
    return latest;
}

static struct request *copy_of(const struct request *request) {
    struct request *copy = request_new(request->operation, request->n);
    memcpy(copy, request, sizeof *copy + request->n * sizeof *request->items);
    copy->refs = 1;
    copy->answered = true; /* no thread waits for it */
    point_to_own(copy);
    return copy;
}

/* Sends a copy, which arrives soon, or late and then often at the last moment. */
static void post(const struct request *request, bool late) {
    struct request *copy = copy_of(request);
    int64_t latest = latest_us(copy), least = sim_chance(300) ? latest - latest / 20 : 1000;
    sim_at(sim_now_us() + (late ? sim_between(least, latest) : latency()), arrived, copy);
}

/* Sends a copy that arrives when its client no longer expects it: see strays in server.c. */
static void post_stray(const struct request *request) {
    if (request->operation != ACQUIRE || kind->caps & DLOCK_CAP_SESSION) return;
    struct request *copy = copy_of(request);
    copy->stray = true;
    sim_at(sim_now_us() + sim_between(3500000, 6000000), arrived, copy);
}

static void send_request(struct request *request) {
    struct link *link = &sim_links[request->link];
    if (sim_chance(sim_faults.stray)) post_stray(request);
    if (sim_chance(sim_faults.late_request)) {
        post(request, true);
        if (sim_chance(500)) sim_link_break(link); /* then it is at the server, which has yet to read it */
        return;
    }
    if (sim_chance(sim_faults.lose_request) || link->silent) return;
    if (sim_chance(sim_faults.twice)) { /* sent again on a path that broke: one connection repeats nothing */
        post(request, false);
        sim_link_break(link);
    }
    request->refs++;
    sim_at(arrival(&link->asked_us), arrived, request);
}

static int64_t deadline(int timeout_ms) {
    return sim_global_us(sim_host(), sim_local_us(sim_host(), sim_now_us()) + timeout_ms * INT64_C(1000));
}

static int failed(struct dlock_error *err, const char *why) {
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "%s", why);
}

static int exchange(struct conn *conn, struct request *request, int timeout_ms, struct dlock_error *err) {
    int64_t until_us = deadline(timeout_ms);
    request->link = conn->link;
    request->generation = conn->generation;
    if (!sim_link_is_open(conn->link, conn->generation)) {
        drop(request);
        return failed(err, "the connection is broken");
    }
    if (sim_chance(sim_faults.silent)) sim_links[conn->link].silent = true;
    send_request(request);
    if (sim_chance(sim_faults.reset)) sim_link_break(&sim_links[conn->link]);
    while (!request->answered && sim_now_us() < until_us && sim_link_is_open(conn->link, conn->generation))
        sim_wait(request, 1, until_us < sim_now_us() + 20000 ? until_us : sim_now_us() + 20000);
    if (request->answered) return 0;
    request->answered = true;
    drop(request);
    return failed(err, "no answer");
}

static int batch(void *at, enum operation operation, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                 struct dlock_error *err) {
    SIM_UNSEEN;
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
    return batch(at, ACQUIRE, claims, n, timeout_ms, err);
}

static int renew(void *at, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    return batch(at, RENEW, claims, n, timeout_ms, err);
}

static int release(void *at, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    for (size_t i = 0; i < n; i++) sim_check_release(claims[i]->token);
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
    SIM_UNSEEN;
    struct conn *conn = at;
    (void)uri;
    if (sim_chance(sim_faults.refuse)) return dlock_fail(err, DLOCK_EUNAVAILABLE, "refused");
    size_t free = 0;
    while (free < sim_links_end && (sim_links[free].open || sim_links[free].fd >= 0)) free++;
    if (free == SIM_LINKS) sim_fail("connections are not closed");
    if (free == sim_links_end) sim_links_end++;
    struct link *link = &sim_links[free];
    memset(link, 0, sizeof *link);
    link->open = true;
    link->host = sim_host();
    if (++generations == GENERATIONS) sim_fail("too many connections");
    link->generation = conn->generation = generations;
    link->fd = -1;
    snprintf(link->client, sizeof link->client, "%s", peer->client);
    conn->link = (unsigned)free;
    conn->connected = true;
    sim_server_quarantine(peer->quarantine_ms);
    return ping(conn, timeout_ms, err);
}

static void close_later(void *arg) {
    struct delivery *delivery = arg;
    sim_session_end(delivery->generation);
    if (sim_link_is_open(delivery->link, delivery->generation)) sim_link_break(&sim_links[delivery->link]);
    sim_free(delivery);
}

/* The server learns of the end some time later. */
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
    SIM_UNSEEN;
    struct conn *conn = at;
    if (!conn->connected) return;
    conn->connected = false;
    sim_free(conn->last);
    conn->last = NULL;
    struct link *link = &sim_links[conn->link];
    if (link->generation != conn->generation) return;
    forget_wakes(link);
    if (link->fd >= 0) sim_close(link->fd);
    link->fd = -1;
    if (sim_sessions_are_local()) sim_session_end(conn->generation); /* as with a file */
    if (!link->open) return;
    link->silent = true; /* nothing reaches the client any more */
    leave(conn->link, conn->generation);
}

static int listen(void *at, int *fd, int timeout_ms, struct dlock_error *err) {
    SIM_UNSEEN;
    struct conn *conn = at;
    struct link *link = &sim_links[conn->link];
    if (!sim_link_is_open(conn->link, conn->generation)) return failed(err, "the connection is broken");
    if ((link->fd = sim_descriptor()) < 0) return dlock_fail(err, DLOCK_EUNAVAILABLE, "no descriptors left");
    *fd = link->fd;
    int rc = ping(conn, timeout_ms, err);
    if (rc == 0) link->listening = link->open;
    return rc;
}

static int wake(void *at, struct dlock_wake *out, struct dlock_error *err) {
    SIM_UNSEEN;
    struct conn *conn = at;
    struct link *link = &sim_links[conn->link];
    sim_free(conn->last);
    conn->last = NULL;
    sim_drain(link->fd);
    if (link->wakes_begin == link->wakes_end) {
        if (!sim_link_is_open(conn->link, conn->generation)) return failed(err, "the connection is broken");
        return 0;
    }
    conn->last = link->wakes[link->wakes_begin++ % WAKES];
    if (link->wakes_begin < link->wakes_end || !link->open) sim_signal(link->fd);
    *out = conn->last->wake;
    if (out->name) out->name = conn->last->name;
    if (out->token) out->token = conn->last->token;
    sim_heard(out);
    return 1;
}

/* Shows what the server has when its answer arrives. */
static int look(struct conn *conn, const char *name, size_t length, dlock_each each, void *arg, int timeout_ms,
                struct dlock_error *err) {
    SIM_UNSEEN;
    int rc = ping(conn, timeout_ms, err);
    struct dlock_info info;
    for (size_t i = 0; rc == 0 && sim_server_holder(i, &info); i++)
        if (info.token && strncmp(info.name, name, length) == 0 && each(&info, arg) != 0) break;
    return rc;
}

static int inspect(void *at, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err) {
    return look(at, name, strlen(name) + 1, each, arg, timeout_ms, err);
}

static int list(void *at, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
                struct dlock_error *err) {
    (void)cursor;
    return look(at, prefix, strlen(prefix), each, arg, timeout_ms, err);
}

static int break_lock(void *at, const char *name, int timeout_ms, struct dlock_error *err) {
    SIM_UNSEEN;
    int rc = ping(at, timeout_ms, err);
    if (rc != 0 || sim_server_break(name)) return rc;
    return dlock_fail(err, DLOCK_ELOST, "nobody holds it");
}

static void probed(void *arg) {
    struct delivery *delivery = arg;
    const struct dlock_wake heard = {DLOCK_WAKE_HEARD, NULL, NULL, 0, 0, 0};
    if (!sim_server_away() && sim_link_is_open(delivery->link, delivery->generation))
        sim_wake_send(&sim_links[delivery->link], &heard);
    sim_free(delivery);
}

static int probe(void *at, struct dlock_error *err) {
    SIM_UNSEEN;
    struct conn *conn = at;
    struct link *link = &sim_links[conn->link];
    if (!sim_link_is_open(conn->link, conn->generation)) return failed(err, "the connection is broken");
    if (link->silent) return 0;
    struct delivery *delivery = sim_new(sizeof *delivery);
    delivery->link = conn->link;
    delivery->generation = conn->generation;
    sim_at(arrival(&link->asked_us), probed, delivery);
    return 0;
}

void sim_host_gone(const struct sim_host *host) {
    SIM_UNSEEN; /* the end of a session may send wake-ups */
    for (size_t i = 0; i < sim_links_end; i++) {
        if (sim_links[i].host != host) continue;
        if (sim_sessions_are_local()) sim_session_end(sim_links[i].generation);
        if (sim_links[i].open) leave((unsigned)i, sim_links[i].generation);
        forget_wakes(&sim_links[i]);
        sim_links[i].silent = true;
        if (sim_links[i].fd >= 0) sim_close(sim_links[i].fd);
        sim_links[i].fd = -1;
    }
}

void sim_network_start(const struct sim_kind *chosen, int64_t handover_ms) {
    static struct dlock_backend backend;
    static const char *schemes[2];
    kind = chosen;
    sim_server_start(chosen, handover_ms);
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
                                     .release = release,
                                     .inspect = inspect,
                                     .list = list,
                                     .break_lock = break_lock};
    if (chosen->caps & DLOCK_CAP_WAKE) {
        backend.listen = listen;
        backend.wake = wake;
    }
    if (chosen->caps & DLOCK_CAP_WAKE && !(chosen->caps & DLOCK_CAP_THREADSAFE)) backend.probe = probe;
    if (dlock_register(&backend, NULL) != 0) sim_fail("the backend is refused");
}
