/* A comparison with NULL is a failure that says where. This test fails: CTest looks for that line in its output. */
#include "support/test.h"

static void null_differs(void **state) {
    const char *name = *state;
    assert_string_equal(name, "name");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(null_differs)};
    return cmocka_run_group_tests_name("null", tests, NULL, NULL);
}
