/* The helper program: waits for the end of its client's process, which the kernel reports by a pidfd. It gets the table
 * and the pidfd as descriptors, and the client's environment in the table. It runs in its own session with every
 * signal blocked, so that whatever ends its client does not end it. */
#include "guardian/guardian.h"

#include "api/api.h"
#include "group.h"
#include "release.h"
#include "state/guard_table.h"

#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    USAGE = 64,
    FAILED = 71,
    IDLE_FIRST_US = 1000000, /* between looks whether the client still is the program that it was */
    IDLE_LAST_US = 64000000,
    GROUP_FIRST_US = 1000, /* between looks whether a killed group is gone */
    GROUP_LAST_US = 20000
};

struct guardian {
    struct dlock__guard_table *table;
    ino_t inode;     /* of the table */
    int timer;       /* goes off when there is something to look at, and at once when the client calls */
    int64_t idle_us; /* next pause between looks while there is nothing to guard */
    int64_t idle_at_us;
};

/* ---- beginning --------------------------------------------------------------------------------------------------- */

/* Registers table->helper as a robust futex: the kernel marks it when this thread ends, however that happens. */
static void announce(struct dlock__guard_table *table) {
    static struct robust_list entry;
    static struct robust_list_head head;
    entry.next = &head.list;
    head.list.next = &entry;
    head.futex_offset = (char *)&table->helper - (char *)&entry;
    syscall(SYS_set_robust_list, &head, sizeof head);
    atomic_store(&table->helper, (unsigned)syscall(SYS_gettid));
    dlock__guard_wake(&table->helper);
}

/* Makes the client's environment our own, since plugins and their libraries find settings there. */
static bool adopt_environment(struct dlock__guard_table *table) {
    char *at = table->texts + strlen(table->texts) + 1, *end = table->texts + table->texts_end;
    size_t n = 0;
    for (const char *p = at; p < end; p += strlen(p) + 1) n++;
    char **list = calloc(n + 1, sizeof *list);
    if (!list) return false;
    for (size_t i = 0; i < n; i++, at += strlen(at) + 1) list[i] = at;
    environ = list;
    return true;
}

/* Turns the client's calls, which are futex wakes, into the timer's event, which poll() can wait for. */
static void *hear_calls(void *arg) {
    struct guardian *guardian = arg;
    for (unsigned heard = 0;;) {
        dlock__guard_wait(&guardian->table->calls, heard, false);
        heard = atomic_load(&guardian->table->calls);
        dlock__timer_set(guardian->timer, 0);
    }
    return NULL;
}

/* ---- the groups -------------------------------------------------------------------------------------------------- */

/* Kills the processes of a guarded group. False: none runs, or the group is not guarded any more. */
static bool kill_group(struct dlock__guard_group *group, int number) {
    if (number <= 0 || number != atomic_load(&group->number)) return false;
    if (!dlock__group_runs(number, atomic_load(&group->session))) return false;
    atomic_store(&group->killed, number); /* lets a living client say why the group died */
    kill(-number, SIGKILL);
    return true;
}

/* Kills all groups. False: none of them runs. */
static bool kill_groups(struct dlock__guard_table *table) {
    uint32_t n = atomic_load(&table->n_entries);
    bool killed = kill_group(&table->group, atomic_load(&table->group.number));
    for (uint32_t i = 1; i <= n; i++) {
        struct dlock__guard_entry *entry = dlock__guard_entry(table, i);
        if (atomic_load(&entry->used) && kill_group(&entry->group, atomic_load(&entry->group.number))) killed = true;
    }
    return killed;
}

/* Kills all groups until nothing of them runs. Processes that cannot be killed, because they have other rights or hang
 * in the kernel, continue to work under the grants, so these are renewed until then, if there is an estate. */
static void end_groups(struct dlock__guard_table *table, struct dlock__estate *estate) {
    int64_t wait_us = GROUP_FIRST_US, renew_us = DLOCK__NEVER;
    if (estate) renew_us = dlock__after(dlock__now_us(), dlock__estate_patience_us(estate));
    while (kill_groups(table)) {
        if (dlock__now_us() >= renew_us) renew_us = dlock__estate_renew(estate);
        dlock__sleep_us(wait_us);
        wait_us = wait_us * 2 < GROUP_LAST_US ? wait_us * 2 : GROUP_LAST_US;
    }
}

/* How long before the end of a grant the group is killed: half of the time that `dlock run` itself leaves, so that it
 * acts first where it can. */
static int64_t margin_us(int64_t lease_ms) {
    int64_t margin = lease_ms * 1000 / 40, least = 5000, most = 500000;
    return margin < least ? least : margin > most ? most : margin;
}

/* Returns the time by which the group that works under the grant of an entry has to be gone, before the grant ends.
 * DLOCK__NEVER: there is no group, or the grant is not known to end. */
static int64_t group_end_us(struct dlock__guard_table *table, struct dlock__guard_entry *entry,
                            struct dlock__guard_group **group, int *number) {
    int64_t until = atomic_load(&entry->valid_until_us), lease_ms = atomic_load(&entry->lease_ms);
    *group = atomic_load(&entry->group.number) != 0 ? &entry->group : &table->group;
    *number = atomic_load(&(*group)->number);
    bool works = *number > 0 && *number != atomic_load(&(*group)->ended);
    bool ends = until != 0 && until != DLOCK__NEVER && atomic_load(&entry->used);
    return works && ends ? until - margin_us(lease_ms) : DLOCK__NEVER;
}

/* Kills the groups for which that time has come although the client's process exists: it is stopped, or hangs. Returns
 * when to look again. */
static int64_t look_at_groups(struct dlock__guard_table *table) {
    uint32_t n = atomic_load(&table->n_entries);
    int64_t first = DLOCK__NEVER, now = dlock__now_us();
    if (table->spares_group) return DLOCK__NEVER;
    atomic_store(&table->looks_at_us, DLOCK__NEVER); /* from here on each renewal or grant calls us */
    for (uint32_t i = 1; i <= n; i++) {
        struct dlock__guard_entry *entry = dlock__guard_entry(table, i);
        struct dlock__guard_group *group;
        int number;
        int64_t at = group_end_us(table, entry, &group, &number);
        if (at <= now) at = group_end_us(table, entry, &group, &number); /* it may have got another grant meanwhile */
        if (at <= now && kill_group(group, number))
            at = dlock__after(now, GROUP_LAST_US); /* the client lives, and its grants with it */
        else if (at <= now)
            atomic_store(&group->ended, number);
        if (at > now && at < first) first = at;
    }
    atomic_store(&table->looks_at_us, first);
    return first;
}

/* ---- nothing to guard -------------------------------------------------------------------------------------------- */

static bool anything_entered(const struct dlock__guard_table *table) {
    uint32_t n = atomic_load(&table->n_entries);
    for (uint32_t i = 1; i <= n; i++)
        if (atomic_load(&dlock__guard_entry(table, i)->used)) return true;
    return false;
}

/* True if the client still maps the table, which is not so after an exec. True also if that cannot be found out. */
static bool client_has_table(const struct guardian *guardian) {
    char path[64], *line = NULL;
    size_t size = 0;
    unsigned long inode;
    bool found = false;
    if (!dlock__proc_is_ours()) return true;
    snprintf(path, sizeof path, "/proc/%lld/maps", (long long)guardian->table->pid);
    FILE *maps = fopen(path, "re");
    if (!maps) return true;
    while (!found && getline(&line, &size, maps) > 0) /* "7f0…-7f4… rw-s 00000000 00:01 4242  /memfd:…" */
        found = sscanf(line, "%*s %*s %*s %*s %lu", &inode) == 1 && inode == guardian->inode && strstr(line, "/memfd:");
    bool failed = ferror(maps);
    free(line);
    fclose(maps);
    return found || failed;
}

/* Checks, now and then, whether the client still is the program that it was. False: it is not, and nothing is entered,
 * so there never will be anything to guard. Lowers *at_us to the time of the next check. */
static bool look_at_client(struct guardian *guardian, int64_t *at_us) {
    int64_t now = dlock__now_us();
    if (now >= guardian->idle_at_us) {
        if (!anything_entered(guardian->table) && !client_has_table(guardian)) return false;
        if (guardian->idle_us < IDLE_LAST_US) guardian->idle_us *= 2;
        guardian->idle_at_us = now + guardian->idle_us;
    }
    if (guardian->idle_at_us < *at_us) *at_us = guardian->idle_at_us;
    return true;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* Handles the end of the client's process: ends the groups, then releases the grants. */
static void bury(const struct guardian *guardian) {
    int64_t died_us = dlock__now_us();
    struct dlock__guard_table *table = guardian->table;
    kill_groups(table); /* at once, since the rest takes a moment */
    struct dlock__estate *estate = table->local ? NULL : dlock__estate_open(table);
    end_groups(table, estate);
    for (uint32_t i = 0; i < table->n_kept; i++) close(DLOCK__GUARD_MORE_FD + (int)i);
    if (estate) dlock__estate_release(estate, died_us);
    dlock__estate_free(estate);
}

/* Watches until the client is closed or its process is gone. Returns the exit status. What a call is about is looked at
 * after `calls` was read: setting the timer may undo what the other thread has set for a call that is counted in it. */
static int watch(struct guardian *guardian) {
    struct pollfd fds[] = {{DLOCK__GUARD_PID_FD, POLLIN, 0}, {guardian->timer, POLLIN, 0}};
    for (;;) {
        unsigned heard = atomic_load(&guardian->table->calls);
        if (atomic_load(&guardian->table->closed)) return 0;
        if (fds[0].revents) {
            bury(guardian);
            return 0;
        }
        int64_t at_us = look_at_groups(guardian->table);
        if (!look_at_client(guardian, &at_us)) return 0;
        dlock__timer_set(guardian->timer, at_us);
        if (atomic_load(&guardian->table->calls) == heard) poll(fds, 2, -1);
    }
}

int dlock__guardian_main(void) {
    sigset_t all;
    pthread_t hearing;
    static struct guardian guardian; /* not on the stack: the other thread still uses it while this one exits */
    guardian = (struct guardian){.table = dlock__guard_table_map(DLOCK__GUARD_TABLE_FD), .idle_us = IDLE_FIRST_US};
    if (!guardian.table) {
        fputs("dlock-guardian is started by libdlock, for clients with guardian=on\n", stderr);
        return USAGE;
    }
    if (guardian.table->hides) prctl(PR_SET_DUMPABLE, 0);
    struct stat st;
    if (fstat(DLOCK__GUARD_TABLE_FD, &st) == 0) guardian.inode = st.st_ino;
    close(DLOCK__GUARD_TABLE_FD);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    guardian.timer = dlock__timer_open();
    guardian.idle_at_us = dlock__now_us() + guardian.idle_us;
    dlock__guard_off = true;
    if (guardian.timer < 0 || !adopt_environment(guardian.table) ||
        dlock__thread_start(&hearing, hear_calls, &guardian) != 0)
        return FAILED;
    announce(guardian.table);
    return watch(&guardian);
}
