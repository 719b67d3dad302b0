#include "support/server.h"

#include "support/become.h"
#include "support/clock.h"
#include "support/loopback.h"
#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 40, WORD_SIZE = 128, START_MS = 20000 };

/* Returns `word`, or in `space` what a placeholder in it stands for. */
static const char *expand(const struct server *server, const char *word, char space[WORD_SIZE]) {
    static const char port[] = "{port}", folder[] = "{folder}";
    if (strcmp(word, port) == 0)
        snprintf(space, WORD_SIZE, "%d", server->port);
    else if (strncmp(word, folder, strlen(folder)) == 0)
        snprintf(space, WORD_SIZE, "%s%s", server->folder, word + strlen(folder));
    else
        return word;
    return space;
}

static void launch(struct server *server, const char *const *arguments) {
    static char space[WORDS][WORD_SIZE];
    const char *words[WORDS] = {NULL};
    const struct passwd *nobody = server_program.not_as_root && geteuid() == 0 ? getpwnam("nobody") : NULL;
    pid_t parent = getpid();
    size_t n = 0;
    for (size_t i = 0; server_program.words[i]; i++, n++) words[n] = expand(server, server_program.words[i], space[n]);
    if (server_program.variable && getenv(server_program.variable)) words[0] = getenv(server_program.variable);
    for (; arguments && *arguments; arguments++) {
        assert_true(n < WORDS - 1);
        words[n++] = *arguments;
    }
    server->pid = fork();
    assert_return_code(server->pid, errno);
    if (server->pid) return;
    if (nobody && !become(nobody->pw_uid, nobody->pw_gid)) _exit(1);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a later change of user would undo this */
    if (getppid() != parent) _exit(1);
    dup2(open("/dev/null", O_RDWR), 1);
    dup2(1, 2);
    execvp(words[0], (char *const *)(uintptr_t)words);
    _exit(127);
}

/* In front of a server on a socket there is a relay of the test. */
static bool is_ours(const struct server *server) {
    return loopback_listens(server->pid, server->port) || loopback_listens(getpid(), server->port);
}

bool server_answers(struct server *server) {
    for (int64_t until = now_ms() + START_MS; now_ms() < until; sleep_ms(10)) {
        if (waitpid(server->pid, NULL, WNOHANG) == server->pid) return false;
        if (!server_program.answers(server)) continue;
        if (is_ours(server)) return true;
        if (server_program.hang_up) server_program.hang_up(server);
    }
    fail_msg("%s does not answer", server_program.words[0]);
    return false;
}

void server_start_unheard(struct server *server, const char *const *arguments) {
    const char *root = getenv("TMPDIR");
    memset(server, 0, sizeof *server);
    snprintf(server->folder, sizeof server->folder, "%s/dlock-server.XXXXXX",
             root && strlen(root) < 30 ? root : "/tmp");
    assert_non_null(mkdtemp(server->folder));
    assert_return_code(chmod(server->folder, 0777), errno); /* its user may be another one */
    server->port = loopback_unused_port();
    launch(server, arguments);
}

void server_start(struct server *server, const char *const *arguments) {
    server_start_unheard(server, arguments);
    for (int tries = 0; tries < 5; tries++) {
        if (server_answers(server)) return;
        server->port = loopback_unused_port();
        launch(server, arguments);
    }
    fail_msg("%s does not start: is it installed?", server_program.words[0]);
}

void server_kill(struct server *server) {
    if (server_program.hang_up) server_program.hang_up(server);
    if (server->pid == 0) return; /* it was killed before, and its number may be another process's */
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
    server->pid = 0;
}

void server_again(struct server *server, const char *const *arguments) {
    launch(server, arguments);
    assert_true(server_answers(server));
}

void server_stop(struct server *server) {
    char command[128];
    server_kill(server);
    snprintf(command, sizeof command, "rm -rf '%s'", server->folder);
    assert_int_equal(system(command), 0);
}
