/* Operations whose request is sent first, and whose answer is read later. */
#include "harness.h"
#include "support/group.h"
#include "support/pair.h"

#include <poll.h>

static int setup(void **state) {
    struct held held;
    (void)state;
    ask_text(&server, "FLUSHALL");
    link_to(&one, server.port, 'a');
    link_to(&two, server.port, 'b');
    claim_init(&held, "before", 'a', 0); /* the server has the scripts after this */
    assert_int_equal(acquire(&one, &held), 0);
    assert_int_equal(renew(&one, &held), 0);
    assert_int_equal(release(&one, &held), 0);
    return 0;
}

/* Sends an operation, and awaits its answer without reading it. */
static void begin(struct held *held, enum dlock_operation operation) {
    struct dlock_error err;
    struct pollfd answer = {.events = POLLIN};
    assert_int_equal(backend->begin(one.conn, operation, &held->claim, &answer.fd, &err), 0);
    assert_true(answer.fd >= 0);
    assert_int_equal(poll(&answer, 1, TIMEOUT_MS), 1);
}

TEST(an_operation_can_be_begun) {
    struct held held, other;
    claim_init(&held, "begun", 'a', 1);
    claim_init(&other, "begun", 'b', 1);
    begin(&held, DLOCK_ACQUIRE);
    assert_string_equal(ask_text(&server, "GET begun"), held.token);
    assert_int_equal(acquire(&one, &held), 0);
    assert_true(held.claim.fence > 0);
    assert_int_equal(acquire(&two, &other), DLOCK_EBUSY);
    begin(&held, DLOCK_RENEW);
    assert_int_equal(renew(&one, &held), 0);
    begin(&held, DLOCK_RELEASE);
    assert_int_equal(ask_number(&server, "EXISTS begun"), 0);
    assert_int_equal(release(&one, &held), 0);
    assert_int_equal(release(&one, &held), DLOCK_ELOST); /* this one was sent now */
}

/* The answer to what was begun says so; the call that reads it then takes a further round trip. */
TEST(a_begun_operation_may_lack_its_script) {
    struct held held;
    claim_init(&held, "begun", 'a', 1);
    ask_text(&server, "SCRIPT FLUSH");
    begin(&held, DLOCK_ACQUIRE);
    assert_int_equal(ask_number(&server, "EXISTS begun"), 0);
    assert_int_equal(acquire(&one, &held), 0);
    assert_string_equal(ask_text(&server, "GET begun"), held.token);
    assert_int_equal(release(&one, &held), 0);
}

TESTS(setup, pair_end, group_begin, group_end)
