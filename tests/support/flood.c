#include "support/flood.h"

#include "support/clock.h"
#include "support/loopback.h"
#include "support/test.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

bool flood_send(int fd, const void *bytes, size_t size) {
    for (size_t sent = 0; sent < size;) {
        ssize_t n = send(fd, (const char *)bytes + sent, size - sent, MSG_NOSIGNAL);
        if (n <= 0) return false;
        sent += (size_t)n;
    }
    return true;
}

bool flood_hear(int fd) {
    char request[8192];
    return recv(fd, request, sizeof request, 0) > 0;
}

static void *serve(void *arg) {
    struct flood *flood = arg;
    unsigned char *piece = malloc(FLOOD_PIECE);
    assert_non_null(piece);
    int fd = accept(flood->listener, NULL, NULL);
    const struct timeval most = {.tv_sec = flood->most_ms / 1000 + 1};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    const size_t size = flood->begin(flood->arg, fd, piece);
    assert_true(size <= FLOOD_PIECE);
    const int64_t until = now_ms() + flood->most_ms;
    bool goes_on = size > 0;
    while (goes_on && now_ms() < until && (!flood->most || flood->sent < flood->most)) {
        goes_on = flood->silent ? flood_hear(fd) : flood_send(fd, piece, size);
        if (!flood->silent) flood->sent += size;
    }
    close(fd);
    free(piece);
    return NULL;
}

void flood_start(struct flood *flood) {
    flood->sent = 0;
    flood->listener = loopback_listen(&flood->port);
    assert_int_equal(pthread_create(&flood->thread, NULL, serve, flood), 0);
}

void flood_end(struct flood *flood) {
    pthread_join(flood->thread, NULL);
    close(flood->listener);
}
