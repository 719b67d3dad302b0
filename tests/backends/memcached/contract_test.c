/* The contract suite against the kinds of server that tests/run.sh does not start: one that evicts, and one without meta
 * commands (classic.h). */
#include "harness.h"
#include "support/group.h"

#include <stdio.h>
#include <stdlib.h>

TEST(holds_on_this_kind_of_server) {
    char command[512];
    snprintf(command, sizeof command, "exec %s --contract 'memcached://127.0.0.1:%d?quarantine=0&lease=10s'",
             DLOCK_TEST_SUITE, server.port);
    assert_int_equal(system(command), 0);
}

TESTS(NULL, NULL, group_begin, group_end)
