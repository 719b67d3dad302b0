/* Invariants, checked whenever the server has worked; and the history of what each holder believed, which is checked in
 * the end. */
#ifndef DLOCK_TESTS_SIMULATION_CHECKER_H
#define DLOCK_TESTS_SIMULATION_CHECKER_H

#include "support/scheduler.h"

#include <dlock/backend.h>

#include <stdint.h>

extern uint64_t sim_grants; /* grants that a client was told of */
extern bool sim_prompt;     /* nothing but a stop keeps a client of this run from reporting a loss in time */

/* Notes that a call made at `asked_us` has returned, and that this handle holds the name until sim_held_end. Returns
 * the number of this hold. */
unsigned sim_held_begin(dlock_lock *lock, unsigned name, int64_t asked_us);
/* Notes that dlock_downgrade has returned: the name is held in another mode, with another fence. */
void sim_held_downgraded(unsigned hold, int64_t asked_us);
void sim_held_end(unsigned hold);
/* The time until which the holder may believe in it without a renewal. */
int64_t sim_held_until(unsigned hold);
/* When this process got the grant from the server; 0: it was handed over in the process, or has ended. */
int64_t sim_held_since(unsigned hold);
/* Ends the holds of a host that died. */
void sim_held_gone(const struct sim_host *host);
/* From here on, until it begins to close, the client must know of everything that the server keeps for it. */
void sim_client_begin(const dlock_client *client);
void sim_client_end(const dlock_client *client);
/* Notes a grant that no client knows until its ticket is imported. */
void sim_exported(const char *ticket);
/* Notes that a client has read this wake-up. */
void sim_heard(const struct dlock_wake *wake);
/* True if a client has asked for something with this token and has not given it up. */
bool sim_is_awaited(const char *token);
/* Notes the end of all faults: after this, unneeded grants are released soon. */
void sim_calm(void);
/* Notes that the server is back: releases that were due had to wait for it. */
void sim_check_server_is_back(void);
/* Checks that no two holders exclude each other, that no client believes in a grant that the server has ended, and that
 * no client forgets what the server keeps. */
void sim_check(void);
/* In each step: notes when losses are seen first. */
void sim_note_losses(void);
/* Before a release is sent: checks that every on_lost of its grant has returned, or a lease has passed. */
void sim_check_release(const char *token);
/* After the server has worked: checks that no waiter was passed over by a later one, that no client waits while there
 * is room, and that none is told "busy" then. */
void sim_check_line(void);
void sim_check_refusal(const struct dlock_claim *claim);
/* In the end: checks that nothing is left at the server, and that the history of all grants obeys the rules
 * (support/history.h). */
void sim_check_end(void);

#endif
