/* Tokens whose grants have left this client with a ticket. */
#include "state/client.h"

#include <stdlib.h>
#include <string.h>

/* How long a token that was exported is known, at least. */
enum { KNOWN_US = 60000000 };

static void forget_before(struct dlock_client *client, int64_t now_us) {
    struct dlock__exported **at = &client->exported;
    for (struct dlock__exported *exported; (exported = *at);) {
        if (exported->until_us > now_us) {
            at = &exported->next;
        } else {
            *at = exported->next;
            free(exported);
        }
    }
}

void dlock__exported_free(struct dlock_client *client) {
    forget_before(client, DLOCK__NEVER);
}

bool dlock__exported(const struct dlock_client *client, const char *token) {
    const struct dlock__exported *exported = client->exported;
    while (exported && strcmp(exported->token, token) != 0) exported = exported->next;
    return exported != NULL;
}

int dlock__exported_remember(const struct dlock__acquisition *acq, struct dlock_error *err) {
    struct dlock_client *client = acq->name->client;
    if (!acq->untold_grant) return 0;
    forget_before(client, dlock__now_us());
    struct dlock__exported *exported = calloc(1, sizeof *exported);
    if (!exported) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for an export");
    memcpy(exported->token, acq->token, strlen(acq->token) + 1);
    exported->until_us = dlock__after(dlock__now_us(), dlock__us(acq->lease_ms) + KNOWN_US);
    exported->next = client->exported;
    client->exported = exported;
    return 0;
}
