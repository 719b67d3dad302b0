#include "uri/uri.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

/* Paths are cut, so that the message has room for what is wrong. */
#define FILE_IS "password_file %.300s "

/* Reads up to `size` bytes. Returns how many bytes there were, or -1. */
static ssize_t read_all(int fd, char *to, size_t size) {
    size_t used = 0;
    ssize_t n;
    do {
        n = read(fd, to + used, size - used);
        if (n > 0) used += (size_t)n;
    } while (n > 0 || (n < 0 && errno == EINTR));
    return n < 0 ? -1 : (ssize_t)used;
}

/* This process, or the system, may have run out of something: then the password is not what is wrong. */
static int cannot_be_read(const char *path, struct dlock_error *err) {
    const int why = errno;
    const char *advice = why == EMFILE ? "; raise the limit (ulimit -n)" : "";
    int rc = why == EMFILE || why == ENFILE || why == ENOMEM ? DLOCK_ENOMEM : DLOCK_EAUTH;
    return dlock_fail(err, rc, FILE_IS "cannot be read: %s%s", path, strerror(why), advice);
}

/* Opens the file if it is a regular one. A pipe would give the password to the first connection only; a folder or a
 * device has none. */
static int open_file(const char *path, int *fd, struct dlock_error *err) {
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (*fd < 0) return cannot_be_read(path, err);
    if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode)) return DLOCK_OK;
    close(*fd);
    return dlock_fail(err, DLOCK_EAUTH, FILE_IS "is not a regular file", path);
}

int dlock__password_read(const char *path, char out[DLOCK__PASSWORD_MAX + 1], struct dlock_error *err) {
    char text[DLOCK__PASSWORD_MAX + 2]; /* room for the newline, and for one byte more, to notice a password that is too
                                         * long */
    int fd, rc = open_file(path, &fd, err);
    if (rc != DLOCK_OK) return rc;
    ssize_t n = read_all(fd, text, sizeof text);
    if (n < 0) rc = cannot_be_read(path, err);
    close(fd);
    if (n > 0 && text[n - 1] == '\n') n--;
    if (n == 0)
        rc = dlock_fail(err, DLOCK_EAUTH, FILE_IS "is empty", path);
    else if (n > DLOCK__PASSWORD_MAX)
        rc = dlock_fail(err, DLOCK_EAUTH, FILE_IS "has more than %d bytes", path, DLOCK__PASSWORD_MAX);
    else if (n > 0 && text[n - 1] == '\r')
        rc =
            dlock_fail(err, DLOCK_EAUTH, FILE_IS "ends in a carriage return: save it with the line ends of Unix", path);
    else if (n > 0 && memchr(text, '\0', (size_t)n))
        rc = dlock_fail(err, DLOCK_EAUTH, FILE_IS "has a NUL byte in it", path);
    if (rc == DLOCK_OK) *(char *)mempcpy(out, text, (size_t)n) = '\0';
    explicit_bzero(text, sizeof text);
    return rc;
}

/* True if another user than us and root may rename or replace what is in one of the folders that lead to the file. */
static bool replaceable(const char *path) {
    char folder[PATH_MAX];
    struct stat st;
    size_t length = strlen(path);
    if (length >= sizeof folder) return false;
    memcpy(folder, path, length + 1);
    for (;;) {
        char *slash = strrchr(folder, '/');
        bool root = slash == folder;
        if (slash) slash[root ? 1 : 0] = '\0';
        if (stat(slash ? folder : ".", &st) != 0) return false;
        if (st.st_uid != 0 && st.st_uid != geteuid()) return true;
        if (st.st_mode & S_IWOTH && !(st.st_mode & S_ISVTX)) return true;
        if (!slash || root) return false;
    }
}

void dlock__password_check(const char *path, dlock_each_finding each, void *arg) {
    struct dlock_report report = {each, arg, false};
    struct stat st;
    if (stat(path, &st) != 0) {
        dlock_find(&report, "connections that are opened from now on cannot log in: put the file back",
                   FILE_IS "is gone", path);
        return;
    }
    const char *advice = NULL;
    if (st.st_mode & S_IWOTH)
        advice = "anybody on this host may replace the password: chmod o-rwx";
    else if (st.st_mode & S_IROTH)
        advice = "anybody on this host may read the password: chmod o-rwx";
    else if (st.st_uid != 0 && st.st_uid != geteuid())
        advice = "its owner, another user, may replace the password: chown";
    else if (replaceable(path))
        advice =
            "another user may replace it: one of the folders above it is another user's, or anybody may write there";
    dlock_find(&report, advice, FILE_IS "has mode %04o", path, (unsigned)st.st_mode & 07777U);
}
