/* Sockets on 127.0.0.1. A socket that cannot be had fails the test. */
#ifndef DLOCK_TESTS_SUPPORT_LOOPBACK_H
#define DLOCK_TESTS_SUPPORT_LOOPBACK_H

int loopback_listen(int *port); /* a socket that listens on a port of its own; nobody accepts yet */
int loopback_listen_at(const char *address, int *port); /* the same on 127.x.y.z; *port 0: any; -1: it is taken */
int loopback_connect(int port);                         /* a connected socket; -1 when that is refused */
int loopback_unused_port(void);                         /* nobody listens there, for now */

#endif
