/* Two fibers that count, with or without a mutex: does the thread sanitizer see that they are threads? */
#include "support/scheduler.h"

#include <pthread.h>
#include <string.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned counter;

static void *count(void *locks) {
    for (int i = 0; i < 100; i++) {
        if (locks) pthread_mutex_lock(&mutex);
        counter++;
        if (locks) pthread_mutex_unlock(&mutex);
        sim_pause();
    }
    return NULL;
}

int main(int argc, char **argv) {
    static struct sim_host host = {.name = "host"};
    void *locks = argc > 1 && strcmp(argv[1], "mutex") == 0 ? &mutex : NULL;
    sim_seed(1);
    unsigned first = sim_start(&host, count, locks), second = sim_start(&host, count, locks);
    return sim_join(first, SIM_NEVER) && sim_join(second, SIM_NEVER) && counter == 200 ? 0 : 2;
}
