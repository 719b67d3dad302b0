/* Private servers: processes that a test starts, on a free loopback port. */
#ifndef DLOCK_TESTS_SUPPORT_SERVER_H
#define DLOCK_TESTS_SUPPORT_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

struct server {
    pid_t pid;
    int port;
    char folder[64]; /* its own; world-writable */
    void *plain;     /* a connection without dlock, if the harness keeps one */
};

/* The server's program, described by a backend's harness. */
struct server_program {
    const char *const *words; /* the command line, NULL-terminated; "{port}" is a word, "{folder}" begins one */
    bool not_as_root;         /* refuses to run as root */
    bool (*answers)(struct server *server); /* one try */
    void (*hang_up)(struct server *server); /* ends `plain`, if there is one; may be NULL */
    const char *variable;                   /* environment variable that names another program; may be NULL */
};
extern const struct server_program server_program;

/* Starts a server and waits until it answers; otherwise fails the test. `arguments` (NULL-terminated, or NULL) are
 * added to those of the program. */
void server_start(struct server *server, const char *const *arguments);
/* The same without waiting for an answer: for one on a socket, or with another protocol. End it with server_stop(). */
void server_start_unheard(struct server *server, const char *const *arguments);
/* Waits until a server that was started answers. False: its process has ended. Another server may have its port, which
 * would also answer, until the test that it belongs to ends it. */
bool server_answers(struct server *server);
void server_kill(struct server *server);                                /* SIGKILL */
void server_again(struct server *server, const char *const *arguments); /* with the same port and folder */
void server_stop(struct server *server);                                /* also removes the folder */

#endif
