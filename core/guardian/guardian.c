/* The client's side of the guardian. The mutex is never held while a helper is started. */
#include "guardian/guardian.h"

#include "guardian/start.h"
#include "io/io.h"
#include "plugin/plugin.h"
#include "state/guard_table.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PROGRAM "dlock-guardian"

enum {
    OWN_FDS = 2,           /* descriptors in front of those that grants live in: the table and the pidfd */
    RESTART_US = 10000000, /* between two attempts to replace a dead helper */
    LAST_WORDS_MS = 5000   /* time for a helper that is our child to exit, after it was dismissed */
};

bool dlock__guard_off;

/* ---- the helper program ------------------------------------------------------------------------------------------ */

/* Finds the program where the installation or the build tree has it, relative to the library. The command as one file is
 * the program, too (guardian/single.c). */
static bool find_program(char path[PATH_MAX]) {
    static const char *const folders[] = {DLOCK__LIBEXEC, "../libexec/dlock/" DLOCK__SERIES};
    char own[PATH_MAX];
    if (DLOCK__SINGLE_FILE) return access(strcpy(path, "/proc/self/exe"), X_OK) == 0;
    if (!dlock__own_folder(own)) return false;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        if (snprintf(path, PATH_MAX, "%s/%s/" PROGRAM, own, folders[i]) < PATH_MAX && access(path, X_OK) == 0)
            return true;
#ifdef DLOCK__INSTALLED
    snprintf(path, PATH_MAX, DLOCK__INSTALLED "/" DLOCK__LIBEXEC "/" PROGRAM);
    return access(path, X_OK) == 0;
#else
    return false;
#endif
}

/* True for a variable that the helper needs in order to start. Whoever may see the process list can read the
 * environment that a program was started with, so the helper gets all other variables through the table. */
static bool needed_to_run(const char *entry) {
    size_t length = strcspn(entry, "=");
    static const char sanitizer[] = "SAN_OPTIONS";
    size_t tail = sizeof sanitizer - 1;
    return strncmp(entry, "LD_", 3) == 0 || (length > tail && strncmp(entry + length - tail, sanitizer, tail) == 0);
}

/* Runs the program. The grants in fds[OWN_FDS … n) may end meanwhile: other threads go on. */
static pid_t exec_program(const char *path, const int *fds, size_t n) {
    char guarded[32];
    const char *const argv[] = {PROGRAM, guarded, NULL};
    const char *envp[64];
    size_t used = 0;
    snprintf(guarded, sizeof guarded, "%ld", (long)getpid());
    for (char *const *entry = environ; entry && *entry && used < sizeof envp / sizeof envp[0] - 1; entry++)
        if (needed_to_run(*entry)) envp[used++] = *entry;
    envp[used] = NULL;
    return dlock__start(&(struct dlock__start){path, (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)envp,
                                               fds, n, n - OWN_FDS});
}

static int cannot_start(const char *path, int why, struct dlock_error *err) {
    bool limit = why == EMFILE || why == ENFILE || why == EAGAIN;
    return dlock_fail(err, limit || why == ENOMEM ? DLOCK_ENOMEM : DLOCK_EUNAVAILABLE,
                      "cannot start the guardian %.240s: %s; %s", path, strerror(why),
                      limit ? "raise the limit (ulimit -n, ulimit -u)" : "without one, add guardian=off to the URI");
}

/* Stores the descriptors that grants live in, which the kernel would close with this process, in fds[0 … *n). */
static int local_descriptors(struct dlock_client *client, int *fds, size_t *n, int64_t deadline_us,
                             struct dlock_error *err) {
    const size_t max = DLOCK__START_FDS_MAX - OWN_FDS;
    struct dlock__conn *conn;
    dlock__enter(client);
    int rc = dlock__pool_take(client, deadline_us, &conn, err);
    dlock__leave(client);
    if (rc != 0) return rc;
    *n = client->backend->descriptors(conn->data, fds, max);
    dlock__enter(client);
    dlock__pool_give(conn, 0);
    dlock__leave(client);
    if (*n <= max) return 0;
    return dlock_fail(err, DLOCK_ENOMEM, "the guardian can keep no more than %zu locks", max);
}

/* True if the helper has exited. */
static bool gone(const struct dlock__guard *guard, pid_t helper) {
    return guard->adopted ? dlock__start_reaped(helper) : kill(helper, 0) != 0 && errno == ESRCH;
}

/* Waits until the helper announces that it runs. False: it did not by the deadline, or has exited. */
static bool came_up(const struct dlock__guard *guard, pid_t helper, int64_t deadline_us) {
    while (atomic_load(&guard->table->helper) == 0) {
        if (dlock__now_us() >= deadline_us || (helper > 0 && gone(guard, helper))) break;
        dlock__guard_wait(&guard->table->helper, 0, true);
    }
    return atomic_load(&guard->table->helper) != 0;
}

/* Starts the program. A helper that was our child is replaced by one that is our child, too, since nobody else might
 * reap it. */
static pid_t run_program(struct dlock__guard *guard, const char *path, const int *fds, size_t n) {
    bool before = guard->adopted && dlock__start_adopt(true);
    pid_t helper = exec_program(path, fds, n);
    int why = errno;
    if (guard->adopted) dlock__start_adopt(before);
    guard->adopted = helper > 0 && dlock__start_adopted(helper);
    errno = why;
    return helper;
}

static void unwatch(struct dlock__guard *guard) {
    if (guard->end >= 0) close(guard->end);
    guard->end = -1;
}

/* Has the keeper see the helper's end. Without a descriptor for it, the keeper sees it when it is awake next. */
static void watch(struct dlock_client *client) {
    struct dlock__guard *guard = client->guard;
    dlock__enter(client);
    unwatch(guard);
    guard->end = (int)syscall(SYS_pidfd_open, guard->helper, 0);
    dlock__keeper_kick(client); /* it polls the descriptor; or sees that the helper is gone already */
    dlock__leave(client);
}

/* Starts a helper for guard->table; closes table_fd. Without the mutex, in one thread at a time. */
static int start(struct dlock_client *client, int table_fd, int64_t deadline_us, struct dlock_error *err) {
    struct dlock__guard *guard = client->guard;
    char path[PATH_MAX] = PROGRAM;
    int fds[DLOCK__START_FDS_MAX] = {table_fd, -1};
    size_t more = 0;
    int rc = find_program(path) ? 0 : cannot_start(path, ENOENT, err);
    if (rc == 0 && (fds[1] = (int)syscall(SYS_pidfd_open, getpid(), 0)) < 0)
        rc = errno == ENOSYS
                 ? dlock_fail(err, DLOCK_ENOTSUP,
                              "a guardian needs Linux 5.3 or newer; without one, add guardian=off to the URI")
                 : cannot_start(path, errno, err);
    /* Last: other threads may close them, with the grants in them. */
    if (rc == 0 && guard->table->local) rc = local_descriptors(client, fds + OWN_FDS, &more, deadline_us, err);
    guard->table->n_kept = (uint32_t)more;
    guard->table->hides = prctl(PR_GET_DUMPABLE) != 1;
    if (rc == 0) {
        pid_t helper = run_program(guard, path, fds, OWN_FDS + more);
        if (helper < 0)
            rc = cannot_start(path, errno, err);
        else if (!came_up(guard, helper, deadline_us))
            rc = dlock_fail(err, DLOCK_EUNAVAILABLE, "the guardian %.240s was started and does not run", path);
        else
            guard->helper = (pid_t)(atomic_load(&guard->table->helper) & FUTEX_TID_MASK);
    }
    if (rc == 0) watch(client);
    if (fds[1] >= 0) close(fds[1]);
    close(table_fd);
    return rc;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* Lets the helper, if there is one, exit. A LOCAL one is killed: it has nothing to release, and need not be woken for
 * that. If we may not kill it, since this process has other rights now, it exits with this process at the latest. */
static void dismiss(const struct dlock__guard *guard) {
    struct dlock__guard_table *table = guard->table;
    atomic_store(&table->closed, 1);
    if (!table->local)
        dlock__guard_call(table);
    else if (guard->helper && !(atomic_load(&table->helper) & FUTEX_OWNER_DIED))
        kill(guard->helper, SIGKILL);
}

static int no_table(struct dlock_error *err) {
    const char *advice = errno == EFBIG    ? "; raise the limit (ulimit -f)"
                         : errno == EMFILE ? "; raise the limit (ulimit -n)"
                                           : "";
    return dlock_fail(err, DLOCK_ENOMEM, "cannot share memory with the guardian: %s%s", strerror(errno), advice);
}

/* Replaces the table by a copy, with a descriptor for the next helper in *fd. With the mutex. */
static int renew_table(struct dlock__guard *guard, int *fd, struct dlock_error *err) {
    struct dlock__guard_table *fresh = dlock__guard_table_copy(guard->table, fd);
    if (!fresh) return no_table(err);
    dismiss(guard);
    dlock__guard_table_free(guard->table);
    guard->table = fresh;
    return 0;
}

/* ---- the guard --------------------------------------------------------------------------------------------------- */

/* True if the backend is part of the program, so that the helper could not load it. */
static bool linked_into_the_application(const struct dlock__module *module) {
    for (size_t i = 0; dlock__builtin_backends[i]; i++)
        if (strcmp(dlock__builtin_backends[i]->name, module->info.name) == 0) return false;
    return module->info.path == NULL;
}

/* True if the kernel ends the grants of a process that dies: they live in its memory or in its descriptors. A LOCAL
 * backend without either has leases, as a server has: in a file, say. */
static bool ends_with_process(const struct dlock_client *client) {
    bool in_descriptors = dlock__can(client, DLOCK_CAP_LOCAL) || client->backend->descriptors;
    return dlock__can(client, DLOCK_CAP_PRIVATE) || (dlock__can(client, DLOCK_CAP_SESSION) && in_descriptors);
}

/* The helper of a program that became another user for good would be an ordinary program: it would obey the variables
 * of the user who started us, and that user could read the URI, with its password, in the helper's /proc. */
static int no_guardian_with_rights(struct dlock_error *err) {
    return dlock_fail(err, DLOCK_ENOTSUP,
                      "guardian=on: there is no guardian for a program with more rights than its caller (set-user-ID, "
                      "file capabilities, a security module: AT_SECURE); add guardian=off to the URI");
}

int dlock__guard_open(struct dlock_client *client, const char *uri, uint32_t flags, int64_t deadline_us,
                      struct dlock_error *err) {
    int said = client->uri->guardian;
    if (dlock__guard_off || said == 0 || (said < 0 && !(flags & DLOCK_CLIENT_GUARDIAN))) return 0;
    if (getauxval(AT_SECURE)) return no_guardian_with_rights(err);
    if (linked_into_the_application(client->module))
        return dlock_fail(err, DLOCK_ENOTSUP,
                          "guardian=on: the backend %s is part of this program, and the guardian is another one: make "
                          "it a module",
                          client->backend->name);
    struct dlock__guard *guard = calloc(1, sizeof *guard);
    int fd = -1;
    if (guard) guard->table = dlock__guard_table_new(uri, environ, &fd);
    if (!guard || !guard->table) {
        free(guard);
        return no_table(err);
    }
    guard->table->local = ends_with_process(client);
    guard->table->spares_group = flags & DLOCK_CLIENT_SPARE_GROUP;
    guard->end = -1;
    client->guard = guard;
    if (!guard->table->local) return start(client, fd, deadline_us, err);
    close(fd);
    return 0;
}

/* Waits for the exit of a helper that is our child, so that it does not stay as a zombie. */
static void reap(const struct dlock__guard *guard, pid_t helper) {
    int64_t until_us = dlock__after(dlock__now_us(), dlock__us(LAST_WORDS_MS));
    if (!guard->adopted || helper == 0) return;
    struct pollfd exit = {(int)syscall(SYS_pidfd_open, helper, 0), POLLIN, 0};
    while (!dlock__start_reaped(helper) && dlock__now_us() < until_us) poll(&exit, 1, exit.fd < 0 ? 1 : LAST_WORDS_MS);
    if (exit.fd >= 0) close(exit.fd);
}

void dlock__guard_close(struct dlock_client *client) {
    struct dlock__guard *guard = client->guard;
    if (!guard) return;
    if (guard->joinable) pthread_join(guard->thread, NULL);
    unwatch(guard);
    dismiss(guard);
    reap(guard, guard->helper);
    dlock__guard_table_free(guard->table);
    client->guard = NULL;
    free(guard);
}

/* Starts a helper with a copy of the table, in place of the previous one. With the mutex, which is left meanwhile. */
static int replace(struct dlock_client *client, struct dlock_error *err) {
    struct dlock__guard *guard = client->guard;
    int fd, rc = renew_table(guard, &fd, err);
    guard->busy = true;
    unwatch(guard);
    if (guard->helper && guard->adopted) dlock__start_reaped(guard->helper);
    guard->helper = 0;
    if (rc == 0) {
        dlock__leave(client);
        rc = start(client, fd, dlock__after(dlock__now_us(), dlock__us(client->uri->timeout_ms)), err);
        dlock__enter(client);
    }
    guard->busy = false;
    guard->missing = rc != 0;
    pthread_cond_broadcast(&client->changed);
    return rc;
}

/* Replaces the helper in a thread of its own, since the keeper has leases to renew, however long the program takes to
 * start. */
static void *run_replace(void *arg) {
    struct dlock_client *client = arg;
    struct dlock__guard *guard = client->guard;
    struct dlock_error err;
    err.message[0] = '\0';
    dlock__enter(client);
    pid_t helper = guard->helper; /* 0: this only repeats a failed attempt */
    int rc = replace(client, &err);
    guard->restart_us = dlock__after(dlock__now_us(), RESTART_US);
    dlock__leave(client);
    if (helper)
        dlock__log(client, DLOCK_LOG_WARN, "the guardian (process %ld) has died; %s", (long)helper,
                   rc == 0 ? "another one was started" : "nobody guards this client");
    if (rc != 0) dlock__log(client, DLOCK_LOG_ERROR, "%s", err.message);
    return NULL;
}

void dlock__guard_look(struct dlock_client *client) {
    struct dlock__guard *guard = client->guard;
    if (!guard) return;
    bool died = guard->helper && atomic_load(&guard->table->helper) & FUTEX_OWNER_DIED;
    if (died) unwatch(guard);
    if (guard->busy || (guard->joinable && pthread_tryjoin_np(guard->thread, NULL) != 0)) return;
    guard->joinable = false;
    if (!died && !guard->missing) return;
    if (dlock__now_us() < guard->restart_us) {
        dlock__keeper_arm(client, guard->restart_us);
        return;
    }
    guard->joinable = guard->busy = dlock__thread_start(&guard->thread, run_replace, client) == 0;
    if (!guard->joinable) guard->restart_us = dlock__after(dlock__now_us(), RESTART_US);
}

/* ---- the process groups ------------------------------------------------------------------------------------------ */

static struct dlock__guard_group *group_of(const struct dlock__guard *guard, uint32_t entry) {
    return entry ? &dlock__guard_entry(guard->table, entry)->group : &guard->table->group;
}

static void set_group(struct dlock__guard *guard, uint32_t entry, int number) {
    struct dlock__guard_group *group = group_of(guard, entry);
    int session = number ? (int)getsid(number) : 0;
    if (number) {
        atomic_store(&group->killed, 0);
        atomic_store(&group->ended, 0);
    }
    atomic_store(&group->session, session > 0 ? session : 0);
    atomic_store(&group->number, number == 0 && entry ? DLOCK__GUARD_NO_GROUP : number);
    if (!guard->table->local) dlock__guard_call(guard->table); /* a LOCAL helper is replaced for each group */
}

/* LOCAL: dismisses the helper, and with it its copies of the descriptors. With the mutex, which is left meanwhile. */
static void let_go(struct dlock_client *client) {
    struct dlock__guard *guard = client->guard;
    pid_t helper = guard->helper;
    unwatch(guard);
    dismiss(guard);
    guard->helper = 0;
    dlock__leave(client);
    reap(guard, helper);
    dlock__enter(client);
}

/* Returns 0, or ELOST if the helper has killed this group, which is guarded no longer. */
static int spared(const struct dlock__guard_group *group, int number, struct dlock_error *err) {
    if (number <= 0 || atomic_load(&group->killed) != number) return 0;
    return dlock_fail(err, DLOCK_ELOST, "the guardian has killed process group %d: its grants were about to end",
                      number);
}

void dlock__guard_settle(struct dlock_client *client) {
    while (client->guard->busy) dlock__wait(client, &client->changed, DLOCK__NEVER);
}

int dlock__guard_group(struct dlock_client *client, uint32_t entry, int number, struct dlock_error *err) {
    struct dlock__guard *guard = client->guard;
    int before = atomic_load(&group_of(guard, entry)->number);
    set_group(guard, entry, number);
    if (number == 0) {
        /* where grants have leases (mode=session) the helper may kill the group until it is gone */
        if (guard->table->local && !dlock__guard_has_group(guard->table)) let_go(client);
        return spared(group_of(guard, entry), before, err);
    }
    if (!guard->table->local) return 0;
    int rc = replace(client, err);
    guard->missing = false; /* not tried again: the caller gets the error */
    if (rc != 0) set_group(guard, entry, 0);
    return rc;
}
