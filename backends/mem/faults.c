/* The clock, and the faults that delay= and fail= in the URI ask for. */
#include "mem.h"

#include <time.h>

int64_t mem_now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

/* Returns a random number (SplitMix64). Each connection has its own generator, so that no state is shared. */
static uint64_t draw(struct mem_conn *conn) {
    uint64_t z = conn->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

bool mem_fails(struct mem_conn *conn) {
    return conn->fail > 0 && draw(conn) % MEM_MILLION < conn->fail;
}

static void sleep_ms(int64_t ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0) continue;
}

enum mem_fate mem_await(struct mem_conn *conn, int timeout_ms) {
    bool late = conn->delay_ms >= timeout_ms;
    if (conn->delay_ms > 0) sleep_ms(late ? timeout_ms : conn->delay_ms);
    if (late) return MEM_ANSWER_LOST;
    if (!mem_fails(conn)) return MEM_ANSWERED;
    return draw(conn) % 2 ? MEM_NEVER_ARRIVED : MEM_ANSWER_LOST;
}

int mem_unanswered(struct dlock_error *err) {
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "mem: no answer, as delay= or fail= in its URI asks for");
}
