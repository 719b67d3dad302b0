/* The backend under test, as a module or linked in: whatever the build made of it. */
#ifndef DLOCK_TESTS_SUPPORT_BACKEND_H
#define DLOCK_TESTS_SUPPORT_BACKEND_H

#include <dlock/backend.h>

extern const struct dlock_backend *backend;

/* Finds it. A group's setup, or called by one. */
int backend_load(void **state);

#endif
