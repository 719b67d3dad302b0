/* cmocka, the headers that its header needs before it, and programs of tests:
 *
 *     TEST(name) { … }                            a test
 *     TEST_WITH(setup, teardown, name) { … }      one with its own setup and teardown, or NULL
 *     TESTS(setup, teardown, begin, end)          the program: what is around each TEST, and around all; or NULL
 *
 * Tests run in the order of the file. Arguments: a pattern of the tests to run, a pattern of those to skip (both as
 * cmocka has them: with * and ?). */
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

struct test {
    struct CMUnitTest unit;
    const char *file;
    int line;
    bool alone; /* it takes neither setup nor teardown from the program */
    struct test *next;
};
void test_add(struct test *test);
int tests_run(int argc, char **argv, CMFixtureFunction setup, CMFixtureFunction teardown, CMFixtureFunction begin,
              CMFixtureFunction end);
/* For a program of several files: the tests of GROUP_test.c, of which there have to be some. */
int tests_run_of(const char *group, CMFixtureFunction setup, CMFixtureFunction teardown);

/* Each test enters itself in the list before main(), so that none is forgotten there. */
#define TEST_ADD(setup, teardown, name, alone)                                                             \
    static void name(void **state);                                                                        \
    __attribute__((constructor)) static void name##_is_added(void) {                                       \
        static struct test test = {{#name, name, setup, teardown, NULL}, __FILE__, __LINE__, alone, NULL}; \
        test_add(&test);                                                                                   \
    }                                                                                                      \
    static void name(__attribute__((unused)) void **state)
#define TEST(name) TEST_ADD(NULL, NULL, name, false)
#define TEST_WITH(setup, teardown, name) TEST_ADD(setup, teardown, name, true)

#define TESTS(setup, teardown, begin, end)                         \
    int main(int argc, char **argv) {                              \
        return tests_run(argc, argv, setup, teardown, begin, end); \
    }

#endif
