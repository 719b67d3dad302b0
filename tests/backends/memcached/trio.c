#include "trio.h"

#include <stdio.h>

struct link links[3];

int trio_begin(void **state) {
    (void)state;
    ask(&server, "flush_all");
    for (int i = 0; i < 3; i++) link_to(&links[i], server.port, (char)('a' + i));
    return 0;
}

int trio_end(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) link_end(&links[i]);
    return 0;
}

struct held claim_of(int client, const char *name, enum dlock_mode mode, uint32_t limit) {
    static int serial;
    struct held held;
    claim_init(&held, name, (char)('a' + client), ++serial);
    held.claim.mode = mode;
    held.claim.limit = limit;
    return held;
}

void own(struct held *held) {
    held->claim.token = held->token;
}

bool is_free(const char *key) {
    return strcmp(ask(&server, "get %s", key), "END\r\n") == 0;
}

int try_explained(struct link *link, struct held *held, char why[512]) {
    struct dlock_error err = {0};
    assert_int_equal(held_run(backend->acquire, link, held, 0, TIMEOUT_MS, &err), 0);
    snprintf(why, 512, "%s", err.message);
    return held->claim.result;
}
