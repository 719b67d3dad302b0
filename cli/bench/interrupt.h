/* Signals that end the bench. */
#ifndef DLOCK_CLI_BENCH_INTERRUPT_H
#define DLOCK_CLI_BENCH_INTERRUPT_H

#include <stdint.h>

/* A signal that interrupts the bench ends it, with what has been measured until then. 0: none came. */
void bench_hear_signals(void);
int bench_interrupted(void);
/* In a process that was forked: they end it. */
void bench_leave_signals(void);

/* Ends early when the bench is interrupted. */
void bench_sleep_ms(int64_t ms);

#endif
