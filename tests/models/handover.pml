/* Hand-over inside a process: core/wait/blocking.c (dlock__latch_sleep, dlock__waiters_drive), core/wait/waiter.c (turns
 * of a waiter, dlock__waiter_cancel), core/state/notify.c (latch_wake, dlock__parts_cancel) and the hand-over to the
 * head of the line in core/state.
 *
 * One thread has the lock; two more wait in line, each for its own latch: a word whose lowest bit says that its thread
 * sleeps, or is about to. All of that is done with the client's mutex, but for the sleep itself and for the wake-up,
 * which comes after the mutex was left. One thread more cancels the first waiter, under the mutex (dlock_cancel,
 * dlock_free, dlock_close); and another one does so without it, as is done to a dlock_acquire_all which waits in
 * another client. A waiter's latch is on its stack: nobody may touch it once its call has returned, but a futex may be
 * woken that has gone.
 *
 * Left out: the server (queue.pml), deadlines, spinning before the sleep, waiters without a thread.
 *
 * Must hold: never two owners; no latch is touched that has gone; everybody's call returns, and the lock is free in the
 * end: the model ends nowhere else.
 *
 * MUTATION 1: the futex sleeps whatever the word is. 2: a cancel does not look whether the lock was given meanwhile.
 * 3: a cancel without the mutex changes the word before it says why. */
#ifndef MUTATION
#define MUTATION 0
#endif

#define WAITERS 2
#define NOBODY WAITERS
#define FIRST_OWNER (WAITERS + 1)

#define ASLEEP 1

bool mutex;
byte owner = FIRST_OWNER;
byte word[WAITERS];
bool blocked[WAITERS];       /* in the kernel */
bool cancelled[WAITERS];     /* latch->cancelled */
bool done[WAITERS], given[WAITERS], there[WAITERS];
chan line = [WAITERS] of { byte };

#define enter() atomic { !mutex -> mutex = true }
#define leave() mutex = false

/* What a thread does after it has left the mutex. The word is not looked at. */
inline futex_wake(i) {
    blocked[i] = false
}

/* With the mutex. The bit may be looked at before the word is changed: only with the mutex it changes. */
inline latch_wake(i, to_wake) {
    assert(there[i]);
    asleep = word[i] & ASLEEP;
    assert(there[i]);
    word[i] = (word[i] + 2 - asleep) % 8;
    if
    :: asleep -> to_wake = i
    :: else
    fi
}

/* With the mutex: the owner is done with the lock. */
inline hand_over(to_wake) {
    if
    :: empty(line) -> owner = NOBODY
    :: nempty(line) ->
        line ? head;
        owner = head;
        given[head] = true;
        done[head] = true;
        latch_wake(head, to_wake)
    fi
}

proctype first_owner() {
    byte head, asleep, to_wake = NOBODY;
    if
    :: cancelled[1] -> !there[1] /* it may go on for longer than a waiter that was cancelled */
    :: true
    fi;
    enter();
    hand_over(to_wake);
    leave();
    if
    :: to_wake != NOBODY -> futex_wake(to_wake)
    :: else
    fi
}

/* A word that wraps at 8 differs from what it was as often as it has to here. */
inline latch_sleep() {
    atomic { word[me] = word[me] | ASLEEP; seen = word[me] }
    if
    :: cancelled[me]
    :: else ->
        leave();
#if MUTATION == 1
        blocked[me] = true;
#else
        atomic {
            if
            :: word[me] == seen -> blocked[me] = true
            :: else
            fi
        };
#endif
        !blocked[me];
        enter()
    fi;
    atomic {
        if
        :: word[me] & ASLEEP -> word[me] = word[me] - ASLEEP
        :: else
        fi
    }
}

proctype waiter(byte me) {
    byte head, asleep, seen, to_wake = NOBODY;
    enter();
    there[me] = true;
    line ! me;
    do
    :: true ->
        if
        :: cancelled[me] && !done[me] -> done[me] = true
        :: else
        fi;
        if
        :: done[me] && given[me] -> break
        :: done[me] && !given[me] -> /* out of the line, wherever it stands there */
            if
            :: line ?? [eval(me)] -> line ?? eval(me)
            :: else
            fi;
            break
        :: !done[me] && owner == NOBODY && line ? [eval(me)] -> /* the head asks, and is granted */
            line ? eval(me);
            owner = me;
            given[me] = true;
            break
        :: else -> latch_sleep()
        fi
    od;
    there[me] = false; /* from here on only the handle knows */
    if
    :: given[me] && owner == me ->
        leave();
        enter();
        assert(owner == me);
        hand_over(to_wake)
    :: else -> assert(!given[me])
    fi;
    leave();
    if
    :: to_wake != NOBODY -> futex_wake(to_wake)
    :: else
    fi
}

/* dlock__waiter_cancel: with the mutex; the waiter gives up at its next turn. */
proctype cancels() {
    byte asleep, to_wake = NOBODY;
    enter();
#if MUTATION == 2
    if
    :: there[0] -> done[0] = true; given[0] = false; latch_wake(0, to_wake)
#else
    if
    :: there[0] && !done[0] -> done[0] = true; latch_wake(0, to_wake)
#endif
    :: else
    fi;
    leave();
    if
    :: to_wake != NOBODY -> futex_wake(to_wake)
    :: else
    fi
}

/* dlock__parts_cancel: with another client's mutex, so that the latch is there as long as this takes. */
bool parts = true;
proctype cancels_from_elsewhere() {
    if
    :: there[1] -> /* its part is known, and stays so */
#if MUTATION == 3
        atomic { word[1] = (word[1] + 2) % 8 };
        futex_wake(1);
        cancelled[1] = true
#else
        cancelled[1] = true;
        atomic { word[1] = (word[1] + 2) % 8 };
        futex_wake(1)
#endif
    :: true
    fi
}

/* The lock is free in the end. */
proctype watches() {
    timeout -> assert(owner == NOBODY && empty(line))
}

init {
    atomic {
        run first_owner();
        run waiter(0);
        run waiter(1);
        run cancels();
        run cancels_from_elsewhere();
        run watches()
    }
}
