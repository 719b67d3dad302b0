/* Queue and hand-over at a server with wake-ups: acquire.lua and release.lua of Redis, acquire.sql and release.sql of
 * PostgreSQL, and their handling in the core (core/io/wake.c, core/wait/waiter.c, and in core/state/grant.c the states
 * ASKING, WAITING and HELD).
 *
 * Three clients want the lock once each. A release hands it to the first waiter in the queue, for the time of a
 * hand-over, and sends that waiter a wake-up, which may be lost. The last client may die at any time, as holder or as
 * waiter. A hand-over that is not confirmed lapses: the server notices that at the next acquire of another client, and
 * hands the lock to the next waiter. A wake-up in this model has no age, so a client asks once more, and believes the
 * answer: the grant of the wake-up may be over, and another one may have followed. Every waiter in the queue asks again
 * after a long time; in this model, when nothing else can happen, and a few times before that.
 *
 * Left out: leases of living holders (lease.pml: they are renewed), modes, several names, lost requests (which are
 * repeated in the same way).
 *
 * Must hold: a client that believes that it holds the lock is the holder at the server, with the fence of this grant.
 * Every living client gets the lock and releases it: the model has no other end state.
 *
 * MUTATION 1: waiters do not ask again. 2: a wake-up counts without asking. 3: a hand-over never lapses. 4: the holder
 * takes the fence of the wake-up, whatever the answer says, as if a renewal had confirmed it. */
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
byte fence;             /* of the present grant: one more than that of the one before */
bool confirmed;         /* the holder has sent a request since it was given the lock */
bool lapsed;            /* the hand-over or the lease of the holder is over */
bool held[CLIENTS];     /* the clients' beliefs to hold the lock */
byte believed[CLIENTS]; /* the fences that they believe to have */
bool dead[CLIENTS];
byte losses = 2;        /* number of wake-ups that may still be lost */
byte lapses = 2;        /* number of hand-overs to living clients that may still lapse */
byte early = 2;         /* number of times that a waiter may still ask again early */

#define truthful(i) (!held[i] || (holder == i && believed[i] == fence))

/* Gives the lock to the first waiter in the queue, if there is one. */
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
            :: holder == i || holder == NOBODY -> /* a lock without a holder has no waiters, either */
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
    /* Time passes for a hand-over that was not confirmed, and for the grant of a dead client. */
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

/* Sends an acquire and reads the answer. */
inline ask() {
    requests ! ACQUIRE, me;
    answers[me] ? answer, told
}

proctype client(byte me) {
    mtype answer;
    byte told, woken = 0; /* the fences of the answer and of the wake-up before it */
    byte patience = 5; /* number of late questions; by each one all that can lapse has lapsed, so more would not help */
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
    held[me] = false; /* before the release is sent: from here on the lock is not used */
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
