/* The server's clock, and what follows from it: at which time on it a lease ends.
 *
 * memcached's clock is a variable that its main thread sets once a second, to whole seconds; an item is gone once that
 * variable has reached the item's expiry. So the variable is behind the real time, by up to a second for the fraction
 * that it lacks, and by up to another one for the time since it was set; by any time after the server was stopped
 * (SIGSTOP, a machine that was suspended), until its timer runs. A request that was waiting then is often served before
 * the timer is, however short its own round trip was. The expiry "in N seconds" counts from that variable: measured
 * here, 36 of 40 items that were stored for 3 s just after a stop of 6 s were gone at once. And as the timer drifts,
 * once in some thousand seconds the variable goes on by 2, which takes a second from what was stored just before.
 *
 * Therefore leases end at an absolute time, E, which is compared with the variable, whatever it was when the item was
 * stored. The variable never runs ahead of the real time T (T goes on steadily from the server's start, in the server's
 * own measure; `time` in `stats` is the variable). So a grant that was asked for at local time t lasts until
 * t + lease if E >= T(t) + lease; all that is needed is something that T(t) is certainly below:
 *
 *   - A reading that was sent at `a` and said S: T(a) < S + 1 + L, where L is the age of the variable. L is taken to be
 *     at most LATE_US. This is the one assumption, and it is wrong only until the timer of a server that was stopped
 *     has run.
 *   - Two readings that differ, sent at a < b, the second said S: the timer has run after `a` and saw a time below
 *     S + 1. So T(a) < S + 1, which assumes nothing.
 *   - What was true of T at `a` is true later, plus the time passed and what clocks may differ by (1 %).
 *
 * An earlier reading is therefore never given up for a later one that would allow an earlier end, as that one
 * may have been made just after a stop, but for the 1 % that clocks may differ by. And the first reading of a
 * connection is not trusted alone: until two have differed every flight ends with one more, and if that shows that T is
 * further on than was thought, the flight's leases are set anew (claims.c). So a lease may end early only if all
 * readings since the connection was made were served between the server's going on and its timer's first run. The
 * thread that runs the timer also accepts connections, and turns to the timer next.
 *
 * `stats` cost more than all the rest of a flight. Where the server knows how long an item has to live (`mg`), its end
 * less that is the variable as well. A connection's first flight has `stats` all the same: they take their time, in
 * which the timer may run. */
#include "memcached.h"

#define SECOND_US INT64_C(1000000)

/* The clock is set every second; a busy server is late. */
#define LATE_US (SECOND_US + SECOND_US / 4)

/* A reading that is older is to be renewed on the way … */
#define RENEW_US (10 * SECOND_US)
/* … and such a one before it is used, as 1 % of its age is added to every lease. */
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
