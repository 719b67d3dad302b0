/* Tests the histogram of `dlock bench`: durations that it returns are within a bucket's width of those that were
 * added. */
#include "bench/histogram.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

static int set_up(void **state) {
    *state = calloc(2, sizeof(struct histogram));
    return *state ? 0 : -1;
}

static int tear_down(void **state) {
    free(*state);
    return 0;
}

static void assert_near(int64_t got, int64_t expected) {
    int64_t most = expected / HISTOGRAM_FINE + 1;
    if (got < expected - most || got > expected + most) assert_int_equal(got, expected);
}

static void nothing_has_no_median(void **state) {
    assert_int_equal(histogram_at(*state, 0.5), -1);
}

static void buckets_are_in_order_and_narrow(void **state) {
    (void)state;
    for (int i = 1; i < HISTOGRAM_BUCKETS; i++) {
        int64_t low = histogram_lowest(i - 1), high = histogram_lowest(i);
        assert_true(high > low);
        assert_true(high - low <= 1 + low / HISTOGRAM_FINE);
    }
}

static void each_duration_is_found_again(void **state) {
    struct histogram *histogram = *state;
    for (int64_t ns = 0; ns < INT64_C(1) << 40; ns += 1 + ns / 7) {
        memset(histogram, 0, sizeof *histogram);
        histogram_add(histogram, ns, 1);
        histogram_add(histogram, INT64_C(1) << 40, 1); /* otherwise the result would be cut to longest_ns */
        assert_near(histogram_at(histogram, 0.5), ns);
    }
}

static void shares_are_counted(void **state) {
    struct histogram *histogram = *state;
    for (int64_t us = 1; us <= 1000; us++) histogram_add(histogram, us * 1000, 3);
    assert_int_equal(histogram->n, 3000);
    assert_int_equal(histogram->longest_ns, 1000000);
    assert_near(histogram_at(histogram, 0.5), 500000);
    assert_near(histogram_at(histogram, 0.9), 900000);
    assert_near(histogram_at(histogram, 0.99), 990000);
    assert_near(histogram_at(histogram, 1), 1000000);
}

static void the_extremes_are_kept(void **state) {
    struct histogram *histogram = *state;
    histogram_add(histogram, -5, 1);
    assert_int_equal(histogram_at(histogram, 1), 0);
    histogram_add(histogram, INT64_MAX, 1);
    assert_true(histogram_at(histogram, 1) >= INT64_C(1) << 40);
    assert_int_equal(histogram->longest_ns, INT64_MAX);
}

static void merging_adds(void **state) {
    struct histogram *all = *state, *more = all + 1;
    histogram_add(all, 100, 2);
    histogram_add(more, 5000, 3);
    histogram_merge(all, more);
    assert_int_equal(all->n, 5);
    assert_int_equal(all->longest_ns, 5000);
    assert_near(histogram_at(all, 0.4), 100);
    assert_near(histogram_at(all, 0.41), 100);
    assert_near(histogram_at(all, 0.6), 5000);
}

/* Re-entry alone adds this many to one bucket in more than an hour. */
static void a_bucket_has_room_for_a_day(void **state) {
    struct histogram *histogram = *state;
    for (int i = 0; i < 4; i++) histogram_add(histogram, 93, UINT32_C(3) << 30);
    histogram_add(histogram, 5000, 1);
    assert_near(histogram_at(histogram, 0.99), 93);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(nothing_has_no_median),       TEST(buckets_are_in_order_and_narrow), TEST(each_duration_is_found_again),
        TEST(shares_are_counted),          TEST(the_extremes_are_kept),           TEST(merging_adds),
        TEST(a_bucket_has_room_for_a_day),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
