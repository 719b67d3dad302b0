/* Judging a directory before its locks are relied on: file systems that are refused, and the doctor's findings.
 * File systems and limits that this machine does not have are put into the kernel's answers. */
#include "fixture.h"

#include <errno.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>

/* ---- the kernel's answers ---------------------------------------------------------------------------------------- */

int __real_fstatfs(int fd, struct statfs *fs);
int __wrap_fstatfs(int fd, struct statfs *fs);
int __real_inotify_init1(int flags);
int __wrap_inotify_init1(int flags);

static unsigned long fake_type; /* 0: none */
static unsigned long fake_blocks, fake_files;
static bool no_inotify;

int __wrap_fstatfs(int fd, struct statfs *fs) {
    int rc = __real_fstatfs(fd, fs);
    if (fake_type) fs->f_type = (__typeof__(fs->f_type))fake_type;
    if (fake_blocks) fs->f_bavail = fake_blocks;
    if (fake_files) fs->f_ffree = fake_files;
    return rc;
}

int __wrap_inotify_init1(int flags) {
    if (no_inotify) return errno = EMFILE, -1;
    return __real_inotify_init1(flags);
}

static int check_begin(void **state) {
    fake_type = fake_blocks = fake_files = 0;
    no_inotify = false;
    return world_begin(state);
}

/* ---- file systems ------------------------------------------------------------------------------------------------ */

TEST_WITH(check_begin, world_end, unfit_file_systems) {
    static const struct {
        unsigned long type;
        const char *name;
    } unfit[] = {{0x6969, "NFS"},       {0x65735546, "FUSE"},   {0x0bd00bd0, "Lustre"}, {0x19830326, "BeeGFS"},
                 {0xaad7aaea, "PanFS"}, {0x786f4256, "vboxsf"}, {0xbacbacbc, "vmhgfs"}, {0x7c7c6673, "prl_fs"}};
    for (size_t i = 0; i < sizeof unfit / sizeof *unfit; i++) {
        struct dlock_error err = {0, ""};
        void *conn = NULL;
        fake_type = unfit[i].type;
        assert_int_equal(conn_try(world->dir, &conn, &err), DLOCK_ENOTSUP);
        if (!strstr(err.message, unfit[i].name)) fail_msg("%s", err.message);
    }
    fake_type = 0xef53;
    conn_close(conn_open(world->dir));
}

/* ---- the doctor -------------------------------------------------------------------------------------------------- */

struct findings {
    int n;
    struct {
        enum dlock_health health;
        char what[512], advice[512];
    } list[16];
};

static int find(const struct dlock_finding *finding, void *arg) {
    struct findings *findings = arg;
    assert_in_range(findings->n, 0, 15);
    findings->list[findings->n].health = finding->health;
    snprintf(findings->list[findings->n].what, 512, "%s", finding->what);
    snprintf(findings->list[findings->n].advice, 512, "%s", finding->advice ? finding->advice : "");
    findings->n++;
    return 0;
}

static struct findings check(void *conn) {
    struct findings findings = {0};
    struct dlock_error err;
    assert_int_equal(FILE_BACKEND->check(conn, find, &findings, 1000, &err), 0);
    return findings;
}

/* Exactly one finding begins like this, and it is weak with this in its advice; NULL: it is fine. */
static void found(const struct findings *findings, const char *what, const char *advice) {
    int n = 0;
    for (int i = 0; i < findings->n; i++) {
        if (strncmp(findings->list[i].what, what, strlen(what)) != 0) continue;
        n++;
        if ((findings->list[i].health == DLOCK_WEAK) != (advice != NULL) ||
            (advice && !strstr(findings->list[i].advice, advice)))
            fail_msg("%s: %s", findings->list[i].what, findings->list[i].advice);
    }
    if (n != 1) fail_msg("%d findings begin with \"%s\"", n, what);
}

TEST_WITH(check_begin, world_end, a_good_directory) {
    struct findings findings = check(world->conn);
    found(&findings, "directory ", NULL);
    found(&findings, "its owner is ", NULL);
    found(&findings, "directories above it: no stranger", NULL);
    found(&findings, "room for more than 1000 lock files", NULL);
    found(&findings, "inotify wakes waiters", NULL);
}

TEST_WITH(check_begin, world_end, without_inotify) {
    no_inotify = true;
    struct findings findings = check(world->conn);
    found(&findings, "inotify: ", "fs.inotify.max_user_instances");
    found(&findings, "room for more than 1000 lock files", NULL);
}

TEST_WITH(check_begin, world_end, without_room) {
    fake_blocks = 16;
    struct findings findings = check(world->conn);
    found(&findings, "room for less than 1000 lock files", "delete other files");
    found(&findings, "inotify wakes waiters", NULL);
    fake_blocks = 0;
    fake_files = 100;
    findings = check(world->conn);
    found(&findings, "room for less than 1000 lock files", "delete other files");
    fake_type = 0x01021994;
    findings = check(world->conn);
    found(&findings, "flock on file system tmpfs", NULL);
}

TEST_WITH(check_begin, world_end, weak_rights) {
    static const struct {
        mode_t mode;
        const char *key, *advice;
    } rights[] = {{0700, NULL, NULL},
                  {0755, NULL, NULL},
                  {0770, NULL, "chmod +t, or g-w"},
                  {01770, NULL, NULL},
                  {0777, NULL, "o-w"},
                  {0777, "0666", "o-w"},
                  {01777, NULL, "anybody can create a lock's file"},
                  {01777, "0666", NULL}};
    for (size_t i = 0; i < sizeof rights / sizeof *rights; i++) {
        struct dlock_error err;
        void *conn = NULL;
        assert_int_equal(chmod(world->dir, rights[i].mode), 0);
        assert_int_equal(conn_try_keys(world->dir, rights[i].key, NULL, &conn, &err), 0);
        struct findings findings = check(conn);
        found(&findings, "directory ", rights[i].advice);
        conn_close(conn);
    }
}

/* Also for a user who would share it. */
TEST_WITH(check_begin, world_end, the_temporary_directory) {
    struct dlock_error err;
    void *conn = NULL;
    assert_int_equal(conn_try_keys("/tmp", "0666", NULL, &conn, &err), 0);
    struct findings findings = check(conn);
    found(&findings, "directory /tmp", "a directory for locks alone");
    conn_close(conn);
}

TEST_WITH(check_begin, world_end, below_what_others_may_rename) {
    assert_int_equal(mkdir(path_of("open"), 0777), 0);
    void *conn = conn_open(path_of("open/deeper/locks"));
    assert_int_equal(chmod(path_of("open"), 0777), 0);
    struct findings findings = check(conn);
    found(&findings, "directory ", NULL);
    found(&findings, "a directory above it belongs to user ", "renamed");
    assert_int_equal(chmod(path_of("open"), 01777), 0);
    findings = check(conn);
    found(&findings, "directories above it: no stranger", NULL);
    conn_close(conn);
}
