/* One thread, many jobs: an epoll(7) loop runs a command under each lock as it becomes free, and kills it at a loss.
 *
 *     worker URI COMMAND NAME…      runs COMMAND once under each NAME; after SIGTERM it begins no more of them
 */
#include <dlock/dlock.h>

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

struct job {
    dlock_lock *lock;
    pid_t group; /* the running command, which leads a process group; 0: none runs */
};

static char *command;
static int pending, failures;

/* Every callback runs in dlock_client_dispatch(), so it may use all data of the loop. */
static void over(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)arg;
    printf("%s: %s\n", dlock_name(lock), err ? err->message : "done");
    failures += err != NULL;
    pending--;
}

/* Nobody else gets the lock before this has returned. The lock still has to be released. */
static void lost(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    const struct job *job = arg;
    (void)lock, (void)err;
    if (job->group) kill(-job->group, SIGKILL);
}

static void acquired(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct job *job = arg;
    if (err) {
        over(lock, err, job);
        return;
    }
    printf("%s: fence %llu\n", dlock_name(lock), (unsigned long long)dlock_fence(lock));
    char *const line[] = {(char[]){"sh"}, (char[]){"-c"}, command, NULL};
    sigset_t none;
    posix_spawnattr_t how;
    sigemptyset(&none);
    posix_spawnattr_init(&how);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    if (posix_spawn(&job->group, "/bin/sh", NULL, &how, line, environ) != 0) {
        failures++;
        dlock_release_async(lock, over, job);
    } else if (dlock_guard(lock, job->group, NULL) != 0) { /* so that the command does not outlive this process */
        puts("no guardian");
    }
    posix_spawnattr_destroy(&how);
}

static void reap(struct job *jobs, int n) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        struct job *job = jobs;
        while (job < jobs + n && job->group != pid) job++;
        if (job == jobs + n) continue;
        failures += status != 0;
        job->group = 0;
        dlock_release_async(job->lock, over, job);
    }
}

static void loop(dlock_client *client, int signals, struct job *jobs, int n) {
    const int epoll = epoll_create1(EPOLL_CLOEXEC), fds[] = {dlock_client_fd(client), signals};
    struct epoll_event event = {.events = EPOLLIN};
    struct signalfd_siginfo signal;
    for (int i = 0; i < 2; i++) event.data.fd = fds[i], epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event);
    while (pending) {
        fflush(stdout);
        if (epoll_wait(epoll, &event, 1, -1) != 1) continue;
        if (event.data.fd != signals)
            dlock_client_dispatch(client);
        else if (read(signals, &signal, sizeof signal) == sizeof signal && signal.ssi_signo == SIGTERM)
            dlock_client_stop(client); /* the waits end; the commands that run go on */
        else
            reap(jobs, n);
    }
    close(epoll);
}

int main(int argc, char **argv) {
    if (argc < 4) return fprintf(stderr, "usage: %s URI COMMAND NAME...\n", argv[0]), 64;
    const int n = argc - 3;
    struct job *jobs = calloc((size_t)n, sizeof *jobs);
    struct dlock_client_options how = DLOCK_CLIENT_OPTIONS_INIT;
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    dlock_client *client;
    struct dlock_error err;
    sigset_t ours;
    sigemptyset(&ours), sigaddset(&ours, SIGTERM), sigaddset(&ours, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ours, NULL);
    command = argv[2];
    how.flags = DLOCK_CLIENT_MANUAL | DLOCK_CLIENT_GUARDIAN;
    if (dlock_open(argv[1], &how, &client, &err) != 0) return fprintf(stderr, "%s\n", err.message), 1;
    options.owner = DLOCK_OWNER_HANDLE; /* asynchronous locks are owned by their handles */
    options.on_lost = lost;
    for (int i = 0; i < n; i++) {
        options.on_lost_arg = &jobs[i];
        if (dlock_new(client, argv[3 + i], &options, &jobs[i].lock, &err) != 0) return puts(err.message), 1;
        pending += dlock_acquire_async(jobs[i].lock, DLOCK_FOREVER, acquired, &jobs[i]) == 0;
    }
    loop(client, signalfd(-1, &ours, SFD_CLOEXEC), jobs, n);
    dlock_close(client); /* releases at the server what is held; nothing is */
    return failures != 0;
}
