/* fork() and exec(): handles do not work in a child, and nothing that a child does disturbs its parent. */
#include "actor.h"
#include "thread.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs check(client, lock) in a child that ends by _exit, so that only the calls of the check are tested. */
static void in_child(void (*check)(dlock_client *, dlock_lock *), dlock_client *client, dlock_lock *lock) {
    pid_t pid = fork();
    EXPECT(pid >= 0);
    if (pid == 0) {
        check(client, lock);
        _exit(0);
    }
    join_process(pid);
}

static int count_holder(const struct dlock_info *info, void *arg) {
    (void)info;
    ++*(int *)arg;
    return 0;
}

static void expect_refusals(dlock_client *client, dlock_lock *lock) {
    char text[DLOCK_TICKET_MAX + 1] = "";
    int holders = 0;
    dlock_lock *made = lock;
    EXPECT_CODE(DLOCK_EFORKED, dlock_acquire(lock, 0, ERR));
    EXPECT_CODE(DLOCK_EFORKED, dlock_acquire(lock, DLOCK_FOREVER, ERR));
    EXPECT_CODE(DLOCK_EFORKED, dlock_release(lock, ERR));
    EXPECT_CODE(DLOCK_EFORKED, dlock_cancel(lock));
    EXPECT_CODE(DLOCK_EFORKED, dlock_token(lock, text, sizeof text, ERR));
    EXPECT_CODE(DLOCK_EFORKED, dlock_new(client, suite.name, NULL, &made, ERR));
    EXPECT_CODE(DLOCK_EFORKED, dlock_inspect(client, suite.name, count_holder, &holders, ERR));
    EXPECT_CODE(DLOCK_EFORKED, dlock_list(client, "", count_holder, &holders, ERR));
    EXPECT_CODE(DLOCK_EFORKED, dlock_break(client, suite.name, ERR));
    EXPECT_CODE(DLOCK_EFORKED, dlock_downgrade(lock, ERR));
    EXPECT_CODE(DLOCK_EFORKED, dlock_extend(lock, 0, ERR));
    EXPECT_CODE(DLOCK_EFORKED, dlock_acquire_all(&lock, 1, DLOCK_FOREVER, ERR));
    EXPECT_CODE(DLOCK_EFORKED, dlock_release_all(&lock, 1, ERR));
    EXPECT_CODE(DLOCK_EFORKED, dlock_acquire_async(lock, DLOCK_FOREVER, never_called, NULL));
    EXPECT_CODE(DLOCK_EFORKED, dlock_release_async(lock, never_called, NULL));
    EXPECT_CODE(DLOCK_EFORKED, dlock_export(lock, text, sizeof text, ERR));
    EXPECT_CODE(DLOCK_EFORKED, dlock_import(client, "ticket", NULL, &made, ERR));
    EXPECT_CODE(DLOCK_EFORKED, dlock_client_fd(client));
    EXPECT_CODE(DLOCK_EFORKED, dlock_client_dispatch(client));
    EXPECT(made == lock && holders == 0 && text[0] == '\0');
    EXPECT(!dlock_held(lock));
    EXPECT(dlock_remaining_ms(lock) == 0);
    EXPECT(dlock_fence(lock) == 0);
}

void case_fork_child_is_refused(void) {
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, NULL);
    in_child(expect_refusals, client, lock);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    in_child(expect_refusals, client, lock);
    EXPECT(dlock_held(lock));
    EXPECT_TAKEN(suite.name);
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_FREE(suite.name);
}

static void do_nothing(dlock_client *client, dlock_lock *lock) {
    (void)client, (void)lock;
}

void case_fork_parent_keeps_its_lock(void) {
    SCOPED_CLIENT *client = open_client();
    struct dlock_options options = options_with(RENEWED_LEASE_MS, 0);
    SCOPED_LOCK *lock = new_lock(client, suite.name, &options);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    for (int64_t until = now_ms() + RENEWED_LEASE_MS * 5 / 4; now_ms() < until;) {
        in_child(do_nothing, client, lock);
        EXPECT(dlock_held(lock));
        EXPECT_TAKEN(suite.name);
        sleep_ms(100);
    }
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    EXPECT_CODE(0, dlock_release(lock, ERR));
}

static void free_and_close(dlock_client *client, dlock_lock *lock) {
    dlock_free(lock);
    dlock_close(client);
}

static void close_and_free(dlock_client *client, dlock_lock *lock) {
    dlock_close(client);
    dlock_free(lock);
}

void case_fork_child_frees_and_closes(void) {
    SCOPED_CLIENT *client = open_client();
    struct dlock_options options = options_with(RENEWED_LEASE_MS, 0);
    SCOPED_LOCK *lock = new_lock(client, suite.name, &options);
    for (int held = 0; held < 2; held++) {
        if (held) EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
        int64_t begun = now_ms();
        in_child(free_and_close, client, lock);
        in_child(close_and_free, client, lock);
        EXPECT_BETWEEN(0, SLACK_MS, now_ms() - begun);
    }
    sleep_ms(RENEWED_LEASE_MS * 5 / 4);
    EXPECT(dlock_held(lock));
    EXPECT_TAKEN(suite.name);
    EXPECT_CODE(0, dlock_release(lock, ERR));
}

void case_fork_while_a_thread_waits(void) {
    SCOPED_CLIENT *holder = open_client(), *client = open_client();
    SCOPED_LOCK *held = new_lock(holder, suite.name, NULL), *lock = new_lock(client, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(held, 0, ERR));
    struct call wait = {.lock = lock, .timeout_ms = PATIENCE_MS};
    pthread_t thread = start_thread(acquire_here, &wait);
    sleep_ms(300);
    in_child(expect_refusals, client, lock);
    in_child(free_and_close, client, lock);
    EXPECT(dlock_held(held));
    EXPECT_CODE(0, dlock_release(held, ERR));
    pthread_join(thread, NULL);
    EXPECT_CODE(0, wait.code);
    EXPECT_FREE(suite.name);
}

static void open_own(dlock_client *parents_client, dlock_lock *parents_lock) {
    (void)parents_client;
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, NULL);
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(lock, 0, ERR));
    EXPECT_CODE(DLOCK_EFORKED, dlock_release(parents_lock, ERR));
    char name[DLOCK_NAME_MAX + 1];
    tagged_name(name, "child");
    SCOPED_LOCK *own = new_lock(client, name, NULL);
    EXPECT_CODE(0, dlock_acquire(own, 0, ERR));
    EXPECT_CODE(0, dlock_release(own, ERR));
}

void case_fork_child_opens_its_own(void) {
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    sleep_ms(200); /* let the client's threads become idle: a sanitizer's allocator may not be forked in a call */
    in_child(open_own, client, lock);
    EXPECT(dlock_held(lock));
    EXPECT_CODE(0, dlock_release(lock, ERR));
}

/* As a daemon starts: the child opens its own client and continues when the parent's is closed. Both, and later
 * clients, must still see the same locks. */
struct daemon {
    sem_t parent, child;
};

static dlock_lock *hold(dlock_client *client, const char *tag) {
    char name[DLOCK_NAME_MAX + 1];
    tagged_name(name, tag);
    dlock_lock *lock = new_lock(client, name, NULL);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    return lock;
}

static void expect_held(const char *tag) {
    char name[DLOCK_NAME_MAX + 1];
    tagged_name(name, tag);
    EXPECT_TAKEN(name);
}

static void go_on(struct daemon *daemon) {
    SCOPED_CLIENT *client = open_client();
    expect_held("parent");
    SCOPED_LOCK *first = hold(client, "first");
    sem_post(&daemon->parent);
    signal_wait(&daemon->child);
    expect_held("later");
    SCOPED_LOCK *second = hold(client, "second");
    sem_post(&daemon->parent);
    signal_wait(&daemon->child);
}

void case_fork_child_opens_its_own_and_goes_on(void) {
    struct daemon *daemon = shared_memory(sizeof *daemon);
    signal_init(&daemon->parent);
    signal_init(&daemon->child);
    dlock_client *client = open_client();
    dlock_lock *lock = hold(client, "parent");
    sleep_ms(200);
    pid_t pid = fork();
    if (pid == 0) {
        go_on(daemon);
        _exit(0);
    }
    signal_wait(&daemon->parent);
    dlock_close(client);
    dlock_free(lock);
    client = open_client();
    expect_held("first");
    lock = hold(client, "later");
    sem_post(&daemon->child);
    signal_wait(&daemon->parent);
    expect_held("second");
    sem_post(&daemon->child);
    join_process(pid);
    dlock_close(client);
    dlock_free(lock);
}

/* A holder with a child that outlives it. */
struct family {
    sem_t ready;
    bool exec;
    struct dlock_options options;
};

static void live_on(bool exec) {
    if (exec) execlp("sleep", "sleep", "60", (char *)NULL);
    sleep_ms(60000);
    _exit(0);
}

static void hold_with_child(void *arg) {
    struct family *family = arg;
    dlock_client *client = open_client();
    dlock_lock *lock = new_lock(client, suite.name, &family->options);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    pid_t pid = fork();
    EXPECT(pid >= 0);
    if (pid == 0) live_on(family->exec);
    sleep_ms(300);
    sem_post(&family->ready);
    sleep_ms(60000);
}

/* The lock ends with its holder, whatever a child has inherited; a client that asks with the options `asked` gets
 * it. */
static void child_outlives_the_holder(bool exec, struct dlock_options held, const struct dlock_options *asked) {
    struct family *family = shared_memory(sizeof *family);
    signal_init(&family->ready);
    family->exec = exec;
    family->options = held;
    pid_t holder = start_process(hold_with_child, family, 0);
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, asked);
    signal_wait(&family->ready);
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(lock, 0, ERR));
    kill_process(holder);
    EXPECT_CODE(0, dlock_acquire(lock, LEASE_MS + SLACK_MS, ERR));
}

void case_fork_child_outlives_the_holder(void) {
    child_outlives_the_holder(false, options_with(LEASE_MS, 0), NULL);
}

void case_exec_child_outlives_the_holder(void) {
    child_outlives_the_holder(true, options_with(LEASE_MS, 0), NULL);
}

void case_child_outlives_a_reader(void) {
    for (int exec = 0; exec < 2; exec++) child_outlives_the_holder(exec, options_for(DLOCK_SHARED, 0, LEASE_MS), NULL);
}

void case_child_outlives_a_permit(void) {
    struct dlock_options permit = options_for(DLOCK_PERMIT, 1, LEASE_MS);
    for (int exec = 0; exec < 2; exec++) child_outlives_the_holder(exec, permit, &permit);
}
