/* Rights to the locks of a directory, and strangers who could take them away. An ordinary user cannot make files of
 * other owners: they are put into the kernel's answers. */
#include "fixture.h"
#include "support/become.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STRANGER = 54321 };

/* ---- the kernel's answers ---------------------------------------------------------------------------------------- */

int __real_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st);
int __real_lstat(const char *path, struct stat *st);
int __wrap_lstat(const char *path, struct stat *st);
int __real_statx(int dir, const char *path, int flags, unsigned mask, struct statx *st);
int __wrap_statx(int dir, const char *path, int flags, unsigned mask, struct statx *st);

static bool strange_directories, strange_files, strange_links;

int __wrap_fstat(int fd, struct stat *st) {
    int rc = __real_fstat(fd, st);
    if (rc == 0 && strange_directories && S_ISDIR(st->st_mode)) st->st_uid = STRANGER;
    if (rc == 0 && whole_second && S_ISDIR(st->st_mode)) st->st_ctim = (struct timespec){whole_second, 0};
    return rc;
}

int __wrap_lstat(const char *path, struct stat *st) {
    int rc = __real_lstat(path, st);
    if (rc == 0 && strange_links && S_ISLNK(st->st_mode)) st->st_uid = STRANGER;
    return rc;
}

int __wrap_statx(int dir, const char *path, int flags, unsigned mask, struct statx *st) {
    int rc = __real_statx(dir, path, flags, mask, st);
    if (rc == 0 && strange_files) st->stx_uid = STRANGER;
    return rc;
}

int lists_fail;
gid_t lists_group;
unsigned lists_asked;

int __real_getgrnam_r(const char *name, struct group *entry, char *buffer, size_t size, struct group **found);
int __wrap_getgrnam_r(const char *name, struct group *entry, char *buffer, size_t size, struct group **found);

int __wrap_getgrnam_r(const char *name, struct group *entry, char *buffer, size_t size, struct group **found) {
    if (lists_fail) return *found = NULL, lists_fail;
    return __real_getgrnam_r(name, entry, buffer, size, found);
}

static int rights_begin(void **state) {
    lists_fail = 0;
    lists_group = 0;
    lists_asked = 0;
    strange_directories = strange_files = strange_links = false;
    return world_begin(state);
}

/* ---- helpers ----------------------------------------------------------------------------------------------------- */

static mode_t mode_of(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 07777;
}

static gid_t group_of(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_gid;
}

/* A group that this user may give files to, other than the one that they get anyway where there is one. */
static const char *our_group(gid_t *gid) {
    static char text[24];
    gid_t groups[64];
    int n = getgroups(64, groups);
    *gid = geteuid() == 0 ? 4321 : n > 0 ? groups[n - 1] : getegid();
    snprintf(text, sizeof text, "%u", (unsigned)*gid);
    return text;
}

static void *open_with(const char *path, const char *mode, const char *group) {
    struct dlock_error err;
    void *conn = NULL;
    if (conn_try_keys(path, mode, group, &conn, &err) != 0) fail_msg("%s", err.message);
    return conn;
}

static void refused(void *conn, const char *name, int code, const char *reason) {
    struct dlock_claim claim = claim_of(name), *one = &claim;
    struct dlock_error err = {0, ""};
    assert_int_equal(FILE_BACKEND->acquire(conn, &one, 1, 1000, &err), 0);
    if (claim.result != code || !strstr(err.message, reason)) fail_msg("%d: %s", claim.result, err.message);
}

static void granted(void *conn, const char *name) {
    struct dlock_claim claim = claim_of(name);
    assert_int_equal(acquire(conn, &claim), 0);
    assert_int_equal(release(conn, &claim), 0);
}

/* ---- what is made ------------------------------------------------------------------------------------------------ */

TEST_WITH(rights_begin, world_end, lock_files_are_private) {
    mode_t before = umask(0);
    granted(world->conn, "one");
    umask(077);
    granted(world->conn, "two");
    umask(before);
    assert_int_equal(mode_of(path_of("one")), 0600);
    assert_int_equal(mode_of(path_of("two")), 0600);
}

TEST_WITH(rights_begin, world_end, between_users) {
    gid_t gid;
    const char *group = our_group(&gid);
    mode_t before = umask(077);
    void *named = open_with(path_of("a"), "0660", group), *implied = open_with(path_of("b"), NULL, group);
    void *readable_to_all = open_with(path_of("c"), "664", group), *all = open_with(path_of("d"), "666", NULL);
    granted(named, "job");
    granted(implied, "job");
    granted(readable_to_all, "job");
    granted(all, "job");
    umask(before);
    assert_int_equal(mode_of(path_of("a")), 03770);
    assert_int_equal(mode_of(path_of("a/job")), 0660);
    assert_int_equal(mode_of(path_of("b/job")), 0660);
    assert_int_equal(mode_of(path_of("c")), 03775);
    assert_int_equal(mode_of(path_of("c/job")), 0664);
    assert_int_equal(mode_of(path_of("d")), 01777);
    assert_int_equal(mode_of(path_of("d/job")), 0666);
    assert_true(group_of(path_of("a")) == gid && group_of(path_of("a/job")) == gid);
    conn_close(named);
    conn_close(implied);
    conn_close(readable_to_all);
    conn_close(all);
}

/* ---- a file is not visible before it has its rights -------------------------------------------------------------- */

enum { NAMES = 300 };

static int take_all(void *arg) {
    gid_t gid;
    (void)arg;
    if (geteuid() == 0 && !become(STRANGER, STRANGER)) return 1; /* rights mean nothing to root */
    umask(077);
    void *conn = open_with(path_of("shared"), "0660", our_group(&gid));
    umask(0777); /* a file that has not got its rights yet is closed to all of us */
    for (int i = 0; i < NAMES; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        struct dlock_claim claim = claim_of(name);
        int result = acquire(conn, &claim);
        if (result != 0 && result != DLOCK_EBUSY) return 2;
        release(conn, &claim);
    }
    conn_close(conn);
    return 0;
}

TEST_WITH(rights_begin, world_end, all_at_once) {
    assert_int_equal(chmod(world->dir, 0777), 0);
    children_run(take_all, NULL, 0, 4);
    assert_int_equal(mode_of(path_of("shared")), 03770);
    assert_int_equal(mode_of(path_of("shared/0")), 0660);
}

/* ---- wrong keys -------------------------------------------------------------------------------------------------- */

TEST_WITH(rights_begin, world_end, wrong_keys) {
    static const char *const modes[] = {"",     "0",    "rw",    "0777",  "0700", "0400",
                                        "0620", "0602", "01660", "00660", "-660", "0668"};
    struct dlock_error err;
    void *conn = NULL;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (conn_try_keys(world->dir, modes[i], NULL, &conn, &err) != DLOCK_EINVAL) fail_msg("mode=%s", modes[i]);
        assert_non_null(strstr(err.message, "mode=0660"));
    }
    assert_int_equal(conn_try_keys(world->dir, NULL, "no such group", &conn, &err), DLOCK_EINVAL);
    assert_null(strstr(err.message, "no such group"));
    assert_int_equal(conn_try_keys(world->dir, NULL, "", &conn, &err), DLOCK_EINVAL);
    assert_int_equal(conn_try_keys(world->dir, "0600", "0", &conn, &err), DLOCK_EINVAL);
    assert_int_equal(conn_try_keys(world->dir, NULL, "root", &conn, &err), 0);
    conn_close(conn);
}

static int give_to_root(void *arg) {
    (void)arg;
    if (geteuid() == 0 && !become(STRANGER, STRANGER)) return 1;
    refused(open_with(path_of("open"), "0660", "root"), "job", DLOCK_EAUTH, strerror(EPERM));
    return 0;
}

/* Without being a member. */
TEST_WITH(rights_begin, world_end, not_our_group) {
    assert_int_equal(chmod(world->dir, 0755), 0);
    assert_int_equal(mkdir(path_of("open"), 0755), 0);
    assert_int_equal(chmod(path_of("open"), 01777), 0);
    assert_int_equal(child_end(child_start(give_to_root, NULL)), 0);
    assert_int_equal(rmdir(path_of("open")), 0); /* nothing was left in it */
}

/* ---- strangers --------------------------------------------------------------------------------------------------- */

/* Nothing is granted; looking and clearing up still work. */
TEST_WITH(rights_begin, world_end, open_to_all) {
    struct dlock_claim held = claim_of("held");
    struct dlock_error err;
    assert_int_equal(acquire(world->conn, &held), 0);
    assert_int_equal(chmod(world->dir, 0777), 0);
    void *conn = conn_open(world->dir);
    refused(conn, "job", DLOCK_EAUTH, "chmod +t");
    refused(conn, "held", DLOCK_EAUTH, world->dir);
    assert_int_equal(access(path_of("job"), F_OK), -1);
    assert_int_equal(inspect(conn, "held").n, 1);
    assert_int_equal(FILE_BACKEND->break_lock(conn, "held", 1000, &err), 0);
    assert_int_equal(chmod(world->dir, 01777), 0);
    granted(conn, "job");
    granted(conn, "held");
    conn_close(conn);
}

TEST_WITH(rights_begin, world_end, a_strangers_directory) {
    gid_t gid;
    const char *group = our_group(&gid), *dir = path_of("locks");
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(chown(dir, (uid_t)-1, gid), 0);
    strange_directories = true;
    void *conn = conn_open(dir), *ours = open_with(dir, "0660", group);
    void *others = open_with(dir, "0660", "1"), *all = open_with(dir, "0666", NULL);
    refused(conn, "job", DLOCK_EAUTH, "neither root nor this user");
    refused(all, "job", DLOCK_EAUTH, "neither root nor this user");
    if (gid != 1) refused(others, "job", DLOCK_EAUTH, "neither root nor this user");
    assert_int_equal(access(path_of("locks/job"), F_OK), -1);
    granted(ours, "job"); /* a colleague's */
    conn_close(conn);
    conn_close(ours);
    conn_close(others);
    conn_close(all);
}

TEST_WITH(rights_begin, world_end, a_strangers_file) {
    gid_t gid;
    void *all = open_with(world->dir, "0666", NULL), *ours = open_with(world->dir, "0660", our_group(&gid));
    file_put(path_of("job"), "", 0);
    assert_int_equal(chown(path_of("job"), (uid_t)-1, gid), 0);
    strange_files = true;
    refused(world->conn, "job", DLOCK_EAUTH, "belongs to user 54321");
    granted(ours, "job");
    granted(all, "job");
    conn_close(all);
    conn_close(ours);
}

/* ---- strangers whose files inherit the group --------------------------------------------------------------------- */

/* Makes world->dir/open, in which all files get the group, also those of strangers. */
static void make_open_to_all(gid_t gid) {
    assert_int_equal(mkdir(path_of("open"), 0700), 0);
    assert_int_equal(chown(path_of("open"), (uid_t)-1, gid), 0);
    assert_int_equal(chmod(path_of("open"), 03777), 0);
}

/* The same for our group, with a directory and a file in it. Returns the group. */
static const char *make_open_to_ours(gid_t *gid) {
    const char *group = our_group(gid);
    make_open_to_all(*gid);
    assert_int_equal(mkdir(path_of("open/locks"), 0770), 0);
    file_put(path_of("open/job"), "", 0);
    assert_true(group_of(path_of("open/job")) == *gid);
    return group;
}

TEST_WITH(rights_begin, world_end, inherited) {
    static const struct {
        const char *dir, *why;
        bool *strange;
    } ways[] = {{"open", "belongs to user 54321", &strange_files},
                {"open/locks", "is not known to be of its group", &strange_directories}};
    gid_t gid;
    const char *group = make_open_to_ours(&gid);
    for (int i = 0; i < 2; i++) {
        *ways[i].strange = true;
        void *conn = open_with(path_of(ways[i].dir), "0660", group);
        refused(conn, "job", DLOCK_EAUTH, ways[i].why);
        *ways[i].strange = false;
        granted(conn, "job");
        conn_close(conn);
    }
}

/* Other users may not write above the lock directory, which a stranger has made so. Only root can make that. */
TEST_WITH(rights_begin, world_end, inherited_at_second_hand) {
    gid_t gid;
    const char *group = our_group(&gid);
    if (geteuid() != 0) skip();
    make_open_to_all(gid);
    assert_int_equal(mkdir(path_of("open/own"), 0755), 0);
    assert_int_equal(mkdir(path_of("open/own/locks"), 0755), 0);
    assert_int_equal(chown(path_of("open/own"), STRANGER, gid), 0);
    assert_int_equal(chown(path_of("open/own/locks"), STRANGER, gid), 0);
    void *conn = open_with(path_of("open/own/locks"), "0660", group);
    refused(conn, "job", DLOCK_EAUTH, "is not known to be of its group");
    conn_close(conn);
}

/* A member's file is trusted wherever it is. */
TEST_WITH(rights_begin, world_end, made_by_a_member) {
    const struct passwd *member = getpwuid(1);
    char group[24];
    if (geteuid() != 0 || !member) skip();
    snprintf(group, sizeof group, "%u", (unsigned)member->pw_gid);
    make_open_to_all(member->pw_gid);
    file_put(path_of("open/job"), "", 0);
    assert_int_equal(chown(path_of("open/job"), 1, member->pw_gid), 0);
    void *conn = open_with(path_of("open"), "0660", group);
    granted(conn, "job");
    conn_close(conn);
}

/* ---- lists of users and groups that cannot be read --------------------------------------------------------------- */

/* The lists' contents are unknown, so no user is refused for good, unless `code` is for a list without the name. */
static void lists_fail_with(int errnum, int code) {
    struct dlock_error err;
    gid_t gid;
    const char *group = our_group(&gid), *reason = code == DLOCK_EAUTH ? "" : strerror(errnum);
    int rc, group_code = code == DLOCK_EAUTH ? DLOCK_EINVAL : code;
    void *conn = NULL;
    void *files = open_with(path_of("open"), "0660", group);
    void *directory = open_with(path_of("open/locks"), "0660", group);
    lists_fail = errnum;
    rc = conn_try_keys(world->dir, NULL, "root", &conn, &err);
    if (rc != group_code || !strstr(err.message, reason)) fail_msg("%d: %s", rc, err.message);
    strange_files = true;
    refused(files, "job", code, reason);
    strange_files = false;
    strange_directories = true;
    refused(directory, "job", code, reason);
    strange_directories = false;
    strange_links = true;
    rc = conn_try_keys(path_of("link"), "0660", group, &conn, &err);
    if (rc != code || !strstr(err.message, reason)) fail_msg("%d: %s", rc, err.message);
    strange_links = false;
    lists_fail = 0;
    granted(files, "job");
    conn_close(files);
    conn_close(directory);
}

TEST_WITH(rights_begin, world_end, lists_that_cannot_be_read) {
    gid_t gid;
    make_open_to_ours(&gid);
    assert_int_equal(symlink("open/locks", path_of("link")), 0);
    lists_fail_with(EMFILE, DLOCK_ENOMEM);
    lists_fail_with(EIO, DLOCK_EUNAVAILABLE);
    lists_fail_with(ESRCH, DLOCK_EAUTH);
}

/* ---- how often the lists are asked ------------------------------------------------------------------------------- */

/* The lists may come from a server, so an acquire does not look up again what its connection knows. */
TEST_WITH(rights_begin, world_end, a_member_is_asked_about_once) {
    gid_t gid;
    const char *group = make_open_to_ours(&gid);
    char name[16];
    void *conn = open_with(path_of("open"), "0660", group);
    strange_files = true;
    lists_group = gid;
    lists_asked = 0;
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "open/%d", i);
        file_put(path_of(name), "", 0);
        granted(conn, name + strlen("open/"));
    }
    assert_int_equal(lists_asked, 1);
    conn_close(conn);
}

TEST_WITH(rights_begin, world_end, the_directorys_owner_is_asked_about_at_connect) {
    gid_t gid;
    const char *group = make_open_to_ours(&gid);
    strange_directories = true;
    lists_group = gid;
    void *conn = open_with(path_of("open/locks"), "0660", group);
    assert_int_equal(lists_asked, 1);
    lists_fail = EIO;
    granted(conn, "job");
    assert_int_equal(lists_asked, 1);
    conn_close(conn);
}

/* A user who is no member may become one. */
TEST_WITH(rights_begin, world_end, a_stranger_is_asked_about_again) {
    gid_t gid;
    const char *group = make_open_to_ours(&gid);
    strange_files = true;
    lists_group = gid + 1;
    void *conn = open_with(path_of("open"), "0660", group);
    refused(conn, "job", DLOCK_EAUTH, "belongs to user 54321");
    lists_group = gid;
    granted(conn, "job");
    conn_close(conn);
}

/* ---- links ------------------------------------------------------------------------------------------------------- */

TEST_WITH(rights_begin, world_end, a_strangers_link) {
    struct dlock_error err;
    void *conn;
    assert_int_equal(mkdir(path_of("real"), 0700), 0);
    assert_int_equal(symlink("real", path_of("link")), 0);
    conn = conn_open(path_of("link"));
    granted(conn, "job");
    conn_close(conn);
    strange_links = true;
    assert_int_equal(conn_try(path_of("link"), &conn, &err), DLOCK_EAUTH);
    assert_non_null(strstr(err.message, "symbolic link of user 54321"));
    gid_t gid;
    const char *group = our_group(&gid); /* which the link may have from its directory */
    assert_int_equal(lchown(path_of("link"), (uid_t)-1, gid), 0);
    assert_int_equal(conn_try_keys(path_of("link"), "0660", group, &conn, &err), DLOCK_EAUTH);
}

/* A stranger's empty file, linked to here, stays empty. */
TEST_WITH(rights_begin, world_end, a_hard_link) {
    struct stat st;
    file_put(path_of(".empty"), "", 0);
    assert_int_equal(link(path_of(".empty"), path_of("job")), 0);
    refused(world->conn, "job", DLOCK_EINVAL, "hard links");
    assert_int_equal(stat(path_of(".empty"), &st), 0);
    assert_int_equal(st.st_size, 0);
    assert_int_equal(unlink(path_of(".empty")), 0);
    granted(world->conn, "job");
}
