#include <dlock/backend.h>

int dlock_parse_duration(const char *text, int64_t *ms, struct dlock_error *err) {
    int64_t parsed = text ? dlock_duration_ms(text) : -1;
    if (parsed < 0)
        return dlock_fail(err, DLOCK_EINVAL,
                          "a duration is a number followed by ms, s, m or h, such as 500ms, 10s or 1.5h; a bare number "
                          "is seconds");
    if (parsed == INT64_MAX) return dlock_fail(err, DLOCK_EINVAL, "the duration is too large: more than 292 years");
    *ms = parsed;
    return DLOCK_OK;
}
