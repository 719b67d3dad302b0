#include "bench/counter.h"
#include "bench/process.h"

#include <inttypes.h>
#include <unistd.h>

/* Asks the floor program for the number of commands. Negative: there is no answer. */
static int64_t read_count(struct bench_counter *counter) {
    char line[64];
    int64_t count;
    if (counter->program.pid <= 0) return -1;
    bench_program_tell(&counter->program, "");
    if (!fgets(line, sizeof line, counter->program.out) || sscanf(line, "%" SCNd64, &count) != 1) return -1;
    return count;
}

struct bench_counter bench_counter_open(const struct bench *bench, const struct bench_target *target,
                                        const struct bench_case *c) {
    struct bench_counter counter = {.first = -1};
    if (!c->workload->counted || !bench_has_program(bench, target) ||
        !bench_program_start(bench, target, (const char *const[]){"commands", "0", NULL}, &counter.program))
        return counter;
    /* A program that cannot count has ended. It is reaped here, or it would be taken for a worker that has died. */
    if (read_count(&counter) < 0) bench_counter_close(&counter);
    return counter;
}

/* Returns the processor time that this machine has spent on anything. Negative: unknown. */
static int64_t machine_cpu_ns(void) {
    long long user, nice, system, idle, iowait, irq, softirq;
    FILE *stat = fopen("/proc/stat", "re");
    if (!stat) return -1;
    int n =
        fscanf(stat, "cpu %lld %lld %lld %lld %lld %lld %lld", &user, &nice, &system, &idle, &iowait, &irq, &softirq);
    fclose(stat);
    return n == 7 ? (user + nice + system + irq + softirq) * (1000000000 / sysconf(_SC_CLK_TCK)) : -1;
}

void bench_counter_begin(struct bench_counter *counter) {
    counter->machine_ns = machine_cpu_ns();
    counter->first = read_count(counter);
    counter->begun_ns = now_ns();
}

void bench_counter_end(struct bench_counter *counter, struct bench_cell *cell) {
    int64_t now = counter->first < 0 ? -1 : read_count(counter);
    if (counter->machine_ns >= 0 && !bench_interrupted()) cell->machine_ns += machine_cpu_ns() - counter->machine_ns;
    if (now < counter->first || now < 0 || bench_interrupted()) return;
    cell->commands += now - counter->first;
    cell->counted_ns += now_ns() - counter->begun_ns;
}

void bench_counter_close(struct bench_counter *counter) {
    if (counter->program.pid > 0) bench_program_end(&counter->program);
    counter->program.pid = 0;
}
