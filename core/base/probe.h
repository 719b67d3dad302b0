/* Probes for tracers: user-space static ones (USDT), as SystemTap has defined them, and bpftrace, perf and gdb know them. In
 * the library each is one instruction that does nothing, and a note that says where it is, and where its arguments are.
 * docs/internals.md lists them. Give as arguments what is at hand: they are worked out whether somebody traces or not. */
#ifndef DLOCK__PROBE_H
#define DLOCK__PROBE_H

#ifdef DLOCK__SDT /* there is the header */
#include <sys/sdt.h>
#ifdef __clang__ /* its macros are used here, and so are no system header's any more */
#pragma clang diagnostic ignored "-Wgnu-zero-variadic-macro-arguments"
#endif
#define DLOCK__PROBE3(event, ...) STAP_PROBE3(dlock, event, __VA_ARGS__)
#define DLOCK__PROBE5(event, ...) STAP_PROBE5(dlock, event, __VA_ARGS__)
#else
#define DLOCK__PROBE3(event, ...) ((void)0)
#define DLOCK__PROBE5(event, ...) ((void)0)
#endif

/* What happens to a grant: an event, and a struct dlock__acquisition. */
#define DLOCK__PROBE_GRANT(event, acq)                                                                       \
    DLOCK__PROBE5(event, (const char *)(acq)->name->text, (const char *)(acq)->token, dlock__acq_fence(acq), \
                  (acq)->granted_us, (acq)->valid_until_us)

#endif
