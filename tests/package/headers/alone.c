/* dlock.h first and alone: it brings what it needs. */
#include <dlock/dlock.h>

#include "use.h"

static dlock_callback done;
static struct dlock_options options = DLOCK_OPTIONS_INIT;
static struct dlock_client_options client_options = DLOCK_CLIENT_OPTIONS_INIT;

/* Every list expands, and what it makes are constants. */
static const char *text_of(int code) {
    switch (code) {
#define DLOCK_X(name, number, text, action) \
    case DLOCK_##name: return text[0] && action[0] ? text : NULL;
        DLOCK_ERRORS(DLOCK_X)
#undef DLOCK_X
    default: return NULL;
    }
}

static unsigned all_caps(void) {
    const unsigned caps[] = {
#define DLOCK_X(name, bit, word, meaning) word[0] && meaning[0] ? DLOCK_CAP_##name : 0,
        DLOCK_CAPS(DLOCK_X)
#undef DLOCK_X
    };
    unsigned all = 0;
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) all |= caps[i];
    return all;
}

int use_alone(void) {
    struct dlock_error err = {DLOCK_EBUSY, ""};
    struct dlock_info info;
    if (sizeof err != 512 || sizeof info.size != sizeof(size_t)) return __LINE__;
    if (!text_of(err.code) || text_of(1)) return __LINE__;
    if (!all_caps() || (all_caps() & (all_caps() + 1)) != 0) return __LINE__;
    if (options.size != sizeof options || client_options.size != sizeof client_options || done) return __LINE__;
    return 0;
}
