#include "crew.h"

#include <stdlib.h>

struct link asker[CREW], listener[CREW];

int crew_setup(void **state) {
    (void)state;
    ask_text(&server, "FLUSHALL");
    for (int i = 0; i < CREW; i++) {
        link_to(&asker[i], server.port, (char)('a' + i));
        link_to(&listener[i], server.port, (char)('a' + i));
        link_listen(&listener[i]);
    }
    return 0;
}

int crew_teardown(void **state) {
    (void)state;
    ask_text(&server, "CONFIG SET maxmemory 0");
    for (int i = 0; i < CREW; i++) {
        link_end(&asker[i]);
        link_end(&listener[i]);
    }
    return 0;
}

void crew_claim(struct held *held, int i, const char *name, enum dlock_mode mode, uint32_t limit) {
    held_new(held, &asker[i], name);
    held->claim.mode = mode;
    held->claim.limit = limit;
}

/* The fence of a grant, as the data say. */
static uint64_t fence_of(const struct held *waiter) {
    static const char script[] = "local key = string.gsub(string.gsub(ARGV[1], '{', '%%7B'), '}', '%%7D') "
                                 "return redis.call('HGET', '{' .. key .. '}:dlock:grants', ARGV[2]) "
                                 "or redis.call('GET', '{' .. key .. '}:dlock:fence')";
    return strtoull(ask_text(&server, "EVAL %s 0 %s %s", script, waiter->claim.name, waiter->token), NULL, 10);
}

void assert_granted(int i, struct held *waiter, uint64_t after_fence) {
    struct dlock_wake wake;
    assert_true(wake_within(&listener[i], &wake, 5000));
    assert_int_equal(wake.kind, DLOCK_WAKE_GRANTED);
    assert_string_equal(wake.name, waiter->claim.name);
    assert_string_equal(wake.token, waiter->token);
    waiter->claim.fence = fence_of(waiter);
    assert_true(waiter->claim.fence > after_fence && waiter->claim.fence < (uint64_t)1 << 55);
}

void assert_quiet(int i) {
    struct dlock_wake wake;
    assert_false(wake_within(&listener[i], &wake, 100));
}

void crew_deaf(int i) {
    char script[100];
    snprintf(script, sizeof script, "return redis.call('PUBSUB', 'NUMSUB', 'dlock:%s')[2]", listener[i].client);
    link_end(&listener[i]);
    while (ask_number(&server, "EVAL %s 0", script)) sleep_ms(5);
}
