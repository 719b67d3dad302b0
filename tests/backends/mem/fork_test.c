/* A forked child shares no memory with its parent, and so no locks; it can have its own, whatever the parent's threads
 * were in the middle of. Through the table of operations: it starts no threads. */
#include "support/held.h"
#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static void open_link(struct link *link, char letter) {
    struct uri uri;
    struct dlock_error err = {0};
    uri_init(&uri, 0);
    uri.parts.n_hosts = 0;
    uri.parts.path = "forked";
    if (link_try(link, &uri.parts, letter, 0, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
}

static atomic_bool over;

/* Is nearly always in the middle of something. */
static void *work(void *arg) {
    struct link *link = arg;
    while (!atomic_load(&over)) {
        struct held held;
        held_new(&held, link, "busy");
        acquire(link, &held);
        release(link, &held);
    }
    return NULL;
}

/* The child's part; returns the exit status. */
static int begin_anew(struct link *inherited) {
    struct link own;
    struct held held;
    backend->abandon(inherited->conn);
    open_link(&own, 'c');
    held_new(&held, &own, "job");
    bool fine = acquire(&own, &held) == 0 && renew(&own, &held) == 0 && release(&own, &held) == 0;
    link_end(&own);
    return !fine;
}

TEST(a_child_begins_with_none) {
    struct link one, two, busy;
    struct held held, waiting;
    pthread_t thread;
    open_link(&one, 'a');
    open_link(&two, 'b');
    open_link(&busy, 'd');
    link_listen(&two);
    held_new(&held, &one, "job");
    held_new(&waiting, &two, "job");
    assert_int_equal(acquire(&one, &held), 0);
    assert_int_equal(queue_up(&two, &waiting), DLOCK_EBUSY);
    assert_int_equal(pthread_create(&thread, NULL, work, &busy), 0);
    for (int i = 0; i < 50; i++) {
        int status = -1;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) _exit(begin_anew(&two));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    /* The parent's are as they were, and its wake-ups come to it. */
    struct dlock_wake wake;
    assert_int_equal(renew(&one, &held), 0);
    assert_int_equal(release(&one, &held), 0);
    assert_true(wake_within(&two, &wake, TIMEOUT_MS));
    assert_int_equal(wake.kind, DLOCK_WAKE_GRANTED);
    assert_string_equal(wake.token, waiting.token);
    link_end(&one);
    link_end(&two);
    link_end(&busy);
}

TESTS(NULL, NULL, backend_load, NULL)
