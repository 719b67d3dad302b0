/* Holders are shown as they are, names are listed, grants are broken. */
#include "contract/contract.h"

#include <stdlib.h>

enum { MOST = 400 };

/* What `each` has been given. */
static struct seen {
    int n, stop_after;
    struct dlock_info info[MOST];
    char name[MOST][DLOCK_FULL_NAME_MAX + 1], token[MOST][DLOCK_TOKEN_MAX + 1];
} seen;

static int see(const struct dlock_info *info, void *arg) {
    EXPECT(arg == &seen);
    if (seen.n == MOST) FAIL("holders without end");
    snprintf(seen.name[seen.n], sizeof seen.name[0], "%s", info->name);
    snprintf(seen.token[seen.n], sizeof seen.token[0], "%s", info->token);
    seen.info[seen.n++] = *info;
    return seen.n == seen.stop_after;
}

static int inspect(const char *name) {
    struct dlock_error err = {0};
    seen.n = seen.stop_after = 0;
    int rc = backend->inspect(line_of(2)->conn, name, see, &seen, REQUEST_MS, &err);
    if (rc != 0) FAIL("inspect answers %d: %s", rc, err.message);
    return seen.n;
}

/* All pages. */
static int list(const char *prefix, int stop_after) {
    char cursor[256] = "";
    int rc;
    seen.n = 0;
    seen.stop_after = stop_after;
    do {
        struct dlock_error err = {0};
        char before[256];
        memcpy(before, cursor, sizeof before);
        rc = backend->list(line_of(2)->conn, prefix, cursor, see, &seen, REQUEST_MS, &err);
        if (rc < 0) FAIL("list answers %d: %s", rc, err.message);
        if (rc == 1 && strcmp(before, cursor) == 0) FAIL("the same page again");
    } while (rc == 1 && !(stop_after && seen.n == stop_after));
    return seen.n;
}

static int break_it(const char *name) {
    struct dlock_error err = {0};
    int rc = backend->break_lock(line_of(2)->conn, name, REQUEST_MS, &err);
    if (rc != 0 && rc != DLOCK_ELOST) FAIL("break answers %d: %s", rc, err.message);
    return rc;
}

/* The holder with this token is among those that were seen, with what it has. */
static void expect_seen(const struct grant *grant, enum dlock_mode mode) {
    for (int i = 0; i < seen.n; i++) {
        const struct dlock_info *info = &seen.info[i];
        if (strcmp(seen.token[i], grant->token) != 0) continue;
        EXPECT(strcmp(seen.name[i], grant->claim.name) == 0);
        EXPECT(info->mode == mode);
        EXPECT(info->limit == (mode == DLOCK_PERMIT ? grant->claim.limit : 1));
        EXPECT(info->fence == grant->claim.fence);
        EXPECT_BETWEEN(0, HELD_MS, info->held_ms);                      /* 0: unknown */
        if (can(DLOCK_CAP_SESSION) || info->remaining_ms == -1) return; /* the session's end, or unknown */
        EXPECT_BETWEEN(HELD_MS - (now_ms() - grant->asked_ms) - SLACK_MS, HELD_MS, info->remaining_ms);
        return;
    }
    FAIL("%s is not shown; but %d, %s", grant->token, seen.n, seen.token[0]);
}

/* ---- inspect ----------------------------------------------------------------------------------------------------- */

static void shows_the_holder(void) {
    struct grant mine, theirs;
    grant_new(&mine, 0, suite.name);
    grant_new(&theirs, 1, suite.name);
    EXPECT(inspect(suite.name) == 0);
    GRANTED(acquire(&mine));
    EXPECT(inspect(suite.name) == 1);
    expect_seen(&mine, DLOCK_EXCLUSIVE);
    BUSY(acquire(&theirs)); /* a try is no waiter */
    EXPECT(inspect(suite.name) == 1);
    EXPECT(seen.info[0].waiters == 0);
    GRANTED(renew(&mine));
    EXPECT(inspect(suite.name) == 1);
    expect_seen(&mine, DLOCK_EXCLUSIVE);
    GRANTED(release(&mine));
    EXPECT(inspect(suite.name) == 0);
}

static void shows_joint_holders(enum dlock_mode mode, uint32_t limit) {
    struct grant held[3];
    for (int i = 0; i < 3; i++) {
        grant_as(&held[i], i, suite.name, mode, limit);
        GRANTED(acquire(&held[i]));
    }
    EXPECT(inspect(suite.name) == 3);
    for (int i = 0; i < 3; i++) expect_seen(&held[i], mode);
    GRANTED(release(&held[1]));
    EXPECT(inspect(suite.name) == 2);
    expect_seen(&held[0], mode);
    expect_seen(&held[2], mode);
    GRANTED(release(&held[0]));
    GRANTED(release(&held[2]));
    EXPECT(inspect(suite.name) == 0);
}

static void shows_every_reader(void) {
    shows_joint_holders(DLOCK_SHARED, 0);
}

static void shows_every_permit(void) {
    shows_joint_holders(DLOCK_PERMIT, 7);
}

static void shows_a_downgraded_holder_with_its_fence(void) {
    struct grant mine;
    grant_new(&mine, 0, suite.name);
    GRANTED(acquire(&mine));
    mine.claim.mode = DLOCK_SHARED;
    GRANTED(renew(&mine));
    EXPECT(inspect(suite.name) == 1);
    expect_seen(&mine, DLOCK_SHARED);
    GRANTED(release(&mine));
}

/* The server's queue, where it can be read, has these waiters in this order. */
static void expect_queue(const struct grant *waiting, int n) {
    struct dlock_error err = {0};
    if (!backend->waiters) return;
    seen.n = seen.stop_after = 0;
    int rc = backend->waiters(line_of(2)->conn, suite.name, see, &seen, REQUEST_MS, &err);
    if (rc != 0) FAIL("waiters answers %d: %s", rc, err.message);
    EXPECT(seen.n == n);
    for (int i = 0; i < n; i++) {
        EXPECT(strcmp(seen.name[i], suite.name) == 0 && strcmp(seen.token[i], waiting[i].token) == 0);
        EXPECT(seen.info[i].mode == waiting[i].claim.mode && seen.info[i].fence == 0);
        EXPECT(seen.info[i].limit == (waiting[i].claim.mode == DLOCK_PERMIT ? waiting[i].claim.limit : 1));
        EXPECT_BETWEEN(0, HELD_MS, seen.info[i].held_ms); /* 0: unknown */
    }
}

static void shows_waiters(void) {
    struct grant mine, waiting[2];
    grant_new(&mine, 0, suite.name);
    expect_queue(waiting, 0);
    GRANTED(acquire(&mine));
    expect_queue(waiting, 0);
    for (int i = 0; i < 2; i++) {
        grant_as(&waiting[i], i + 1, suite.name, i && can(DLOCK_CAP_SHARED) ? DLOCK_SHARED : DLOCK_EXCLUSIVE, 0);
        BUSY(queue_up(&waiting[i]));
        EXPECT(inspect(suite.name) == 1);
        EXPECT(seen.info[0].waiters == (unsigned)i + 1);
        expect_queue(waiting, i + 1);
    }
    LOST(release(&waiting[0]));
    EXPECT(inspect(suite.name) == 1);
    EXPECT(seen.info[0].waiters == 1);
    expect_queue(&waiting[1], 1);
    LOST(release(&waiting[1]));
    GRANTED(release(&mine));
}

static void shows_waiters_for_permits(void) {
    struct grant mine, waiting;
    grant_as(&mine, 0, suite.name, DLOCK_PERMIT, 1);
    grant_as(&waiting, 1, suite.name, DLOCK_PERMIT, 1);
    GRANTED(acquire(&mine));
    BUSY(queue_up(&waiting));
    expect_queue(&waiting, 1);
    LOST(release(&waiting));
    GRANTED(release(&mine));
}

static void shows_no_lease_that_has_ended(void) {
    struct grant dead;
    grant_new(&dead, 0, suite.name);
    dead.claim.lease_ms = 500;
    GRANTED(acquire(&dead));
    sleep_ms(3500);
    EXPECT(inspect(suite.name) == 0);
    if (can(DLOCK_CAP_LIST)) EXPECT(list(suite.name, 0) == 0);
    if (can(DLOCK_CAP_BREAK)) LOST(break_it(suite.name));
}

/* ---- list -------------------------------------------------------------------------------------------------------- */

/* Lists each name with the prefix once, and no others, on as many pages as needed. */
static void lists_held_names(void) {
    enum { N = 256 };
    static struct grant held[N];
    static char names[N][DLOCK_NAME_MAX + 1];
    struct grant *all[N], free_one;
    char prefix[DLOCK_NAME_MAX + 1], tag[16];
    int times[N] = {0};
    for (int i = 0; i < N; i++) {
        snprintf(tag, sizeof tag, "%s-%03d", i < N / 2 ? "first" : "other", i);
        tagged_name(names[i], tag);
        grant_new(&held[i], 0, names[i]);
        all[i] = &held[i];
    }
    batch(0, DLOCK_ACQUIRE, all, N, NULL);
    tagged_name(prefix, "first");
    grant_new(&free_one, 0, prefix);
    GRANTED(acquire(&free_one));
    GRANTED(release(&free_one));
    EXPECT(list(prefix, 0) == N / 2);
    for (int i = 0; i < seen.n; i++) {
        int number = atoi(seen.name[i] + strlen(seen.name[i]) - 3);
        EXPECT(number < N / 2 && ++times[number] == 1);
        EXPECT(strcmp(seen.name[i], names[number]) == 0);
        EXPECT(strcmp(seen.token[i], held[number].token) == 0);
    }
    EXPECT(list(suite.name, 0) == N);
    EXPECT(list(prefix, 3) == 3); /* ends when it is told to */
    tagged_name(prefix, "none");
    EXPECT(list(prefix, 0) == 0);
    batch(0, DLOCK_RELEASE, all, N, NULL);
    EXPECT(list(suite.name, 0) == 0);
}

/* As they were given, whatever their bytes mean to the server. */
static void lists_names_as_they_are(void) {
    static const char *const tags[] = {"a b", "%", "{x}", "*?[y]", "'\"\\", "\xc3\xa9", "a/b", ".."};
    enum { N = sizeof tags / sizeof *tags };
    struct grant held[N];
    char names[N][DLOCK_NAME_MAX + 1];
    for (int i = 0; i < N; i++) {
        tagged_name(names[i], tags[i]);
        grant_new(&held[i], 0, names[i]);
        GRANTED(acquire(&held[i]));
    }
    for (int i = 0; i < N; i++) {
        EXPECT(list(names[i], 0) == 1);
        expect_seen(&held[i], DLOCK_EXCLUSIVE);
    }
    for (int i = 0; i < N; i++) GRANTED(release(&held[i]));
}

static void lists_names_of_full_length(void) {
    char names[2][DLOCK_FULL_NAME_MAX + 1];
    struct grant held[2];
    for (int i = 0; i < 2; i++) {
        full_length_name(names[i], (char)('a' + i));
        grant_new(&held[i], i, names[i]);
        full_length_token(&held[i], 'z');
        GRANTED(acquire(&held[i]));
    }
    EXPECT(list(suite.name, 0) == 2);
    for (int i = 0; i < 2; i++) expect_seen(&held[i], DLOCK_EXCLUSIVE);
    EXPECT(list(names[1], 0) == 1);
    expect_seen(&held[1], DLOCK_EXCLUSIVE);
    for (int i = 0; i < 2; i++) GRANTED(release(&held[i]));
}

/* ---- break ------------------------------------------------------------------------------------------------------- */

static void breaks_a_grant(void) {
    struct grant mine, theirs;
    grant_new(&mine, 0, suite.name);
    grant_new(&theirs, 1, suite.name);
    LOST(break_it(suite.name));
    GRANTED(acquire(&mine));
    GRANTED(break_it(suite.name));
    LOST(break_it(suite.name));
    GRANTED(await_free(&theirs));
    EXPECT(theirs.claim.fence > mine.claim.fence);
    expect_broken(&mine);
    GRANTED(renew(&theirs));
    GRANTED(release(&theirs));
    LOST(break_it(suite.name));
}

static void breaks_joint_grants(enum dlock_mode mode, uint32_t limit) {
    struct grant held[3], next;
    for (int i = 0; i < 3; i++) {
        grant_as(&held[i], i % 2, suite.name, mode, limit);
        GRANTED(acquire(&held[i]));
    }
    GRANTED(break_it(suite.name));
    LOST(break_it(suite.name));
    grant_new(&next, 3, suite.name);
    GRANTED(await_free(&next));
    for (int i = 0; i < 3; i++) EXPECT(next.claim.fence > held[i].claim.fence);
    for (int i = 0; i < 3; i++) expect_broken(&held[i]);
    GRANTED(renew(&next));
    GRANTED(release(&next));
}

static void breaks_all_readers(void) {
    breaks_joint_grants(DLOCK_SHARED, 0);
}

static void breaks_all_permits(void) {
    breaks_joint_grants(DLOCK_PERMIT, 5);
}

static void breaks_and_hands_over(void) {
    struct grant mine, waiting;
    grant_new(&mine, 0, suite.name);
    grant_new(&waiting, 1, suite.name);
    GRANTED(acquire(&mine));
    BUSY(queue_up(&waiting));
    GRANTED(break_it(suite.name));
    GRANTED(await(&waiting, REQUEST_MS));
    EXPECT(waiting.claim.fence > mine.claim.fence);
    expect_broken(&mine);
    GRANTED(release(&waiting));
}

static void breaks_readers_for_a_writer(void) {
    struct grant readers[2], writer;
    for (int i = 0; i < 2; i++) {
        grant_as(&readers[i], i, suite.name, DLOCK_SHARED, 0);
        GRANTED(acquire(&readers[i]));
    }
    grant_new(&writer, 2, suite.name);
    BUSY(queue_up(&writer));
    GRANTED(break_it(suite.name));
    GRANTED(await(&writer, REQUEST_MS));
    EXPECT(writer.claim.fence > readers[1].claim.fence);
    for (int i = 0; i < 2; i++) expect_broken(&readers[i]);
    GRANTED(release(&writer));
}

const struct contract_case contract_inspect[] = {
    PROMISE(shows_the_holder, DLOCK_CAP_INSPECT),
    PROMISE(shows_every_reader, DLOCK_CAP_INSPECT | DLOCK_CAP_SHARED),
    PROMISE(shows_every_permit, DLOCK_CAP_INSPECT | DLOCK_CAP_PERMIT),
    PROMISE(shows_a_downgraded_holder_with_its_fence, DLOCK_CAP_INSPECT | DLOCK_CAP_SHARED),
    PROMISE(shows_waiters, DLOCK_CAP_INSPECT | DLOCK_CAP_QUEUE),
    PROMISE(shows_waiters_for_permits, DLOCK_CAP_INSPECT | DLOCK_CAP_QUEUE | DLOCK_CAP_PERMIT),
    PROMISE(shows_no_lease_that_has_ended, DLOCK_CAP_INSPECT | NEEDS_LEASES),
    PROMISE(lists_held_names, DLOCK_CAP_LIST | NEEDS_MANY),
    PROMISE(lists_names_as_they_are, DLOCK_CAP_LIST),
    PROMISE(lists_names_of_full_length, DLOCK_CAP_LIST),
    PROMISE(breaks_a_grant, DLOCK_CAP_BREAK),
    PROMISE(breaks_all_readers, DLOCK_CAP_BREAK | DLOCK_CAP_SHARED),
    PROMISE(breaks_all_permits, DLOCK_CAP_BREAK | DLOCK_CAP_PERMIT),
    PROMISE(breaks_and_hands_over, DLOCK_CAP_BREAK),
    PROMISE(breaks_readers_for_a_writer, DLOCK_CAP_BREAK | DLOCK_CAP_SHARED),
    {0},
};
