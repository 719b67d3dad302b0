/* The statistics of a client. They are counted where the counted event happens, under the client's mutex. */
#include "api/api.h"

#include <string.h>

int dlock_client_stats(dlock_client *client, struct dlock_stats *stats, struct dlock_error *err) {
    if (!stats || stats->size < offsetof(struct dlock_stats, local_grants))
        return dlock_fail(err, DLOCK_EINVAL, "the statistics need a struct dlock_stats; use DLOCK_STATS_INIT");
    int rc = dlock__client_begin(client, err);
    if (rc != 0) return rc;
    size_t size = stats->size, known = size < sizeof *stats ? size : sizeof *stats;
    client->stats.last_answer_ms = client->answered_us == 0 ? -1 : (dlock__now(client) - client->answered_us) / 1000;
    memcpy(stats, &client->stats, known);
    memset((char *)stats + known, 0, size - known);
    stats->size = size;
    return dlock__client_end(client, 0);
}
