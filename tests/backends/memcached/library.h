/* libmemcached, as the tests beside it use it. */
#ifndef DLOCK_TESTS_MEMCACHED_LIBRARY_H
#define DLOCK_TESTS_MEMCACHED_LIBRARY_H

#include "harness.h"

#include <libmemcached/memcached.h>

/* A client of one server on loopback, with cas ids. */
memcached_st *library_new(int port);

/* The id of an item, which must have this value. */
uint64_t library_id(memcached_st *library, const char *name, const char *value);

#endif
