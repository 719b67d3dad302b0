#include "bench/interrupt.h"

#include <signal.h>
#include <time.h>

static volatile sig_atomic_t interrupted;

static void interrupt(int sig) {
    interrupted = sig;
}

static void handle(int sig, void (*handler)(int)) {
    struct sigaction action;
    if (sigaction(sig, NULL, &action) != 0 || action.sa_handler == SIG_IGN) return;
    action = (struct sigaction){.sa_handler = handler};
    sigaction(sig, &action, NULL);
}

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { SIGNALS = sizeof signals / sizeof signals[0] };

void bench_hear_signals(void) {
    for (int i = 0; i < SIGNALS; i++) handle(signals[i], interrupt);
}

void bench_leave_signals(void) {
    for (int i = 0; i < SIGNALS; i++) handle(signals[i], SIG_DFL);
}

int bench_interrupted(void) {
    return interrupted;
}

void bench_sleep_ms(int64_t ms) {
    struct timespec time = {ms / 1000, (ms % 1000) * 1000000};
    while (!interrupted && nanosleep(&time, &time) != 0) continue;
}
