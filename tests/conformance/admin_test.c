/* Operators' calls: inspect, list, break. */
#include "actor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The holders that one walk has shown, with details of the last one. */
struct seen {
    int n, stop_after;
    char name[DLOCK_NAME_MAX + 1], token[DLOCK_TOKEN_MAX + 1];
    struct dlock_info info;
};

static int note_holder(const struct dlock_info *info, void *arg) {
    struct seen *seen = arg;
    EXPECT(info->size == sizeof *info && info->name && info->token);
    seen->n++;
    seen->info = *info;
    snprintf(seen->name, sizeof seen->name, "%s", info->name);
    snprintf(seen->token, sizeof seen->token, "%s", info->token);
    return seen->n == seen->stop_after;
}

void case_inspect_shows_the_holder(void) {
    SCOPED_CLIENT *client = open_client(), *watcher = open_client();
    struct dlock_options options = options_with(LONG_LEASE_MS, 0);
    SCOPED_LOCK *lock = new_lock(client, suite.name, &options);
    struct seen seen = {0};
    EXPECT_CODE(0, dlock_inspect(watcher, suite.name, note_holder, &seen, ERR));
    EXPECT(seen.n == 0);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    char token[DLOCK_TOKEN_MAX + 1];
    EXPECT_CODE(0, dlock_token(lock, token, sizeof token, ERR));
    EXPECT_CODE(0, dlock_inspect(watcher, suite.name, note_holder, &seen, ERR));
    EXPECT(seen.n == 1);
    EXPECT(strcmp(seen.name, suite.name) == 0 && strcmp(seen.token, token) == 0);
    EXPECT(seen.info.fence == dlock_fence(lock));
    EXPECT(seen.info.mode == DLOCK_EXCLUSIVE && seen.info.limit == 1 && seen.info.waiters == 0);
    if (seen.info.remaining_ms != -1 && seen.info.remaining_ms != DLOCK_FOREVER)
        EXPECT_BETWEEN(LONG_LEASE_MS / 2, LONG_LEASE_MS, seen.info.remaining_ms);
    EXPECT(dlock_held(lock));
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_CODE(0, dlock_inspect(watcher, suite.name, note_holder, &seen, ERR));
    EXPECT(seen.n == 1);
    EXPECT_CODE(DLOCK_EINVAL, dlock_inspect(watcher, "", note_holder, &seen, ERR));
}

/* Who the holder is, and since when: what people ask. */
struct known {
    int n;
    char host[80], label[DLOCK_LABEL_MAX + 1];
    int64_t pid, held_ms;
};

static int note_who(const struct dlock_info *info, void *arg) {
    struct known *known = arg;
    known->n++;
    snprintf(known->host, sizeof known->host, "%s", info->host);
    snprintf(known->label, sizeof known->label, "%s", info->label);
    known->pid = info->pid;
    known->held_ms = info->held_ms;
    return 0;
}

/* The message of an acquire that was in vain names the holder, if the server's answer does. */
static void expect_named(dlock_lock *lock, int64_t timeout_ms, int code) {
    struct dlock_error err = {0, ""};
    EXPECT_CODE(code, dlock_acquire(lock, timeout_ms, &err));
    if (!strstr(err.message, "held by somebody else") && !strstr(err.message, ": held by 50% off \xc3\xa9 on "))
        FAIL("the message is \"%s\"", err.message);
}

void case_inspect_shows_who_and_since_when(void) {
    enum { MOMENT = 300, EARLIER = 1000 }; /* a clock of fences may be read once a second */
    SCOPED_CLIENT *watcher = open_client();
    char *uri = uri_with(suite.uri, "label", "50%25%20off%20%c3%a9");
    dlock_client *client = NULL;
    EXPECT_CODE(0, dlock_open(uri, NULL, &client, ERR));
    free(uri);
    struct dlock_options options = options_with(LONG_LEASE_MS, 0);
    dlock_lock *lock = new_lock(client, suite.name, &options);
    struct known known = {0};
    int64_t began = now_ms();
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    sleep_ms(MOMENT);
    EXPECT_CODE(0, dlock_inspect(watcher, suite.name, note_who, &known, ERR));
    EXPECT(known.n == 1 && known.host[0] && known.pid == getpid());
    if (strcmp(known.label, "50% off \xc3\xa9") != 0) FAIL("the label is \"%s\"", known.label);
    SCOPED_LOCK *other = new_lock(watcher, suite.name, NULL);
    expect_named(other, 0, DLOCK_EBUSY);
    expect_named(other, MOMENT_MS, DLOCK_ETIMEDOUT);
    if (known.held_ms != -1) EXPECT_BETWEEN(MOMENT - 1, now_ms() - began + EARLIER, known.held_ms);
    EXPECT_CODE(0, dlock_release(lock, ERR));
    dlock_free(lock);
    dlock_close(client);
}

enum { MANY = 150 };

/* Which of the numbered names a walk has shown. */
struct marks {
    char prefix[DLOCK_NAME_MAX + 1];
    bool seen[MANY];
};

static int mark_holder(const struct dlock_info *info, void *arg) {
    struct marks *marks = arg;
    int number;
    size_t length = strlen(marks->prefix);
    if (strncmp(info->name, marks->prefix, length) != 0 || sscanf(info->name + length, "%d", &number) != 1 ||
        number < 0 || number >= MANY)
        FAIL("\"%s\" is listed under \"%s\"", info->name, marks->prefix);
    marks->seen[number] = true;
    return 0;
}

/* The prefix is taken literally, also if it looks like a pattern, and long walks show everything. */
void case_list_by_prefix(void) {
    SCOPED_CLIENT *client = open_client(), *watcher = open_client();
    static struct marks marks;
    static dlock_lock *locks[MANY];
    tagged_name(marks.prefix, "*[a]?%/");
    for (int i = 0; i < MANY; i++) {
        char name[DLOCK_NAME_MAX + 1];
        snprintf(name, sizeof name, "%.150s%d", marks.prefix, i);
        locks[i] = new_lock(client, name, NULL);
        EXPECT_CODE(0, dlock_acquire(locks[i], 0, ERR));
    }
    char name[DLOCK_NAME_MAX + 1];
    tagged_name(name, "XXa7");
    dlock_lock *other = new_lock(client, name, NULL);
    EXPECT_CODE(0, dlock_acquire(other, 0, ERR));
    EXPECT_CODE(0, dlock_list(watcher, marks.prefix, mark_holder, &marks, ERR));
    for (int i = 0; i < MANY; i++)
        if (!marks.seen[i]) FAIL("number %d of %d is not listed", i, MANY);
    struct seen seen = {0};
    EXPECT_CODE(0, dlock_list(watcher, name, note_holder, &seen, ERR));
    EXPECT(seen.n >= 1 && strcmp(seen.name, name) == 0);
    EXPECT(seen.info.fence == dlock_fence(other));
    seen = (struct seen){.stop_after = 1};
    EXPECT_CODE(0, dlock_list(watcher, "", note_holder, &seen, ERR));
    EXPECT(seen.n == 1);
    for (int i = 0; i < MANY; i++) dlock_free(locks[i]);
    dlock_free(other);
    seen = (struct seen){0};
    EXPECT_CODE(0, dlock_list(watcher, suite.name, note_holder, &seen, ERR));
    EXPECT(seen.n == 0);
}

void case_break_wakes_a_waiter(void) {
    enum { POLL_MS = 1000 }; /* servers without wake-ups are asked at least this often */
    struct dlock_options options = options_with(LONG_LEASE_MS, 0);
    SCOPED_ACTOR holder, waiter;
    actor_start(&holder, suite.name, &options);
    actor_start(&waiter, suite.name, &options);
    SCOPED_CLIENT *operator_client = open_client();
    EXPECT_CODE(DLOCK_EOWNER, dlock_break(operator_client, suite.name, ERR)); /* it is free */
    EXPECT_CODE(DLOCK_EINVAL, dlock_break(operator_client, "", ERR));
    uint64_t fence = ACTOR_DO(0, &holder, ACTOR_ACQUIRE, 0).fence;
    actor_begin(&waiter, ACTOR_ACQUIRE, PATIENCE_MS);
    await_waiters(operator_client, suite.name, 1);
    int64_t begun = now_ms();
    EXPECT_CODE(0, dlock_break(operator_client, suite.name, ERR));
    struct actor_report report = ACTOR_FINISH(0, &waiter);
    EXPECT(report.held && report.fence > fence);
    EXPECT_BETWEEN(-SLACK_MS, POLL_MS + SLACK_MS, report.at_us / 1000 - begun);
    ACTOR_DO(DLOCK_ELOST, &holder, ACTOR_RELEASE, 0);
    EXPECT_TAKEN(suite.name);
    ACTOR_DO(0, &waiter, ACTOR_RELEASE, 0);
    ACTOR_DO(0, &holder, ACTOR_ACQUIRE, SLACK_MS);
}
