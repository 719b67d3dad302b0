/* The server of a run and the way to it: what a backend does, by messages that faults meet.
 */
#ifndef DLOCK_TESTS_SIMULATION_NETWORK_H
#define DLOCK_TESTS_SIMULATION_NETWORK_H

#include "scheduler.h"

#include <dlock/backend.h>

/* Of 1,000 messages (connections, …) so many meet this. */
struct sim_faults {
    unsigned lose_request, lose_answer, late_request, twice, stray, reset, silent, refuse, stall;
    unsigned latency_us; /* one way, at most */
};
extern struct sim_faults sim_faults;

struct sim_kind {
    const char *scheme;
    uint32_t caps;
};
size_t sim_kinds(const struct sim_kind **kinds);

extern struct sim_host sim_server;
extern uint64_t sim_requests; /* that the server has worked on */

void sim_network_start(const struct sim_kind *kind);
/* All connections break; the server is away for so long, and may forget what it knew. */
void sim_server_restart(int64_t away_us, bool forget);
/* The connections of a host that died are closed at some time. */
void sim_host_gone(const struct sim_host *host);
/* Whether the client that asked for it is connected still, as far as that matters to the grant. */
struct server_entry;
bool sim_server_is_connected(const struct server_entry *entry);
/* What was granted to this token, somebody has taken from it: what its client believes does not count any more. */
bool sim_was_broken(const char *token);
/* It stands in the queue because of a request that was long given up. */
bool sim_server_came_late(const struct server_entry *entry);
/* The address of `name` is what all clients of this run open. */
void sim_uri(char *out, size_t size, const char *keys);

#endif
