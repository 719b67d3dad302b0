#include "trio.h"

struct link three;

int trio_begin(void **state) {
    pair_begin(state);
    link_new(&three, shared_port(), "10s", 'c');
    return 0;
}

int trio_end(void **state) {
    pair_end(state);
    link_end(&three);
    return 0;
}

void expect_look(struct link *link, const char *name) {
    struct dlock_wake wake;
    assert_true(told_within(link, &wake, 5000));
    assert_int_equal(wake.kind, DLOCK_WAKE_LOOK);
    assert_string_equal(wake.name, name);
}

void expect_einval(struct link *link, struct held *held, const char *why) {
    struct dlock_error err = {0};
    assert_int_equal(held_run(backend->acquire, link, held, DLOCK_CLAIM_QUEUE, TIMEOUT_MS, &err), 0);
    assert_int_equal(held->claim.result, DLOCK_EINVAL);
    assert_int_equal(err.code, DLOCK_EINVAL);
    if (!strstr(err.message, why)) fail_msg("%s", err.message);
    assert_int_equal(release(link, held), DLOCK_ELOST);
}
