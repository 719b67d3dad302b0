/* cmocka, and the headers that its header needs before it. */
#ifndef DLOCK_TESTS_SUPPORT_TEST_H
#define DLOCK_TESTS_SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
