/* The backend under test, loaded as a module or linked in, as the build made it. */
#ifndef DLOCK_TESTS_SUPPORT_BACKEND_H
#define DLOCK_TESTS_SUPPORT_BACKEND_H

#include <dlock/backend.h>

extern const struct dlock_backend *backend;

/* Loads the backend. To be used as a group's setup, or called by one. */
int backend_load(void **state);

#endif
