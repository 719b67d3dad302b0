/* Readers and a writer on three servers, of which two are a majority: backends/quorum (acquire.c, claims.c) and its
 * members, backends/redis. quorum.pml has lost requests, restarts, tries and the gate, for writers.
 *
 * Two readers and a writer ask all members, the first reader in the order of their numbers, to keep the search small. A member grants a reader the lock
 * unless it has a writer, and a writer if it has nobody. A reader's fence at a member is a multiple of STEP, and at least
 * STEP more than the member's last one; a writer's is the next number. Who has the grants of two members takes the
 * greatest of their fences; a reader, of the multiple, the one number of STEP that belongs to the first member that gave
 * it. Then it has the members store that (renew with a floor), and the grant counts when two have. An answer may be lost.
 *
 * The writer may become a reader: it no longer counts on being alone before it tells the first member.
 *
 * Must hold: nobody believes to hold the lock beside the writer; the fence of a grant is greater than those of all grants
 * that counted before it was asked for; no two have the same one.
 *
 * MUTATION 1: readers take the multiple itself. 2: a member leaves no room between readers. 3: the fence is not stored.
 * 4: it is enough if one member has stored it. 5: half of four votes would do: one member's. 6: a writer that becomes a
 * reader counts on being alone until all have heard. */
#ifndef MUTATION
#define MUTATION 0
#endif

#define MEMBERS 3
#if MUTATION == 5
#define MAJORITY 1
#else
#define MAJORITY 2
#endif
#if MUTATION == 4
#define STORED 1
#else
#define STORED MAJORITY
#endif
#define STEP 4
#define WRITER 2
#define CLIENTS 3

byte readers[MEMBERS]; /* bits of clients */
bool writer[MEMBERS];
byte fence[MEMBERS];  /* the member's last fence */
bool held[CLIENTS];   /* it believes to hold the lock */
bool alone;           /* the writer counts on that */
byte last;            /* the greatest fence that has counted */
byte counted[4];      /* the fences that have */
byte n_counted;
byte losses = 1;

#define count(set) ((set & 1) + (set >> 1 & 1) + (set >> 2 & 1))
#define lowest(set) (set & 1 -> 0 : (set & 2 -> 1 : 2))
#define has(m) (me == WRITER && !reads -> writer[m] : (readers[m] >> me) & 1)

#if MUTATION == 2
#define next(m) (me == WRITER -> fence[m] + 1 : fence[m] + 1)
#else
#define next(m) (me == WRITER -> fence[m] + 1 : (fence[m] + 2 * STEP - 1) / STEP * STEP)
#endif

inline ask(m, mark) {
    asked = asked | mark;
    if
    :: !writer[m] && (me != WRITER || readers[m] == 0) ->
        fence[m] = next(m);
        if
        :: me == WRITER -> writer[m] = true
        :: else -> readers[m] = readers[m] | 1 << me
        fi;
        if
        :: granted = granted | mark;
            if
            :: fence[m] > best -> best = fence[m]; have = mark
            :: fence[m] == best -> have = have | mark
            :: else
            fi
        :: losses > 0 -> losses-- /* the answer is lost */
        fi
    :: else
    fi
}

inline store(m, mark) {
    granted = granted & ~mark;
    if
    :: has(m) ->
        fence[m] = (fence[m] < mine -> mine : fence[m]);
        have = have | mark
    :: else
    :: losses > 0 -> losses--
    fi
}

inline leave(m) {
    readers[m] = readers[m] & ~(1 << me);
    writer[m] = (me == WRITER -> false : writer[m])
}

inline downgrade(m) {
    if
    :: writer[m] -> writer[m] = false; readers[m] = readers[m] | 1 << me
    :: else
    fi
}

proctype client(byte me) {
    byte asked, granted, have, best, mine, before, i;
    bool reads;
    before = last;
    do
    :: atomic { !(asked & 1) -> ask(0, 1) }
    :: atomic { !(asked & 2) && (me > 0 || asked == 1) -> ask(1, 2) }
    :: atomic { !(asked & 4) && (me > 0 || asked == 3) -> ask(2, 4) }
    :: count(granted) >= MAJORITY || asked == 7 -> break
    od;
    atomic {
        if
        :: count(granted) >= MAJORITY ->
            mine = best;
#if MUTATION != 1
            mine = (me == WRITER -> best : best - lowest(have));
#endif
            have = (mine == best -> have : 0);
            granted = granted & ~have
        :: else -> granted = 0; have = 0
        fi
    }
#if MUTATION == 3
    have = 7 * (mine > 0);
    granted = 0;
#endif
    do
    :: atomic { granted & 1 -> store(0, 1) }
    :: atomic { granted & 2 -> store(1, 2) }
    :: atomic { granted & 4 -> store(2, 4) }
    :: granted == 0 -> break
    od;
    if
    :: atomic {
        count(have) >= STORED && mine > 0 ->
        assert(!alone);
        assert(me != WRITER || !(held[0] || held[1]));
        assert(mine > before);
        for (i : 0 .. n_counted - 1) { assert(counted[i] != mine) }
        i = 0;
        counted[n_counted] = mine;
        n_counted++;
        last = (mine > last -> mine : last);
        held[me] = true;
        alone = me == WRITER
    }
    if
    :: me == WRITER ->
#if MUTATION != 6
        alone = false;
#endif
        atomic { downgrade(0) };
        atomic { downgrade(1) };
        atomic { downgrade(2) };
        alone = false;
        reads = true
    :: true
    fi;
    :: else
    fi;
    atomic {
        held[me] = false;
        alone = (me == WRITER -> false : alone);
        mine = 0; best = 0; have = 0; asked = 0; granted = 0;
        leave(0)
    }
    atomic { leave(1) };
    atomic { leave(2) }
}

init {
    atomic {
        run client(0);
        run client(1);
        run client(WRITER)
    }
}
