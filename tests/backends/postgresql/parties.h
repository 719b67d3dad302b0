/* Six clients that claim names in any mode. */
#ifndef DLOCK_TESTS_POSTGRESQL_PARTIES_H
#define DLOCK_TESTS_POSTGRESQL_PARTIES_H

#include "site.h"

/* A client: one connection for requests and one that listens. */
struct party {
    struct link link, ear;
};

enum { PARTIES = 6 };
extern struct party party[PARTIES];

/* Setup and teardown of a test. */
int parties_begin(void **state);
int parties_end(void **state);

/* Makes a claim of party `who`; take() and wait_for() also request it. */
void want(struct held *held, int who, const char *name, enum dlock_mode mode, uint32_t limit);
int take(struct held *held, int who, const char *name, enum dlock_mode mode);
int wait_for(struct held *held, int who, const char *name, enum dlock_mode mode); /* with QUEUE */
int give(struct held *held, int who);

/* The next wake-up of party `who` says that this claim is granted; or no wake-up comes. */
void assert_woken(int who, const struct held *held);
void assert_not_woken(int who);

/* As if the lease of this claim, or the hand-over to it, had ended. */
void end_lease(const struct held *held);

#endif
