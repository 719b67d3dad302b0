/* Finding the server when the URI has no hosts in front: its keys, a service file, the environment or libpq's defaults
 * name it. Host names are looked up here, within the deadline, since libpq's own look-up has none. */
#include "postgresql.h"

#include <dlock/backend_thread.h>

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* ---- one look-up ------------------------------------------------------------------------------------------------- */

/* One look-up. Shared by the thread that runs it and the one that waits for it; the last user frees it. */
struct lookup {
    pthread_mutex_t mutex;
    pthread_cond_t done;
    int users;
    bool answered;
    int code; /* EAI_… */
    struct addrinfo *found;
    char host[];
};

/* Gives up one use, and frees the look-up with the last. Called with the mutex held, which it unlocks. */
static void let_go(struct lookup *lookup) {
    bool last = --lookup->users == 0;
    pthread_mutex_unlock(&lookup->mutex);
    if (!last) return;
    if (lookup->found) freeaddrinfo(lookup->found);
    pthread_cond_destroy(&lookup->done);
    pthread_mutex_destroy(&lookup->mutex);
    free(lookup);
}

static void *look(void *arg) {
    struct lookup *lookup = arg;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int code = getaddrinfo(lookup->host, NULL, &hints, &found);
    pthread_mutex_lock(&lookup->mutex);
    lookup->answered = true;
    lookup->code = code;
    lookup->found = found;
    pthread_cond_signal(&lookup->done);
    let_go(lookup);
    return NULL;
}

bool pg_detach(void *(*run)(void *), void *arg) {
    pthread_t thread;
    if (dlock_start_thread(&thread, run, arg) != 0) return false;
    pthread_detach(thread);
    return true;
}

static struct lookup *lookup_new(const char *host) {
    struct lookup *lookup = calloc(1, sizeof *lookup + strlen(host) + 1);
    pthread_condattr_t attributes;
    if (!lookup) return NULL;
    strcpy(lookup->host, host);
    lookup->users = 2;
    pthread_mutex_init(&lookup->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&lookup->done, &attributes);
    pthread_condattr_destroy(&attributes);
    if (pg_detach(look, lookup)) return lookup;
    pthread_mutex_lock(&lookup->mutex);
    lookup->users = 1;
    let_go(lookup);
    return NULL;
}

static void wait_for(struct lookup *lookup, int64_t deadline_us) {
    while (!lookup->answered) {
        struct timespec until;
        int64_t left_us = deadline_us - dlock_now_us();
        if (left_us <= 0) return;
        clock_gettime(CLOCK_MONOTONIC, &until);
        left_us += until.tv_nsec / 1000;
        until.tv_sec += left_us / 1000000;
        until.tv_nsec = left_us % 1000000 * 1000;
        pthread_cond_timedwait(&lookup->done, &lookup->mutex, &until);
    }
}

/* Adds an entry for each address of the host. */
static int look_up(struct pg_hosts *hosts, const char *host, int port, int64_t deadline_us, struct dlock_error *err) {
    struct lookup *lookup = lookup_new(host);
    if (!lookup) return dlock_fail(err, DLOCK_EUNAVAILABLE, "out of memory or threads to look up a host name");
    pthread_mutex_lock(&lookup->mutex);
    wait_for(lookup, deadline_us);
    const char *why = !lookup->answered ? "no answer in time" : lookup->code ? gai_strerror(lookup->code) : NULL;
    for (const struct addrinfo *at = lookup->found; at && hosts->n < PG_HOSTS_MAX; at = at->ai_next) {
        struct pg_host *entry = &hosts->list[hosts->n];
        if (getnameinfo(at->ai_addr, at->ai_addrlen, entry->address, sizeof entry->address, NULL, 0, NI_NUMERICHOST))
            continue;
        snprintf(entry->host, sizeof entry->host, "%s", host);
        entry->port = port;
        hosts->n++;
    }
    let_go(lookup);
    return why ? dlock_fail(err, DLOCK_EUNAVAILABLE, "cannot look up the server's name: %s", why) : 0;
}

/* ---- libpq's settings -------------------------------------------------------------------------------------------- */

/* Takes the next entry off a comma-separated list; "" at its end. */
static void take_entry(const char **list, char *out, size_t size) {
    size_t length = strcspn(*list, ",");
    snprintf(out, size, "%.*s", (int)length, *list);
    *list += length + ((*list)[length] == ',');
}

static bool is_numeric(const char *host) {
    unsigned char address[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
}

static const char *setting(const PQconninfoOption *settings, const char *key) {
    for (; settings->keyword; settings++)
        if (strcmp(settings->keyword, key) == 0) return settings->val ? settings->val : "";
    return "";
}

/* Adds one entry of the lists of hosts, addresses and ports; a name that has to be looked up may add several hosts. */
static int add_entry(struct pg_hosts *hosts, const char *host, const char *address, int port, int64_t deadline_us,
                     struct dlock_error *err) {
    struct pg_host *entry = &hosts->list[hosts->n];
    if (hosts->n == PG_HOSTS_MAX) return 0;
    if (*host && !*address && *host != '/' && *host != '@' && !is_numeric(host))
        return look_up(hosts, host, port, deadline_us, err);
    snprintf(entry->host, sizeof entry->host, "%s", host);
    snprintf(entry->address, sizeof entry->address, "%s", address);
    entry->port = port;
    hosts->n++;
    return 0;
}

bool pg_hosts_in_keys(const struct dlock_uri *uri) {
    return dlock_uri_get(uri, "host") || dlock_uri_get(uri, "hostaddr");
}

int pg_hosts(const struct dlock_uri *uri, struct pg_hosts *hosts, int64_t deadline_us, struct dlock_error *err) {
    /* Only a connection shows what libpq makes of all its sources. An invalid sslmode makes libpq refuse to begin
     * connecting. */
    struct pg_parameters parameters;
    PGconn *refused = NULL;
    PQconninfoOption *settings = NULL;
    int rc = pg_parameters(uri, NULL, &parameters, err);
    if (rc == 0) {
        parameters.keys[parameters.n] = "sslmode";
        parameters.values[parameters.n] = "none at all";
        refused = PQconnectStartParams(parameters.keys, parameters.values, 0);
        settings = refused ? PQconninfo(refused) : NULL;
        if (!settings) rc = dlock_fail(err, DLOCK_ENOMEM, "out of memory");
    }
    hosts->n = 0;
    if (settings) {
        const char *names = setting(settings, "host"), *addresses = setting(settings, "hostaddr");
        const char *ports = setting(settings, "port");
        bool one_port = !strchr(ports, ',');
        char name[PG_HOST_MAX], address[sizeof hosts->list->address], port[12];
        int failed = 0;
        do {
            take_entry(&names, name, sizeof name);
            take_entry(&addresses, address, sizeof address);
            if (!one_port || hosts->n == 0) take_entry(&ports, port, sizeof port);
            failed = add_entry(hosts, name, address, atoi(port), deadline_us, err);
        } while ((*names || *addresses) && failed != DLOCK_ENOMEM);
        if (hosts->n == 0) rc = failed;
    }
    PQconninfoFree(settings);
    PQfinish(refused);
    pg_parameters_free(&parameters);
    return rc;
}
