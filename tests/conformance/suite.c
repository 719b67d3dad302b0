/* Checks, time, clients and names. */
#include "suite.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct suite suite;
_Thread_local struct dlock_error last_error;
static _Thread_local bool error_in_use;

void fail_at(const char *file, int line, const char *format, ...) {
    char text[1024];
    const char *base = strrchr(file, '/');
    int used =
        snprintf(text, sizeof text, "# %s/%s: %s:%d: ", suite.backend, suite.case_name, base ? base + 1 : file, line);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, sizeof text - (size_t)used - 1, format, args);
    va_end(args);
    strcat(text, "\n");
    if (write(STDERR_FILENO, text, strlen(text)) < 0) _exit(2);
    _exit(1);
}

static const char *code_name(int code) {
    switch (code) {
#define DLOCK_X(name, number, text, action) \
    case DLOCK_##name: return #name;
        DLOCK_ERRORS(DLOCK_X)
#undef DLOCK_X
    default: return "no code of dlock";
    }
}

/* Marks the struct, so that expect_code can tell whether the call wrote to it. */
struct dlock_error *suite_error(void) {
    last_error.code = 4711;
    strcpy(last_error.message, "untouched");
    error_in_use = true;
    return &last_error;
}

void expect_code(const char *file, int line, const char *call, int wanted, int code) {
    bool checked = error_in_use;
    error_in_use = false;
    if (code != wanted)
        fail_at(file, line, "%s answers %s instead of %s%s%s", call, code_name(code), code_name(wanted),
                checked && code != 0 ? ": " : "", checked && code != 0 ? last_error.message : "");
    if (!checked) return;
    if (code == 0 && (last_error.code != 4711 || strcmp(last_error.message, "untouched") != 0))
        fail_at(file, line, "%s succeeds but writes to its error (%s)", call, last_error.message);
    if (code == 0) return;
    if (last_error.code != code)
        fail_at(file, line, "%s answers %s but its error says %s", call, code_name(code), code_name(last_error.code));
    if (!memchr(last_error.message, '\0', sizeof last_error.message) || last_error.message[0] == '\0' ||
        strcmp(last_error.message, "untouched") == 0 || strchr(last_error.message, '\n'))
        fail_at(file, line, "%s answers %s without a message of one line", call, code_name(code));
}

void expect_between(const char *file, int line, const char *what, int64_t low, int64_t high, int64_t value) {
    if (value < low || value > high)
        fail_at(file, line, "%s is %" PRId64 ", outside of %" PRId64 " to %" PRId64, what, value, low, high);
}

int64_t impatience_ms(unsigned turn) {
    unsigned ms = turn / 3 % 12;
    return ms == 11 ? 500 : ms; /* sometimes enough on any machine */
}

int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t now_ms(void) {
    return now_us() / 1000;
}

void sleep_ms(int64_t ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0) continue;
}

dlock_client *open_client(void) {
    dlock_client *client = NULL;
    EXPECT_CODE(0, dlock_open(suite.uri, NULL, &client, ERR));
    return client;
}

dlock_lock *new_lock(dlock_client *client, const char *name, const struct dlock_options *options) {
    dlock_lock *lock = NULL;
    EXPECT_CODE(0, dlock_new(client, name, options, &lock, ERR));
    return lock;
}

int64_t valid_until_us(dlock_lock *lock) {
    int64_t now = now_us(), left_ms = dlock_remaining_ms(lock);
    return left_ms == DLOCK_FOREVER ? INT64_MAX : now + left_ms * 1000;
}

struct dlock_options options_with(int64_t lease_ms, uint32_t flags) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.lease_ms = lease_ms;
    options.flags = flags;
    return options;
}

struct dlock_options options_for(enum dlock_mode mode, uint32_t limit, int64_t lease_ms) {
    struct dlock_options options = options_with(lease_ms, 0);
    options.mode = mode;
    options.limit = limit;
    return options;
}

void tagged_name(char *name, const char *tag) {
    if (snprintf(name, DLOCK_NAME_MAX + 1, "%s-%s", suite.name, tag) > DLOCK_NAME_MAX) FAIL("name too long: %s", tag);
}

void numbered_name(char *name, int number) {
    char tag[16];
    snprintf(tag, sizeof tag, "%d", number);
    tagged_name(name, tag);
}

dlock_lock *numbered_lock(dlock_client *client, int number, const struct dlock_options *options) {
    char name[DLOCK_NAME_MAX + 1];
    numbered_name(name, number);
    return new_lock(client, name, options);
}

void expect_taken(const char *file, int line, const char *name, bool taken) {
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, name, NULL);
    struct dlock_error err;
    int code = dlock_acquire(lock, 0, &err);
    if (taken && code != DLOCK_EBUSY) fail_at(file, line, "a try of the taken lock answers %s", code_name(code));
    if (!taken && code != 0) fail_at(file, line, "a try of the free lock answers %s: %s", code_name(code), err.message);
}

void await_taken(const char *name) {
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, name, NULL);
    for (int64_t until = now_ms() + PATIENCE_MS; dlock_acquire(lock, 0, NULL) == 0; sleep_ms(2)) {
        EXPECT_CODE(0, dlock_release(lock, ERR));
        if (now_ms() > until) FAIL("nobody takes \"%s\"", name);
    }
}

void never_called(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock, (void)err, (void)arg;
    FAIL("a refused call has called back");
}

char *uri_with(const char *uri, const char *key, const char *value) {
    char *result = malloc(strlen(uri) + strlen(key) + strlen(value) + 3);
    if (!result) FAIL("out of memory");
    const char *query = strchr(uri, '?');
    size_t head = query ? (size_t)(query - uri) : strlen(uri);
    char *out = result + sprintf(result, "%.*s?%s=%s", (int)head, uri, key, value);
    while (query) {
        const char *begin = query + 1;
        query = strchr(begin, '&');
        size_t length = query ? (size_t)(query - begin) : strlen(begin);
        bool same = strncmp(begin, key, strlen(key)) == 0 && begin[strlen(key)] == '=';
        if (length > 0 && !same) out += sprintf(out, "&%.*s", (int)length, begin);
    }
    return result;
}

char *uri_at(const char *authority) {
    const char *colon = strchr(suite.uri, ':');
    const char *rest = colon + 1;
    if (strncmp(rest, "//", 2) == 0) rest += 2 + strcspn(rest + 2, "/?");
    char *result = malloc(strlen(suite.uri) + strlen(authority) + 3);
    if (!result) FAIL("out of memory");
    sprintf(result, "%.*s://%s%s", (int)(colon - suite.uri), suite.uri, authority, rest);
    return result;
}
