/* Tests of a program that uses locks, without a server: mem: keeps them in this process, and can make requests slow or
 * lost.
 *
 *     testing
 */
#include <dlock/dlock.h>

#include <stdio.h>

enum { STEPS = 3 };

/* ---- the program ---- */

/* Does its steps while it holds the lock. Returns 0, or the error why it did not do all of them. */
static int make_report(dlock_client *client, int (*step)(void *), void *arg) {
    dlock_lock *lock;
    int rc = dlock_new(client, "report", NULL, &lock, NULL);
    if (rc != 0) return rc;
    rc = dlock_acquire(lock, 0, NULL);
    for (int i = 0; i < STEPS && rc == 0; i++) {
        rc = dlock_extend(lock, 0, NULL); /* checks that the lock is still held */
        if (rc == 0) rc = step(arg);
    }
    dlock_free(lock); /* also releases the lock */
    return rc;
}

/* ---- its tests ---- */

static int steps;
static dlock_client *somebody;

static int count(void *arg) {
    (void)arg;
    steps++;
    return 0;
}

static int count_and_break(void *arg) {
    return ++steps == 2 ? dlock_break(arg, "report", NULL) : 0;
}

static int count_while_it_works(void *arg) {
    steps = 0;
    return make_report(arg, count, NULL);
}

#define EXPECT(what) ((what) ? (void)0 : (void)(failed = printf("failed: %s\n", #what)))

int main(void) {
    dlock_client *client, *unlucky;
    int failed = 0, lost = 0;
    if (dlock_open("mem:", NULL, &client, NULL) != 0 || dlock_open("mem:", NULL, &somebody, NULL) != 0 ||
        dlock_open("mem:?delay=1ms&fail=0.1", NULL, &unlucky, NULL) != 0)
        return 1;

    steps = 0;
    EXPECT(make_report(client, count, NULL) == 0 && steps == STEPS);

    /* Another client holds the lock. */
    EXPECT(make_report(client, count_while_it_works, somebody) == DLOCK_EBUSY && steps == 0);

    /* Another client breaks the lock in the second step. */
    steps = 0;
    EXPECT(make_report(client, count_and_break, somebody) == DLOCK_ELOST && steps == 2);

    /* Answers are missing and locks are lost: whatever happens to one report, a later one can be made. */
    for (int i = 0; i < 100; i++) lost += make_report(unlucky, count, NULL) == DLOCK_ELOST;
    EXPECT(lost > 0 && make_report(client, count, NULL) == 0);

    dlock_close(unlucky);
    dlock_close(somebody);
    dlock_close(client);
    if (!failed) puts("all passed");
    return failed != 0;
}
