#include "parties.h"

struct party party[PARTIES];

int parties_begin(void **state) {
    (void)state;
    for (int i = 0; i < PARTIES; i++) {
        link_new(&party[i].link, (char)('a' + i));
        link_new(&party[i].ear, (char)('a' + i));
        link_listen(&party[i].ear);
    }
    return 0;
}

int parties_end(void **state) {
    (void)state;
    for (int i = 0; i < PARTIES; i++) {
        link_end(&party[i].link);
        link_end(&party[i].ear);
    }
    return 0;
}

void want(struct held *held, int who, const char *name, enum dlock_mode mode, uint32_t limit) {
    held_new(held, &party[who].link, name);
    held->claim.mode = mode;
    held->claim.limit = limit;
}

int take(struct held *held, int who, const char *name, enum dlock_mode mode) {
    want(held, who, name, mode, 0);
    return acquire(&party[who].link, held);
}

int wait_for(struct held *held, int who, const char *name, enum dlock_mode mode) {
    want(held, who, name, mode, 0);
    return queue_up(&party[who].link, held);
}

int give(struct held *held, int who) {
    return release(&party[who].link, held);
}

void assert_woken(int who, const struct held *held) {
    struct dlock_wake wake;
    wake_get(&party[who].ear, &wake);
    assert_int_equal(wake.kind, DLOCK_WAKE_GRANTED);
    assert_string_equal(wake.token, held->token);
    assert_string_equal(wake.name, held->claim.name);
    assert_int_equal(wake.kept_ms, 3000);
}

void assert_not_woken(int who) {
    assert_true(wake_none(&party[who].ear));
}

void end_lease(const struct held *held) {
    sql("UPDATE {}.shares SET expires_us = {}.clock_us() - 1 WHERE name = '%s' AND token = '%s'", held->claim.name,
        held->token);
    sql("UPDATE {}.locks SET expires_us = {}.clock_us() - 1 WHERE name = '%s' AND token = '%s'", held->claim.name,
        held->token);
}
