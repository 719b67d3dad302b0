/* Fibers, clocks and random numbers: see scheduler.h. */
#include "scheduler.h"

#include "tsan.h"

#include "base/env.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__has_include) && __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define VALGRIND_STACK_REGISTER(from, to) 0
#define VALGRIND_STACK_DEREGISTER(number) ((void)0)
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define FIBERS_ARE_CONTEXTS /* that sanitizer takes every longjmp() for the end of all calls */
#else
#define __asan_unpoison_memory_region(memory, size) ((void)0)
#define __sanitizer_start_switch_fiber(save, bottom, size)
#define __sanitizer_finish_switch_fiber(saved, bottom, size)
#endif

enum { FIBERS = 256, EVENTS = 65536, STACK = 256 * 1024, SWITCH_PER_MILLE = 250, STEPS_MAX = 30000000 };

enum fiber_state { READY, WAITING, SETTLING, ENDED };

/* The data that each scheduling decision reads; the rest, which is large, is in struct stack. */
struct fiber {
    enum fiber_state state;
    bool woken;
    bool by_timer; /* until_us is a timer's, which runs on while the host is suspended */
    uint32_t bits;
    const void *on; /* what it waits for */
    int64_t until_us;
    struct sim_host *host;
};

struct stack {
    ucontext_t context;
    bool begun; /* continues at `place`, since a change of contexts would cost a system call */
    jmp_buf place;
    void *memory;
    unsigned registered; /* as valgrind's number of this stack */
    void *fake_stack;    /* the address sanitizer's */
    const void *bottom;  /* the real one, for the address sanitizer */
    size_t size;
    void *thread; /* what the thread sanitizer takes the fiber for */
    void *(*run)(void *);
    void *arg;
    struct dlock__forking forking;
};

struct event {
    int64_t at_us;
    uint64_t order;
    void (*act)(void *);
    void *arg;
};

static struct sim_host outside = {.name = "-"};
static struct fiber fibers[FIBERS] = {{.host = &outside}}; /* [0] is main */
static struct stack stacks[FIBERS];                        /* of the fibers, by index */
static struct fiber *live[FIBERS] = {&fibers[0]};          /* those that have not ended, in the order of their begin */
static size_t live_n = 1;
static size_t fibers_end = 1;
static struct fiber *running = &fibers[0];
static struct stack *left;
static struct event events[EVENTS]; /* a binary heap; index 0 is not used */
static size_t events_n;
static uint64_t events_order, chance, steps;
static int64_t now_us = SIM_BEGIN_US;
static bool by_hand; /* sim_move_us() moves the time, and nothing else */
void (*sim_on_step)(void);
bool sim_verbose;
uint64_t sim_seed_now;

/* ---- random numbers: splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014) ---- */

void sim_seed(uint64_t seed) {
    chance = sim_seed_now = seed;
    fibers[0].host = &outside;
    fibers[0].state = READY;
}

uint64_t sim_random(void) {
    uint64_t z = chance += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

int64_t sim_between(int64_t low, int64_t high) {
    return low + (int64_t)(sim_random() % (uint64_t)(high - low + 1));
}

bool sim_chance(unsigned per_mille) {
    return per_mille > 0 && sim_random() % 1000 < per_mille;
}

/* ---- time ---- */

int64_t sim_now_us(void) {
    return now_us;
}

int64_t sim_local_us(const struct sim_host *host, int64_t us) {
    if (us > SIM_NEVER / 2) return SIM_NEVER;
    return us + host->offset_us + us / 1000000 * host->drift_ppm + us % 1000000 * host->drift_ppm / 1000000;
}

int64_t sim_global_us(const struct sim_host *host, int64_t local_us) {
    if (local_us > SIM_NEVER / 2) return SIM_NEVER;
    int64_t us = local_us - host->offset_us; /* the drift is still missing: corrected below */
    if (host->drift_ppm == 0) return us;
    for (int i = 0; i < 4; i++) us += local_us - sim_local_us(host, us);
    while (sim_local_us(host, us) < local_us) us++;
    return us;
}

static bool before(const struct event *a, const struct event *b) {
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

void sim_at(int64_t us, void (*act)(void *), void *arg) {
    if (events_n + 1 == EVENTS) sim_fail("the simulator has too many events");
    struct event event = {us, events_order++, act, arg};
    size_t at = ++events_n;
    for (; at > 1 && before(&event, &events[at / 2]); at /= 2) events[at] = events[at / 2];
    events[at] = event;
}

static struct event take_event(void) {
    struct event first = events[1], last = events[events_n--];
    size_t at = 1;
    for (size_t child; (child = at * 2) <= events_n; at = child) {
        if (child < events_n && before(&events[child + 1], &events[child])) child++;
        if (!before(&events[child], &last)) break;
        events[at] = events[child];
    }
    events[at] = last;
    return first;
}

/* ---- fibers ---- */

struct sim_host *sim_host(void) {
    return running->host;
}

void sim_visit(struct sim_host *host) {
    running->host = host;
}

unsigned sim_self(void) {
    return (unsigned)(running - fibers);
}

char sim_unseen(void) {
    __tsan_ignore_thread_begin();
    return 0;
}

void sim_seen(char *unseen) {
    (void)unseen;
    __tsan_ignore_thread_end();
}

struct dlock__forking *sim_forking(void) {
    return &stacks[sim_self()].forking;
}

static bool runs(const struct fiber *fiber) {
    return !fiber->host->dead && !fiber->host->stopped_us;
}

static void wake(struct fiber *fiber, bool woken) {
    fiber->state = READY;
    fiber->woken = woken;
}

static void run_events(void) {
    SIM_UNSEEN;
    struct sim_host *host = running->host;
    running->host = &outside;
    while (events_n > 0 && events[1].at_us <= now_us) {
        struct event event = take_event();
        event.act(event.arg);
    }
    running->host = host;
}

/* Collects the fibers that can run now, after ending the waits whose time is over, if it is to; *next_us is the time of
 * the next event. */
static size_t find_ready(struct fiber *ready[FIBERS], bool ends_waits, int64_t *next_us) {
    size_t n = 0;
    *next_us = events_n > 0 ? events[1].at_us : SIM_NEVER;
    for (size_t i = 0; i < live_n; i++) {
        struct fiber *fiber = live[i];
        if (!runs(fiber)) continue;
        if (ends_waits && fiber->state == WAITING && fiber->until_us <= now_us) wake(fiber, false);
        if (fiber->state == READY)
            ready[n++] = fiber;
        else if (fiber->until_us < *next_us)
            *next_us = fiber->until_us;
    }
    return n;
}

static struct fiber *choose(void) {
    struct fiber *ready[FIBERS];
    for (int64_t next_us;; now_us = next_us) {
        run_events();
        size_t n = find_ready(ready, !by_hand, &next_us);
        if (n == 0 && by_hand) n = find_ready(ready, true, &next_us);
        if (n > 0) return ready[n == 1 ? 0 : sim_random() % n];
        if (by_hand && fibers[0].state == SETTLING) return &fibers[0];
        if (by_hand) sim_fail("nothing happens before the time moves, and who moves it waits");
        if (next_us == SIM_NEVER) sim_fail("nothing will ever happen any more");
    }
}

#ifdef FIBERS_ARE_CONTEXTS
static void change(struct stack *from, struct stack *to) {
    __sanitizer_start_switch_fiber(&from->fake_stack, to->bottom, to->size);
    swapcontext(&from->context, &to->context);
    __sanitizer_finish_switch_fiber(from->fake_stack, &left->bottom, &left->size);
}
#else
static void change(struct stack *from, struct stack *to) {
    from->begun = true;
    if (_setjmp(from->place) != 0) return;
    if (to->begun) _longjmp(to->place, 1);
    setcontext(&to->context);
}
#endif

static struct fiber *next(void) {
    SIM_UNSEEN;
    if (sim_on_step) sim_on_step();
    if (++steps > STEPS_MAX) sim_fail("the run does not come to an end");
    return choose();
}

static void run_another(void) {
    struct fiber *from = running, *to = next();
    if (to == from) return;
    running = to;
    left = &stacks[from - fibers];
    if (!left->thread) left->thread = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(stacks[to - fibers].thread, __tsan_switch_to_fiber_no_sync);
    change(left, &stacks[to - fibers]);
}

static void go_on(void) {
    SIM_UNSEEN;
    run_another();
}

void sim_pause(void) {
    if (!sim_chance(SWITCH_PER_MILLE)) return;
    if (!by_hand) now_us += (int64_t)(sim_random() % 8);
    go_on();
}

void sim_yield(void) {
    go_on();
}

static bool wait_on(const void *on, uint32_t bits, int64_t until_us, bool by_timer) {
    running->by_timer = by_timer;
    running->state = WAITING;
    running->on = on;
    running->bits = bits;
    running->until_us = until_us;
    if (by_hand) __tsan_release(&by_hand);
    go_on();
    return running->woken;
}

bool sim_wait(const void *on, uint32_t bits, int64_t until_us) {
    return wait_on(on, bits, until_us, false);
}

bool sim_wait_for_timer(const void *on, uint32_t bits, int64_t until_us) {
    return wait_on(on, bits, until_us, true);
}

unsigned sim_wake(const void *on, uint32_t bits, unsigned most) {
    struct fiber *found[FIBERS];
    size_t n = 0;
    unsigned woken = 0;
    for (size_t i = 0; i < live_n; i++)
        if (live[i]->state == WAITING && live[i]->on == on && live[i]->bits & bits && !live[i]->host->dead)
            found[n++] = live[i];
    for (; n > 0 && woken < most; woken++) {
        size_t at = n == 1 ? 0 : sim_random() % n;
        wake(found[at], true);
        found[at] = found[--n];
    }
    return woken;
}

void sim_sleep_us(int64_t us) {
    sim_wait(NULL, 0, us >= SIM_NEVER - now_us ? SIM_NEVER : now_us + us);
}

static void end(void) {
    SIM_UNSEEN;
    __tsan_release(running);
    if (by_hand) __tsan_release(&by_hand);
    running->state = ENDED;
    size_t at = 0;
    while (live[at] != running) at++;
    memmove(&live[at], &live[at + 1], (--live_n - at) * sizeof *live);
    sim_wake(running, UINT32_MAX, FIBERS);
}

static void begin(void) {
    __sanitizer_finish_switch_fiber(NULL, &left->bottom, &left->size);
    const struct stack *self = &stacks[running - fibers];
    self->run(self->arg);
    end();
    run_another(); /* not unseen: the thread sanitizer reports a thread that ends so */
}

/* A separate function, since the compiler treats getcontext as a function that returns twice. */
static void prepare(struct stack *stack) {
    getcontext(&stack->context);
    stack->context.uc_stack.ss_sp = stack->memory;
    stack->context.uc_stack.ss_size = STACK;
    makecontext(&stack->context, begin, 0);
}

static void begin_stack(struct stack *stack) {
    void *memory = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) sim_fail("no memory for a stack");
    *stack = (struct stack){.memory = memory, .registered = VALGRIND_STACK_REGISTER(memory, (char *)memory + STACK)};
    stack->thread = __tsan_create_fiber(0);
}

static void end_stack(struct stack *stack) {
    __tsan_destroy_fiber(stack->thread);
    VALGRIND_STACK_DEREGISTER(stack->registered);
    __asan_unpoison_memory_region(stack->memory, STACK); /* whoever is given it next knows nothing of our calls */
    munmap(stack->memory, STACK);
}

unsigned sim_start(struct sim_host *host, void *(*run)(void *), void *arg) {
    if (fibers_end == FIBERS) return 0;
    size_t at = fibers_end++;
    struct stack *stack = &stacks[at];
    begin_stack(stack);
    stack->run = run;
    stack->arg = arg;
    stack->bottom = stack->memory;
    stack->size = STACK;
    prepare(stack);
    fibers[at] = (struct fiber){.state = READY, .host = host};
    live[live_n++] = &fibers[at];
    return (unsigned)at;
}

bool sim_ended(unsigned thread) {
    return fibers[thread].state == ENDED || fibers[thread].host->dead;
}

bool sim_join(unsigned thread, int64_t until_us) {
    while (!sim_ended(thread) && now_us < until_us) sim_wait(&fibers[thread], 1, until_us);
    if (sim_ended(thread)) __tsan_acquire(&fibers[thread]);
    return sim_ended(thread);
}

/* ---- time that is moved by hand ---- */

void sim_settle(void) {
    if (running != &fibers[0]) sim_fail("only main moves the time");
    by_hand = true;
    running->state = SETTLING;
    running->until_us = SIM_NEVER;
    go_on();
    running->state = READY;
    __tsan_acquire(&by_hand);
}

void sim_move_us(int64_t us) {
    by_hand = true;
    now_us += us;
}

int64_t sim_next_us(void) {
    struct fiber *ready[FIBERS];
    int64_t next_us;
    find_ready(ready, false, &next_us);
    return next_us;
}

void sim_begin_anew(uint64_t seed) {
    if (live_n > 1) sim_fail("%zu threads of a former run are there", live_n - 1);
    while (fibers_end > 1) end_stack(&stacks[--fibers_end]);
    steps = 0;
    now_us = SIM_BEGIN_US;
    by_hand = true;
    sim_seed(seed);
}

void sim_forked(void) {
    for (size_t i = 0; i < live_n; i++)
        if (live[i] != running) live[i]->state = ENDED;
    live[0] = running;
    live_n = 1;
}

void sim_place(unsigned thread, struct sim_host *host) {
    fibers[thread].host = host;
}

/* ---- hosts ---- */

void sim_stop(struct sim_host *host, bool suspend) {
    if (host->stopped_us || host->dead) return;
    host->stopped_us = now_us;
    host->stops++;
    host->suspended = suspend;
}

void sim_continue(struct sim_host *host) {
    int64_t slept = now_us - host->stopped_us;
    if (!host->stopped_us) return;
    host->stopped_us = 0;
    for (size_t i = 0; i < fibers_end && host->suspended; i++) {
        struct fiber *fiber = &fibers[i];
        if (fiber->host != host || fiber->state != WAITING || fiber->by_timer) continue;
        if (fiber->until_us < SIM_NEVER - slept) fiber->until_us += slept;
    }
}

bool sim_holds_shared(unsigned thread);

bool sim_kill(struct sim_host *host) {
    for (size_t i = 0; i < fibers_end; i++)
        if (fibers[i].state != ENDED && fibers[i].host == host && sim_holds_shared((unsigned)i)) return false;
    host->dead = true;
    return true;
}

/* ---- the story ---- */

void sim_say(const char *format, ...) {
    if (!sim_verbose) return;
    va_list args;
    printf("%12.6f %-8s %2u  ", (double)(now_us - SIM_BEGIN_US) / 1e6, running->host->name, sim_self());
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

void sim_print_threads(void) {
    for (size_t i = 0; i < live_n; i++) {
        const struct fiber *fiber = live[i];
        if (fiber->host->dead) continue;
        printf("  thread %zu of %s %s", (size_t)(fiber - fibers), fiber->host->name,
               fiber->state == READY ? "ready" : "waits");
        if (fiber->state == WAITING && fiber->until_us == SIM_NEVER) printf(" for ever");
        if (fiber->state == WAITING && fiber->until_us != SIM_NEVER)
            printf(" for another %.3f s", (double)(fiber->until_us - now_us) / 1e6);
        printf(" (on %p)%s\n", fiber->on, fiber->host->stopped_us ? ", stopped" : "");
    }
}

#ifdef DLOCK_TEST_TSAN
void __tsan_on_report(void *report);
__attribute__((visibility("default"))) void __tsan_on_report(void *report) {
    (void)report;
    sim_fail("a race, described above");
}
#endif

void sim_fail(const char *format, ...) {
    va_list args;
    printf("seed %llu, %.6f s: ", (unsigned long long)sim_seed_now, (double)(now_us - SIM_BEGIN_US) / 1e6);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    if (sim_verbose) sim_print_threads();
    fflush(stdout);
    _exit(1);
}
