/* Several private Redis servers, and clients of them as one quorum. */
#ifndef DLOCK_TESTS_QUORUM_SERVERS_H
#define DLOCK_TESTS_QUORUM_SERVERS_H

#include "backends/redis/harness.h"

#include "support/api.h"

enum { MEMBERS_MAX = 5 };
extern struct server member[MEMBERS_MAX];

/* A client that waits for a stopped member's answer waits for this; no test may take half as long. */
#define PATIENT "timeout=120s"

/* This many, each restarted if a test has stopped or killed it. */
void members_begin(int n);
void members_end(void);
/* For cmocka: three of them before each test, none after it. */
int members_three(void **state);
int members_none(void **state);

void member_stop(int i);     /* SIGSTOP */
void member_continue(int i); /* SIGCONT */
void member_kill(int i);
void member_restart(int i);

/* A client of the first n; `query` goes into its URI. */
dlock_client *quorum_of(int n, const char *query);
void quorum_uri(char *out, size_t size, int n, const char *query);

/* Waits until the member has this, or no, value under the name. */
void await_held(int i, const char *name);
void await_free(int i, const char *name);

/* Whether a try gets the lock: its code. It is released again. */
int try_once(dlock_client *client, const char *name, uint64_t *fence);
/* Takes the lock within 20 s; gives it back, and frees it. */
dlock_lock *take(dlock_client *client, const char *name, uint64_t *fence);
/* The same with three members, and waits until each has heard of it: two are enough for a grant. */
dlock_lock *take_everywhere(dlock_client *client, const char *name, uint64_t *fence);
void give_back(dlock_lock *lock);

#endif
