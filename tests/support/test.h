/* cmocka, and the headers that its header needs before it. */
#ifndef DLOCK_TESTS_SUPPORT_TEST_H
#define DLOCK_TESTS_SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* cmocka's ends with a segmentation fault where a string is NULL, and does not say in which line of the test. */
static inline void test_string_equal(const char *a, const char *b, const char *file, int line) {
    if (!a || !b) {
        print_error("%s != %s\n", a ? a : "NULL", b ? b : "NULL");
        _fail(file, line);
    }
    _assert_string_equal(a, b, file, line);
}
#undef assert_string_equal
#define assert_string_equal(a, b) test_string_equal((const char *)(a), (const char *)(b), __FILE__, __LINE__)

#endif
