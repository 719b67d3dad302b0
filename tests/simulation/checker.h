/* What has to be true at any time: looked at whenever the server has worked. And the history of what everybody believed
 * meanwhile, which is checked in the end.
 */
#ifndef DLOCK_TESTS_SIMULATION_CHECKER_H
#define DLOCK_TESTS_SIMULATION_CHECKER_H

#include "scheduler.h"

#include <dlock/backend.h>

#include <stdint.h>

extern uint64_t sim_grants; /* that somebody was told of */
extern bool sim_prompt;     /* nothing of this run keeps a client from telling a loss in time but being stopped */

/* A call that was made at `asked_us` has answered that this handle holds the name: until sim_held_end. Returns a number
 * for that. */
unsigned sim_held_begin(dlock_lock *lock, unsigned name, int64_t asked_us);
/* dlock_downgrade has answered that it holds the name in another mode, with another fence. */
void sim_held_downgraded(unsigned hold, int64_t asked_us);
void sim_held_end(unsigned hold);
/* Until when the holder may believe in it, if it is not renewed. */
int64_t sim_held_until(unsigned hold);
/* Whatever its threads held is nobody's any more. */
void sim_held_gone(const struct sim_host *host);
/* From here on, until it begins to close, the client has to know of everything that the server keeps for it. */
void sim_client_begin(const dlock_client *client);
void sim_client_end(const dlock_client *client);
/* Nobody knows the grant of this ticket now, until somebody imports it. */
void sim_exported(const char *ticket);
/* Whether some client has asked for something by this token, and not given that up. */
bool sim_is_awaited(const char *token);
/* No faults any more: what nobody needs is given back soon. */
void sim_calm(void);
/* What was to be given back has waited for it. */
void sim_check_server_is_back(void);
/* No two holders, and nobody believes in a grant that the server has ended, nor forgets what it keeps. */
void sim_check(void);
/* After the server has worked: nobody waits who was in the line before somebody who has been served, nor while there is
 * room; nor is anybody told that it is busy then. */
void sim_check_line(void);
void sim_check_refusal(const struct dlock_claim *claim);
/* In the end: nothing is left at the server, and the history of all grants obeys the rules (support/history.h). */
void sim_check_end(void);

#endif
