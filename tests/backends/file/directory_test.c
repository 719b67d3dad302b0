/* Which directory a URI means, and what is said when it will not do. */
#include "fixture.h"
#include "support/become.h"
#include "support/claim.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOBODY = 65534 };

static mode_t mode_of(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return 0;
    return st.st_mode & 07777;
}

/* Connecting fails with the code and says both words. */
static void refused(const char *path, int code, const char *word, const char *reason) {
    struct dlock_error err = {0, ""};
    void *conn = NULL;
    assert_int_equal(conn_try(path, &conn, &err), code);
    assert_int_equal(err.code, code);
    if (!strstr(err.message, word) || !strstr(err.message, reason)) fail_msg("%s", err.message);
}

TEST(is_created) {
    mode_t before = umask(027);
    void *conn = conn_open(path_of("a//b/c/"));
    umask(0);
    void *open_to_all = conn_open(path_of("d/e"));
    umask(before);
    assert_int_equal(mode_of(path_of("a")), 0750);
    assert_int_equal(mode_of(path_of("a/b/c")), 0700);
    assert_int_equal(mode_of(path_of("d")), 0755);
    assert_int_equal(mode_of(path_of("d/e")), 0700);
    conn_close(open_to_all);
    struct dlock_claim claim = claim_of("job");
    assert_int_equal(acquire(conn, &claim), 0);
    assert_int_equal(access(path_of("a/b/c/job"), F_OK), 0);
    conn_close(conn);
}

static int go_elsewhere(void *arg) {
    (void)arg;
    struct dlock_claim one = claim_of("one");
    struct dlock_error err = {0, ""};
    int fd;
    if (chdir(world->dir) != 0) return 1;
    void *conn = conn_open("here/locks");
    if (chdir("/") != 0 || acquire(conn, &one) != 0) return 2;
    if (access(path_of("here/locks/one"), F_OK) != 0) return 3;
    if (FILE_BACKEND->listen(conn, &fd, 1000, &err) != 0 || last_log[0]) return 4; /* found its way to the directory */
    return 0;
}

TEST(relative_survives_chdir) {
    assert_int_equal(child_end(child_start(go_elsewhere, NULL)), 0);
}

TEST(is_a_file) {
    file_put(path_of("file"), "x", 1);
    refused(path_of("file"), DLOCK_EINVAL, path_of("file"), strerror(ENOTDIR));
    refused(path_of("file/below"), DLOCK_EINVAL, path_of("file"), strerror(ENOTDIR));
}

static void become_nobody(void) {
    if (geteuid() != 0) return; /* then we are not root anyway */
    if (setgroups(0, NULL) != 0 || !become(NOBODY, NOBODY)) _exit(99);
}

static int not_permitted(void *arg) {
    (void)arg;
    become_nobody();
    refused(path_of("closed/below"), DLOCK_EAUTH, path_of("closed/below"), strerror(EACCES));
    void *conn = conn_open(path_of("open"));
    struct dlock_claim claim = claim_of("guarded"), *one = &claim;
    struct dlock_error err = {0, ""};
    assert_int_equal(FILE_BACKEND->acquire(conn, &one, 1, 1000, &err), 0);
    assert_int_equal(claim.result, DLOCK_EAUTH);
    assert_non_null(strstr(err.message, "open/guarded"));
    assert_non_null(strstr(err.message, strerror(EACCES)));
    struct dlock_claim shared = claim_of("shared");
    assert_int_equal(acquire(conn, &shared), 0);
    return 0;
}

/* Whoever may not make lock files takes no lock, not even one whose file is there; but can look at all. */
static int only_looks(void *arg) {
    (void)arg;
    become_nobody();
    struct dlock_claim claim = claim_of("free"), *one = &claim;
    struct dlock_error err = {0, ""};
    void *conn = conn_open(path_of("closed"));
    struct seen seen = inspect(conn, "held");
    assert_int_equal(seen.n, 1);
    assert_true(seen.holders[0].fence > 0);
    assert_int_equal(list(conn, "", 0, 10000), 1);
    assert_int_equal(FILE_BACKEND->acquire(conn, &one, 1, 1000, &err), 0);
    assert_int_equal(claim.result, DLOCK_EAUTH);
    assert_non_null(strstr(err.message, "cannot create lock files in "));
    assert_non_null(strstr(err.message, path_of("closed")));
    conn_close(conn);
    return 0;
}

TEST(looking_needs_no_right_to_write) {
    struct dlock_claim held = claim_of("held"), unused = claim_of("free");
    assert_int_equal(chmod(world->dir, 0755), 0);
    void *conn = conn_open(path_of("closed"));
    assert_int_equal(acquire(conn, &held), 0);
    assert_int_equal(acquire(conn, &unused), 0);
    assert_int_equal(release(conn, &unused), 0);
    assert_int_equal(chmod(path_of("closed/held"), 0644), 0);
    assert_int_equal(chmod(path_of("closed/free"), 0666), 0);
    assert_int_equal(chmod(path_of("closed"), 0555), 0);
    assert_int_equal(child_end(child_start(only_looks, NULL)), 0);
    assert_int_equal(chmod(path_of("closed"), 0755), 0);
    conn_close(conn);
}

/* Another user's directory and lock files; a sticky directory, as /tmp is, must not make files of others unusable. */
TEST(permissions) {
    assert_int_equal(chmod(world->dir, 0755), 0);
    assert_int_equal(mkdir(path_of("closed"), 0555), 0);
    assert_int_equal(mkdir(path_of("open"), 0777), 0);
    assert_int_equal(chmod(path_of("open"), 01777), 0);
    file_put(path_of("open/guarded"), "", 0);
    file_put(path_of("open/shared"), "", 0);
    assert_int_equal(chmod(path_of("open/guarded"), 0444), 0);
    assert_int_equal(chmod(path_of("open/shared"), 0666), 0);
    assert_int_equal(child_end(child_start(not_permitted, NULL)), 0);
}

/* On /proc, where others than root may make no files, opening a new one fails with ENOENT, as in a deleted directory, but
 * a later try would not help. */
TEST(files_cannot_be_created) {
    static const char *const modes[] = {NULL, "0666"};
    for (size_t i = 0; i < 2; i++) {
        struct dlock_claim claim = claim_of("job"), *one = &claim;
        struct dlock_error err = {0, ""};
        void *conn = NULL;
        assert_int_equal(conn_try_keys("/proc", modes[i], NULL, &conn, &err), 0);
        assert_int_equal(FILE_BACKEND->acquire(conn, &one, 1, 1000, &err), 0);
        assert_int_equal(claim.result, geteuid() == 0 ? DLOCK_EINVAL : DLOCK_EAUTH);
        conn_close(conn);
        if (!strstr(err.message, "cannot create lock files in /proc: ")) fail_msg("%s", err.message);
    }
}

TEST(wrong_uris) {
    struct dlock_error err = {0, ""};
    struct dlock_host host = {"locks", "192.0.2.1", 0};
    struct dlock_uri uri = {.scheme = "file", .path = world->dir, .hosts = &host, .n_hosts = 1};
    struct dlock_peer peer = {.abi = DLOCK_ABI, .client = "0123456789abcdef01234567"};
    void *conn = calloc(1, FILE_BACKEND->conn_size);
    assert_int_equal(FILE_BACKEND->connect(conn, &uri, &peer, 1000, &err), DLOCK_EINVAL);
    assert_non_null(strstr(err.message, "'locks'"));
    assert_non_null(strstr(err.message, "file:DIRECTORY"));
    host.host = "localhost";
    uri.password = "secret";
    assert_int_equal(FILE_BACKEND->connect(conn, &uri, &peer, 1000, &err), DLOCK_EINVAL);
    assert_null(strstr(err.message, "secret"));
    uri.password = NULL;
    assert_int_equal(FILE_BACKEND->connect(conn, &uri, &peer, 1000, &err), 0);
    conn_close(conn);
}

TEST(deleted_directory) {
    struct dlock_claim held = claim_of("held"), later = claim_of("later"), *one = &later;
    struct dlock_error err = {0, ""};
    assert_int_equal(acquire(world->conn, &held), 0);
    assert_int_equal(unlink(path_of("held")), 0);
    assert_int_equal(rmdir(world->dir), 0);
    assert_int_equal(renew(world->conn, &held), DLOCK_ELOST);
    assert_int_equal(FILE_BACKEND->acquire(world->conn, &one, 1, 1000, &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, world->dir));
    void *conn = conn_open(world->dir); /* a new connection creates it again */
    assert_false(is_held(conn, "later"));
    conn_close(conn);
}

/* ---- another directory under the path ---- */

/* A connection to world->dir/link/locks, where `link` leads to the directory `one`. */
static void *open_behind_a_link(void) {
    assert_int_equal(mkdir(path_of("one"), 0700), 0);
    assert_int_equal(mkdir(path_of("two"), 0700), 0);
    assert_int_equal(symlink("one", path_of("link")), 0);
    return conn_open(path_of("link/locks"));
}

static void switch_link(void) {
    assert_int_equal(symlink("two", path_of("new")), 0);
    assert_int_equal(rename(path_of("new"), path_of("link")), 0);
}

/* Acquires until the connection answers other than at first, which takes a second: it looks no more often. */
static int acquire_until_noticed(void *conn, struct dlock_claim *claim, struct dlock_error *err) {
    int rc, usual = claim->state[0] ? DLOCK_EBUSY : 0;
    for (int64_t start = now_ms();;) {
        rc = claim_run(FILE_BACKEND->acquire, conn, claim, 1000, err);
        if (rc != 0 || claim->result != usual) return rc != 0 ? rc : claim->result;
        if (now_ms() - start > 10000) fail_msg("it goes on after 10 s");
        if (usual == 0) release(conn, claim);
        usleep(10000);
    }
}

TEST(renewal_after_a_switch) {
    void *conn = open_behind_a_link();
    struct dlock_claim held = claim_of("held"), reader = reader_of("read");
    assert_int_equal(acquire(conn, &held), 0);
    assert_int_equal(acquire(conn, &reader), 0);
    assert_int_equal(renew(conn, &held), 0);
    switch_link();
    assert_int_equal(renew(conn, &held), DLOCK_ELOST);
    assert_int_equal(renew(conn, &reader), DLOCK_ELOST);
    assert_non_null(strstr(last_log, path_of("link/locks was replaced")));
    void *old = conn_open(path_of("one/locks")); /* nothing is left locked there */
    assert_false(is_held(old, "held"));
    assert_false(is_held(old, "read"));
    conn_close(old);
    conn_close(conn);
}

TEST(acquire_after_a_switch) {
    void *conn = open_behind_a_link();
    struct dlock_claim free = claim_of("free");
    struct dlock_error err = {0, ""};
    switch_link();
    assert_int_equal(acquire_until_noticed(conn, &free, &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, path_of("link/locks was replaced")));
    conn_close(conn);
    conn = conn_open(path_of("link/locks"));
    assert_int_equal(access(path_of("two/locks"), F_OK), 0);
    assert_false(is_held(conn, "free"));
    conn_close(conn);
}

TEST(waiter_after_a_switch) {
    void *holder = open_behind_a_link(), *waiter = conn_open(path_of("link/locks"));
    struct dlock_claim held = claim_of("job"), waits = claim_of("job");
    struct dlock_error err = {0, ""};
    assert_int_equal(acquire(holder, &held), 0);
    assert_int_equal(acquire(waiter, &waits), DLOCK_EBUSY);
    switch_link();
    assert_int_equal(acquire_until_noticed(waiter, &waits, &err), DLOCK_EUNAVAILABLE);
    conn_close(waiter);
    conn_close(holder);
}

/* Released in the old directory, and reported as lost: another client may have had the lock in between. */
TEST(release_after_a_switch) {
    void *conn = open_behind_a_link(), *old = conn_open(path_of("one/locks"));
    struct dlock_claim held = claim_of("job");
    assert_int_equal(acquire(conn, &held), 0);
    switch_link();
    usleep(1100000); /* it looks once a second */
    assert_int_equal(release(conn, &held), DLOCK_ELOST);
    assert_false(is_held(old, "job"));
    conn_close(old);
    conn_close(conn);
}

TEST(renamed_directory) {
    void *conn = open_behind_a_link();
    struct dlock_claim first = claim_of("first"), second = claim_of("second");
    assert_int_equal(acquire(conn, &first), 0);
    assert_int_equal(acquire(conn, &second), 0);
    assert_int_equal(rename(path_of("one/locks"), path_of("one/locks.old")), 0);
    assert_int_equal(renew(conn, &first), DLOCK_ELOST); /* the next client makes the directory */
    assert_int_equal(mkdir(path_of("one/locks"), 0700), 0);
    assert_int_equal(renew(conn, &second), DLOCK_ELOST);
    conn_close(conn);
}

static int cannot_look(void *arg) {
    struct dlock_claim held = claim_of("held");
    void *conn = conn_open(path_of("above/locks"));
    if (acquire(conn, &held) != 0) return 1;
    if (arg && chroot(path_of("other")) != 0) return 2; /* there is no such path here */
    if (!arg && chmod(path_of("above"), 0) != 0) return 3;
    if (!arg) become_nobody();
    if (renew(conn, &held) != 0 || last_log[0]) return 4;
    return 0;
}

/* A path that this process cannot see loses no lock. */
TEST(hidden_path) {
    assert_int_equal(mkdir(path_of("above"), 0700), 0);
    assert_int_equal(mkdir(path_of("other"), 0700), 0);
    assert_int_equal(child_end(child_start(cannot_look, NULL)), 0);
    assert_int_equal(chmod(path_of("above"), 0700), 0);
    if (geteuid() == 0) assert_int_equal(child_end(child_start(cannot_look, world)), 0);
}

static int lose_the_way(void *arg) {
    struct dlock_claim held = claim_of("held"), free = claim_of("free");
    struct dlock_error err = {0, ""};
    (void)arg;
    if (chdir(world->dir) != 0) return 1;
    void *conn = conn_open("here/locks");
    if (acquire(conn, &held) != 0 || chdir("here") != 0 || renew(conn, &held) != 0) return 2;
    if (rename(path_of("here"), path_of("there")) != 0) return 3;
    if (renew(conn, &held) != DLOCK_ELOST || acquire_until_noticed(conn, &free, &err) != DLOCK_EINVAL) return 4;
    if (!strstr(err.message, "use an absolute path")) return 5;
    return 0;
}

/* Connecting again would create a directory below another one. */
TEST(relative_after_chdir) {
    assert_int_equal(child_end(child_start(lose_the_way, NULL)), 0);
}

/* ---- the default ---- */

static int in_state_home(void *arg) {
    (void)arg;
    setenv("XDG_STATE_HOME", path_of("state"), 1);
    conn_close(conn_open(""));
    if (mode_of(path_of("state/dlock")) != 0700 || mode_of(path_of("state")) != 0700) return 1;
    setenv("XDG_STATE_HOME", "relative", 1); /* to be ignored */
    setenv("HOME", path_of("home"), 1);
    conn_close(conn_open(""));
    if (mode_of(path_of("home/.local/state/dlock")) != 0700 || mode_of(path_of("home")) != 0700) return 2;
    return 0;
}

TEST(by_default_in_the_state_home) {
    assert_int_equal(child_end(child_start(in_state_home, NULL)), 0);
}

static int no_room_for_it(void *arg) {
    const char *another = "name another directory, as in file:/";
    (void)arg;
    unsetenv("XDG_STATE_HOME");
    setenv("HOME", path_of("home"), 1);
    refused("", DLOCK_EUNAVAILABLE, path_of("home/.local: "), another); /* cannot be created */
    setenv("XDG_STATE_HOME", path_of("state"), 1);
    refused("", DLOCK_EINVAL, path_of("state/dlock: "), another); /* cannot be opened */
    return 0;
}

TEST(default_that_cannot_be_used) {
    struct dlock_error err = {0, ""};
    void *conn = NULL;
    assert_int_equal(symlink("nowhere", path_of("home")), 0);
    assert_int_equal(mkdir(path_of("state"), 0700), 0);
    file_put(path_of("state/dlock"), "", 0);
    assert_int_equal(child_end(child_start(no_room_for_it, NULL)), 0);
    assert_int_equal(conn_try(path_of("state/dlock"), &conn, &err), DLOCK_EINVAL); /* the caller has named it */
    assert_null(strstr(err.message, "another"));
}

static char home[PATH_MAX]; /* "": as it is */

int __real_getpwuid_r(uid_t uid, struct passwd *entry, char *buffer, size_t size, struct passwd **found);
int __wrap_getpwuid_r(uid_t uid, struct passwd *entry, char *buffer, size_t size, struct passwd **found);

int __wrap_getpwuid_r(uid_t uid, struct passwd *entry, char *buffer, size_t size, struct passwd **found) {
    lists_asked++;
    if (lists_fail) return *found = NULL, lists_fail;
    if (lists_group) {
        assert_true(snprintf(buffer, size, "member") < (int)size);
        *entry = (struct passwd){.pw_name = buffer, .pw_uid = uid, .pw_gid = lists_group};
        return *found = entry, 0;
    }
    if (!home[0]) return __real_getpwuid_r(uid, entry, buffer, size, found);
    assert_true(uid == geteuid());
    assert_true(snprintf(buffer, size, "%s", home) < (int)size);
    *entry = (struct passwd){.pw_uid = uid, .pw_dir = buffer};
    *found = entry;
    return 0;
}

static int without_home(void *arg) {
    const char *variable = arg;
    unsetenv("XDG_STATE_HOME");
    if (variable)
        setenv("HOME", variable, 1);
    else
        unsetenv("HOME");
    conn_close(conn_open(""));
    return mode_of(path_of("entered/.local/state/dlock")) == 0700 ? 0 : 1;
}

TEST(home_from_passwd) {
    static const char *const variables[] = {NULL, "", "relative"};
    snprintf(home, sizeof home, "%s", path_of("entered"));
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(child_end(child_start(without_home, (void *)(uintptr_t)variables[i])), 0);
        place_leave(home);
    }
    home[0] = '\0';
}

static int without_lists(void *arg) {
    static const struct {
        int errnum, code;
    } failures[] = {{EMFILE, DLOCK_ENOMEM}, {EIO, DLOCK_EUNAVAILABLE}, {ENOENT, DLOCK_EINVAL}};
    (void)arg;
    unsetenv("XDG_STATE_HOME");
    unsetenv("HOME");
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        lists_fail = failures[i].errnum;
        refused("", failures[i].code, "home directory", i == 2 ? "set HOME" : strerror(lists_fail));
    }
    return 0;
}

/* A user without a home is one case, a home that cannot be determined now is another. */
TEST(home_that_cannot_be_told) {
    assert_int_equal(child_end(child_start(without_lists, NULL)), 0);
}
