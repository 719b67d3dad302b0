/* Maps each errno to an error code and a message.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <errno.h>

static int code_of(int errnum) {
    switch (errnum) {
    case EACCES:
    case EPERM:
    case EROFS: return DLOCK_EAUTH;
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case EILSEQ:
    case EINVAL:
    case ENXIO: return DLOCK_EINVAL;
    case ENOSYS:
    case EOPNOTSUPP: return DLOCK_ENOTSUP;
    case ENOMEM:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOLCK:
    case ENOSPC:
    case EDQUOT: return DLOCK_ENOMEM;
    default: return DLOCK_EUNAVAILABLE;
    }
}

int file_fail(struct dlock_error *err, int errnum, const char *what, const char *path, const char *file) {
    const char *why = file && errnum == ELOOP ? "it is a symbolic link" : strerror(errnum);
    const char *advice = errnum == EMFILE  ? "; raise the limit (ulimit -n)"
                         : errnum == EFBIG ? "; raise the limit (ulimit -f)"
                                           : "";
    return dlock_fail(err, code_of(errnum), "%s %s%s%s: %s%s", what, path, file ? "/" : "", file ? file : "", why,
                      advice);
}
