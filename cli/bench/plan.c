/* Makes the list of cases and the list of servers. */
#include "bench/bench.h"
#include "bench/process.h"
#include "cli.h"

#include <stdlib.h>
#include <string.h>

static int out_of_memory(void) {
    note("%s", dlock_strerror(DLOCK_ENOMEM));
    return STATUS_OS;
}

/* ---- cases ------------------------------------------------------------------------------------------------------- */

static bool is_wanted(const struct bench_workload *workload, const char *const *names, size_t n_names) {
    for (size_t i = 0; i < n_names; i++)
        if (strcmp(names[i], workload->name) == 0) return true;
    return n_names == 0;
}

static bool add_case(struct bench *bench, const struct bench_workload *workload, int processes, int threads,
                     int locks) {
    struct bench_case *more = realloc(bench->cases, (bench->n_cases + 1) * sizeof *more);
    if (!more) return false;
    bench->cases = more;
    struct bench_case *c = &more[bench->n_cases++];
    *c = (struct bench_case){.workload = workload, .processes = processes, .threads = threads, .locks = locks};
    if (workload->crowd == BENCH_IDLE) {
        c->waiters = bench->waiters;
        snprintf(c->label, sizeof c->label, "%s/%d+%d", workload->name, locks, c->waiters);
    } else if (workload->crowd == BENCH_ALONE) {
        snprintf(c->label, sizeof c->label, "%s", workload->name);
    } else {
        snprintf(c->label, sizeof c->label, "%s/%d", workload->name, processes * threads * locks);
    }
    return true;
}

static bool add_workload(struct bench *bench, const struct bench_workload *workload) {
    switch (workload->crowd) {
    case BENCH_PROCESSES: return add_case(bench, workload, bench->processes, 1, 1);
    case BENCH_WAITERS: return add_case(bench, workload, bench->waiters, 1, 1);
    case BENCH_THREADS: return add_case(bench, workload, 1, bench->threads, 1);
    case BENCH_THREAD_STEPS:
        for (int threads = 1; threads < bench->threads; threads *= 4)
            if (!add_case(bench, workload, 1, threads, 1)) return false;
        return add_case(bench, workload, 1, bench->threads, 1);
    case BENCH_LOCKS:
    case BENCH_IDLE: return add_case(bench, workload, 1, 1, bench->locks);
    default: return add_case(bench, workload, 1, 1, 1);
    }
}

int bench_add_cases(struct bench *bench, const char *const *names, size_t n_names) {
    for (size_t i = 0; i < bench_n_workloads; i++)
        if (is_wanted(&bench_workloads[i], names, n_names) && !add_workload(bench, &bench_workloads[i]))
            return out_of_memory();
    return STATUS_OK;
}

/* ---- servers ----------------------------------------------------------------------------------------------------- */

static bool is_taken(const struct bench *bench, const char *name) {
    for (size_t i = 0; i < bench->n_targets; i++)
        if (strcmp(bench->targets[i].server, name) == 0) return true;
    return false;
}

/* Names a target by the first `length` bytes of `text`, and adds a number if the name is taken. */
static void name_target(const struct bench *bench, struct bench_target *target, const char *text, size_t length) {
    char name[BENCH_SERVER];
    int shown = length > BENCH_SERVER - 6 ? BENCH_SERVER - 6 : (int)length;
    snprintf(name, sizeof name, "%.*s", shown, text);
    for (unsigned i = 2; is_taken(bench, name); i++) snprintf(name, sizeof name, "%.*s#%u", shown, text, i);
    memcpy(target->server, name, sizeof name);
}

/* Names a server by its scheme, the only part of a URI that is certainly no secret. */
static void name_server(const struct bench *bench, struct bench_target *target) {
    name_target(bench, target, target->uri, strspn(target->uri, "abcdefghijklmnopqrstuvwxyz0123456789+.-"));
}

struct probe {
    struct bench_arena *arena;
    const struct bench_target *target;
};

/* Waits for a server that was started recently and grants nothing yet. */
static void await_ready(const struct probe *probe, dlock_client *client) {
    struct dlock_error err = {0, ""};
    dlock_lock *lock;
    if (dlock_new(client, "dlock-bench:ready", NULL, &lock, &err) != 0) return;
    if (dlock_acquire(lock, 0, &err) == DLOCK_ENOTREADY) {
        note("%s: waiting for %s", probe->target->server, err.message);
        if (dlock_acquire(lock, BENCH_END_MS / 4 * 3, &err) == DLOCK_ENOTREADY) bench_failed(probe->arena, &err);
    }
    dlock_free(lock);
}

static void open_once(void *arg) {
    const struct probe *probe = arg;
    struct dlock_error err = {0, ""};
    dlock_client *client = bench_open(probe->arena, probe->target->uri);
    if (client && refuse_private(client, &err) != 0)
        bench_failed(probe->arena, &err);
    else if (client)
        await_ready(probe, client);
    dlock_close(client);
}

/* Connects to a server, so that a wrong URI, an unreachable server and one that grants nothing for long are reported
 * before the first run. Does that in a forked process, since this one must not have a client. Returns the exit
 * status. */
static int try_target(struct bench_target *target) {
    struct bench_cell cell = {0};
    struct probe probe = {bench_arena_new(NULL), target};
    if (!probe.arena) return out_of_memory();
    pid_t pid = bench_fork(probe.arena, open_once, &probe);
    if (pid > 0) bench_reap(probe.arena, &pid, 1, true);
    bench_arena_end(probe.arena, 0, target, &cell);
    if (cell.error_code == 0) return STATUS_OK;
    note("%s: %s", target->server, cell.error);
    return error_status(cell.error_code);
}

/* Appends a target with this `uri`; its other members are 0. NULL: out of memory. */
static struct bench_target *new_target(struct bench *bench, const char *uri) {
    struct bench_target *more = realloc(bench->targets, (bench->n_targets + 1) * sizeof *more);
    if (!more) return NULL;
    bench->targets = more;
    struct bench_target *target = &more[bench->n_targets++];
    *target = (struct bench_target){.uri = uri};
    return target;
}

/* A label is printed in tables and charts, so its characters are restricted. */
int bench_add_labelled(struct bench *bench, const char *text) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-_";
    char name[BENCH_SERVER];
    size_t length = strspn(text, plain);
    if (length == 0 || text[length] != '=' || length >= sizeof name) {
        note("--label takes NAME=URI, with 1 to %d letters, digits, +, ., - and _ in NAME", BENCH_SERVER - 1);
        return STATUS_USAGE;
    }
    snprintf(name, sizeof name, "%.*s", (int)length, text);
    if (is_taken(bench, name)) return note("--label: two servers have the name %s", name), STATUS_USAGE;
    struct bench_target *target = new_target(bench, text + length + 1);
    if (!target) return out_of_memory();
    memcpy(target->server, name, sizeof name);
    return STATUS_OK;
}

/* ---- locks of other software ------------------------------------------------------------------------------------- */

static bool has_rows(const struct bench *bench, const struct bench_target *target) {
    for (size_t k = 0; k < bench->n_cases; k++)
        if (bench_has_row(target, &bench->cases[k])) return true;
    return false;
}

/* Inserts a copy of `peer` after target `i`, its server, and that server's other peers. False: out of memory. */
static bool insert(struct bench *bench, size_t i, struct bench_target *peer) {
    name_target(bench, peer, peer->peer->name, strlen(peer->peer->name));
    for (peer->behind = 1; i + peer->behind < bench->n_targets && bench->targets[i + peer->behind].peer;)
        peer->behind++;
    peer->cells = calloc(bench->n_cases, sizeof *peer->cells);
    if (!peer->cells || !new_target(bench, peer->uri)) {
        free(peer->cells);
        return false;
    }
    struct bench_target *place = &bench->targets[i + peer->behind];
    memmove(place + 1, place, (size_t)(&bench->targets[bench->n_targets - 1] - place) * sizeof *place);
    *place = *peer;
    return true;
}

static int add_peers(struct bench *bench) {
    for (size_t i = 0; i < bench->n_targets; i++) {
        const struct bench_target server = bench->targets[i];
        for (size_t p = 0; !server.peer && p < bench_n_peers; p++) {
            struct bench_target peer = {.uri = server.uri, .peer = &bench_peers[p]};
            memcpy(peer.backend, server.backend, sizeof peer.backend);
            if (strcmp(peer.backend, peer.peer->backend) != 0 || !has_rows(bench, &peer)) continue;
            if (bench->floors[0] && peer.peer->find(bench, &peer) && !insert(bench, i, &peer)) return out_of_memory();
        }
    }
    return STATUS_OK;
}

int bench_add_targets(struct bench *bench, char **uris, size_t n_uris) {
    size_t n = n_uris || bench->n_targets ? n_uris : 1;
    for (size_t i = 0; i < n; i++) {
        struct bench_target *target = new_target(bench, uri_or_default(n_uris ? uris[i] : NULL));
        if (!target) return out_of_memory();
        name_server(bench, target);
    }
    for (size_t i = 0; i < bench->n_targets; i++) {
        struct bench_target *target = &bench->targets[i];
        target->cells = calloc(bench->n_cases, sizeof *target->cells);
        if (!target->cells) return out_of_memory();
        int status = try_target(target);
        if (status != STATUS_OK) return status;
    }
    return add_peers(bench);
}

/* Keeps the first finding, and ends the walk. */
static int first_finding(const struct dlock_finding *finding, void *arg) {
    struct bench_target *target = arg;
    snprintf(target->about, sizeof target->about, "%s", finding->what);
    return 1;
}

void bench_describe(struct bench *bench) {
    for (size_t i = 0; i < bench->n_targets; i++) {
        struct bench_target *target = &bench->targets[i];
        dlock_client *client = NULL;
        if (target->peer || dlock_open(target->uri, NULL, &client, NULL) != 0) continue;
        if (dlock_client_backend(client)->caps & DLOCK_CAP_LOCAL)
            (void)dlock_check(client, first_finding, target, NULL);
        dlock_close(client);
    }
}

void bench_free(struct bench *bench) {
    for (size_t i = 0; i < bench->n_targets; i++) free(bench->targets[i].cells);
    free(bench->targets);
    free(bench->cases);
}
