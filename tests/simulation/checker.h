/* What has to be true at any time: looked at whenever the server has worked, and when a lock was acquired.
 */
#ifndef DLOCK_TESTS_SIMULATION_CHECKER_H
#define DLOCK_TESTS_SIMULATION_CHECKER_H

#include "scheduler.h"

#include <dlock/dlock.h>

#include <stdint.h>

extern uint64_t sim_grants; /* that somebody was told of */

/* A call has answered that this handle holds the name: until sim_held_end. Returns a number for that. */
unsigned sim_held_begin(dlock_lock *lock, unsigned name);
void sim_held_end(unsigned hold);
/* Whatever its threads held is nobody's any more. */
void sim_held_gone(const struct sim_host *host);
/* No two holders, and nobody believes in a grant that the server has ended. */
void sim_check(void);
/* In the end: nothing is left at the server. */
void sim_check_end(void);

#endif
