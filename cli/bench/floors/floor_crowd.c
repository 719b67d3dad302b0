/* Floors with more than one worker. */
#include "bench/histogram.h"
#include "floor.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- processes on one lock --------------------------------------------------------------------------------------- */

struct board {
    _Atomic uint32_t ready, left_by;
    _Atomic int64_t stop_ns, left_ns; /* stop_ns: 0 until the processes may start */
    struct histogram histograms[FLOOR_WORKERS];
};

static void rest(int ms) {
    if (ms) usleep((useconds_t)ms * 1000);
}

static void contend(const struct floor *floor, struct board *board, uint32_t me, int hold_ms) {
    void *server = floor_connect(floor);
    floor->acquire(server, 0);
    floor->release(server, 0);
    atomic_fetch_add(&board->ready, 1);
    while (atomic_load(&board->stop_ns) == 0) usleep(100);
    for (int64_t asked = now_ns(); asked < atomic_load(&board->stop_ns); asked = now_ns()) {
        floor->acquire(server, 0);
        int64_t got = now_ns(), left_ns = atomic_load(&board->left_ns);
        bool handed_over = atomic_load(&board->left_by) != me && asked < left_ns;
        rest(hold_ms);
        int64_t done = now_ns();
        if (handed_over && done <= atomic_load(&board->stop_ns))
            histogram_add(&board->histograms[me - 1], got - left_ns, 1);
        atomic_store(&board->left_by, me);
        atomic_store(&board->left_ns, now_ns());
        floor->release(server, 0);
        rest(hold_ms);
    }
}

void floor_processes(const struct floor *floor, int64_t ms, int workers, int hold_ms, struct histogram *histogram) {
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    floor_check(board != MAP_FAILED, "mmap");
    pid_t pids[FLOOR_WORKERS], parent = getpid();
    for (int i = 0; i < workers; i++) {
        pids[i] = fork();
        floor_check(pids[i] >= 0, "fork");
        if (pids[i] > 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent) contend(floor, board, (uint32_t)i + 1, hold_ms);
        _exit(0);
    }
    for (int waited = 0; atomic_load(&board->ready) < (uint32_t)workers; waited++) {
        floor_check(waited < 10000, "getting ready");
        usleep(1000);
    }
    atomic_store(&board->stop_ns, now_ns() + ms * 1000000);
    for (int i = 0; i < workers; i++) {
        int status;
        floor_check(waitpid(pids[i], &status, 0) == pids[i] && status == 0, "a process");
        histogram_merge(histogram, &board->histograms[i]);
    }
    munmap(board, sizeof *board);
}

/* ---- threads that share connections ------------------------------------------------------------------------------ */

struct pool {
    const struct floor *floor;
    pthread_mutex_t mutex;
    pthread_cond_t freed;
    void *idle[FLOOR_WORKERS];
    int n_idle;
    _Atomic int64_t stop_ns;
    pthread_barrier_t barrier;
};

struct thread {
    struct pool *pool;
    pthread_t id;
    int number;
    struct histogram histogram;
};

/* Sends a request on any free connection; waits for one if necessary. */
static void request(struct pool *pool, void (*operation)(void *server, int number), int number) {
    if (pool->floor->shared || pool->floor->bound) {
        operation(pool->idle[pool->floor->bound ? number : 0], number);
        return;
    }
    pthread_mutex_lock(&pool->mutex);
    while (pool->n_idle == 0) pthread_cond_wait(&pool->freed, &pool->mutex);
    void *server = pool->idle[--pool->n_idle];
    pthread_mutex_unlock(&pool->mutex);
    operation(server, number);
    pthread_mutex_lock(&pool->mutex);
    pool->idle[pool->n_idle++] = server;
    pthread_mutex_unlock(&pool->mutex);
    pthread_cond_signal(&pool->freed);
}

static void *cycles(void *arg) {
    struct thread *thread = arg;
    struct pool *pool = thread->pool;
    request(pool, pool->floor->acquire, thread->number);
    request(pool, pool->floor->release, thread->number);
    pthread_barrier_wait(&pool->barrier);
    for (int64_t begun = now_ns(), done; begun < atomic_load(&pool->stop_ns); begun = done) {
        request(pool, pool->floor->acquire, thread->number);
        request(pool, pool->floor->release, thread->number);
        done = now_ns();
        if (done <= atomic_load(&pool->stop_ns)) histogram_add(&thread->histogram, done - begun, 1);
    }
    return NULL;
}

void floor_threads(const struct floor *floor, int64_t ms, int workers, int connections, struct histogram *histogram) {
    struct pool pool = {.floor = floor, .stop_ns = INT64_MAX};
    struct thread *threads = calloc((size_t)workers, sizeof *threads);
    floor_check(threads != NULL, "calloc");
    floor_need(connections > 0 && connections <= FLOOR_WORKERS);
    pthread_mutex_init(&pool.mutex, NULL);
    pthread_cond_init(&pool.freed, NULL);
    pthread_barrier_init(&pool.barrier, NULL, (unsigned)workers + 1);
    for (; pool.n_idle < connections; pool.n_idle++) pool.idle[pool.n_idle] = floor_connect(floor);
    for (int i = 0; i < workers; i++) {
        threads[i].pool = &pool;
        threads[i].number = i;
        floor_check(pthread_create(&threads[i].id, NULL, cycles, &threads[i]) == 0, "pthread_create");
    }
    pthread_barrier_wait(&pool.barrier);
    atomic_store(&pool.stop_ns, now_ns() + ms * 1000000);
    for (int i = 0; i < workers; i++) {
        pthread_join(threads[i].id, NULL);
        histogram_merge(histogram, &threads[i].histogram);
    }
    free(threads);
}
