/* Probes for tracers: user-space statically defined tracing (USDT) as SystemTap introduced it; bpftrace, perf and gdb
 * also understand it. In the library each probe is one nop instruction, and an ELF note with its place and where its
 * arguments are. docs/internals.md lists the probes. Pass only values that are at hand as arguments: they are evaluated
 * whether or not a tracer is attached.
 *
 * This prints how long all programs on this host waited for each name, as a histogram in microseconds:
 *
 *     bpftrace -e 'usdt:/usr/local/lib/libdlock.so.0.1:dlock:acquire_begin { @from[tid] = nsecs; }
 *         usdt:/usr/local/lib/libdlock.so.0.1:dlock:granted /@from[tid]/ {
 *             @us[str(arg0)] = hist((nsecs - @from[tid]) / 1000); delete(@from[tid]); }'
 *
 * In a container, mount -t tracefs tracefs /sys/kernel/tracing may have to come first. */
#ifndef DLOCK__PROBE_H
#define DLOCK__PROBE_H

#ifdef DLOCK__SDT /* sys/sdt.h is there */
#include <sys/sdt.h>
#ifdef __clang__ /* the header's macros are expanded here, where its exemption as a system header does not hold */
#pragma clang diagnostic ignored "-Wgnu-zero-variadic-macro-arguments"
#if __has_warning("-Wc23-extensions") /* its name from clang 19 on */
#pragma clang diagnostic ignored "-Wc23-extensions"
#endif
#endif
#define DLOCK__PROBE3(event, ...) STAP_PROBE3(dlock, event, __VA_ARGS__)
#define DLOCK__PROBE5(event, ...) STAP_PROBE5(dlock, event, __VA_ARGS__)
#else
#define DLOCK__PROBE3(event, ...) ((void)0)
#define DLOCK__PROBE5(event, ...) ((void)0)
#endif

/* A probe about a grant: the event's name, and the struct dlock__acquisition. */
#define DLOCK__PROBE_GRANT(event, acq)                                                                       \
    DLOCK__PROBE5(event, (const char *)(acq)->name->text, (const char *)(acq)->token, dlock__acq_fence(acq), \
                  (acq)->granted_us, (acq)->valid_until_us)

#endif
