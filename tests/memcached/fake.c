#include "fake.h"

#include "harness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

/* Whether it can be read or written within 20 ms. */
static bool is_ready(int fd, short events) {
    struct pollfd poll_fd = {fd, events, 0};
    return poll(&poll_fd, 1, 20) > 0;
}

/* Returns false when the client is gone or the test over. */
static bool say(struct fake *fake, int fd, const char *text, int drip_ms) {
    size_t length = strlen(text);
    while (length && !atomic_load(&fake->stop)) {
        ssize_t n;
        if (!is_ready(fd, POLLOUT)) continue;
        size_t part = *text == '\a' || drip_ms ? 1 : strcspn(text, "\a");
        n = send(fd, *text == '\a' ? "" : text, part, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN) return false;
        if (n > 0) text += n, length -= (size_t)n;
        if (drip_ms) sleep_ms(drip_ms);
    }
    return !atomic_load(&fake->stop);
}

/* Answers the i-th thing that came; false: no more of this connection. */
static bool answer(struct fake *fake, int fd, int i) {
    if (i == 0)
        return say(fake, fd, fake->greeting ? fake->greeting : FAKE_GREETING,
                   fake->drip_greeting ? fake->drip_ms : 0) &&
               !fake->close_greeted;
    atomic_fetch_add(&fake->requests, 1);
    const char *text = i > 1 && fake->then ? fake->then : fake->answer;
    if (text && !say(fake, fd, text, fake->drip_ms)) return false;
    while (fake->flood)
        if (!say(fake, fd, fake->flood, 0)) return false;
    return !fake->close_after;
}

static void serve(struct fake *fake, int fd) {
    char buffer[65536];
    bool more = true;
    for (int i = 0; more && !atomic_load(&fake->stop);) {
        ssize_t n;
        if (fake->deaf && i > 0) {
            sleep_ms(5);
            continue;
        }
        if (!is_ready(fd, POLLIN)) continue;
        n = recv(fd, buffer, sizeof buffer, 0);
        if (n == 0) atomic_fetch_add(&fake->eof, 1);
        if (n < 0) atomic_fetch_add(&fake->reset, 1);
        if (n <= 0) break;
        more = answer(fake, fd, i++);
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
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    const int small = 4096;
    fake->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fake->listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    assert_int_equal(bind(fake->listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(fake->listener, 10), 0);
    assert_int_equal(getsockname(fake->listener, (struct sockaddr *)&address, &size), 0);
    fake->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&fake->thread, NULL, run, fake), 0);
}

void fake_stop(struct fake *fake) {
    atomic_store(&fake->stop, true);
    pthread_join(fake->thread, NULL);
    close(fake->listener);
}
