/* Reads the URI: mem:, mem:NAME, mem:?delay=20ms&fail=0.01. */
#include "mem.h"

/* Parses a share from 0 to 1, such as "0.01", with at most six digits after the point, into millionths. False: it is
 * none. Does not use strtod(), whose decimal point depends on the locale. */
static bool share(const char *text, uint32_t *millionths) {
    uint32_t value = 0, unit = MEM_MILLION;
    if (*text != '0' && *text != '1') return false;
    value = (uint32_t)(*text++ - '0') * unit;
    if (*text == '.' && !text[1]) return false;
    if (*text == '.')
        for (text++; *text >= '0' && *text <= '9' && unit > 1; text++) value += (uint32_t)(*text - '0') * (unit /= 10);
    *millionths = value;
    return !*text && value <= MEM_MILLION;
}

int mem_accepts(const struct dlock_uri *uri, struct dlock_error *err) {
    const char *delay = dlock_uri_get(uri, "delay"), *fail = dlock_uri_get(uri, "fail");
    if (uri->n_hosts > 0)
        return dlock_fail(err, DLOCK_EINVAL, "mem: has no hosts, and \"%.60s\" stands in place of one: write mem:NAME",
                          uri->hosts[0].host);
    if (uri->user || uri->password) return dlock_fail(err, DLOCK_EINVAL, "mem: takes no user and no password");
    int64_t delay_ms = delay ? dlock_duration_ms(delay) : 0;
    if (delay_ms < 0 || delay_ms > 3600000)
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"delay\" must be a duration up to 1h, such as 20ms");
    uint32_t millionths;
    if (fail && !share(fail, &millionths))
        return dlock_fail(
            err, DLOCK_EINVAL,
            "URI: \"fail\" must be a share from 0 to 1, such as 0.01, with up to 6 digits after the point");
    return 0;
}

void mem_settings(struct mem_conn *conn, const struct dlock_uri *uri) {
    const char *delay = dlock_uri_get(uri, "delay"), *fail = dlock_uri_get(uri, "fail");
    conn->delay_ms = delay ? dlock_duration_ms(delay) : 0;
    if (fail) share(fail, &conn->fail);
    conn->random = (uint64_t)mem_now_us() ^ (uint64_t)(uintptr_t)conn;
}
