/* The server of a run and the way to it: a backend whose messages are subject to faults. */
#ifndef DLOCK_TESTS_SIMULATION_NETWORK_H
#define DLOCK_TESTS_SIMULATION_NETWORK_H

#include "support/scheduler.h"

#include <dlock/backend.h>

/* How many of 1,000 messages (connections, …) are subject to each fault. */
struct sim_faults {
    unsigned lose_request, lose_answer, late_request, twice, stray, reset, silent, refuse, stall;
    unsigned latency_us; /* longest latency in one direction */
};
extern struct sim_faults sim_faults;

struct sim_kind {
    const char *scheme;
    uint32_t caps;
};
size_t sim_kinds(const struct sim_kind **kinds);

extern struct sim_host sim_server;
extern uint64_t sim_requests; /* that the server has worked on */

void sim_network_start(const struct sim_kind *kind, int64_t handover_ms);
/* Breaks all connections; the server is away for this time, and may forget what it knew. */
void sim_server_restart(int64_t away_us, bool forget);
/* Closes the connections of a host that died, at some time. */
void sim_host_gone(const struct sim_host *host);
/* True if the client that asked for the entry is still connected, where the grant depends on that. */
struct server_entry;
bool sim_server_is_connected(const struct server_entry *entry);
/* True if a grant of this token was taken away by a break: its client's belief no longer matters. */
bool sim_was_broken(const char *token);
/* True if the entry is in the queue because of a request that was given up long before. */
bool sim_server_came_late(const struct server_entry *entry);
/* Writes the URI that all clients of this run open. */
void sim_uri(char *out, size_t size, const char *keys);

#endif
