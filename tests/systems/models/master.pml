/* Why a grant of a master that Sentinels name is valid: backends/redis/master.c, with incarnation.lua and library.lua.
 *
 * A master (OLD) is replaced by another one (NEW), which may have its last grant or not. OLD lives on, and goes on granting
 * the lock to the clients that are connected to it. Three Sentinels learn of the new master one after the other, at any
 * time. Two clients connect to the master that a majority names, and ask it for the lock or renew their grant, two or three
 * times; a connection may end at any time, and with it a request. While a request is under way a client may ask the
 * Sentinels for the master. A grant counts if a majority has named this master in answer to a question that was sent no
 * earlier than SURE before the master's answer arrived. It is valid for SURE less than the master keeps it, counted from
 * before the request was sent. The first request at NEW begins its quarantine, in which NEW grants nothing; it renews a
 * grant that it has, unless that is about to end.
 *
 * Time is in ticks; several events may happen at the same time. Left out: drift (lease.pml has it), releases, a second
 * failover.
 *
 * Must hold: two clients never believe at the same time that they hold the lock.
 *
 * MUTATION 1: the question may be older. 2: one Sentinel is enough. 3: a Sentinel may go back to the former master.
 * 4: the grant is valid for as long as the master keeps it. 5: NEW has no quarantine. 6: in its quarantine NEW also
 * renews a grant that is about to end. */
#ifndef MUTATION
#define MUTATION 0
#endif

#define LEASE 3
#define SURE 1
#define LATE 1

#if MUTATION == 2
#define MAJORITY 1
#else
#define MAJORITY 2
#endif
#if MUTATION == 4
#define KEPT LEASE
#else
#define KEPT (LEASE - SURE)
#endif

#define OLD 0
#define NEW 1
#define NONE 2
#define NOBODY 2

bool promoted;
byte named;                       /* how many of the three Sentinels name NEW */
byte holder[2] = NOBODY, left[2]; /* the holder at each master, and the ticks left of its lease */
bool begun;                       /* NEW has had a request */
byte quarantine;                  /* ticks left of NEW's quarantine */

/* Of each client. */
bool valid[2];      /* it believes that it holds the lock */
byte age[2];        /* then: ticks since it sent the request that granted or renewed it */
bool asks[2];       /* a request is under way, or its answer waits to be confirmed */
byte sent[2];       /* then: ticks since the request was sent */
byte questioned[2]; /* ticks since the last question to the Sentinels was sent */

#define less(t) t = (t > 0 -> t - 1 : t)

/* A tick for a client. What is not in use has one value. */
inline pass(i) {
    age[i] = (valid[i] -> age[i] + 1 : 0);
    valid[i] = valid[i] && age[i] < KEPT;
    age[i] = (valid[i] -> age[i] : 0);
    sent[i] = (asks[i] && sent[i] < KEPT -> sent[i] + 1 : sent[i]);
    questioned[i] = (questioned[i] <= SURE -> questioned[i] + 1 : questioned[i])
}

proctype clock() {
    do
    :: atomic {
        pass(0);
        pass(1);
        less(left[OLD]);
        less(left[NEW]);
        less(quarantine);
        holder[OLD] = (left[OLD] == 0 -> NOBODY : holder[OLD]);
        holder[NEW] = (left[NEW] == 0 -> NOBODY : holder[NEW])
    }
    od
}

proctype sentinels() {
    do
    :: atomic {
        !promoted -> promoted = true;
        if /* the replica has heard of the last grant, or not */
        :: holder[NEW] = holder[OLD]; left[NEW] = left[OLD]
        :: true
        fi
    }
    :: promoted && named < 3 -> named++
#if MUTATION == 3
    :: named > 0 -> named--
#endif
    od
}

/* The master executes the request. A refusal ends the request. */
inline work() {
    if
    :: master == NEW && !begun ->
        begun = true;
#if MUTATION != 5
        quarantine = LEASE
#endif
    :: else
    fi;
    if
    :: holder[master] == me && (master == OLD || quarantine == 0 || left[master] > LATE || MUTATION == 6) ->
        left[master] = LEASE;
        worked = true
    :: holder[master] == NOBODY && (master == OLD || quarantine == 0) ->
        holder[master] = me;
        left[master] = LEASE;
        worked = true
    :: else -> asks[me] = false
    fi
}

/* Each Sentinel answers at any time after the question. None goes back, so those that answer OLD said so when the question
 * was sent, and those that answer NEW still do when the answers are counted. */
#define elected (master == NEW -> named >= MAJORITY : olds)

proctype client(byte me) {
    byte master = OLD, tries = 3 - me;
    bool connected, worked, answered, sure;
    bool olds = true; /* a majority named OLD when the last question was sent */
    do
    :: atomic { /* a question */
        asks[me] && !(answered && sure) ->
        olds = 3 - named >= MAJORITY;
        questioned[me] = 0;
        sure = answered
    }
    :: atomic { !connected && tries > 0 && (elected) -> connected = true }
    :: atomic { connected && !asks[me] && tries > 0 -> asks[me] = true; sent[me] = 0 }
    :: atomic { asks[me] && !worked -> work() }
    :: atomic { /* the answer arrives */
        worked && !answered ->
        answered = true;
#if MUTATION == 1
        sure = true
#else
        sure = questioned[me] <= SURE
#endif
    }
    :: atomic { /* it counts, or is of no use; or the connection ends, and with it the request */
        asks[me] || (connected && tries > 0 && promoted && master == OLD) ->
        if
        :: answered && sure && (elected) && sent[me] < KEPT ->
            valid[me] = true;
            age[me] = sent[me];
            assert(!valid[1 - me])
        :: true
        fi;
        tries--;
        asks[me] = false;
        sent[me] = 0;
        worked = false;
        answered = false;
        sure = false;
        if
        :: true
        :: connected = false; questioned[me] = 0; master = NEW; olds = false
        fi
    }
    :: tries == 0 -> break
    od
}

init {
    atomic {
        run client(0);
        run client(1);
        run sentinels();
        run clock()
    }
}
