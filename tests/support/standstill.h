/* When a test that has failed is run again. */
#ifndef DLOCK_TESTS_SUPPORT_STANDSTILL_H
#define DLOCK_TESTS_SUPPORT_STANDSTILL_H

/* A test that fails while the machine stands still for this long says nothing about dlock. */
enum { STOOD_STILL_MS = 300, MOST_RUNS = 3 };

#endif
