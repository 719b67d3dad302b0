/* Wake-ups: a backend that sends arbitrary wake-ups to a client that waits. Each line of the input is one wake-up,
 * "<kind> <name> <token> <fence> <server µs> <kept ms>", with - for NULL, and @ for the token that waits (text may
 * follow it); the kinds are the numbers of enum dlock_wake_kind. The waiter's callback must be called once, and it has
 * the lock only if a wake-up granted it; in the end nothing may be held. */
#include "operate.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define NAME "n"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct {
    const char *at, *end;
    char waiting[DLOCK_TOKEN_MAX + 1]; /* the token that waits; "": there was no request yet */
    char name[300], token[300];        /* of the last wake-up */
    bool over;                         /* all wake-ups have been read */
    bool gave;                         /* there was a wake-up that may be a grant for the token */
    bool renewed, told;
    int fd, code;
} server;

/* ---- the backend ------------------------------------------------------------------------------------------------- */

static int connects(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                    struct dlock_error *err) {
    (void)conn, (void)uri, (void)peer, (void)timeout_ms, (void)err;
    return 0;
}

static void disconnects(void *conn) {
    (void)conn;
}

static int listens(void *conn, int *fd, int timeout_ms, struct dlock_error *err) {
    (void)conn, (void)timeout_ms, (void)err;
    *fd = server.fd;
    return 0;
}

/* The lock is always held by another client. */
static int acquires(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    (void)conn, (void)timeout_ms, (void)err;
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < n; i++) {
        claims[i]->result = DLOCK_EBUSY;
        claims[i]->retry_ms = 60000;
        claims[i]->server_us = 1;
        snprintf(server.waiting, sizeof server.waiting, "%s", claims[i]->token);
        if (claims[i]->flags & DLOCK_CLAIM_QUEUE && eventfd_write(server.fd, 1) != 0) abort();
    }
    pthread_mutex_unlock(&mutex);
    return 0;
}

static int renews(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    (void)conn, (void)timeout_ms, (void)err;
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < n; i++) claims[i]->result = server.gave ? 0 : DLOCK_ELOST;
    server.renewed = true;
    pthread_mutex_unlock(&mutex);
    return 0;
}

static int releases(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    (void)conn, (void)timeout_ms, (void)err;
    for (size_t i = 0; i < n; i++) {
        fuzz_check_claim(claims[i]);
        claims[i]->result = DLOCK_ELOST;
    }
    return 0;
}

static const char *word(char out[300]) {
    size_t n = 0;
    for (; server.at < server.end && *server.at != ' ' && *server.at != '\n'; server.at++)
        if (n < 299 && *server.at) out[n++] = *server.at;
    out[n] = '\0';
    if (server.at < server.end && *server.at == ' ') server.at++;
    if (*out == '@') { /* replaced by the token; the text after it stays */
        char behind[300];
        memcpy(behind, out + 1, sizeof behind - 1);
        snprintf(out, 300, "%.150s%.149s", server.waiting, behind);
    }
    return n == 0 || strcmp(out, "-") == 0 ? NULL : out;
}

static int64_t number(void) {
    char text[300];
    const char *digits = word(text);
    return digits ? strtoll(digits, NULL, 10) : 0;
}

static int wakes(void *conn, struct dlock_wake *out, struct dlock_error *err) {
    eventfd_t some;
    (void)conn, (void)err;
    pthread_mutex_lock(&mutex);
    eventfd_read(server.fd, &some);
    bool more = *server.waiting && server.at < server.end;
    if (more) {
        out->kind = (enum dlock_wake_kind)number();
        out->name = word(server.name);
        out->token = word(server.token);
        out->fence = (uint64_t)number();
        out->server_us = number();
        out->kept_ms = number();
        while (server.at < server.end && *server.at != '\n') server.at++;
        if (server.at < server.end) server.at++;
        if (out->kind == DLOCK_WAKE_GRANTED && out->name && out->token && strcmp(out->name, NAME) == 0 &&
            strcmp(out->token, server.waiting) == 0 && out->fence > 0 && out->fence >> 55 == 0 && out->kept_ms > 0)
            server.gave = true;
    } else if (*server.waiting) {
        server.over = true;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&mutex);
    return more;
}

static const char *const schemes[] = {"fuzz", NULL};
static const struct dlock_backend backend = {.abi = DLOCK_ABI,
                                             .size = sizeof backend,
                                             .name = "fuzz",
                                             .schemes = schemes,
                                             .caps =
                                                 DLOCK_CAP_FENCE | DLOCK_CAP_QUEUE | DLOCK_CAP_WAKE | DLOCK_CAP_WANTED,
                                             .conn_size = 1,
                                             .connect = connects,
                                             .disconnect = disconnects,
                                             .acquire = acquires,
                                             .renew = renews,
                                             .release = releases,
                                             .listen = listens,
                                             .wake = wakes};

/* ---- the target -------------------------------------------------------------------------------------------------- */

static void told(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock, (void)arg;
    if (err) fuzz_check_error(err->code, err);
    pthread_mutex_lock(&mutex);
    fuzz_require(!server.told, "a waiter that is told once");
    server.told = true;
    server.code = err ? err->code : 0;
    fuzz_require(err || server.gave, "a grant that somebody gave");
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

/* Waits until *what is true, at most most_ms. */
static void wait_for(const bool *what, int64_t most_ms) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += most_ms / 1000;
    pthread_mutex_lock(&mutex);
    while (!*what && pthread_cond_timedwait(&changed, &mutex, &until) == 0) {
    }
    fuzz_require(*what, "an end within ten seconds");
    pthread_mutex_unlock(&mutex);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    static bool registered;
    struct dlock_options options = {.size = sizeof options, .owner = DLOCK_OWNER_HANDLE};
    dlock_client *client;
    dlock_lock *lock;
    if (!registered && dlock_register(&backend, NULL) != 0) abort();
    registered = true;
    memset(&server, 0, sizeof server);
    server.at = (const char *)data;
    server.end = server.at + size;
    server.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (dlock_open("fuzz:?linger=1s", NULL, &client, NULL) != 0 || dlock_new(client, NAME, &options, &lock, NULL) != 0)
        abort();
    if (dlock_acquire_async(lock, -1, told, NULL) != 0) abort();
    wait_for(&server.over, 10000);
    dlock_cancel(lock);
    wait_for(&server.told, 10000);
    int64_t left_ms = dlock_remaining_ms(lock);
    fuzz_require(left_ms == 0 || server.code == 0, "nothing is left of what was not given");
    dlock_free(lock);
    dlock_close(client);
    close(server.fd);
    return 0;
}
