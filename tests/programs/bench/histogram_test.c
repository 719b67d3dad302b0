/* Tests the histogram of `dlock bench`: durations that it returns are within a bucket's width of those that were
 * added. */
#include "bench/histogram.h"
#include "support/test.h"

#include <string.h>

static struct histogram histogram;

static int set_up(void **state) {
    (void)state;
    memset(&histogram, 0, sizeof histogram);
    return 0;
}

static void assert_near(int64_t got, int64_t expected) {
    int64_t most = expected / HISTOGRAM_FINE + 1;
    if (got < expected - most || got > expected + most) assert_int_equal(got, expected);
}

TEST(nothing_has_no_median) {
    assert_int_equal(histogram_at(&histogram, 0.5), -1);
}

TEST(buckets_are_in_order_and_narrow) {
    for (int i = 1; i < HISTOGRAM_BUCKETS; i++) {
        int64_t low = histogram_lowest(i - 1), high = histogram_lowest(i);
        assert_true(high > low);
        assert_true(high - low <= 1 + low / HISTOGRAM_FINE);
    }
}

TEST(each_duration_is_found_again) {
    for (int64_t ns = 0; ns < INT64_C(1) << 40; ns += 1 + ns / 7) {
        memset(&histogram, 0, sizeof histogram);
        histogram_add(&histogram, ns, 1);
        histogram_add(&histogram, INT64_C(1) << 40, 1); /* otherwise the result would be cut to longest_ns */
        assert_near(histogram_at(&histogram, 0.5), ns);
    }
}

TEST(shares_are_counted) {
    for (int64_t us = 1; us <= 1000; us++) histogram_add(&histogram, us * 1000, 3);
    assert_int_equal(histogram.n, 3000);
    assert_int_equal(histogram.longest_ns, 1000000);
    assert_near(histogram_at(&histogram, 0.5), 500000);
    assert_near(histogram_at(&histogram, 0.9), 900000);
    assert_near(histogram_at(&histogram, 0.99), 990000);
    assert_near(histogram_at(&histogram, 1), 1000000);
}

TEST(the_extremes_are_kept) {
    histogram_add(&histogram, -5, 1);
    assert_int_equal(histogram_at(&histogram, 1), 0);
    histogram_add(&histogram, INT64_MAX, 1);
    assert_true(histogram_at(&histogram, 1) >= INT64_C(1) << 40);
    assert_int_equal(histogram.longest_ns, INT64_MAX);
}

TEST(merging_adds) {
    static struct histogram other;
    struct histogram *all = &histogram, *more = &other;
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
TEST(a_bucket_has_room_for_a_day) {
    for (int i = 0; i < 4; i++) histogram_add(&histogram, 93, UINT32_C(3) << 30);
    histogram_add(&histogram, 5000, 1);
    assert_near(histogram_at(&histogram, 0.99), 93);
}

TESTS(set_up, NULL, NULL, NULL)
