/* Private servers: processes of a test's own, on a free loopback port. */
#ifndef DLOCK_TESTS_SUPPORT_SERVER_H
#define DLOCK_TESTS_SUPPORT_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

struct server {
    pid_t pid;
    int port;
    char folder[64]; /* its own; anybody may write there */
    void *plain;     /* a connection that dlock has nothing to do with, where the harness keeps one */
};

/* The servers, described by a backend's harness. */
struct server_program {
    const char *const *words; /* the command line, NULL-terminated; "{port}" is a word, and "{folder}" begins one */
    bool not_as_root;         /* it refuses that */
    bool (*answers)(struct server *server); /* one try */
    void (*hang_up)(struct server *server); /* ends `plain`, if there is one; may be NULL */
    const char *variable;                   /* of the environment: names another program; may be NULL */
};
extern const struct server_program server_program;

/* `arguments` (NULL-terminated, or NULL) are added to those of the program. Fails the test when the server does not
 * answer. */
void server_start(struct server *server, const char *const *arguments);
/* The same without waiting until it answers: on a socket, or in another protocol. Ends with server_stop(). */
void server_start_unheard(struct server *server, const char *const *arguments);
void server_kill(struct server *server);                                /* SIGKILL */
void server_again(struct server *server, const char *const *arguments); /* on the same port and folder */
void server_stop(struct server *server);                                /* removes the folder, too */

#endif
