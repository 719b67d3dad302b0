/* The descriptors that the command inherits: those that this program has inherited itself, and none that it has opened.
 * Client libraries open some that are not close-on-exec, among them the sockets of sessions that are logged in. */
#ifndef DLOCK_CLI_INHERITED_H
#define DLOCK_CLI_INHERITED_H

#include <stdbool.h>
#include <stddef.h>

struct inherited {
    bool known; /* /proc could be read */
    int *fds;   /* above the standard streams */
    size_t n;
};

/* Notes what is open, before this program opens anything that is not close-on-exec. False: there is no memory for it. */
bool inherited_note(struct inherited *inherited);
void inherited_free(struct inherited *inherited);

/* Makes all others close-on-exec, if they are known, and from Linux 5.11 on. Async-signal-safe. */
void inherited_only(const struct inherited *inherited);

#endif
