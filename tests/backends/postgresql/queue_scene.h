/* A lock with two waiters, for the tests of waiting. */
#ifndef DLOCK_TESTS_POSTGRESQL_QUEUE_SCENE_H
#define DLOCK_TESTS_POSTGRESQL_QUEUE_SCENE_H

#include "site.h"

/* A holder, and two waiting clients; each client has one connection for requests and one that listens. */
struct scene {
    struct link holder, first, second, first_ear, second_ear;
    struct held held, one, two;
};

/* Fails the test unless `name` is held by `held`, and `one` and then `two` wait for it. */
void scene_begin(struct scene *s, const char *name);
void scene_end(struct scene *s);
#define SCOPED_SCENE __attribute__((cleanup(scene_end))) struct scene

/* The wake-up says that the lock is `held`'s now, with a fence greater than `after`. */
void assert_granted(const struct dlock_wake *wake, const struct held *held, uint64_t after);
int64_t waiting(const char *name); /* the number of places in the name's queue */

#endif
