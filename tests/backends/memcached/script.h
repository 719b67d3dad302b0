/* Conversations with a fake server, to the letter. */
#ifndef DLOCK_TESTS_MEMCACHED_SCRIPT_H
#define DLOCK_TESTS_MEMCACHED_SCRIPT_H

#include "harness.h"
#include "support/fake.h"

/* The client's requests after the greeting, where # stands for a number, and the answer to each. */
struct line {
    const char *says, *told;
};

/* The last number in the i-th request, counted from 1. */
extern int64_t script_numbers[16];

/* Greets, and then follows the lines up to one without text. */
void script_link(struct fake *fake, struct link *link, const char *greeting, const struct line *lines);

/* Fails the test when the client said anything else. */
void script_unlink(struct fake *fake, struct link *link);

/* One operation on "clock", with the first token of client a, on a separate connection; returns the claim's result. A
 * permit is one of 3. */
int script_run(const char *greeting, const struct line *lines, dlock_batch *operation, enum dlock_mode mode,
               struct held *held);
/* Acquires it, with the id 5; renews it so often, which keeps that id in the claim; and releases it. */
void script_live(const char *greeting, const struct line *lines, enum dlock_mode mode, int renewals);

#define TOKEN "aaaaaaaaaaaaaaaaaaaaaaaa.1@test:1"
/* Flags of one of our items with a lease of 10 s: as the grant has left it; after a grant with id 5; and after one
 * whose id is unknown by now. */
#define FRESH 2565865471
#define FIFTH 2565341189
#define FORGOTTEN 2565865470
#define OURS(flags, cas) ITEM(flags, cas)
#define ITEM(flags, cas) "VALUE clock " #flags " 33 " #cas "\r\n" TOKEN "\r\nEND\r\n"
#define START 1700100000

#define ADD "add clock # # 33\r\n" TOKEN "\r\ngets clock\r\n"
#define CAS(id) "cas clock # # 33 " #id "\r\n" TOKEN "\r\ngets clock\r\n"
#define TIME "stats\r\n"

#endif
