#include "support/become.h"

#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool root_is_closed(void) {
    struct stat root;
    return stat("/", &root) == 0 && !(root.st_mode & S_IXOTH);
}

/* Drops all capabilities except the one to search folders, also for programs that are executed from here on. */
static bool keep_search_alone(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    const unsigned search = 1u << CAP_DAC_READ_SEARCH;
    const struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{search, search, search}};
    return syscall(SYS_capset, &header, data) == 0 &&
           prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_READ_SEARCH, 0, 0) == 0;
}

bool become(uid_t user, gid_t group) {
    bool closed = root_is_closed();
    if (closed && prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) != 0) return false;
    if (setgid(group) != 0 || setuid(user) != 0) return false;
    return !closed || keep_search_alone();
}
