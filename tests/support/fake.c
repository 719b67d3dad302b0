#include "support/fake.h"

#include "support/clock.h"
#include "support/loopback.h"
#include "support/test.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BUFFER = 1 << 16 };

/* True if the descriptor can be read or written within 20 ms. */
static bool is_ready(int fd, short events) {
    struct pollfd poll_fd = {fd, events, 0};
    return poll(&poll_fd, 1, 20) > 0;
}

/* Sends the text. False: the client is gone, or the test is over. */
static bool say(struct fake *fake, int fd, const char *text, int drip_ms) {
    size_t length = strlen(text);
    while (length && !atomic_load(&fake->stop)) {
        if (!is_ready(fd, POLLOUT)) continue;
        size_t part = *text == '\a' || drip_ms ? 1 : strcspn(text, "\a");
        ssize_t n = send(fd, *text == '\a' ? "" : text, part, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN) return false;
        if (n > 0) text += n, length -= (size_t)n;
        if (drip_ms) sleep_ms(drip_ms);
    }
    return !atomic_load(&fake->stop);
}

static int greetings(void) {
    int n = 0;
    while (fake_protocol.greeting[n]) n++;
    return n;
}

static bool greet(struct fake *fake, int fd, int i) {
    const char *text = fake->greeting[i] ? fake->greeting[i] : fake_protocol.greeting[i];
    if (!say(fake, fd, text, fake->drip_greeting ? fake->drip_ms : 0)) return false;
    return i + 1 < greetings() || !fake->close_greeted;
}

static const char *answer_to(const struct fake *fake, int i) {
    const char *text = "";
    for (int j = 0; j <= i && fake->answers && fake->answers[j]; j++) text = fake->answers[j];
    return text;
}

/* Answers the i-th request of a connection. False: end the connection. */
static bool answer(struct fake *fake, int fd, int i) {
    int after = i - greetings();
    if (after < 0) return greet(fake, fd, i);
    atomic_fetch_add(&fake->requests, 1);
    if (after + 1 < fake->gather) return true;
    for (int j = after + 1 == fake->gather ? 0 : after; j <= after; j++) {
        if (!say(fake, fd, answer_to(fake, j), fake->drip_ms)) return false;
        while (fake->flood)
            if (!say(fake, fd, fake->flood, 0)) return false;
    }
    return !fake->close_after;
}

/* Answers the complete requests in the buffer and removes them. */
static bool answer_all(struct fake *fake, int fd, int *i, char *buffer, size_t *used) {
    bool more = true;
    while (more && *used) {
        size_t size = fake_protocol.request ? fake_protocol.request(buffer, *used) : *used;
        if (!size) return *used < BUFFER;
        const char *aside = fake_protocol.aside && !fake->converse ? fake_protocol.aside(buffer, size) : NULL;
        if (aside)
            more = !*answer_to(fake, *i - 1 - greetings()) || say(fake, fd, aside, fake->drip_ms);
        else
            more = fake->converse ? fake->converse(fake, fd, *i, buffer, size) : answer(fake, fd, *i);
        if (!aside) ++*i;
        *used -= size;
        memmove(buffer, buffer + size, *used);
    }
    return more;
}

static void serve(struct fake *fake, int fd) {
    const int on = 1;
    char buffer[BUFFER];
    size_t used = 0;
    int i = 0;
    bool more = true;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    while (more && !atomic_load(&fake->stop)) {
        if (fake->deaf && i >= greetings()) {
            sleep_ms(5);
            continue;
        }
        if (!is_ready(fd, POLLIN)) continue;
        ssize_t n = recv(fd, buffer + used, sizeof buffer - used, 0);
        if (n == 0) atomic_fetch_add(&fake->eof, 1);
        if (n < 0) atomic_fetch_add(&fake->reset, 1);
        if (n <= 0) break;
        used += (size_t)n;
        more = answer_all(fake, fd, &i, buffer, &used);
    }
    if (!more && fake->kept == fd) return;
    if (!more) {
        /* A regular end, then a reset: a client that writes after that gets EPIPE. */
        const struct linger reset = {1, 0};
        shutdown(fd, SHUT_WR);
        sleep_ms(50);
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    }
    close(fd);
}

static void *run(void *arg) {
    struct fake *fake = arg;
    while (!atomic_load(&fake->stop)) {
        int fd = is_ready(fake->listener, POLLIN) ? accept(fake->listener, NULL, NULL) : -1;
        if (fd >= 0) serve(fake, fd);
    }
    return NULL;
}

void fake_start(struct fake *fake) {
    const int small = 4096;
    fake->listener = loopback_listen(&fake->port);
    setsockopt(fake->listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    assert_int_equal(pthread_create(&fake->thread, NULL, run, fake), 0);
}

void fake_stop(struct fake *fake) {
    atomic_store(&fake->stop, true);
    pthread_join(fake->thread, NULL);
    close(fake->listener);
}

int fake_try(struct fake *fake, struct link *link, int timeout_ms, struct dlock_error *err) {
    struct uri uri;
    fake_start(fake);
    uri_init(&uri, fake->port);
    return link_try(link, &uri.parts, 'a', 0, timeout_ms, err);
}

void fake_link(struct fake *fake, struct link *link) {
    fake_start(fake);
    link_to(link, fake->port, 'a');
}

void fake_unlink(struct fake *fake, struct link *link) {
    link_end(link);
    fake_stop(fake);
}
