/* Durations as people write them, in whole numbers only: no floating point, so 0.3s is 300 ms everywhere. */
#include <dlock/backend.h>

/* So that the sum of a clock and a duration fits, in nanoseconds too. About 292 years. */
#define LONGEST_MS (INT64_MAX / 1000000)

/* More digits behind the point than this make no difference to an hour in milliseconds. */
#define FRACTION_DIGITS 12

static int64_t unit_ms(const char *unit) {
    static const struct {
        const char *word;
        int64_t ms;
    } units[] = {{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(unit, units[i].word) == 0) return units[i].ms;
    return 0;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Rounds to the nearest millisecond, but what is not zero does not become zero: that would say "off" or "now". */
int dlock_parse_duration(const char *text, int64_t *ms, struct dlock_error *err) {
    static const char help[] = "a duration is a number followed by ms, s, m or h, such as 500ms, 10s or 1.5h; a bare "
                               "number is seconds";
    bool number = text && (is_digit(*text) || (*text == '.' && is_digit(text[1]))); /* flock(1) takes .007, too */
    if (!number) return dlock_fail(err, DLOCK_EINVAL, "%s", help);
    int64_t whole = 0, fraction = 0, scale = 1;
    bool too_large = false, more = false;
    for (; is_digit(*text); text++) {
        if (whole <= LONGEST_MS)
            whole = whole * 10 + (*text - '0');
        else
            too_large = true;
    }
    if (*text == '.') {
        if (!is_digit(*++text)) return dlock_fail(err, DLOCK_EINVAL, "%s", help);
        for (int digits = 0; is_digit(*text); text++, digits++) {
            if (digits < FRACTION_DIGITS) {
                fraction = fraction * 10 + (*text - '0');
                scale *= 10;
            } else if (*text != '0') {
                more = true;
            }
        }
    }
    int64_t unit = unit_ms(text);
    if (!unit) return dlock_fail(err, DLOCK_EINVAL, "%s", help);
    if (too_large || whole > LONGEST_MS / unit - 1)
        return dlock_fail(err, DLOCK_EINVAL, "the duration is too large: more than 292 years");
    int64_t sum = whole * unit + (fraction * unit + scale / 2) / scale;
    if (sum == 0 && (fraction || more)) sum = 1;
    *ms = sum;
    return DLOCK_OK;
}
