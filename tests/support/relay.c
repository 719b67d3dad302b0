#include "support/relay.h"

#include "support/clock.h"
#include "support/loopback.h"
#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PAIRS = RELAY_PAIRS, SAID = 4096, CHUNK = 16384, DROP = 16, SPARED = 4 };

/* Bytes that have arrived, to pass on at `due_ms`. */
struct chunk {
    struct chunk *next;
    int64_t due_ms;
    size_t size, sent;
    char bytes[];
};

struct pair {
    int fd[2];              /* the client's and the server's; -1: free */
    struct chunk *first[2]; /* to each of them */
    bool ended[2];          /* this side sends no more */
    bool mute, spoke;       /* spoke: the client sent the last bytes */
    bool known;             /* to the server, which has received bytes of it */
    bool lost;              /* has lost an answer */
    int spared;             /* answers that could not be lost yet */
    bool seen, doomed;      /* seen, doomed: set by relay->look; a doomed pair ends instead of the next answer */
    size_t n_said;
    char said[SAID]; /* by the client, as much as fits */
    char last;       /* the last byte that the client sent */
};

struct relay {
    pthread_mutex_t mutex;
    pthread_t thread;
    int listener, port, server_port, kick[2], delay_ms, taken, trips, lost, one_in;
    unsigned short dice[3];
    bool stop, silent, refuse, lose, dribble, stop_short;
    const char *cut;                                      /* may be NULL */
    bool held[2];                                         /* indexed by the receiving side, as `first` of a pair */
    char path[sizeof((struct sockaddr_un *)0)->sun_path]; /* "": the server is at server_port */
    relay_edit *edit;                                     /* may be NULL */
    relay_look *look;                                     /* may be NULL */
    void *look_arg;
    struct pair pairs[PAIRS];
};

static void pair_close(struct pair *pair) {
    for (int side = 0; side < 2; side++) {
        close(pair->fd[side]);
        pair->fd[side] = -1;
        while (pair->first[side]) {
            struct chunk *chunk = pair->first[side];
            pair->first[side] = chunk->next;
            free(chunk);
        }
    }
}

static void pair_reset(struct pair *pair) {
    struct linger reset = {1, 0};
    for (int side = 0; side < 2; side++) setsockopt(pair->fd[side], SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    pair_close(pair);
}

static int connect_server(const struct relay *relay) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (!*relay->path) return loopback_connect(relay->server_port);
    memcpy(to.sun_path, relay->path, sizeof to.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&to, sizeof to) == 0) return fd;
    close(fd);
    return -1;
}

/* Accepts the client and connects it with the server. */
static void join(struct relay *relay, int client) {
    struct pair *pair = relay->pairs;
    int one = 1;
    while (pair < relay->pairs + PAIRS && pair->fd[0] >= 0) pair++;
    int server = relay->refuse || pair == relay->pairs + PAIRS ? -1 : connect_server(relay);
    if (server < 0) {
        close(client);
        return;
    }
    memset(pair, 0, sizeof *pair);
    pair->fd[0] = client;
    pair->fd[1] = server;
    pair->mute = relay->silent;
    pair->last = '\n';
    for (int side = 0; side < 2; side++) setsockopt(pair->fd[side], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static void accept_one(struct relay *relay) {
    int client = accept4(relay->listener, NULL, NULL, SOCK_CLOEXEC);
    if (client < 0) return;
    relay->taken++;
    join(relay, client);
}

static void look_at(struct relay *relay, struct pair *pair, const char *bytes, size_t size) {
    int reaction = relay->look(relay->look_arg, (size_t)(pair - relay->pairs), !pair->seen, bytes, size);
    pair->seen = true;
    if (reaction & RELAY_END_IT) pair->doomed = true;
    if (reaction & RELAY_HOLD) relay->held[RELAY_ANSWERS] = true;
    if (reaction & RELAY_MUTE) pair->mute = true;
}

static bool snatches(struct relay *relay, struct pair *pair) {
    return relay->one_in && ++pair->spared > SPARED && nrand48(relay->dice) % relay->one_in == 0;
}

static bool has_said(const struct pair *pair, const char *word) {
    return memmem(pair->said, pair->n_said, word, strlen(word)) != NULL;
}

/* Reads what one side sends, to be passed on to the other. */
static void take(struct relay *relay, struct pair *pair, int side) {
    struct chunk *chunk = malloc(sizeof *chunk + CHUNK), **last = &pair->first[!side];
    if (!chunk) abort();
    ssize_t got = recv(pair->fd[side], chunk->bytes, CHUNK, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) { /* the slot has a new pair since it was polled */
        free(chunk);
        return;
    }
    if (pair->doomed && side == 1) {
        free(chunk);
        pair_reset(pair);
        return;
    }
    if (got <= 0) {
        free(chunk);
        pair->ended[side] = true;
        shutdown(pair->fd[!side], SHUT_WR);
        if (got < 0 || pair->ended[!side]) pair_close(pair);
        return;
    }
    if (side == 0) {
        char before = pair->last;
        pair->last = chunk->bytes[got - 1];
        if (relay->edit) relay->edit(chunk->bytes, (size_t)got, before);
        if (relay->look) look_at(relay, pair, chunk->bytes, (size_t)got);
    }
    size_t room = SAID - pair->n_said, kept = (size_t)got < room ? (size_t)got : room;
    if (side == 0) memcpy(pair->said + pair->n_said, chunk->bytes, kept);
    if (side == 0) pair->n_said += kept;
    if (side == 0 && relay->cut && has_said(pair, relay->cut)) pair->mute = true;
    if (side == 0 && !pair->spoke) relay->trips++;
    pair->spoke = side == 0;
    if (side == 1 && !relay->lose && snatches(relay, pair)) {
        relay->lost++;
        free(chunk);
        pair_reset(pair);
        return;
    }
    if (side == 1 && relay->lose) {
        if (!pair->lost) relay->lost++;
        pair->lost = true;
        free(chunk);
        return;
    }
    chunk->next = NULL;
    chunk->size = (size_t)got;
    chunk->sent = 0;
    chunk->due_ms = now_ms() + relay->delay_ms;
    while (*last) last = &(*last)->next;
    *last = chunk;
}

/* True if this side is read from. Held bytes stay in the kernel, and so does the end of the stream. */
static bool heard(const struct relay *relay, const struct pair *pair, int side) {
    return !pair->mute && !pair->ended[side] && !relay->held[!side];
}

/* A client that could not reach the server, and has given up: an unneeded slot. Clients that try again and again would
 * use up all of them. */
static bool is_given_up(const struct pair *pair) {
    struct pollfd client = {pair->fd[0], POLLRDHUP, 0};
    return pair->mute && !pair->known && pair->fd[0] >= 0 && poll(&client, 1, 0) > 0;
}

/* Passes on what is due. */
static void pass(const struct relay *relay, struct pair *pair, size_t side) {
    while (pair->first[side] && pair->first[side]->due_ms <= now_ms()) {
        struct chunk *chunk = pair->first[side];
        size_t left = chunk->size - chunk->sent, size = relay->dribble && left > DROP ? DROP : left;
        if (relay->stop_short && side == 0 && left > 1) size = 1;
        ssize_t n = send(pair->fd[side], chunk->bytes + chunk->sent, size, MSG_NOSIGNAL);
        if (n > 0) chunk->sent += (size_t)n;
        if (n > 0 && side == 1) pair->known = true;
        if (relay->dribble) chunk->due_ms = now_ms() + 1;
        if (relay->stop_short && side == 0) chunk->due_ms = INT64_MAX;
        if (n > 0 && chunk->sent < chunk->size) continue;
        pair->first[side] = chunk->next; /* sent, or the other side is gone, as the next recv() shows */
        free(chunk);
    }
}

/* Fills in what to poll for. Returns for how long at most. */
static int prepare(const struct relay *relay, struct pollfd *fds) {
    int64_t due_ms = INT64_MAX;
    for (size_t i = 0; i < PAIRS; i++) {
        const struct pair *pair = &relay->pairs[i];
        for (int side = 0; side < 2; side++) {
            fds[2 * i + (size_t)side] = (struct pollfd){heard(relay, pair, side) ? pair->fd[side] : -1, POLLIN, 0};
            if (!pair->mute && pair->first[side] && pair->first[side]->due_ms < due_ms)
                due_ms = pair->first[side]->due_ms;
        }
        if (pair->mute && !pair->known) fds[2 * i] = (struct pollfd){pair->fd[0], POLLRDHUP, 0};
    }
    fds[2 * PAIRS] = (struct pollfd){relay->listener, POLLIN, 0};
    fds[2 * PAIRS + 1] = (struct pollfd){relay->kick[0], POLLIN, 0};
    if (due_ms == INT64_MAX) return -1;
    return due_ms > now_ms() ? (int)(due_ms - now_ms()) : 0;
}

static void *run(void *arg) {
    struct relay *relay = arg;
    struct pollfd fds[2 * PAIRS + 2];
    char byte[64];
    pthread_mutex_lock(&relay->mutex);
    while (!relay->stop) {
        int ms = prepare(relay, fds);
        pthread_mutex_unlock(&relay->mutex);
        poll(fds, 2 * PAIRS + 2, ms);
        if (fds[2 * PAIRS + 1].revents && read(relay->kick[0], byte, sizeof byte) < 0) abort();
        pthread_mutex_lock(&relay->mutex);
        for (size_t i = 0; i < PAIRS; i++) {
            struct pair *pair = &relay->pairs[i];
            if (is_given_up(pair)) pair_close(pair);
            for (int side = 0; side < 2; side++)
                if (heard(relay, pair, side) && pair->fd[side] >= 0 && fds[2 * i + (size_t)side].revents)
                    take(relay, pair, side);
            for (size_t side = 0; side < 2; side++)
                if (!pair->mute && pair->fd[side] >= 0) pass(relay, pair, side);
        }
        if (fds[2 * PAIRS].revents) accept_one(relay);
    }
    pthread_mutex_unlock(&relay->mutex);
    return NULL;
}

static void kick(struct relay *relay) {
    assert_int_equal(write(relay->kick[1], "", 1), 1);
}

static struct relay *start(int listener, int port, int server_port) {
    struct relay *relay = calloc(1, sizeof *relay);
    assert_non_null(relay);
    relay->server_port = server_port;
    relay->listener = listener;
    relay->port = port;
    assert_return_code(pipe2(relay->kick, O_CLOEXEC), errno);
    for (size_t i = 0; i < PAIRS; i++) relay->pairs[i].fd[0] = relay->pairs[i].fd[1] = -1;
    pthread_mutex_init(&relay->mutex, NULL);
    assert_int_equal(pthread_create(&relay->thread, NULL, run, relay), 0);
    return relay;
}

struct relay *relay_new(int server_port) {
    int port, listener = loopback_listen(&port);
    return start(listener, port, server_port);
}

struct relay *relay_at(const char *address, int port, int server_port) {
    int listener = loopback_listen_at(address, &port);
    return listener < 0 ? NULL : start(listener, port, server_port);
}

struct relay *relay_to_socket(int port, const char *path, relay_edit *edit) {
    struct relay *relay = relay_at("127.0.0.1", port, 0);
    assert_non_null(relay);
    pthread_mutex_lock(&relay->mutex);
    snprintf(relay->path, sizeof relay->path, "%s", path);
    relay->edit = edit;
    pthread_mutex_unlock(&relay->mutex);
    return relay;
}

void relay_end(struct relay *relay) {
    pthread_mutex_lock(&relay->mutex);
    relay->stop = true;
    pthread_mutex_unlock(&relay->mutex);
    kick(relay);
    pthread_join(relay->thread, NULL);
    for (size_t i = 0; i < PAIRS; i++)
        if (relay->pairs[i].fd[0] >= 0) pair_close(&relay->pairs[i]);
    close(relay->listener);
    close(relay->kick[0]);
    close(relay->kick[1]);
    pthread_mutex_destroy(&relay->mutex);
    free(relay);
}

int relay_port(const struct relay *relay) {
    return relay->port;
}

void relay_delay(struct relay *relay, int ms) {
    pthread_mutex_lock(&relay->mutex);
    relay->delay_ms = ms;
    pthread_mutex_unlock(&relay->mutex);
}

static void set(struct relay *relay, bool *what, bool on) {
    pthread_mutex_lock(&relay->mutex);
    *what = on;
    pthread_mutex_unlock(&relay->mutex);
    kick(relay);
}

void relay_hold(struct relay *relay, enum relay_way way, bool hold) {
    set(relay, &relay->held[way], hold);
}

void relay_lose(struct relay *relay, bool lose) {
    pthread_mutex_lock(&relay->mutex);
    relay->lose = lose;
    for (size_t i = 0; i < PAIRS; i++)
        if (!lose && relay->pairs[i].fd[0] >= 0 && relay->pairs[i].lost) pair_reset(&relay->pairs[i]);
    pthread_mutex_unlock(&relay->mutex);
    kick(relay);
}

void relay_snatch(struct relay *relay, int one_in) {
    pthread_mutex_lock(&relay->mutex);
    relay->one_in = one_in;
    pthread_mutex_unlock(&relay->mutex);
}

void relay_dribble(struct relay *relay, bool dribble) {
    set(relay, &relay->dribble, dribble);
}

void relay_stop_short(struct relay *relay) {
    set(relay, &relay->stop_short, true);
}

void relay_repeat(struct relay *relay) {
    pthread_mutex_lock(&relay->mutex);
    bool known[PAIRS];
    for (size_t i = 0; i < PAIRS; i++) known[i] = relay->pairs[i].fd[0] >= 0;
    for (size_t i = 0; i < PAIRS; i++) {
        const struct pair *pair = &relay->pairs[i];
        int ends[2];
        if (!known[i] || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) continue;
        ssize_t n = send(ends[0], pair->said, pair->n_said, MSG_NOSIGNAL);
        close(ends[0]);
        if (n > 0)
            join(relay, ends[1]);
        else
            close(ends[1]);
    }
    pthread_mutex_unlock(&relay->mutex);
    kick(relay);
}

int relay_mute(struct relay *relay, const char *word) {
    int n = 0;
    pthread_mutex_lock(&relay->mutex);
    for (size_t i = 0; i < PAIRS; i++) {
        struct pair *pair = &relay->pairs[i];
        if (pair->fd[0] < 0 || !has_said(pair, word)) continue;
        if (!pair->mute) n++;
        pair->mute = true;
    }
    pthread_mutex_unlock(&relay->mutex);
    kick(relay);
    return n;
}

void relay_cut(struct relay *relay, const char *word) {
    pthread_mutex_lock(&relay->mutex);
    relay->cut = word;
    pthread_mutex_unlock(&relay->mutex);
    relay_mute(relay, word);
}

int relay_taken(struct relay *relay) {
    pthread_mutex_lock(&relay->mutex);
    int taken = relay->taken;
    pthread_mutex_unlock(&relay->mutex);
    return taken;
}

int relay_trips(struct relay *relay) {
    pthread_mutex_lock(&relay->mutex);
    int trips = relay->trips;
    pthread_mutex_unlock(&relay->mutex);
    return trips;
}

int relay_lost(struct relay *relay) {
    pthread_mutex_lock(&relay->mutex);
    int lost = relay->lost;
    pthread_mutex_unlock(&relay->mutex);
    return lost;
}

void relay_hang_up(struct relay *relay) {
    pthread_mutex_lock(&relay->mutex);
    for (size_t i = 0; i < PAIRS; i++)
        if (relay->pairs[i].fd[0] >= 0) pair_reset(&relay->pairs[i]);
    pthread_mutex_unlock(&relay->mutex);
    kick(relay);
}

void relay_refuse(struct relay *relay, bool refuse) {
    pthread_mutex_lock(&relay->mutex);
    relay->refuse = refuse;
    for (size_t i = 0; refuse && i < PAIRS; i++)
        if (relay->pairs[i].fd[0] >= 0) pair_reset(&relay->pairs[i]);
    pthread_mutex_unlock(&relay->mutex);
    kick(relay);
}

void relay_watch(struct relay *relay, relay_look *look, void *arg) {
    pthread_mutex_lock(&relay->mutex);
    relay->look = look;
    relay->look_arg = arg;
    pthread_mutex_unlock(&relay->mutex);
}

void relay_silence(struct relay *relay) {
    pthread_mutex_lock(&relay->mutex);
    relay->silent = true;
    for (size_t i = 0; i < PAIRS; i++) relay->pairs[i].mute = true;
    pthread_mutex_unlock(&relay->mutex);
    kick(relay);
}
