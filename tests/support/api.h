/* Clients and locks made with the public interface. A failure fails the test. */
#ifndef DLOCK_TESTS_SUPPORT_API_H
#define DLOCK_TESTS_SUPPORT_API_H

#include "support/scoped.h"

DLOCK_PRINTF(1, 2) dlock_client *api_client(const char *uri, ...);
dlock_lock *api_lock(dlock_client *client, const char *name, const struct dlock_options *options);

#endif
