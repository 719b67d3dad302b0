/* Guardians of programs that hide from their user. With more rights than its caller, a program gets none; such a program
 * is a copy of this very one, with the set-user-ID bit or with a file capability. */
#include "holder.h"

#include "support/become.h"
#include "support/test.h"

#include <dlock/dlock.h>

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { STRANGER = 4321, NO_SUCH_RIGHT = 77 }; /* the latter: the stranger may not even reach the build */

static char folder[] = "/tmp/dlock-secure.XXXXXX", copy[64], uri[96];

static const char *uri_with(const char *guardian) {
    snprintf(uri, sizeof uri, "file:%s/locks?mode=0666&guardian=%s", folder, guardian);
    return uri;
}

/* The started program: becomes root for good if it may, and opens a client. Returns the error's number. */
static int open_as_root(const char *text) {
    dlock_client *client = NULL;
    struct dlock_error err = {0, ""};
    if (geteuid() == 0 && setresuid(0, 0, 0) != 0) return 1;
    int rc = dlock_open(text, NULL, &client, &err);
    if (rc != 0) fprintf(stderr, "         %s\n", err.message);
    dlock_close(client);
    return -rc;
}

static void make_copy(void) {
    static char bytes[1 << 16];
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), to = open(copy, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    assert_true(from >= 0 && to >= 0);
    for (ssize_t n; (n = read(from, bytes, sizeof bytes)) > 0;) assert_int_equal(write(to, bytes, (size_t)n), n);
    close(from);
    close(to);
}

/* Runs the copy as an unprivileged user, and returns its exit status. */
static int run_copy(const char *guardian) {
    int status;
    uri_with(guardian);
    pid_t child = fork();
    if (child == 0) {
        if (become(STRANGER, STRANGER)) execl(copy, copy, uri, (char *)NULL);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int setup(void **state) {
    (void)state;
    if (geteuid() != 0) return 0;
    umask(0);
    if (!mkdtemp(folder) || chmod(folder, 01777) != 0) return -1;
    snprintf(copy, sizeof copy, "%s/program", folder);
    make_copy();
    return 0;
}

static int cleanup(void **state) {
    (void)state;
    if (geteuid() != 0) return 0;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

TEST(a_program_with_the_set_user_id_bit) {
    if (geteuid() != 0) skip();
    assert_int_equal(chmod(copy, 04755), 0);
    assert_int_equal(run_copy("on"), -DLOCK_ENOTSUP);
    assert_int_equal(run_copy("off"), 0);
    assert_int_equal(chmod(copy, 0755), 0);
}

TEST(a_program_with_a_file_capability) {
    const uint32_t search = 1u << CAP_DAC_READ_SEARCH;
    const struct vfs_cap_data rights = {htole32(VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE),
                                        {{htole32(search), 0}, {0, 0}}};
    if (geteuid() != 0) skip();
    if (setxattr(copy, "security.capability", &rights, sizeof rights, 0) != 0) skip(); /* the file system has none */
    assert_int_equal(run_copy("on"), -DLOCK_ENOTSUP);
    assert_int_equal(run_copy("off"), 0);
    assert_int_equal(removexattr(copy, "security.capability"), 0);
}

/* A process that has changed its user cannot be read by that user's other processes: nor can the guardian that it
 * starts then. Returns an exit status, of which 0 is right. */
static int start_after_a_change_of_user(void) {
    dlock_client *client;
    struct dlock_error err = {0, ""};
    char path[64];
    int ends[2];
    if (dlock_open(uri_with("on"), NULL, &client, &err) != 0 || pipe2(ends, O_CLOEXEC) != 0) return 1;
    pid_t worker = fork();
    if (worker == 0) { /* ends with this process, which may soon not kill it any more */
        close(ends[1]);
        _exit((int)read(ends[0], path, 1));
    }
    if (setpgid(worker, worker) != 0 || !become(STRANGER, STRANGER) || prctl(PR_GET_DUMPABLE) != 0) return 2;
    int rc = dlock_client_guard(client, worker, &err);
    if (rc != 0) fprintf(stderr, "         %s\n", err.message);
    pid_t guardian = rc == 0 ? guardian_of(getpid()) : 0;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)guardian);
    bool readable = open(path, O_RDONLY | O_CLOEXEC) >= 0;
    dlock_client_guard(client, 0, NULL);
    dlock_close(client);
    if (rc != 0) return strstr(err.message, strerror(EACCES)) ? NO_SUCH_RIGHT : 3;
    return guardian == 0 ? 4 : readable ? 5 : 0;
}

TEST(a_guardian_hides_as_its_client_does) {
    int status;
    if (geteuid() != 0) skip();
    pid_t child = fork();
    if (child == 0) _exit(start_after_a_change_of_user());
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_SUCH_RIGHT) skip();
    assert_int_equal(status, 0);
}

int main(int argc, char **argv) {
    if (argc > 1) return open_as_root(argv[1]);
    return tests_run(argc, argv, NULL, NULL, setup, cleanup);
}
