/* The signals that end the bench. */
#ifndef DLOCK_CLI_BENCH_INTERRUPT_H
#define DLOCK_CLI_BENCH_INTERRUPT_H

#include <stdint.h>

/* Installs handlers for SIGINT, SIGTERM and SIGHUP, unless they are ignored: the bench then ends early and reports what
 * has been measured. bench_interrupted() returns the signal that came, or 0. */
void bench_hear_signals(void);
int bench_interrupted(void);
/* Restores the default actions, in a forked process: there the signals end it. */
void bench_leave_signals(void);

/* Sleeps for `ms`, or until a signal interrupts the bench. */
void bench_sleep_ms(int64_t ms);

#endif
