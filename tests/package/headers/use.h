/* The parts of the header tests. Each returns the line of the check that failed, or 0. */
#ifndef DLOCK_TESTS_HEADERS_USE_H
#define DLOCK_TESTS_HEADERS_USE_H

int use_all(void);
int use_alone(void);

#endif
