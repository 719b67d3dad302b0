/* Queue and hand-over at a server with wake-ups: acquire.lua and release.lua of Redis, acquire.sql and release.sql of
 * PostgreSQL, and what the core does about them (core/io/wake.c, core/wait/waiter.c, and in core/state/grant.c what
 * becomes of an acquisition that is ASKING, WAITING, HELD).
 *
 * Three clients want the lock once each. A release hands it to the first waiter in the queue, for the time of a
 * hand-over, and sends that one a wake-up, which may be lost. The last client may die at any time, whatever it has or
 * waits for. A hand-over that nobody confirms lapses: the server finds that out when somebody asks the next time, and
 * hands the lock to the next waiter. A wake-up tells nothing of its age, here, so a client asks once more, and believes
 * the answer: the grant that the wake-up tells of may be over, and another one have followed. Everybody in the queue
 * asks again after a long time, here: when nothing else happens any more, and a few times before that.
 *
 * Left out: leases of holders that live (lease.pml: they are renewed), modes, several names, lost requests (they are
 * asked again just so).
 *
 * Must hold: a client that believes to hold the lock is the holder at the server, under the fence of this grant. Every
 * client that lives gets it, and releases it: the model ends nowhere else.
 *
 * MUTATION 1: waiters do not ask again. 2: a wake-up counts without a question. 3: a hand-over never lapses. 4: the
 * holder has the fence of the wake-up, whatever the answer says, as if a renewal had confirmed it. */
#ifndef MUTATION
#define MUTATION 0
#endif

#define CLIENTS 3
#define MORTAL 2
#define NOBODY CLIENTS

mtype = { ACQUIRE, RELEASE, GRANTED, BUSY };

chan requests = [CLIENTS] of { mtype, byte };
chan answers[CLIENTS] = [1] of { mtype, byte };
chan wakes[CLIENTS] = [2] of { byte };
chan line = [CLIENTS] of { byte }; /* the server's queue */

byte holder = NOBODY;
byte fence;             /* of its grant: one more than that of the one before */
bool confirmed;         /* the holder has said something since it was given the lock */
bool lapsed;            /* it has not in time */
bool held[CLIENTS];     /* clients believe */
byte believed[CLIENTS]; /* and the fence */
bool dead[CLIENTS];
byte losses = 2;        /* wake-ups that may be lost yet */
byte lapses = 2;        /* hand-overs to the living that may lapse yet */
byte early = 2;         /* questions that may be asked yet although nothing is overdue */

#define truthful(i) (!held[i] || (holder == i && believed[i] == fence))

/* To the first in the queue, or nobody. */
inline hand_over() {
    confirmed = false;
    lapsed = false;
    if
    :: empty(line) -> holder = NOBODY
    :: nempty(line) ->
        line ? holder;
        fence++;
        if
        :: wakes[holder] ! fence
        :: losses > 0 -> losses--
        fi
    fi
}

proctype server() {
    mtype what;
    byte i;
end:
    do
    :: atomic {
        requests ? what, i ->
        if
        :: lapsed && holder != i -> hand_over()
        :: else
        fi;
        if
        :: what == ACQUIRE ->
            if
            :: holder == i || holder == NOBODY -> /* nobody waits then, either */
                assert(holder == i || empty(line));
                if
                :: holder == NOBODY -> fence++
                :: else
                fi;
                holder = i;
                confirmed = true;
                lapsed = false;
                answers[i] ! GRANTED, fence
            :: else ->
                if
                :: line ?? [eval(i)]
                :: else -> line ! i
                fi;
                answers[i] ! BUSY, 0
            fi
        :: what == RELEASE ->
            if
            :: holder == i -> hand_over()
            :: else
            fi
        fi;
        what = ACQUIRE; i = 0;
        assert(truthful(0) && truthful(1) && truthful(2))
    }
#if MUTATION != 3
    /* Time passes for a hand-over that was not confirmed, and for whatever a dead client has. */
    :: atomic {
        holder != NOBODY && !lapsed && (dead[holder] || (!confirmed && lapses > 0)) ->
        if
        :: dead[holder]
        :: else -> lapses--
        fi;
        lapsed = true
    }
#endif
    od
}

/* A client's part of the connection outlives it. */
inline ask() {
    requests ! ACQUIRE, me;
    answers[me] ? answer, told
}

proctype client(byte me) {
    mtype answer;
    byte told, woken = 0; /* fences: that of the answer, of the wake-up before it */
    byte patience = 5; /* of which each question finds that all has lapsed that can: who needs more waits for ever */
    ask();
    do
    :: atomic {
        answer == GRANTED ->
        held[me] = true;
#if MUTATION == 4
        believed[me] = (woken -> woken : told)
#else
        believed[me] = told
#endif
    }; break
    :: answer == BUSY ->
        if
        :: nempty(wakes[me]) ->
            wakes[me] ? woken;
#if MUTATION == 2
            told = woken;
            answer = GRANTED
#else
            ask()
#endif
#if MUTATION != 1
        :: atomic { early > 0 -> early--; woken = 0 }; ask()
        :: atomic { patience > 0 && timeout -> patience--; woken = 0 }; ask()
#endif
        :: me == MORTAL -> dead[me] = true; goto gone
        fi
    od;
    assert(truthful(me));
    if
    :: me == MORTAL -> atomic { held[me] = false; dead[me] = true }; goto gone
    :: true
    fi;
    held[me] = false; /* first: then nobody here does anything under it */
    requests ! RELEASE, me;
gone:
    skip
}

init {
    atomic {
        run server();
        run client(0);
        run client(1);
        run client(2)
    }
}
