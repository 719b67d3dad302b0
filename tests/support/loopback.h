/* Sockets on 127.0.0.1. A failure to make one fails the test. */
#ifndef DLOCK_TESTS_SUPPORT_LOOPBACK_H
#define DLOCK_TESTS_SUPPORT_LOOPBACK_H

#include <stdbool.h>
#include <sys/types.h>

int loopback_listen(int *port);                         /* listens on a free port, without accepting */
int loopback_listen_at(const char *address, int *port); /* the same on 127.x.y.z; *port 0: any; -1: it is taken */
int loopback_connect(int port);                         /* a connected socket; -1: refused */
int loopback_unused_port(void);                         /* no server listens there now */
bool loopback_listens(pid_t pid, int port);             /* whether it is this process that listens there */

#endif
