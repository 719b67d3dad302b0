/* The log of requests, and the lock that guards everything behind the fake backends. For fake_*.c only. */
#ifndef DLOCK_TESTS_FAKE_LOG_H
#define DLOCK_TESTS_FAKE_LOG_H

#include "fake_contract.h"

#include <pthread.h>

extern pthread_mutex_t fake_guard;

/* A position in the log. */
struct log_place {
    size_t first;
    unsigned epoch;
};

/* Adds a line for each claim, or one line when n is 0. Under fake_guard, as the next two. */
struct log_place log_begin(enum fake_op op, const struct fake_conn *conn, struct dlock_claim *const *claims, size_t n,
                           int timeout_ms);
/* Completes the i-th line of a call. */
void log_answer(struct log_place place, size_t i, int result, uint64_t fence);
void log_wake(const struct fake_conn *conn, const struct dlock_wake *wake);

#endif
