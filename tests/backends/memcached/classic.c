#include "classic.h"

#include "support/relay.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>

bool servers_are_classic(void) {
    return getenv("DLOCK_TEST_CLASSIC") != NULL;
}

/* The server itself then says in its turn that it does not know the command. No classic command begins with an `m`, and
 * no line of a value that these tests store. */
static void spoil_meta(char *data, size_t size, char before) {
    for (size_t i = 0; i < size; i++) {
        if (before == '\n' && data[i] == 'm') data[i] = 'x';
        before = data[i];
    }
}

void classic_relay(const struct server *server) {
    enum { MOST = 16 };
    static struct relay *relays[MOST]; /* until the end of the program */
    char path[128];
    int n = 0;
    for (; n < MOST && relays[n]; n++)
        if (relay_port(relays[n]) == server->port) return;
    assert_true(n < MOST);
    snprintf(path, sizeof path, "%s" CLASSIC_SOCKET, server->folder);
    relays[n] = relay_to_socket(server->port, path, spoil_meta);
}
