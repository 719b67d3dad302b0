/* One run: processes and threads that start together and end at a given time. */
#include "bench/arena.h"
#include "bench/counter.h"
#include "bench/process.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

struct job {
    struct bench_arena *arena;
    const struct bench_case *c;
    const char *uri;
    int first;   /* index of the first worker of this process */
    int gate[2]; /* a pipe: the workers start when its writing end is closed */
};

struct thread {
    const struct job *job;
    dlock_client *client;
    int worker;
    int64_t cpu_ns; /* processor time of the process at the start */
};

/* Acquires and releases once before the measurement: the first grant opens connections and loads scripts. */
static bool warm_up(struct bench_arena *arena, struct bench_worker *worker, dlock_lock *lock) {
    struct dlock_error err = {0, ""};
    if (dlock_acquire(lock, BENCH_READY_MS, &err) == 0) return bench_release(worker, lock);
    bench_failed(arena, &err);
    return false;
}

static void *work(void *arg) {
    struct thread *thread = arg;
    const struct job *job = thread->job;
    struct bench_arena *arena = job->arena;
    struct bench_worker *worker = &arena->workers[thread->worker];
    struct bench_word *word = &arena->words[job->c->workload->own_locks ? thread->worker : 0];
    dlock_lock *lock = bench_lock(arena, thread->client, job->c, thread->worker, 0);
    if (!lock) return NULL;
    if (warm_up(arena, worker, lock)) {
        char none;
        atomic_fetch_add(&arena->ready, 1);
        while (read(job->gate[0], &none, 1) < 0 && errno == EINTR) continue;
        thread->cpu_ns = bench_cpu_ns();
        job->c->workload->work(worker, lock, word);
    }
    dlock_free(lock);
    return NULL;
}

static void no_thread(struct bench_arena *arena) {
    bench_failed(arena,
                 &(struct dlock_error){DLOCK_ENOMEM, "no thread for a worker; raise the limit (ulimit -u, ulimit -v)"});
}

static void process(void *arg) {
    const struct job *job = arg;
    struct thread threads[BENCH_THREADS_MAX];
    pthread_t ids[BENCH_THREADS_MAX];
    close(job->gate[1]);
    dlock_client *client = bench_open(job->arena, job->uri);
    if (!client) return;
    int begun = 0;
    for (int i = 0; i < job->c->threads; i++) {
        threads[i] = (struct thread){job, client, job->first + i, 0};
        if (i + 1 == job->c->threads) break; /* this thread is the last worker */
        if (pthread_create(&ids[i], NULL, work, &threads[i]) != 0) {
            no_thread(job->arena);
            break;
        }
        begun++;
    }
    if (begun + 1 == job->c->threads) work(&threads[begun]);
    for (int i = 0; i < begun; i++) pthread_join(ids[i], NULL);
    if (threads[begun].cpu_ns) job->arena->workers[job->first].cpu_ns = bench_cpu_ns() - threads[begun].cpu_ns;
    dlock_close(client);
}

static int start(struct job *job, int processes, pid_t *pids) {
    int n = 0;
    for (; n < processes; n++) {
        job->first = n * job->c->threads;
        pids[n] = bench_fork(job->arena, process, job);
        if (pids[n] < 0) break;
    }
    return n;
}

/* Lets the workers start, waits for `ms`, and counts the server's commands in that time. */
static void run_for(struct job *job, int64_t ms, struct bench_counter *counter, struct bench_cell *cell) {
    bench_counter_begin(counter);
    atomic_store(&job->arena->stop_ns, now_ns() + ms * 1000000);
    job->arena->elapsed_ns = ms * 1000000;
    close(job->gate[1]);
    bench_sleep_ms(ms);
    bench_counter_end(counter, cell);
}

void bench_run(const struct bench *bench, struct bench_target *target, size_t n_case, const struct bench_case *c,
               int64_t ms) {
    struct bench_cell *cell = &target->cells[n_case];
    int workers = c->processes * c->threads;
    struct job job = {.arena = bench_arena_new(c), .c = c, .uri = target->uri};
    if (!job.arena || pipe2(job.gate, O_CLOEXEC) != 0) {
        if (job.arena) bench_arena_end(job.arena, 0, target, cell);
        bench_out_of_memory(cell);
        return;
    }
    pid_t pids[BENCH_WORKERS];
    int processes = start(&job, c->processes, pids);
    bool begins = processes == c->processes && bench_all_ready(job.arena, (uint32_t)workers);
    struct bench_counter counter = bench_counter_open(bench, target, c);
    if (begins)
        run_for(&job, ms, &counter, cell);
    else
        close(job.gate[1]);
    close(job.gate[0]);
    bench_counter_close(&counter);
    bench_reap(job.arena, pids, processes, begins);
    bench_arena_end(job.arena, workers, target, cell);
}
