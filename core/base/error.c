/* The texts of the error codes, and the version. */
#include <dlock/dlock.h>

const char *dlock_strerror(int code) {
    switch (code) {
#define DLOCK_X(name, number, text, action) \
    case DLOCK_##name: return text;
        DLOCK_ERRORS(DLOCK_X)
#undef DLOCK_X
    default: return "unknown error";
    }
}

const char *dlock_version(void) {
    return DLOCK_VERSION;
}
