/* The server's clock, and at which time on it a lease ends.
 *
 * memcached's clock is a variable that its main thread sets once a second, to whole seconds; an item is gone once that
 * variable has reached the item's expiry. So the variable is behind the real time: by up to a second for the fraction
 * that it lacks; by up to another one for the time since it was set; and by any amount after the server was stopped
 * (SIGSTOP, a suspended machine), until its timer runs. A request that waited during the stop is often served before
 * the timer runs, however short its own round trip was. The expiry "in N seconds" counts from that variable: measured
 * here, 36 of 40 items that were stored for 3 s just after a stop of 6 s were gone at once. And since the timer drifts,
 * once in some thousand seconds the variable advances by 2, which takes a second from items that were stored just
 * before.
 *
 * Therefore leases end at an absolute time E, which is compared with the variable, independent of its value when the
 * item was stored. The variable never runs ahead of the real time T (T advances steadily from the server's start, as
 * the server measures time; `time` in `stats` is the variable). So a grant that was asked for at local time t lasts
 * until t + lease if E >= T(t) + lease. For that an upper bound of T(t) is needed:
 *
 *   - A reading that was sent at `a` and returned S proves T(a) < S + 1 + L, where L is the age of the variable. L is
 *     taken to be at most LATE_US. This is the only assumption; it is wrong only until the timer of a server that was
 *     stopped has run.
 *   - Two different readings, sent at a < b, of which the second returned S: the timer has run after `a` and saw a time
 *     below S + 1. So T(a) < S + 1, without an assumption.
 *   - A bound of T at `a` gives a bound at later times: add the time passed and 1 %, by which clocks may differ.
 *
 * Therefore a later reading never replaces an earlier one if that would lower the bound (except by the 1 %), since it
 * may have been made just after a stop. And the first reading of a connection is not trusted alone: until two readings
 * have differed every flight ends with another reading, and if that raises the bound the flight's leases are set again
 * (claims.c). So a lease can end early only if all readings since the connection was made were served between the
 * server's continuation and the first run of its timer. The thread that runs the timer also accepts connections, and
 * runs the timer right after that.
 *
 * `stats` cost more than all the rest of a flight. Where the server tells how long an item has to live (`mg`), the
 * item's expiry less that time is the variable as well. The first flight of a connection still uses `stats`: these take
 * a while, in which the timer may run. */
#include "memcached.h"

#define SECOND_US INT64_C(1000000)

/* Greatest age of the variable: it is set every second, a little later by a busy server. */
#define LATE_US (SECOND_US + SECOND_US / 4)

/* When the last reading is older than this, a flight that sets leases ends with another one. */
#define RENEW_US (10 * SECOND_US)
/* When it is older than this, another one comes before the flight, since 1 % of its age is added to every lease. */
#define STALE_US (60 * SECOND_US)

static int64_t extrapolate(const struct memcached_clock *clock, int64_t at_us, int direction) {
    const int64_t age_us = at_us - clock->at_us;
    return clock->below_us + age_us + direction * (age_us / 100);
}

bool memcached_clock_is_stale(const struct memcached_clock *clock, int64_t now_us) {
    return clock->at_us == 0 || now_us - clock->at_us > STALE_US;
}

bool memcached_clock_is_due(const struct memcached_clock *clock, int64_t now_us) {
    return !clock->ticked || now_us - clock->at_us > RENEW_US;
}

bool memcached_clock_read(struct memcached_clock *clock, int64_t sent_us, uint64_t said_s) {
    const struct memcached_clock last = *clock;
    const int64_t said_us = (int64_t)said_s * SECOND_US;
    *clock = (struct memcached_clock){sent_us, said_us + SECOND_US + LATE_US, said_s, false};
    if (memcached_clock_is_stale(&last, sent_us)) return true;
    const int64_t kept_us = extrapolate(&last, sent_us, -1);
    if (kept_us > clock->below_us) clock->below_us = kept_us;
    clock->ticked = last.ticked;
    if (said_s != last.said_s) {
        const int64_t proven_us = said_us + SECOND_US + (sent_us - last.at_us) + (sent_us - last.at_us) / 100;
        if (proven_us < clock->below_us) clock->below_us = proven_us;
        clock->ticked = true;
    }
    return clock->below_us > extrapolate(&last, sent_us, 1);
}

int64_t memcached_expiry_s(const struct memcached_clock *clock, int64_t sent_us, int64_t lease_ms) {
    return (extrapolate(clock, sent_us, 1) + lease_ms * 1000 + SECOND_US - 1) / SECOND_US;
}
