#include "script.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

int64_t script_numbers[16];

static const char *greeting;
static const struct line *script;
static char unexpected[600];

static bool matches(const char *said, const char *pattern, int64_t *number) {
    for (; *said && *pattern; pattern++) {
        if (*pattern != '#' && *said++ != *pattern) return false;
        if (*pattern == '#') *number = strtoll(said, (char **)&said, 10);
    }
    return !*said && !*pattern;
}

static bool tell(int fd, const char *text) {
    return send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text);
}

static bool converse(struct fake *fake, int fd, int i, const char *request, size_t size) {
    char said[512];
    (void)fake;
    if (i == 0) return tell(fd, greeting);
    snprintf(said, sizeof said, "%.*s", (int)size, request);
    if (script[i - 1].says && matches(said, script[i - 1].says, &script_numbers[i]))
        return tell(fd, script[i - 1].told);
    snprintf(unexpected, sizeof unexpected, "request %d: \"%s\"", i, said);
    return false;
}

void script_link(struct fake *fake, struct link *link, const char *says, const struct line *lines) {
    fake->converse = converse;
    greeting = says;
    script = lines;
    unexpected[0] = '\0';
    fake_link(fake, link);
}

void script_unlink(struct fake *fake, struct link *link) {
    fake_unlink(fake, link);
    if (*unexpected) fail_msg("%s", unexpected);
}

int script_run(const char *says, const struct line *lines, dlock_batch *operation, enum dlock_mode mode,
               struct held *held) {
    struct fake fake = {0};
    struct dlock_error err = {0};
    struct link link;
    script_link(&fake, &link, says, lines);
    claim_init(held, "clock", 'a', 1);
    held->claim.mode = mode;
    held->claim.limit = mode == DLOCK_PERMIT ? 3 : 0;
    int rc = held_run(operation, &link, held, 0, TIMEOUT_MS, &err);
    script_unlink(&fake, &link);
    if (rc) fail_msg("%s", err.message);
    return held->claim.result;
}

void script_live(const char *says, const struct line *lines, enum dlock_mode mode, int renewals) {
    struct fake fake = {0};
    struct held held;
    struct link link;
    script_link(&fake, &link, says, lines);
    claim_init(&held, "clock", 'a', 1);
    held.claim.mode = mode;
    assert_int_equal(acquire(&link, &held), 0);
    assert_true(held.claim.fence == FAKE_STARTED_US + 5);
    for (int i = 0; i < renewals; i++) assert_int_equal(renew(&link, &held), 0);
    assert_true(held.claim.state[2] == 5);
    assert_int_equal(release(&link, &held), 0);
    script_unlink(&fake, &link);
}
