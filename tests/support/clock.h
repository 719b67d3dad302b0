/* Time that passes while a test runs. */
#ifndef DLOCK_TESTS_SUPPORT_CLOCK_H
#define DLOCK_TESTS_SUPPORT_CLOCK_H

#include <stdint.h>

int64_t now_ms(void); /* by a clock that cannot be set */
void sleep_ms(int ms);

#endif
