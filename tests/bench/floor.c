#include "floor.h"

#include "bench_histogram.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void floor_check(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "floor: %s failed\n", what);
    exit(FLOOR_FAILED);
}

void floor_need(bool plain) {
    if (!plain) exit(FLOOR_SKIPPED);
}

struct floor_address floor_address(const char *uri, int default_port) {
    struct floor_address address = {.port = default_port};
    const char *host = strstr(uri, "://");
    floor_need(host != NULL);
    host += 3;
    size_t length = strcspn(host, "/?"), name = strcspn(host, ":/?");
    floor_need(strcspn(host, "@,[%") >= length && name > 0 && name < sizeof address.host);
    memcpy(address.host, host, name);
    if (host[name] == ':') address.port = atoi(host + name + 1);
    address.has_path = host[length] == '/' && host[length + 1] && host[length + 1] != '?';
    return address;
}

static void measure(void (*operation)(void), int64_t ms) {
    static struct histogram histogram;
    operation(); /* the first one is not like the others */
    int64_t begun = now_ns(), end = begun + ms * 1000000;
    while (begun < end) {
        operation();
        int64_t done = now_ns();
        histogram_add(&histogram, done - begun, 1);
        begun = done;
    }
    for (int i = 0; i < HISTOGRAM_BUCKETS; i++)
        if (histogram.buckets[i]) printf("%" PRId64 " %" PRIu32 "\n", histogram_lowest(i), histogram.buckets[i]);
}

int floor_main(int argc, char **argv, const struct floor *floor) {
    char uri[4096];
    if (argc != 3 || !fgets(uri, sizeof uri, stdin)) {
        fprintf(stderr, "Usage: %s cycle|round-trip MILLISECONDS <<< URI\n", argv[0]);
        return 64;
    }
    uri[strcspn(uri, "\n")] = '\0';
    void (*operation)(void) = strcmp(argv[1], "cycle") == 0        ? floor->cycle
                              : strcmp(argv[1], "round-trip") == 0 ? floor->round_trip
                                                                   : NULL;
    if (!operation) return FLOOR_SKIPPED;
    floor->open(uri);
    measure(operation, atoll(argv[2]));
    puts("end");
    return fflush(stdout) == 0 ? 0 : FLOOR_FAILED;
}
