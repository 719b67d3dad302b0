/* Answers that are under way for longer than what they say can be relied on. */
#include "harness.h"
#include "support/group.h"
#include "support/relay.h"

/* The request takes as long as its answer; together longer than the second for which an answer is relied on. */
enum { LATE_MS = 600 };

static struct relay *relay;
static struct link link_;

static int setup(void **state) {
    struct held held;
    (void)state;
    ask_text(&server, "FLUSHALL");
    relay = relay_new(server.port);
    link_to(&link_, server.port, 'f'); /* gives the server the scripts */
    held_new(&held, &link_, "scripts");
    assert_int_equal(acquire(&link_, &held), 0);
    assert_int_equal(release(&link_, &held), 0);
    link_end(&link_);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    link_end(&link_);
    relay_end(relay);
    return 0;
}

/* In that time the server could have lost the fence. */
TEST(a_fence_that_came_late_is_not_counted_up) {
    struct held first, second;
    link_to(&link_, relay_port(relay), 'f');
    held_new(&first, &link_, "fence");
    held_new(&second, &link_, "fence");
    relay_delay(relay, LATE_MS);
    assert_int_equal(acquire(&link_, &first), 0);
    relay_delay(relay, 0);
    assert_int_equal(release(&link_, &first), 0);
    assert_int_equal(acquire(&link_, &second), 0);
    assert_true(second.claim.fence - first.claim.fence > 1000 * LATE_MS / 2);
}

/* In that time the server could have been a replica, which no connection notices. */
TEST(an_incarnation_that_came_late_is_asked_for_again) {
    struct monitor monitor;
    struct held held;
    relay_delay(relay, LATE_MS);
    link_careful(&link_, relay_port(relay), 'f', 1);
    relay_delay(relay, 0);
    held_new(&held, &link_, "incarnation");
    monitor_begin(&monitor, &server);
    assert_int_equal(acquire(&link_, &held), 0);
    monitor_end(&monitor, &server);
    assert_int_equal(monitor.evalsha, 1);
    assert_int_equal(monitor.requests, 2);
}

TESTS(setup, teardown, group_begin, group_end)
