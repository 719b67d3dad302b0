/* mode=session: the client's cost of a cycle, in system calls of the calling thread. */
#include "support/api.h"
#include "support/calls.h"
#include "support/test.h"

#include <stdlib.h>
#include <unistd.h>

enum { CYCLES = 50 };

static void run(void) {
    dlock_client *client = api_client("%s", getenv("DLOCK_TEST_URI_postgresql_session"));
    dlock_lock *lock = api_lock(client, "counted", NULL);
    calls_follow();
    for (int i = 0; i < CYCLES; i++) {
        calls_mark();
        if (dlock_acquire(lock, -1, NULL) != 0 || dlock_release(lock, NULL) != 0) _exit(1);
    }
    calls_mark();
    _exit(0);
}

/* Two requests are sent, waited for and read, as libpq itself does. The keeper is not involved. */
TEST(an_uncontended_cycle) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) run();
    int calls = calls_fewest(pid, CYCLES);
    print_message("system calls of an uncontended cycle: %d\n", calls);
    assert_in_range(calls, 4, 6);
}

TESTS(NULL, NULL, NULL, NULL)
