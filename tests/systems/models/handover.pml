/* Hand-over inside a process: core/wait/blocking.c (dlock__latch_sleep, dlock__waiters_drive), core/wait/waiter.c
 * (turns of a waiter, dlock__waiter_cancel), core/state/notify.c (latch_wake, dlock__parts_cancel) and the hand-over to
 * the head of the line in core/state.
 *
 * One thread has the lock; two others wait in line, each on its own latch: a word whose lowest bit says that its thread
 * sleeps or is about to. All steps are done with the client's mutex, except the sleep itself and the wake-up, which
 * comes after the mutex was unlocked. Another thread cancels the first waiter, with the mutex (dlock_cancel,
 * dlock_free, dlock_close); and another one cancels the second waiter without it, as it is done to a dlock_acquire_all
 * that waits in another client. A waiter's latch is on its stack: it must not be touched after the waiter's call has
 * returned, but a futex that no longer exists may be woken.
 *
 * Left out: the server (queue.pml), deadlines, spinning before the sleep, waiters without a thread, and the reader of
 * wake-ups, which sleeps on descriptors instead.
 *
 * Must hold: there are never two owners; no latch is touched that no longer exists; every call returns, and the lock is
 * free in the end: the model has no other end state.
 *
 * MUTATION 1: the futex sleeps whatever the word is. 2: a cancel does not check whether the lock was given meanwhile.
 * 3: a cancel without the mutex changes the word before it sets the reason. */
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
bool blocked[WAITERS];       /* sleeps in the kernel */
bool cancelled[WAITERS];     /* latch->cancelled */
bool done[WAITERS], given[WAITERS], there[WAITERS];
chan line = [WAITERS] of { byte };

#define enter() atomic { !mutex -> mutex = true }
#define leave() mutex = false

/* Wakes a thread, after the mutex was unlocked. Does not read the word. */
inline futex_wake(i) {
    blocked[i] = false
}

/* With the mutex. The bit may be read before the word is changed, since the bit changes only with the mutex. */
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

/* With the mutex: the owner gives the lock to the head of the line. */
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
    :: cancelled[1] -> !there[1] /* the owner may hold the lock until a cancelled waiter has gone */
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

/* The word wraps at 8, which is enough to differ from its earlier value wherever it has to in this model. */
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
        :: done[me] && !given[me] -> /* leaves the line, at any place in it */
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
    there[me] = false; /* from here on the latch must not be touched */
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

/* dlock__parts_cancel: with another client's mutex, so that the latch exists during the whole call. */
bool parts = true;
proctype cancels_from_elsewhere() {
    if
    :: there[1] -> /* its part is registered, and stays so */
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

/* Checks that the lock is free in the end. */
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
