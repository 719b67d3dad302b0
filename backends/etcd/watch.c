/* Streams that report when a key is deleted. A waiting claim has one on the key before its own. A claim that waits for
 * a permit has one on all keys of its name, until enough of them have been deleted. A stream ends with its report, or
 * with its connection; in both cases the waiter retries and gets another one.
 *
 * A stream reports what happens after it has begun. If anything was written between the waiter's last look and that
 * moment, the waiter looks once more. A stream starting at the revision of that look would avoid this, but etcd serves
 * streams that begin in the past from a loop that runs ten times a second (syncWatchersLoop).
 *
 * All streams are in one multi handle, which the core drives by calling `wake`. Its descriptors are in an epoll
 * descriptor, which is the one that the core polls. */
#include "etcd.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

enum {
    WATCHES_MAX = 256,   /* most streams, each with a socket; further waiters poll */
    LINE_MAX_ = 1 << 20, /* longest message */
    FAILED_US = 500000   /* no new stream for this long after one that failed */
};

struct etcd_watch {
    struct etcd_watch *next;
    CURL *easy;
    struct curl_slist *headers, *connect;
    struct dlock_text body, line;
    char key[ETCD_KEY64_SIZE];                  /* in base64; "": all keys of the name */
    size_t member;                              /* the number of the member that it is on */
    int64_t need;                               /* number of events still awaited */
    int64_t seen, from;                         /* revisions of the waiter's last look, and of the stream's beginning */
    int64_t counted;                            /* the revision up to which `need` counts events */
    int64_t looked_us;                          /* when that look was */
    bool over, heard, told;                     /* told: the waiter, since its last look */
    char name[256], token[DLOCK_TOKEN_MAX + 1]; /* of the waiter */
};

/* ---- messages of a stream ---------------------------------------------------------------------------------------- */

/* Reads one message, which is one line. */
static void read_message(struct etcd_watch *watch) {
    struct etcd_reply reply;
    if (!etcd_reply_read(&reply, watch->line.at, watch->line.n)) {
        watch->over = true;
        return;
    }
    json_t *events = json_object_get(reply.body, "events");
    watch->heard = true;
    if (json_is_true(json_object_get(reply.body, "created"))) watch->from = reply.revision;
    watch->need -= (int64_t)json_array_size(events);
    watch->counted = reply.revision;
    /* Refused, or the member is stopping: either way the waiter retries. */
    if (watch->need <= 0 || json_is_true(json_object_get(reply.body, "canceled")) ||
        json_object_get(reply.root, "error"))
        watch->over = true;
    etcd_reply_end(&reply);
}

static size_t receive(char *bytes, size_t size, size_t n, void *arg) {
    struct etcd_watch *watch = arg;
    for (size_t left = size * n; left > 0 && !watch->over;) {
        const char *end = memchr(bytes, '\n', left);
        size_t piece = end ? (size_t)(end - bytes) + 1 : left;
        if (watch->line.n + piece > LINE_MAX_) watch->over = true;
        dlock_text_add_bytes(&watch->line, bytes, piece);
        if (watch->line.failed) watch->over = true;
        if (end && !watch->over) read_message(watch);
        if (end) watch->line.n = 0;
        bytes += piece;
        left -= piece;
    }
    return size * n;
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *known) {
    struct etcd *z = arg;
    struct epoll_event event = {.events = 0, .data = {.fd = (int)fd}};
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(z->poll_fd, EPOLL_CTL_DEL, (int)fd, NULL);
        return 0;
    }
    if (what & CURL_POLL_IN) event.events |= EPOLLIN;
    if (what & CURL_POLL_OUT) event.events |= EPOLLOUT;
    if (epoll_ctl(z->poll_fd, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, (int)fd, &event) != 0 && errno == EEXIST)
        epoll_ctl(z->poll_fd, EPOLL_CTL_MOD, (int)fd, &event);
    curl_multi_assign(z->multi, fd, z);
    return 0;
}

static int on_timer(CURLM *multi, long ms, void *arg) {
    struct etcd *z = arg;
    struct itimerspec when = {{0, 0}, {ms / 1000, ms % 1000 * 1000000}};
    (void)multi;
    if (ms == 0) when.it_value.tv_nsec = 1;
    if (ms < 0) when.it_value = (struct timespec){0, 0};
    timerfd_settime(z->timer_fd, 0, &when, NULL);
    return 0;
}

static bool polls(const struct etcd *z, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
    return fd >= 0 && epoll_ctl(z->poll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

int etcd_watches_begin(struct etcd *z, struct dlock_error *err) {
    z->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    z->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    z->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (z->poll_fd < 0 || !polls(z, z->timer_fd) || !polls(z, z->event_fd))
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "no descriptors left; raise the limit (ulimit -n)");
    z->multi = curl_multi_init();
    if (!z->multi) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for a connection to etcd");
    curl_multi_setopt(z->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(z->multi, CURLMOPT_SOCKETDATA, z);
    curl_multi_setopt(z->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(z->multi, CURLMOPT_TIMERDATA, z);
    curl_multi_setopt(z->multi, CURLMOPT_MAXCONNECTS, 1L);
    return 0;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void drop(struct etcd *z, struct etcd_watch **at) {
    struct etcd_watch *watch = *at;
    *at = watch->next;
    z->n_watches--;
    curl_multi_remove_handle(z->multi, watch->easy);
    curl_easy_cleanup(watch->easy);
    curl_slist_free_all(watch->headers);
    curl_slist_free_all(watch->connect);
    dlock_text_free(&watch->body);
    dlock_text_free(&watch->line);
    free(watch);
}

static struct etcd_watch **find(struct etcd *z, const char *name) {
    struct etcd_watch **at = &z->watches;
    while (*at && strcmp((*at)->name, name) != 0) at = &(*at)->next;
    return at;
}

void etcd_watches_free(struct etcd *z) {
    while (z->watches) drop(z, &z->watches);
    if (z->multi) curl_multi_cleanup(z->multi);
    const int fds[] = {z->poll_fd, z->timer_fd, z->event_fd};
    z->poll_fd = z->timer_fd = z->event_fd = -1;
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0) close(fds[i]);
}

void etcd_unwatch(struct etcd *z, const struct dlock_claim *claim) {
    struct dlock_http_signals signals;
    pthread_mutex_lock(&z->watch_mutex);
    struct etcd_watch **at = find(z, claim->name);
    dlock_http_quiet(&z->http, &signals);
    if (*at && strcmp((*at)->token, claim->token) == 0) drop(z, at);
    dlock_http_loud(&z->http, &signals);
    pthread_mutex_unlock(&z->watch_mutex);
}

static void write_request(struct etcd *z, struct etcd_watch *watch) {
    struct dlock_text *body = &watch->body;
    dlock_text_add(body, "{\"create_request\":{");
    if (*watch->key) {
        dlock_text_add(body, "\"key\":\"");
        dlock_text_add_bytes(body, watch->key, strlen(watch->key));
        dlock_text_add(body, "\"");
    } else {
        etcd_add_range(body, z, watch->name);
        dlock_text_add(body, ",\"filters\":[\"NOPUT\"]");
    }
    dlock_text_add(body, "}}");
}

/* Makes a watch and its request. NULL: out of memory. */
static struct etcd_watch *make(struct etcd *z, const char *name, const struct etcd_view *view, int64_t revision) {
    struct etcd_watch *watch = calloc(1, sizeof *watch);
    struct dlock_http_host host;
    if (!watch) return NULL;
    watch->member = etcd_member(z, &host);
    snprintf(watch->name, sizeof watch->name, "%s", name);
    snprintf(watch->key, sizeof watch->key, "%s", view->blocker ? view->blocker : "");
    watch->need = view->blocker ? 1 : view->need;
    watch->seen = revision;
    write_request(z, watch);
    watch->easy = watch->body.failed ? NULL : curl_easy_init();
    if (watch->easy) watch->headers = etcd_prepare(z, watch->easy, &host, "/v3/watch", &watch->connect);
    if (!watch->headers) {
        if (watch->easy) curl_easy_cleanup(watch->easy);
        dlock_text_free(&watch->body);
        free(watch);
        return NULL;
    }
    curl_easy_setopt(watch->easy, CURLOPT_POSTFIELDS, watch->body.at);
    curl_easy_setopt(watch->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)watch->body.n);
    curl_easy_setopt(watch->easy, CURLOPT_CONNECTTIMEOUT_MS, 5000L);
    curl_easy_setopt(watch->easy, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(watch->easy, CURLOPT_WRITEDATA, watch);
    curl_easy_setopt(watch->easy, CURLOPT_PRIVATE, watch);
    return watch;
}

/* Marks the streams whose connections have ended. */
static void reap(struct etcd *z) {
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(z->multi, &left))) {
        struct etcd_watch *watch = NULL;
        if (message->msg != CURLMSG_DONE) continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &watch);
        if (!watch->over && !watch->heard) z->failed_us = dlock_now_us();
        watch->over = true;
    }
}

/* The first stream whose waiter has to look. */
static struct etcd_watch **first_to_tell(struct etcd *z) {
    struct etcd_watch **at = &z->watches;
    while (*at && !(*at)->over && (*at)->from <= (*at)->seen) at = &(*at)->next;
    return at;
}

/* Makes the polled descriptor readable if there is something to tell: bytes that libcurl has already read do not. */
static void ring(struct etcd *z) {
    reap(z);
    if (*first_to_tell(z)) eventfd_write(z->event_fd, 1);
}

/* Starts a stream. False: there is no room, the last one failed just now, or out of memory. Called with watch_mutex. */
static bool add(struct etcd *z, const char *name, const struct etcd_view *view, int64_t revision) {
    int running;
    if (z->n_watches >= WATCHES_MAX || dlock_now_us() < z->failed_us + FAILED_US) return false;
    struct etcd_watch *watch = make(z, name, view, revision);
    if (!watch) return false;
    watch->next = z->watches;
    z->watches = watch;
    z->n_watches++;
    if (curl_multi_add_handle(z->multi, watch->easy) != CURLM_OK) {
        drop(z, &z->watches);
        return false;
    }
    curl_multi_socket_action(z->multi, CURL_SOCKET_TIMEOUT, 0, &running); /* starts the transfer */
    ring(z);
    return true;
}

static bool is_on_member_in_use(struct etcd *z, const struct etcd_watch *watch) {
    struct dlock_http_host host;
    return watch->member == etcd_member(z, &host);
}

/* True if the existing stream waits for what the view waits for, or has ended and will therefore wake the waiter. A
 * stream on a member no longer in use does not fit: a member that is stopped or cut off keeps its streams open and
 * reports nothing. */
static bool fits(struct etcd *z, const struct etcd_watch *watch, const struct etcd_view *view, int64_t revision) {
    if (watch->over) return true;
    if (!is_on_member_in_use(z, watch)) return false;
    if (view->blocker) return strcmp(watch->key, view->blocker) == 0;
    return !*watch->key && watch->need == view->need && watch->counted <= revision;
}

bool etcd_watched(struct etcd *z, const struct dlock_claim *claim, struct etcd_glance *glance) {
    pthread_mutex_lock(&z->watch_mutex);
    const struct etcd_watch *watch = *find(z, claim->name);
    bool there = watch && !watch->over && is_on_member_in_use(z, watch) && strcmp(watch->token, claim->token) == 0;
    if (there) {
        snprintf(glance->blocker, sizeof glance->blocker, "%s", watch->key);
        glance->seen = watch->seen;
        glance->silent_us = dlock_now_us() - watch->looked_us;
        if (!watch->heard || watch->counted > watch->seen) glance->silent_us = INT64_MAX;
    }
    pthread_mutex_unlock(&z->watch_mutex);
    return there;
}

bool etcd_watch(struct etcd *z, const struct dlock_claim *claim, const struct etcd_view *view, int64_t revision) {
    struct dlock_http_signals signals;
    if (view->blocker && strlen(view->blocker) >= ETCD_KEY64_SIZE) return false;
    pthread_mutex_lock(&z->watch_mutex);
    dlock_http_quiet(&z->http, &signals);
    struct etcd_watch **at = find(z, claim->name);
    bool there = *at && fits(z, *at, view, revision);
    if (there && (*at)->seen < revision) (*at)->seen = revision;
    if (*at && !there) drop(z, at);
    if (!there) {
        there = add(z, claim->name, view, revision);
        at = &z->watches;
    }
    struct etcd_watch *watch = there ? *at : NULL;
    if (watch) {
        snprintf(watch->token, sizeof watch->token, "%s", claim->token);
        watch->looked_us = dlock_now_us();
    }
    dlock_http_loud(&z->http, &signals);
    pthread_mutex_unlock(&z->watch_mutex);
    return there;
}

/* ---- wake-ups ---------------------------------------------------------------------------------------------------- */

static void drive(struct etcd *z) {
    struct epoll_event events[32];
    int running, n = epoll_wait(z->poll_fd, events, 32, 0);
    for (int i = 0; i < n; i++) {
        int mask = 0;
        uint64_t count;
        if (events[i].data.fd == z->timer_fd || events[i].data.fd == z->event_fd) {
            if (read(events[i].data.fd, &count, sizeof count) < 0) continue;
            if (events[i].data.fd == z->timer_fd) curl_multi_socket_action(z->multi, CURL_SOCKET_TIMEOUT, 0, &running);
            continue;
        }
        if (events[i].events & EPOLLIN) mask |= CURL_CSELECT_IN;
        if (events[i].events & EPOLLOUT) mask |= CURL_CSELECT_OUT;
        if (events[i].events & (EPOLLERR | EPOLLHUP)) mask |= CURL_CSELECT_ERR;
        curl_multi_socket_action(z->multi, events[i].data.fd, mask, &running);
    }
    reap(z);
}

int etcd_wake(void *conn, struct dlock_wake *out, struct dlock_error *err) {
    struct etcd *z = etcd_of(conn);
    struct dlock_http_signals signals;
    (void)err;
    pthread_mutex_lock(&z->watch_mutex);
    dlock_http_quiet(&z->http, &signals);
    struct etcd_watch **at = first_to_tell(z);
    if (!*at) {
        drive(z);
        at = first_to_tell(z);
    }
    bool told = *at;
    if (told) {
        snprintf(z->woken, sizeof z->woken, "%s", (*at)->name);
        *out = (struct dlock_wake){.kind = DLOCK_WAKE_LOOK, .name = z->woken};
        if ((*at)->over)
            drop(z, at);
        else
            (*at)->from = (*at)->seen; /* it is told once */
    }
    dlock_http_loud(&z->http, &signals);
    pthread_mutex_unlock(&z->watch_mutex);
    return told;
}

int etcd_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err) {
    (void)timeout_ms;
    (void)err;
    *fd = etcd_of(conn)->poll_fd;
    return 0;
}
