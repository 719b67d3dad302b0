/* Each name is looked up in a thread of its own, since getaddrinfo() cannot be cancelled and hangs for as long as the
 * name server does. A thread with an answer is joined, so that its thread-local memory is freed before the process
 * ends. A thread that still hangs when the resolver is freed is detached; it frees the resolver when it ends. */
#include "uri/resolve.h"
#include "base/env.h"
#include "base/forking.h"

#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

/* How many announced hosts are remembered. */
#define MOST_ANNOUNCED 256
/* Room for a numeric address with its zone. */
#define ADDRESS_SIZE (INET6_ADDRSTRLEN + 1 + IF_NAMESIZE)

enum state {
    FIXED, /* a numeric address or the folder of a Unix socket: never looked up */
    IDLE,
    LOOKING,
    ENDED /* the thread has its answer and waits to be joined */
};

struct target {
    struct dlock__resolver *resolver;
    const char *host; /* constant, and so is the port */
    int port;
    enum state state;
    pthread_t thread;
    int failure;            /* EAI_… of the last look-up; 0 if it succeeded */
    struct addrinfo *known; /* the last answer; NULL: none yet */
};

struct dlock__resolver {
    pthread_mutex_t mutex; /* guards everything below */
    pthread_cond_t changed;
    size_t looking;                    /* threads that are looking up a name */
    bool freed;                        /* the last of these threads frees the resolver */
    bool stale;                        /* the remembered addresses may be wrong or incomplete */
    struct dlock__resolver *announced; /* one for each announced host, the newest first */
    struct dlock__resolver *next;      /* in such a list */
    size_t users;                      /* calls that are using it; guarded by the mutex of the resolver with the list */
    size_t n;
    struct target targets[]; /* the hosts' names follow in the same allocation */
};

static int query(const char *host, int flags, struct addrinfo **list) {
    /* No AI_ADDRCONFIG: a machine whose only interface is loopback still reaches localhost. */
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
    dlock__foreign_begin();
    int code = getaddrinfo(host, NULL, &hints, list);
    dlock__foreign_end();
    return code;
}

/* ---- known addresses --------------------------------------------------------------------------------------------- */

static bool listed(const struct dlock__addresses *addresses, const char *address, int port) {
    for (size_t i = 0; i < addresses->n; i++)
        if (addresses->hosts[i].port == port && strcmp(addresses->hosts[i].address, address) == 0) return true;
    return false;
}

static char *copy(char **strings, const char *text) {
    char *at = *strings;
    *strings = stpcpy(at, text) + 1;
    return at;
}

/* True if the host is the folder of a Unix socket, which is its own address. */
static bool is_folder(const struct target *target) {
    return *target->host == '/';
}

/* Collects the known addresses of all targets. NULL if out of memory. */
static struct dlock__addresses *addresses_new(const struct dlock__resolver *resolver) {
    size_t n = resolver->n, bytes = 0;
    for (size_t i = 0; i < resolver->n; i++) {
        bytes += strlen(resolver->targets[i].host) + 1;
        for (const struct addrinfo *a = resolver->targets[i].known; a; a = a->ai_next) n++;
    }
    struct dlock__addresses *addresses =
        calloc(1, sizeof *addresses + n * (sizeof *addresses->hosts + ADDRESS_SIZE) + bytes);
    if (!addresses) return NULL;
    char *strings = (char *)(addresses->hosts + n);
    for (size_t i = 0; i < resolver->n; i++) {
        const struct target *target = &resolver->targets[i];
        const char *host = copy(&strings, target->host);
        if (is_folder(target)) addresses->hosts[addresses->n++] = (struct dlock_host){host, host, target->port};
        for (const struct addrinfo *a = target->known; a; a = a->ai_next) {
            char text[ADDRESS_SIZE];
            if (getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0 &&
                !listed(addresses, text, target->port))
                addresses->hosts[addresses->n++] = (struct dlock_host){host, copy(&strings, text), target->port};
        }
    }
    return addresses;
}

static bool anything_known(const struct dlock__resolver *resolver) {
    for (size_t i = 0; i < resolver->n; i++)
        if (resolver->targets[i].known || is_folder(&resolver->targets[i])) return true;
    return false;
}

static void forget(struct target *target) {
    if (target->known) freeaddrinfo(target->known);
}

/* ---- look-ups on threads ----------------------------------------------------------------------------------------- */

/* Unlocks the mutex, which the caller holds, and frees the resolver if it was freed and no look-up is on the way. */
static void leave(struct dlock__resolver *resolver) {
    bool last = resolver->freed && resolver->looking == 0;
    pthread_mutex_unlock(&resolver->mutex);
    if (!last) return;
    for (size_t i = 0; i < resolver->n; i++) forget(&resolver->targets[i]);
    pthread_cond_destroy(&resolver->changed);
    pthread_mutex_destroy(&resolver->mutex);
    free(resolver);
}

static void *look_up(void *arg) {
    struct target *target = arg;
    struct dlock__resolver *resolver = target->resolver;
    struct addrinfo *answer = NULL;
    int code = query(target->host, 0, &answer);
    pthread_mutex_lock(&resolver->mutex);
    if (code == 0) {
        forget(target);
        target->known = answer;
    }
    target->failure = code;
    target->state = ENDED;
    if (--resolver->looking == 0) resolver->stale = false;
    pthread_cond_broadcast(&resolver->changed);
    leave(resolver);
    return NULL;
}

/* Joins the threads that have ended. The caller holds the mutex; it is released during each join, which may take a
 * moment. */
static void join_ended(struct dlock__resolver *resolver) {
    for (size_t i = 0; i < resolver->n; i++) {
        struct target *target = &resolver->targets[i];
        if (target->state != ENDED) continue;
        target->state = IDLE;
        pthread_t thread = target->thread;
        pthread_mutex_unlock(&resolver->mutex);
        pthread_join(thread, NULL);
        pthread_mutex_lock(&resolver->mutex);
        i = SIZE_MAX; /* start over: earlier ones may have ended meanwhile */
    }
}

static void start_missing(struct dlock__resolver *resolver) {
    for (size_t i = 0; i < resolver->n; i++) {
        struct target *target = &resolver->targets[i];
        if (target->state == ENDED && pthread_tryjoin_np(target->thread, NULL) == 0) target->state = IDLE;
        if (target->state != IDLE) continue;
        if (dlock__thread_start(&target->thread, look_up, target) != DLOCK_OK) {
            target->failure = EAI_MEMORY;
            continue;
        }
        target->state = LOOKING; /* safe after the start: the thread takes the mutex before it reports its answer */
        resolver->looking++;
    }
}

/* Waits until every look-up has ended, or until it is time to make do with the addresses that are known. */
static void wait_for_answers(struct dlock__resolver *resolver, int64_t deadline_us) {
    int64_t start_us = dlock__now_us();
    int64_t half_us = deadline_us > start_us ? start_us + (deadline_us - start_us) / 2 : deadline_us;
    while (resolver->looking > 0) {
        int64_t until_us = anything_known(resolver) ? half_us : deadline_us;
        if (dlock__now_us() >= until_us) break;
        dlock__cond_wait(&resolver->changed, &resolver->mutex, until_us);
    }
    /* The next call need not wait again for a look-up that hangs, unless the addresses at hand fail as well. */
    resolver->stale = false;
}

/* Reports why no address is known. */
static int explain(const struct dlock__resolver *resolver, struct dlock_error *err) {
    const struct target *worst = &resolver->targets[0];
    for (size_t i = 0; i < resolver->n; i++)
        if (resolver->targets[i].failure != 0) worst = &resolver->targets[i];
    if (worst->failure == EAI_MEMORY)
        return dlock_fail(err, DLOCK_ENOMEM, "out of memory or threads to look up the host \"%s\"", worst->host);
    if (worst->failure != 0)
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "the host \"%s\" was not found: %s", worst->host,
                          gai_strerror(worst->failure));
    if (worst->state == LOOKING && dlock__forked_amid())
        return dlock_fail(err, DLOCK_EUNAVAILABLE,
                          "looking up the host \"%s\" takes too long: this process was forked while another thread "
                          "looked up a name or connected; fork before, or exec() in the child",
                          worst->host);
    if (worst->state == LOOKING)
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "looking up the host \"%s\" takes too long: check the name server",
                          worst->host);
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "no address of the host \"%s\" is known yet", worst->host);
}

/* ---- for the core ------------------------------------------------------------------------------------------------ */

int dlock__resolver_new(const struct dlock_uri *uri, struct dlock__resolver **out, struct dlock_error *err) {
    size_t bytes = 0;
    for (size_t i = 0; i < uri->n_hosts; i++) bytes += strlen(uri->hosts[i].host) + 1;
    struct dlock__resolver *resolver = calloc(1, sizeof *resolver + uri->n_hosts * sizeof(struct target) + bytes);
    if (!resolver) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for the resolver");
    pthread_mutex_init(&resolver->mutex, NULL);
    dlock__cond_init(&resolver->changed);
    resolver->n = uri->n_hosts;
    char *strings = (char *)(resolver->targets + uri->n_hosts);
    for (size_t i = 0; i < resolver->n; i++) {
        struct target *target = &resolver->targets[i];
        *target = (struct target){.resolver = resolver, .port = uri->hosts[i].port, .state = FIXED};
        target->host = copy(&strings, uri->hosts[i].host);
        if (is_folder(target) || query(target->host, AI_NUMERICHOST, &target->known) == 0) continue;
        target->state = IDLE;
        resolver->stale = true;
    }
    *out = resolver;
    return DLOCK_OK;
}

int dlock__resolve(struct dlock__resolver *resolver, int64_t deadline_us, bool lookup,
                   struct dlock__addresses **addresses, struct dlock_error *err) {
    int rc = DLOCK_OK;
    pthread_mutex_lock(&resolver->mutex);
    bool known = anything_known(resolver);
    if (lookup && (resolver->stale || !known)) {
        join_ended(resolver);
        start_missing(resolver);
        wait_for_answers(resolver, deadline_us);
        join_ended(resolver);
    } else if (resolver->stale && known) {
        start_missing(resolver);
    }
    struct dlock__addresses *found = addresses_new(resolver);
    if (!found)
        rc = dlock_fail(err, DLOCK_ENOMEM, "out of memory for addresses");
    else if (found->n == 0 && resolver->n > 0)
        rc = explain(resolver, err);
    if (rc == DLOCK_OK)
        *addresses = found;
    else
        free(found);
    pthread_mutex_unlock(&resolver->mutex);
    return rc;
}

void dlock__resolver_stale(struct dlock__resolver *resolver) {
    pthread_mutex_lock(&resolver->mutex);
    resolver->stale = true;
    pthread_mutex_unlock(&resolver->mutex);
}

/* Returns the resolver of an announced host, which is made if need be. NULL: out of memory. */
static struct dlock__resolver *take(struct dlock__resolver *all, const struct dlock_host *host) {
    const struct dlock_uri uri = {.hosts = host, .n_hosts = 1};
    struct dlock__resolver *one = NULL, *gone = NULL, **at, **idle = NULL;
    size_t n = 0;
    pthread_mutex_lock(&all->mutex);
    for (at = &all->announced; *at; at = &(*at)->next, n++) {
        if ((*at)->targets->port == host->port && strcmp((*at)->targets->host, host->host) == 0) break;
        if ((*at)->users == 0) idle = at;
    }
    one = *at;
    if (!one && n >= MOST_ANNOUNCED && idle) {
        gone = *idle;
        *idle = gone->next;
    }
    if (!one && dlock__resolver_new(&uri, &one, NULL) == DLOCK_OK) {
        one->next = all->announced;
        all->announced = one;
    }
    if (one) one->users++;
    pthread_mutex_unlock(&all->mutex);
    dlock__resolver_free(gone);
    return one;
}

int dlock__resolve_announced(struct dlock__resolver *resolver, const char *host, int port, int64_t deadline_us,
                             bool lookup, struct dlock__addresses **addresses, struct dlock_error *err) {
    struct dlock__resolver *one = take(resolver, &(struct dlock_host){.host = host, .port = port});
    if (!one) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for the resolver");
    dlock__resolver_stale(one);
    /* a deadline that has passed begins a look-up without waiting for it */
    int rc = dlock__resolve(one, lookup ? deadline_us : 0, true, addresses, err);
    pthread_mutex_lock(&resolver->mutex);
    one->users--;
    pthread_mutex_unlock(&resolver->mutex);
    return rc;
}

void dlock__resolver_free(struct dlock__resolver *resolver) {
    if (!resolver) return;
    for (struct dlock__resolver *one = resolver->announced, *next; one; one = next) {
        next = one->next;
        dlock__resolver_free(one);
    }
    pthread_mutex_lock(&resolver->mutex);
    join_ended(resolver);
    for (size_t i = 0; i < resolver->n; i++)
        if (resolver->targets[i].state == LOOKING) pthread_detach(resolver->targets[i].thread);
    resolver->freed = true;
    leave(resolver);
}
