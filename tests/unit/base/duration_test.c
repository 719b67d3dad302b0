/* Durations, and the texts of error codes. */
#include "support/test.h"

#include <dlock/backend.h>

#include <stdlib.h>

TEST(durations_are_exact) {
    static const struct {
        const char *text;
        int64_t ms;
    } cases[] = {
        {"0", 0},
        {"0ms", 0},
        {"0.000s", 0},
        {"0.00000000000000000000s", 0},
        {"10", 10000},
        {"500ms", 500},
        {"10s", 10000},
        {"2m", 120000},
        {"1h", 3600000},
        {"1.5s", 1500},
        {".5s", 500},
        {".007", 7},
        {"0.5h", 1800000},
        {"1.001", 1001},
        {"0.1s", 100},
        {"0.3s", 300},
        {"0.30000000000000004s", 300},
        {"0.29999999999999998s", 300},
        {"0.0005s", 1},
        {"1.0004s", 1000},
        {"1.0005s", 1001},
        {"0.4ms", 1}, /* not zero does not become zero */
        {"0.000000000000000000001ms", 1},
        {"1.4ms", 1},
        {"007s", 7000},
        {"0.333333333333333h", 1200000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t ms = -7;
        struct dlock_error err;
        if (dlock_parse_duration(cases[i].text, &ms, &err) != DLOCK_OK) fail_msg("%s: %s", cases[i].text, err.message);
        if (ms != cases[i].ms) fail_msg("%s: %lld ms", cases[i].text, (long long)ms);
    }
}

TEST(what_is_no_duration_is_refused) {
    static const char *const cases[] = {"", " ", "s", "ms", ".", ".s", ".ms", "..5", "5.", "5.s", "-1", "+1", "-0",
                                        "1 s", " 1s", "1s ", "1S", "1sec", "1d", "1us", "1ss", "1h30m", "1e3", "0x10",
                                        "1.2.3", "1,5s", "inf", "nan", "1m\n",
                                        /* too large: the last in units of time, then of integers */
                                        "9223372036855ms", "2562047789h", "9223372037s", "9223372036854775807",
                                        "9223372036854775808ms", "18446744073709551616ms",
                                        "99999999999999999999999999999999999999"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t ms = -7;
        struct dlock_error err = {0};
        if (dlock_parse_duration(cases[i], &ms, &err) != DLOCK_EINVAL) fail_msg("\"%s\" was taken", cases[i]);
        assert_int_equal(ms, -7);
        assert_int_equal(err.code, DLOCK_EINVAL);
        assert_int_equal(dlock_parse_duration(cases[i], &ms, NULL), DLOCK_EINVAL);
        assert_non_null(strstr(err.message, "duration"));
    }
    int64_t ms = -7;
    assert_int_equal(dlock_parse_duration(NULL, &ms, NULL), DLOCK_EINVAL);
    assert_int_equal(ms, -7);
}

/* Backends parse the values of their own keys with the header's function. */
TEST(backends_read_the_same_durations) {
    assert_int_equal(dlock_duration_ms("1.5h"), 5400000);
    assert_int_equal(dlock_duration_ms("0.0000000000001s"), 1);
    assert_int_equal(dlock_duration_ms("5."), -1);
    assert_int_equal(dlock_duration_ms(""), -1);
    assert_int_equal(dlock_duration_ms("1073741824ms"), 1073741824);
    assert_true(dlock_duration_ms("9223372036855ms") == INT64_MAX);
}

/* The longest one fits a clock in nanoseconds. */
TEST(the_longest_duration_does_not_overflow) {
    int64_t ms = 0;
    assert_int_equal(dlock_parse_duration("9223372036853ms", &ms, NULL), DLOCK_OK);
    assert_int_equal(ms, INT64_C(9223372036853));
    assert_true(ms <= INT64_MAX / 1000000);
}

TEST(durations_are_written_for_people) {
    static const struct {
        int64_t ms;
        const char *text, *left;
    } cases[] = {
        {0, "0ms", "0ms"},
        {1, "1ms", "1ms"},
        {999, "999ms", "999ms"},
        {1000, "1s", "1s"},
        {1500, "1500ms", "2s"},
        {59000, "59s", "59s"},
        {60000, "1m", "1m"},
        {571001, "571001ms", "9m32s"},
        {600000, "10m", "10m"},
        {3600000, "1h", "1h"},
        {7501000, "2h5m1s", "2h5m1s"},
        {7201000, "2h1s", "2h1s"},
        {INT64_C(366) * 86400000, "8784h", "8784h"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32], expected[64], left[64];
        assert_string_equal(dlock_duration_text(text, cases[i].ms), cases[i].text);
        snprintf(expected, sizeof expected, "grants nothing for another %s", cases[i].left);
        assert_string_equal(dlock_not_ready_text(left, cases[i].ms), expected);
    }
    char left[64];
    assert_string_equal(dlock_not_ready_text(left, -1), "grants nothing yet");
    assert_string_equal(dlock_not_ready_text(left, DLOCK_FOREVER), "grants nothing yet");
    assert_string_equal(dlock_not_ready_text(left, DLOCK_FOREVER - 1),
                        "grants nothing for another 9223372036854775806ms");
}

TEST(every_code_has_a_text) {
    int n = 0;
#define DLOCK_X(name, number, text, action) \
    assert_int_equal(DLOCK_##name, number); \
    assert_int_equal(number, -n++);         \
    assert_string_equal(dlock_strerror(DLOCK_##name), text);
    DLOCK_ERRORS(DLOCK_X)
#undef DLOCK_X
    assert_int_equal(n, 17);
    assert_string_equal(dlock_strerror(1), "unknown error");
    assert_string_equal(dlock_strerror(-n), "unknown error");
    assert_string_equal(dlock_strerror(INT32_MIN), "unknown error");
}

TEST(the_version_is_the_header_s) {
    char numbers[32];
    snprintf(numbers, sizeof numbers, "%d.%d.%d", DLOCK_VERSION_MAJOR, DLOCK_VERSION_MINOR, DLOCK_VERSION_PATCH);
    assert_string_equal(dlock_version(), DLOCK_VERSION);
    assert_string_equal(dlock_version(), numbers);
}

TESTS(NULL, NULL, NULL, NULL)
