/* A name with several holders, as operators see it and break it. */
#include "actor.h"

#include <stdio.h>
#include <string.h>

enum { HOLDERS = 3 };

/* The expected result of a walk, and the result. */
struct expected {
    enum dlock_mode mode;
    uint32_t limit, waiters;
    int n, shown;
    char tokens[HOLDERS + 1][DLOCK_TOKEN_MAX + 1];
    uint64_t fences[HOLDERS + 1];
    bool seen[HOLDERS + 1];
};

static int check_holder(const struct dlock_info *info, void *arg) {
    struct expected *expected = arg;
    int at = 0;
    while (at < expected->n && strcmp(expected->tokens[at], info->token) != 0) at++;
    if (at == expected->n) FAIL("\"%s\" holds nothing", info->token);
    EXPECT(!expected->seen[at]);
    expected->seen[at] = true;
    expected->shown++;
    EXPECT(strcmp(info->name, suite.name) == 0);
    EXPECT(info->mode == expected->mode && info->limit == expected->limit && info->waiters == expected->waiters);
    /* The ordinal of hand-overs inside a process is not visible to others. */
    EXPECT(info->fence >> 8 == expected->fences[at] >> 8);
    if (info->remaining_ms != -1 && info->remaining_ms != DLOCK_FOREVER)
        EXPECT_BETWEEN(LONG_LEASE_MS / 2, LONG_LEASE_MS, info->remaining_ms);
    return 0;
}

static void expect_shown(dlock_client *watcher, struct expected *expected) {
    for (int list = 0; list < (suite.caps & DLOCK_CAP_LIST ? 2 : 1); list++) {
        memset(expected->seen, 0, sizeof expected->seen);
        expected->shown = 0;
        EXPECT_CODE(0, list ? dlock_list(watcher, suite.name, check_holder, expected, ERR)
                            : dlock_inspect(watcher, suite.name, check_holder, expected, ERR));
        EXPECT_BETWEEN(expected->n, expected->n, expected->shown);
    }
}

static int end_walk(const struct dlock_info *info, void *arg) {
    (void)info;
    ++*(int *)arg;
    return 1;
}

static int count_waiter(const struct dlock_info *info, void *arg) {
    EXPECT(info->size == sizeof *info && info->host[0] && info->pid > 0 && info->held_ms >= -1);
    ++*(int *)arg;
    return 0;
}

static void look_at(const struct dlock_options *options, struct expected *expected) {
    struct dlock_options by_handle = *options;
    by_handle.owner = DLOCK_OWNER_HANDLE;
    SCOPED_ACTOR waiting;
    struct dlock_options exclusive = options_with(LONG_LEASE_MS, 0);
    actor_start(&waiting, suite.name, options->mode == DLOCK_SHARED ? &exclusive : options);
    dlock_client *clients[HOLDERS], *watcher = open_client();
    dlock_lock *locks[HOLDERS + 1];
    for (int i = 0; i <= HOLDERS; i++) { /* the last one is a second handle of the first client */
        if (i < HOLDERS) clients[i] = open_client();
        locks[i] = new_lock(clients[i < HOLDERS ? i : 0], suite.name, &by_handle);
        EXPECT_CODE(0, dlock_acquire(locks[i], 0, ERR));
        EXPECT_CODE(0, dlock_token(locks[i], expected->tokens[i], sizeof expected->tokens[i], ERR));
        expected->fences[i] = dlock_fence(locks[i]);
        expected->n = i + 1;
        expect_shown(watcher, expected);
    }
    int shown = 0;
    EXPECT_CODE(0, dlock_inspect(watcher, suite.name, end_walk, &shown, ERR));
    EXPECT(shown == 1);
    if (suite.caps & DLOCK_CAP_QUEUE) {
        actor_begin(&waiting, ACTOR_ACQUIRE, PATIENCE_MS);
        await_waiters(watcher, suite.name, 1);
        expected->waiters = 1;
        expect_shown(watcher, expected);
        struct dlock_error err = {0, ""};
        int waits = 0, rc = dlock_waiters(watcher, suite.name, count_waiter, &waits, &err);
        if (rc != DLOCK_ENOTSUP && (rc != 0 || waits != 1)) FAIL("%d waiters, %d: %s", waits, rc, err.message);
    }
    for (int i = HOLDERS; i >= 0; i--) EXPECT_CODE(0, dlock_release(locks[i], ERR));
    for (int i = 0; i <= HOLDERS; i++) dlock_free(locks[i]);
    for (int i = 0; i < HOLDERS; i++) dlock_close(clients[i]);
    dlock_close(watcher);
    if (suite.caps & DLOCK_CAP_QUEUE) ACTOR_FINISH(0, &waiting);
}

void case_inspect_shows_every_reader(void) {
    struct dlock_options options = options_for(DLOCK_SHARED, 0, LONG_LEASE_MS);
    look_at(&options, &(struct expected){.mode = DLOCK_SHARED, .limit = 1});
}

void case_inspect_shows_every_permit(void) {
    struct dlock_options options = options_for(DLOCK_PERMIT, HOLDERS + 1, LONG_LEASE_MS);
    look_at(&options, &(struct expected){.mode = DLOCK_PERMIT, .limit = HOLDERS + 1});
}

/* Breaks a name with several holders: each loses it, learns of that, and its release does not end another's grant. */
static void take_from_all(const struct dlock_options *options) {
    struct dlock_options exclusive = options_with(LONG_LEASE_MS, 0);
    struct actor holders[HOLDERS], waiting;
    for (int i = 0; i < HOLDERS; i++) actor_start(&holders[i], suite.name, options);
    bool writer_waits = options->mode == DLOCK_SHARED; /* a writer could not wait for permits */
    actor_start(&waiting, suite.name, writer_waits ? &exclusive : options);
    SCOPED_CLIENT *operator_client = open_client();
    uint64_t fence = 0;
    for (int i = 0; i < HOLDERS; i++) fence = ACTOR_DO(0, &holders[i], ACTOR_ACQUIRE, 0).fence;
    actor_begin(&waiting, ACTOR_ACQUIRE, PATIENCE_MS);
    await_waiters(operator_client, suite.name, 1);
    EXPECT_CODE(0, dlock_break(operator_client, suite.name, ERR));
    struct actor_report report = ACTOR_FINISH(0, &waiting);
    EXPECT(report.held && report.fence > fence);
    int64_t until = now_ms() + LEASE_MS + SLACK_MS;
    for (int i = 0; i < HOLDERS; i++) {
        do {
            report = ACTOR_DO(0, &holders[i], ACTOR_LOOK, 0);
            if (report.held && now_ms() > until) FAIL("holder %d does not learn of its loss", i);
            sleep_ms(5);
        } while (report.held || report.lost == 0);
        EXPECT(report.lost == 1);
        ACTOR_DO(DLOCK_ELOST, &holders[i], ACTOR_RELEASE, 0);
        ACTOR_DO(DLOCK_EOWNER, &holders[i], ACTOR_RELEASE, 0);
    }
    EXPECT(ACTOR_DO(0, &waiting, ACTOR_LOOK, 0).held);
    ACTOR_DO(0, &waiting, ACTOR_RELEASE, 0);
    EXPECT_CODE(DLOCK_EOWNER, dlock_break(operator_client, suite.name, ERR));
    EXPECT_FREE(suite.name);
    for (int i = 0; i < HOLDERS; i++) actor_end(&holders[i]);
    actor_end(&waiting);
}

void case_break_takes_all_readers(void) {
    struct dlock_options options = options_for(DLOCK_SHARED, 0, LEASE_MS);
    take_from_all(&options);
}

void case_break_takes_all_permits(void) {
    struct dlock_options options = options_for(DLOCK_PERMIT, HOLDERS, LEASE_MS);
    take_from_all(&options);
}
