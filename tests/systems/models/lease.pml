/* Why a grant is valid (docs/internals.md): core/state/grant.c, valid-until of an acquisition that was granted or
 * renewed by an answer.
 *
 * A client asks a server. Every request and every answer may take any time, or be lost. A client that gave a request up
 * sends the next one on a new connection, and the old one may still be executed. The server counts a lease from when it
 * handles the request. The client counts it from before it sent the request, by a clock that may be slow by one tick in
 * a lease. There is another client, which gets the lock as soon as the server can grant it.
 *
 * Left out: the belief of the other client (it is a client like this one); fences, queues (queue.pml), batches of
 * requests; clocks that are fast (grants then just end early); the 2 ms for everything else.
 *
 * Must hold: when the client believes that it holds the lock, it is the holder at the server, and the other one is not.
 *
 * MUTATION 1: no margin for the drift. 2: the lease is counted from the answer. */
#ifndef MUTATION
#define MUTATION 0
#endif

#define LEASE 5
#if MUTATION == 1
#define MARGIN 0
#else
#define MARGIN 1
#endif

mtype = { ACQUIRE, RENEW, RELEASE, NOBODY, US, OTHERS };

chan requests = [2] of { mtype, byte }; /* the kind, and the number of the connection */
chan answers = [1] of { byte, bool };

mtype holder = NOBODY;
byte left;           /* ticks that are left of the lease, by the server's clock */
byte valid;          /* ticks left of the grant, by the client's clock; 0: it does not believe to hold the lock */
bool asks;           /* the client waits for an answer */
byte age;            /* ticks since it sent the request, by the client's clock */
byte steady = LEASE; /* ticks since the client's clock lost one, at most LEASE */

#define truthful (valid == 0 || holder == US)

proctype clocks() {
    do
    :: atomic {
        left = (left > 0 -> left - 1 : 0);
        holder = (left == 0 && holder == US -> NOBODY : holder);
        if
        :: !asks && valid == 0 -> steady = LEASE /* any value would do: the clock is not in use */
        :: (asks || valid > 0) && steady == LEASE -> steady = 0 /* a tick that the clock does not notice */
        :: asks || valid > 0 ->
            age = (asks && age < LEASE -> age + 1 : age);
            valid = (valid > 0 -> valid - 1 : 0);
            steady = (steady < LEASE -> steady + 1 : LEASE)
        fi;
        assert(truthful)
    }
    od
}

proctype others() {
    do
    :: atomic { holder == NOBODY -> holder = OTHERS }
    :: atomic { holder == OTHERS -> holder = NOBODY }
    od
}

proctype server() {
    mtype what;
    byte connection;
    bool yes;
    do
    :: atomic {
        requests ? what, connection ->
        yes = what != RELEASE && (holder == US || (what == ACQUIRE && holder == NOBODY));
        if
        :: yes -> holder = US; left = LEASE
        :: what == RELEASE && holder == US -> holder = NOBODY; left = 0
        :: else
        fi;
        if
        :: what != RELEASE && nfull(answers) -> answers ! connection, yes
        :: true /* the answer is lost */
        fi;
        assert(truthful);
        what = ACQUIRE;
        connection = 0;
        yes = false
    }
    :: atomic { requests ? _, _ } /* the request is lost */
    od
}

/* Sends a request and waits for its answer. Drops the answer to an older request, whose connection is closed. */
inline ask(what) {
    atomic {
        nfull(requests);
        connection = (connection + 1) % 4;
        age = 0;
        asks = true;
        if
        :: nempty(answers) -> answers ? _, _
        :: empty(answers)
        fi;
        requests ! what, connection
    };
    do
    :: atomic {
        answers ? heard, yes ->
        if
        :: heard == connection && yes ->
#if MUTATION == 2
            valid = LEASE - MARGIN;
#else
            if
            :: age + MARGIN + valid < LEASE -> valid = LEASE - MARGIN - age
            :: else
            fi;
#endif
            break
        :: heard == connection && !yes -> valid = 0; break
        :: else
        fi
    }
    :: true -> break /* no answer in time */
    od;
    atomic {
        heard = 0;
        yes = false;
        age = 0;
        asks = false
    }
}

proctype client() {
    byte connection, heard;
    bool yes;
    do
    :: valid == 0 -> ask(ACQUIRE)
    :: valid > 0 -> ask(RENEW)
    :: valid > 0 ->
        valid = 0; /* before the release is sent: from here on the lock is not used */
        requests ! RELEASE, 0
    od
}

init {
    atomic {
        run clocks();
        run others();
        run server();
        run client()
    }
}
