/* Compiled once for each backend: see dlock_test_harness(). */
#include "support/backend.h"

#include "support/test.h"

#include <dlfcn.h>

const struct dlock_backend *backend;

#ifdef DLOCK_TEST_MODULE
int backend_load(void **state) {
    void *module = dlopen(DLOCK_TEST_MODULE, RTLD_NOW | RTLD_LOCAL);
    (void)state;
    if (!module) fail_msg("%s", dlerror());
    backend = dlsym(module, DLOCK_TEST_SYMBOL);
    assert_non_null(backend);
    return 0;
}
#else
extern const struct dlock_backend DLOCK_TEST_SYMBOL;
int backend_load(void **state) {
    (void)state;
    backend = &DLOCK_TEST_SYMBOL;
    return 0;
}
#endif
