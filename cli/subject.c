#include "subject.h"

#include "cli.h"

#include <dlock/backend.h>

#include <string.h>

int subject_take(struct subject *subject, const struct command *command, int argc, char **argv) {
    if (argc > 0 && subject->prefix) return usage_error(command, "give either --prefix or lock names");
    for (int i = 0; i < argc; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(argv[i], argv[j]) == 0) return usage_error(command, "the lock \"%s\" is given twice", argv[i]);
    subject->names = argv;
    subject->n = (size_t)argc;
    return STATUS_OK;
}

static int ask(const struct subject *subject, dlock_client *client, struct holders *holders, struct dlock_error *err) {
    if (subject->n == 0) {
        int rc = dlock_list(client, subject->prefix ? subject->prefix : "", holders_keep, holders, err);
        if (rc != DLOCK_ENOTSUP) return rc;
        const struct dlock_backend_info *info = dlock_client_backend(client);
        if (info->caps & DLOCK_CAP_LIST || !(info->caps & DLOCK_CAP_INSPECT)) return rc;
        const struct dlock_error why = *err;
        return dlock_fail(err, rc, "%s: give the names of locks", why.message);
    }
    for (size_t i = 0; i < subject->n; i++) {
        int rc = dlock_inspect(client, subject->names[i], holders_keep, holders, err);
        if (rc != 0) return rc;
    }
    return 0;
}

int subject_ask(const struct subject *subject, dlock_client *client, struct holders *holders, struct dlock_error *err) {
    int rc = ask(subject, client, holders, err);
    if (rc == 0 && holders->failed) rc = dlock_fail(err, DLOCK_ENOMEM, "%s", dlock_strerror(DLOCK_ENOMEM));
    holders_sort(holders);
    return rc;
}
