#include "signals.h"

#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

static int is_ignored(int sig) {
    struct sigaction action;
    return sigaction(sig, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

void signals_begin(struct signals *signals) {
    static const int candidates[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    sigemptyset(&signals->passed_on);
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++)
        if (!is_ignored(candidates[i])) sigaddset(&signals->passed_on, candidates[i]);
    signals->fd = -1;
    sigprocmask(SIG_BLOCK, NULL, &signals->inherited_mask);
    const struct sigaction ignore = {.sa_handler = SIG_IGN}, standard = {.sa_handler = SIG_DFL};
    sigaction(SIGPIPE, &ignore, &signals->inherited_pipe);
    sigaction(SIGXFSZ, &ignore, &signals->inherited_xfsz);
    sigaction(SIGCHLD, &standard, &signals->inherited_chld);
}

int signals_open(struct signals *signals) {
    sigset_t terminal;
    sigemptyset(&terminal);
    sigaddset(&terminal, SIGTTOU);
    sigprocmask(SIG_BLOCK, &terminal, NULL);
    signals->heard = signals->passed_on;
    sigaddset(&signals->heard, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals->heard, NULL);
    signals->fd = signalfd(-1, &signals->heard, SFD_CLOEXEC | SFD_NONBLOCK);
    return signals->fd < 0 ? -1 : 0;
}

void signals_hear_job_control(struct signals *signals) {
    sigaddset(&signals->heard, SIGCONT);
    if (!is_ignored(SIGTSTP)) sigaddset(&signals->heard, SIGTSTP);
    sigprocmask(SIG_BLOCK, &signals->heard, NULL);
    signalfd(signals->fd, &signals->heard, 0);
}

int signals_next(const struct signals *signals) {
    struct signalfd_siginfo info;
    return read(signals->fd, &info, sizeof info) == (ssize_t)sizeof info ? (int)info.ssi_signo : 0;
}

bool signals_asks_to_end(int sig) {
    return sig == SIGINT || sig == SIGTERM || sig == SIGHUP || sig == SIGQUIT;
}

static const struct {
    int sig;
    const char *name;
} names[] = {{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"},   {SIGHUP, "SIGHUP"},   {SIGQUIT, "SIGQUIT"},
             {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"}, {SIGALRM, "SIGALRM"}, {SIGWINCH, "SIGWINCH"}};

const char *signals_name(int sig) {
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].sig == sig) return names[i].name;
    return "a signal";
}

int signals_number(const char *name) {
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i].name, name) == 0 || strcmp(names[i].name + 3, name) == 0) return names[i].sig;
    return 0;
}

void signals_restore(const struct signals *signals) {
    sigaction(SIGPIPE, &signals->inherited_pipe, NULL);
    sigaction(SIGXFSZ, &signals->inherited_xfsz, NULL);
    sigaction(SIGCHLD, &signals->inherited_chld, NULL);
    sigprocmask(SIG_SETMASK, &signals->inherited_mask, NULL);
}

_Noreturn void signals_die(int sig) {
    const struct sigaction standard = {.sa_handler = SIG_DFL};
    const struct rlimit no_core = {0, 0}; /* a core file of this process would be of no use */
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, sig);
    setrlimit(RLIMIT_CORE, &no_core);
    sigaction(sig, &standard, NULL);
    raise(sig);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
    _exit(128 + sig);
}
