/* The proxy of the other tests. */
#include "support/relay.h"

#include "support/loopback.h"
#include "support/test.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void say(int fd, const char *text) {
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (int)strlen(text));
}

static void assert_hears(int fd, const char *text) {
    char heard[16] = "";
    struct pollfd poll_fd = {fd, POLLIN, 0};
    assert_int_equal(poll(&poll_fd, 1, 10000), 1);
    assert_int_equal(recv(fd, heard, sizeof heard - 1, 0), (int)strlen(text));
    assert_string_equal(heard, text);
}

/* However often clients on the wrong side of a cut try to reach the server, the others reach it. */
TEST(those_that_are_cut_off_use_nothing_up) {
    int port, listener = loopback_listen(&port);
    struct relay *relay = relay_new(port);
    relay_cut(relay, "west");
    for (int i = 0; i < RELAY_PAIRS + 10; i++) {
        int west = loopback_connect(relay_port(relay)), server = accept(listener, NULL, NULL);
        say(west, "west");
        close(west);
        assert_hears(server, "");
        close(server);
    }
    int east = loopback_connect(relay_port(relay)), server = accept(listener, NULL, NULL);
    say(east, "east");
    assert_hears(server, "east");
    say(server, "yes");
    assert_hears(east, "yes");
    close(east);
    close(server);
    relay_end(relay);
    close(listener);
}

/* A connection that the server knows of stays open there, as if the network were gone. */
TEST(what_was_connected_stays_open) {
    int port, listener = loopback_listen(&port);
    struct relay *relay = relay_new(port);
    int west = loopback_connect(relay_port(relay)), server = accept(listener, NULL, NULL);
    struct pollfd poll_fd = {server, POLLIN, 0};
    say(west, "west");
    assert_hears(server, "west");
    assert_int_equal(relay_mute(relay, "west"), 1);
    close(west);
    assert_int_equal(poll(&poll_fd, 1, 200), 0);
    close(server);
    relay_end(relay);
    close(listener);
}

TESTS(NULL, NULL, NULL, NULL)
