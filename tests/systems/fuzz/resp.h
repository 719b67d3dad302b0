/* What the targets of Redis share. In their inputs a line that begins with '@' is a reply in short, which may hold strings,
 * integers and arrays: @("two words" key :-7 (a b)). In a string in quotes '~' is the end of a line. The corpus stays
 * legible like this, and where the fuzzer changes an input the lengths still fit. All other lines are sent as they are. */
#ifndef DLOCK_TESTS_FUZZ_RESP_H
#define DLOCK_TESTS_FUZZ_RESP_H

#include <stddef.h>

/* The answers to the requests of read_greeting(): CLIENT SETNAME, INFO server, INFO replication, PUBLISH. */
#define RESP_GREETING "+OK\r\n$19\r\nredis_version:7.0.0\r\n$11\r\nrole:master\r\n:0\r\n"

/* Replaces the replies in short, in static memory. */
void resp_expand(const unsigned char **data, size_t *size);

#endif
