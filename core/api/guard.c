/* The process groups that a guardian kills, of a client and of one lock. */
#include "api/api.h"
#include "state/guard_table.h"

#include <unistd.h>

/* Returns 0, with no helper being started, or why the guardian cannot guard this group. Leaves the mutex in between. */
static int check(struct dlock_client *client, int group, struct dlock_error *err) {
    /* getpgrp() is 0 for a group from outside of our PID namespace. */
    if (group < 0 || group == 1 || (group != 0 && group == getpgrp()))
        return dlock_fail(err, DLOCK_EINVAL, "%d is not a process group that a guardian can end", group);
    if (!client->guard) return dlock_fail(err, DLOCK_ENOTSUP, "this client has no guardian");
    if (client->guard->table->local && !client->backend->descriptors)
        return dlock_fail(err, DLOCK_ENOTSUP, "a guardian cannot keep the locks of %s", client->backend->name);
    dlock__guard_settle(client);
    return 0;
}

int dlock_client_guard(dlock_client *client, int group, struct dlock_error *err) {
    int rc = dlock__client_begin(client, err);
    if (rc != 0) return rc;
    rc = check(client, group, err);
    return dlock__client_end(client, rc != 0 ? rc : dlock__guard_group(client, 0, group, err));
}

int dlock_guard(dlock_lock *lock, int group, struct dlock_error *err) {
    int rc = dlock__lock_begin(lock, err);
    if (rc == 0 && (rc = check(lock->client, group, err)) != 0) return dlock__lock_end(lock, rc);
    if (rc != 0) return rc;
    const struct dlock__acquisition *acq = dlock__owned(lock);
    if (!acq)
        rc = dlock__not_owned(lock, err);
    else if (group != 0 && dlock__acq_lost(acq))
        rc = dlock__loss_fail(acq, " before its group was guarded", err);
    else
        rc = dlock__guard_group(lock->client, acq->guarded, group, err);
    return dlock__lock_end(lock, rc);
}
