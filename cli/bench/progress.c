#include "bench/bench.h"

enum { WIDTH = 30 };

void bench_progress(const struct bench *bench, int done, int all, const char *server, const char *label) {
    char bar[WIDTH + 1];
    if (!bench->progress) return;
    int filled = all ? done * WIDTH / all : 0;
    for (int i = 0; i < WIDTH; i++) bar[i] = i < filled ? '#' : '.';
    bar[WIDTH] = '\0';
    fprintf(stderr, "\r[%s] %3d %%  %s, %s\033[K", bar, all ? done * 100 / all : 0, label, server);
    fflush(stderr);
}

void bench_progress_end(const struct bench *bench) {
    if (!bench->progress) return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
}
