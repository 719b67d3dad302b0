#include "support/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct test *tests;
static size_t n_tests;

/* A compiler may put the constructors of a file into another order. */
void test_add(struct test *test) {
    struct test **at = &tests;
    while (*at && (*at)->line < test->line) at = &(*at)->next;
    test->next = *at;
    *at = test;
    n_tests++;
}

/* Runs the tests of the files whose path ends so. */
static int run(const char *name, const char *file, const struct CMUnitTest *around, CMFixtureFunction begin,
               CMFixtureFunction end) {
    struct CMUnitTest *units = calloc(n_tests + 1, sizeof *units);
    const size_t length = strlen(file);
    size_t n = 0;
    if (!units) abort();
    for (const struct test *test = tests; test; test = test->next) {
        const size_t whole = strlen(test->file);
        if (whole < length || strcmp(test->file + whole - length, file) != 0) continue;
        units[n] = test->unit;
        if (!test->alone) units[n].setup_func = around->setup_func;
        if (!test->alone) units[n].teardown_func = around->teardown_func;
        n++;
    }
    if (n == 0) fprintf(stderr, "%s: no tests\n", name);
    int failed = n == 0 ? 1 : _cmocka_run_group_tests(name, units, n, begin, end);
    free(units);
    return failed;
}

int tests_run(int argc, char **argv, CMFixtureFunction setup, CMFixtureFunction teardown, CMFixtureFunction begin,
              CMFixtureFunction end) {
    const struct CMUnitTest around = {NULL, NULL, setup, teardown, NULL};
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    if (argc > 2) cmocka_set_skip_filter(argv[2]);
    return run(program_invocation_short_name, "", &around, begin, end);
}

int tests_run_of(const char *group, CMFixtureFunction setup, CMFixtureFunction teardown) {
    const struct CMUnitTest around = {NULL, NULL, setup, teardown, NULL};
    char file[64];
    snprintf(file, sizeof file, "/%s_test.c", group);
    return run(group, file, &around, NULL, NULL);
}
