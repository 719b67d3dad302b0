/* A comparison with NULL is a failure that says where. This test fails: CTest looks for that line in its output. */
#include "support/test.h"

TEST(null_differs) {
    const char *name = *state;
    assert_string_equal(name, "name");
}

TESTS(NULL, NULL, NULL, NULL)
