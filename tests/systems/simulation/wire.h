/* Shared by the two ends of simulated connections: network.c is the clients' end, server.c the server's. */
#ifndef DLOCK_TESTS_SIMULATION_WIRE_H
#define DLOCK_TESTS_SIMULATION_WIRE_H

#include "fake_server.h"
#include "memory.h"
#include "network.h"

enum { SIM_LINKS = 512, WAKES = 256, GENERATIONS = 1 << 20 };

/* A connection as the server has it, where it may live longer than at the client's end. */
struct link {
    bool open, listening, silent;
    struct sim_host *host;
    char client[25];
    unsigned generation;          /* the client's end has the same number, or is gone */
    int64_t asked_us, brought_us; /* when the last message in each direction arrives: none overtakes another */
    int fd;
    struct wake {
        struct dlock_wake wake;
        char name[DLOCK_NAME_MAX + 56], token[DLOCK_TOKEN_MAX + 1];
        int64_t arrived_us;
    } * wakes[WAKES];
    size_t wakes_begin, wakes_end;
};

enum operation { ACQUIRE, RENEW, RELEASE, PING };

/* Kept until the last copy has arrived and its sender has continued. */
struct request {
    enum operation operation;
    unsigned link, generation, refs;
    bool answered;
    bool stray; /* arrives when its client no longer expects it */
    size_t n;
    struct item {
        struct dlock_claim claim;
        char name[DLOCK_NAME_MAX + 1], token[DLOCK_TOKEN_MAX + 1];
    } items[];
};

extern struct link sim_links[SIM_LINKS];
extern size_t sim_links_end; /* no element from here on was ever used */

static inline bool sim_link_is_open(unsigned link, unsigned generation) {
    return sim_links[link].open && sim_links[link].generation == generation;
}

/* ---- network.c ---- */

void sim_wake_send(struct link *link, const struct dlock_wake *wake);

/* ---- server.c ---- */

void sim_server_start(const struct sim_kind *kind, int64_t handover_ms);
/* True while the server is away: nothing that is sent then is answered. */
bool sim_server_away(void);
/* Works on a request that has arrived. False: the server was away. */
bool sim_server_work(struct request *request);
/* The n-th entry of the server, with a token if it is a holder. False: there are no more. */
bool sim_server_holder(size_t n, struct dlock_info *info);
/* Ends a session: where grants live in connections, they end with those closed by the client. */
void sim_session_end(unsigned generation);
/* True if grants end as soon as the process has closed its connection, as those of files do. */
bool sim_sessions_are_local(void);
/* Ends the connection, as the client sees it. */
void sim_link_break(struct link *link);
/* Takes the name from all its holders. False: there were none. */
bool sim_server_break(const char *name);
void sim_server_quarantine(int64_t ms); /* the longest that a client asks for counts */

#endif
