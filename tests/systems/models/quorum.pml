/* A lock on three servers, of which two are a majority: backends/quorum (claims.c, worker.c) and its members,
 * backends/redis.
 *
 * Two clients, of which one tries twice, ask all members in any order, with another token for each try. A free member
 * grants the lock with its next fence. A client with the grants of two members takes the greatest of their fences, and
 * has the members store it (renew with a floor); when two have stored it, the grant counts. A request or an answer may
 * be lost; a lost request may be executed late, when its client no longer waits for it. One member is restarted, and
 * forgets everything.
 *
 * Member 0 is the gate, where waiters queue: a client that does not get the lock may keep its vote there, under the
 * token of the try that got it, and asks the other members with the token of its next try. Wake-ups are left out.
 *
 * The first try asks the members in the order of their numbers, to keep the search small: the gate, then two that are
 * alike.
 *
 * Time is left out (lease.pml has it), except its consequences: a member ends a grant by itself only when its client no
 * longer counts on it, or was renewed without that member; a quarantine ends only when every client that held the lock
 * at the restart, or tried to get it, has noticed or was renewed since; and by then the member's clock, from which its
 * fences are made, is past every fence from before the restart.
 *
 * Must hold: two clients never believe at the same time that they hold the lock, and each grant's fence is greater than
 * all before it.
 *
 * MUTATION 1: the fence is not stored. 2: no quarantine. 3: all tries of a client have the same token. 4: clocks differ
 * by more than the quarantine. 5: it is enough if one member has stored the fence. */
#ifndef MUTATION
#define MUTATION 0
#endif

#define MEMBERS 3
#define MAJORITY 2
#define CLIENTS 2
#define TRIES(me) (2 - me)
#define NOBODY 0
#if MUTATION == 5
#define STORED 1
#else
#define STORED MAJORITY
#endif

byte holder[MEMBERS]; /* the token that has the member's grant */
byte fence[MEMBERS];  /* the member's last fence */
bool ready[MEMBERS] = true;
bool fading[MEMBERS]; /* its holder was renewed on other members, but not on this one */
byte clock;           /* the clock of a restarted member at the end of its quarantine */

byte token[CLIENTS];  /* the token that the client counts on, or is about to; NOBODY: none */
bool held[CLIENTS];
byte kept[CLIENTS];   /* the token of the client's vote at the gate, from an earlier try; NOBODY: none */
bool stale[CLIENTS];  /* its grant or try is from before the restart */
byte last;            /* the fence of the last grant that counted */

byte losses = 1, restarts = 1;
byte late_token = NOBODY, late_member; /* a lost request that is executed late */
bool late_release;

#define first (me == 0 && tries == 1)
#define active(t) (t == token[0] || t == token[1] || t == kept[0] || t == kept[1])

inline grant(m, t) {
    if
    :: ready[m] && holder[m] == NOBODY ->
        holder[m] = t;
        fading[m] = false;
        fence[m]++
    :: else
    fi
}

/* Loses a request, which may be executed later. */
inline lose(m, t, release) {
    losses--;
    if
    :: late_token = t; late_member = m; late_release = release
    :: true
    fi
}

inline ask(m, mark, t) {
    asked = asked | mark;
    if
    :: grant(m, t); /* an earlier request of this try may have got the grant already */
        if
        :: holder[m] == t ->
            yes++;
            granted = granted | mark;
            if
            :: fence[m] > best -> best = fence[m]; stored = mark
            :: fence[m] == best -> stored = stored | mark
            :: else
            fi
        :: else
        fi
    :: losses > 0 -> lose(m, t, false)
    :: losses > 0 -> losses--; grant(m, t) /* the answer is lost */
    fi
}

inline store(m, mark, t) {
    granted = granted & ~mark;
    if
    :: stored & mark
    :: !(stored & mark) && holder[m] == t ->
        fence[m] = (fence[m] < best -> best : fence[m]);
        stored = stored | mark
    :: !(stored & mark) && holder[m] != t
    :: !(stored & mark) && losses > 0 -> losses--
    fi
}

inline give_back(m, mark, t) {
    if
    :: holder[m] = (holder[m] == t -> NOBODY : holder[m])
    :: losses > 0 -> lose(m, t, true)
    fi
}

#define count(set) ((set & 1) + (set >> 1 & 1) + (set >> 2 & 1))

inline renew(m, mark, t) {
    if
    :: holder[m] == t ->
        fence[m] = (fence[m] < best -> best : fence[m]);
        granted = granted | mark
    :: holder[m] != t -> missing = missing | mark
    :: losses > 0 -> losses--
    fi
}

proctype client(byte me) {
    byte t, tries, g /* the token at the gate */, asked, granted, stored, missing, yes, best;
    do
    :: atomic {
        tries < TRIES(me) ->
#if MUTATION == 3
        t = 1 + me;
#else
        t = 1 + me * 2 + tries;
#endif
        tries++;
        token[me] = t;
        g = (kept[me] -> kept[me] : t)
    }
    do
    :: atomic { !(asked & 1) -> ask(0, 1, g) }
    :: atomic { !(asked & 2) && (asked == 1 || !first) -> ask(1, 2, t) }
    :: atomic { !(asked & 4) && (asked == 3 || !first) -> ask(2, 4, t) }
    :: yes >= MAJORITY || asked == 7 -> break
    od;
#if MUTATION != 1
    if
    :: yes >= MAJORITY ->
        do
        :: atomic { granted & 1 -> store(0, 1, g) }
        :: atomic { granted & 2 && !(granted & 1) -> store(1, 2, t) }
        :: atomic { granted & 4 && !(granted & 3) -> store(2, 4, t) }
        :: granted == 0 -> break
        od
    :: else
    fi;
#endif
    atomic {
        granted = 0;
        if
#if MUTATION == 1
        :: yes >= MAJORITY ->
#else
        :: yes >= MAJORITY && count(stored) >= STORED ->
#endif
            assert(!held[1 - me]);
            assert(best > last);
            held[me] = true;
            last = best
        :: else -> token[me] = NOBODY; stale[me] = false
        fi;
        asked = 0;
        stored = 0;
        yes = 0
    };
    if
    :: atomic {
        held[me] -> /* renews it */
        renew(0, 1, g);
        renew(1, 2, t);
        renew(2, 4, t);
        if
        :: count(granted) >= MAJORITY ->
            stale[me] = false;
            fading[0] = fading[0] || (holder[0] == g && !(granted & 1));
            fading[1] = fading[1] || (holder[1] == t && !(granted & 2));
            fading[2] = fading[2] || (holder[2] == t && !(granted & 4))
        :: else
        fi;
        if /* acquires it again on a member that has forgotten it */
        :: count(missing) < MAJORITY && missing & 1 -> grant(0, g)
        :: count(missing) < MAJORITY && missing & 2 -> grant(1, t)
        :: count(missing) < MAJORITY && missing & 4 -> grant(2, t)
        :: true
        fi;
        granted = 0;
        missing = 0
    }
    :: true
    fi;
    atomic {
        token[me] = NOBODY;
        stale[me] = false;
        best = 0;
        if
        :: !held[me] && tries < TRIES(me) && holder[0] == g -> kept[me] = g
        :: give_back(0, 1, g); kept[me] = NOBODY
        fi;
        held[me] = false;
        give_back(1, 2, t);
        give_back(2, 4, t);
        t = NOBODY;
        g = NOBODY
    }
    :: tries == TRIES(me) -> break
    od
}

inline pick() {
    if
    :: m = 0
    :: m = 1
    :: m = 2
    fi
}

/* Leases end, a late request is executed, and one member is restarted. */
proctype world() {
    byte m;
    do
    :: atomic {
        pick();
        if
        :: holder[m] != NOBODY && (!active(holder[m]) || fading[m]) -> holder[m] = NOBODY; fading[m] = false
        :: else
        fi;
        m = 0
    }
    :: atomic {
        late_token != NOBODY ->
        if
        :: late_release && holder[late_member] == late_token -> holder[late_member] = NOBODY
        :: !late_release -> grant(late_member, late_token)
        :: else
        fi;
        late_token = NOBODY
    }
    :: atomic {
        restarts > 0 ->
        restarts--;
        pick();
        clock = fence[0];
        clock = (fence[1] > clock -> fence[1] : clock);
        clock = (fence[2] > clock -> fence[2] : clock);
        stale[0] = token[0] != NOBODY;
        stale[1] = token[1] != NOBODY;
        holder[m] = NOBODY;
        fading[m] = false;
#if MUTATION == 2
        fence[m] = clock;
#else
        fence[m] = 0;
        ready[m] = false;
#endif
        m = 0
    }
    :: atomic {
        !(ready[0] && ready[1] && ready[2]) && !stale[0] && !stale[1] ->
        m = (ready[0] -> (ready[1] -> 2 : 1) : 0);
        ready[m] = true;
#if MUTATION != 4
        fence[m] = clock;
#endif
        m = 0
    }
    od
}

init {
    atomic {
        run client(0);
        run client(1);
        run world()
    }
}
