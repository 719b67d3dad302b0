/* The command line of every floor program, and the operations of one client. */
#include "floor.h"

#include "bench/histogram.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONNECTIONS = 4 };

static void cycles(const struct floor *floor, int64_t ms, struct histogram *histogram) {
    void *server = floor_connect(floor);
    floor->acquire(server, 0); /* the first cycle may be slower and is not counted */
    floor->release(server, 0);
    int64_t begun = now_ns(), end = begun + ms * 1000000;
    while (begun < end) {
        floor->acquire(server, 0);
        floor->release(server, 0);
        int64_t done = now_ns();
        if (done <= end) histogram_add(histogram, done - begun, 1);
        begun = done;
    }
}

static void round_trips(const struct floor *floor, int64_t ms, int pause_ms, struct histogram *histogram) {
    void *server = floor_connect(floor);
    floor->round_trip(server);
    for (int64_t begun = now_ns(), end = begun + ms * 1000000; begun < end; begun = now_ns()) {
        floor->round_trip(server);
        int64_t done = now_ns();
        if (done <= end) histogram_add(histogram, done - begun, 1);
        if (pause_ms) usleep((useconds_t)pause_ms * 1000);
    }
}

static void count(const struct floor *floor) {
    char line[8];
    floor->commands(); /* the first call connects */
    while (fgets(line, sizeof line, stdin)) {
        printf("%" PRId64 "\n", floor->commands());
        fflush(stdout);
    }
}

static int number(int argc, char **argv, int index, int least, int most) {
    int value = argc > index ? atoi(argv[index]) : least;
    floor_need(value >= least && value <= most);
    return value;
}

static int connections_of(const struct floor *floor, const char *uri, int workers) {
    char told[FLOOR_TEXT];
    if (floor->shared) return 1;
    if (floor->bound) return workers;
    return floor_key(uri, "connections", told) ? atoi(told) : CONNECTIONS;
}

/* Runs the operation of the command line. False: the server has no such operation. */
static bool measure(const struct floor *floor, int argc, char **argv, const char *uri, struct histogram *histogram) {
    const char *operation = argv[1];
    int64_t ms = atoll(argv[2]);
    int workers = number(argc, argv, 3, 1, FLOOR_WORKERS), hold_ms = number(argc, argv, 4, 0, 10000);
    if (strcmp(operation, "cycle") == 0) {
        cycles(floor, ms, histogram);
    } else if (strcmp(operation, "threads") == 0) {
        floor_threads(floor, ms, workers, connections_of(floor, uri, workers), histogram);
    } else if (strcmp(operation, "hand-over") == 0 && floor->waits && workers > 1) {
        floor_processes(floor, ms, workers, hold_ms, histogram);
    } else if (strcmp(operation, "hand-over") == 0 && floor->round_trip) {
        round_trips(floor, ms, hold_ms, histogram);
    } else if (strcmp(operation, "queue") == 0 && floor->queue_acquire && workers > 1) {
        struct floor queue = *floor;
        queue.acquire = floor->queue_acquire;
        queue.release = floor->queue_release;
        floor_processes(&queue, ms, workers, hold_ms, histogram);
    } else if (strcmp(operation, "commands") == 0 && floor->commands) {
        count(floor);
    } else {
        return false;
    }
    return true;
}

int main(int argc, char **argv) {
    static struct histogram histogram;
    char uri[4096];
    if (argc < 3 || argc > 5 || !fgets(uri, sizeof uri, stdin)) {
        fprintf(stderr, "Usage: %s cycle|threads|hand-over|queue|commands MILLISECONDS [WORKERS [HOLD_MS]] <<< URI\n",
                argv[0]);
        return 64;
    }
    uri[strcspn(uri, "\n")] = '\0';
    floor_program.prepare(&floor_program, uri);
    if (!measure(&floor_program, argc, argv, uri, &histogram)) return FLOOR_SKIPPED;
    for (int i = 0; i < HISTOGRAM_BUCKETS; i++)
        if (histogram.buckets[i]) printf("%" PRId64 " %" PRIu64 "\n", histogram_lowest(i), histogram.buckets[i]);
    puts("end");
    return fflush(stdout) == 0 ? 0 : FLOOR_FAILED;
}
