/* Memory of the simulated hosts, which runs out. */
#ifndef DLOCK_TESTS_SIMULATION_MEMORY_H
#define DLOCK_TESTS_SIMULATION_MEMORY_H

#include "support/scheduler.h"

/* Lets so many of a million allocations fail; 0: none. */
void sim_allocations_fail(unsigned per_million);
bool sim_allocations_may_fail(void);
/* Memory for the simulation itself, which is zeroed and never runs out. */
void *sim_new(size_t size);
void sim_free(void *memory);
/* Bytes that this host has allocated and not freed, and in how many pieces. */
size_t sim_allocated(const struct sim_host *host, unsigned *pieces);

#endif
