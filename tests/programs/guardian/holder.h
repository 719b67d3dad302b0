/* Another process that holds locks with a guardian, and what can be seen of that guardian. */
#ifndef DLOCK_TESTS_GUARDIAN_HOLDER_H
#define DLOCK_TESTS_GUARDIAN_HOLDER_H

#include <stdbool.h>
#include <sys/types.h>

struct holder {
    pid_t pid;
    int in, out; /* its standard streams */
};

/* Starts this very program as `hold URI NAME N`: it acquires NAME-0 … NAME-(N-1) and says so, then obeys words. */
void holder_start(struct holder *holder, const char *uri, const char *name, int n);
/* The same without waiting until it holds them. */
void holder_begin(struct holder *holder, const char *uri, const char *name, int n);

/* Gives it a word and waits for its answer, which must be `answer`. */
void holder_do(const struct holder *holder, const char *word, const char *answer);

/* SIGKILL, and waits for its end. Returns when it was sent. */
int64_t holder_kill(const struct holder *holder);

/* Ends it and its pipes, whatever state it is in. */
void holder_end(struct holder *holder);

/* The main function of the started program. Returns its exit status. */
int holder_main(int argc, char **argv);

/* The guardian of a process; 0: none. A zombie is none. */
pid_t guardian_of(pid_t pid);
/* Waits until it has one, or until it has none. */
pid_t guardian_awaited(pid_t pid);
bool guardian_gone(pid_t pid);

#endif
