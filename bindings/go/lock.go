package dlock

// #include "bridge.h"
import "C"

import (
	"context"
	"log"
	"runtime"
	"time"
)

// Lock is a lock that is held, from its acquisition to its Release.
type Lock struct{ state *state }

// Locks are what AcquireAll has acquired, in the order of its names.
type Locks []*Lock

func newLock(s *state) *Lock {
	l := &Lock{s}
	runtime.SetFinalizer(l, func(l *Lock) {
		if l.state.end() {
			log.Printf("dlock: lock %q was dropped without a Release, and is released now", l.state.name)
			l.state.release()
		}
	})
	return l
}

// Name is the lock's name.
func (l *Lock) Name() string { return l.state.name }

// Fence is greater than that of every earlier grant of the name: the resource that the lock protects refuses smaller ones.
func (l *Lock) Fence() uint64 {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	return l.state.fence
}

// Lost is closed when the lock is lost, or its client closed; not by Release.
func (l *Lock) Lost() <-chan struct{} { return l.state.lost }

// Err is nil until Lost is closed, and then says why: an *Error with ErrLost, the fence and the reason, or ErrCanceled.
func (l *Lock) Err() error {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	return l.state.loss
}

// Held is true until the lock is lost or released.
func (l *Lock) Held() bool {
	held := false
	l.state.use(func(lock *C.dlock_lock) { held = bool(C.dlock_held(lock)) })
	return held
}

// Remaining is for how long the lock is valid without a further renewal; where that is without end, the longest Duration.
func (l *Lock) Remaining() time.Duration {
	left := C.int64_t(0)
	l.state.use(func(lock *C.dlock_lock) { left = C.dlock_remaining_ms(lock) })
	return duration(left)
}

// Token names the holder at the server; "" after the release.
func (l *Lock) Token() string {
	var token [C.DLOCK_TOKEN_MAX + 1]C.char
	l.state.use(func(lock *C.dlock_lock) { C.dlock_token(lock, &token[0], C.size_t(len(token)), nil) })
	return C.GoString(&token[0])
}

// Extend restarts the lease; with a new length, unless that is 0, if the lock is Fixed. It blocks up to the URI's `timeout`.
func (l *Lock) Extend(lease time.Duration) error {
	return l.state.call(func(lock *C.dlock_lock, err *C.struct_dlock_error) C.int {
		return C.dlock_extend(lock, milliseconds(lease), err)
	})
}

// Downgrade makes a reader of the writer. It blocks up to the URI's `timeout`.
func (l *Lock) Downgrade() error {
	s := l.state
	return s.call(func(lock *C.dlock_lock, err *C.struct_dlock_error) C.int {
		rc := C.dlock_downgrade(lock, err)
		if rc == 0 || rc == C.DLOCK_EUNAVAILABLE {
			s.mu.Lock()
			s.mode, s.fence = C.DLOCK_SHARED, uint64(C.dlock_fence(lock))
			s.mu.Unlock()
		}
		return rc
	})
}

// Release gives the lock back. ErrLost means that the lock was lost before, so that the work may have overlapped another
// holder's. It blocks up to the URI's `timeout`.
func (l *Lock) Release() error {
	s := l.state
	if !s.end() {
		return released(s.name)
	}
	runtime.SetFinalizer(l, nil)
	s.release()
	return <-s.done
}

// Release releases those that are not released yet, even if one of them fails, and returns the first error.
func (all Locks) Release() (first error) {
	var begun Locks
	for _, l := range all {
		if l != nil && l.state.end() {
			runtime.SetFinalizer(l, nil)
			l.state.release()
			begun = append(begun, l)
		}
	}
	for _, l := range begun {
		if err := <-l.state.done; first == nil {
			first = err
		}
	}
	return first
}

// entered is the key of the locks of the Do blocks around a context.
type entered struct{}

type block struct {
	lock  *Lock
	outer *block
}

// context makes the context of a block.
func (l *Lock) context(ctx context.Context) (context.Context, context.CancelFunc) {
	outer, _ := ctx.Value(entered{}).(*block)
	inner, cancel := context.WithCancel(context.WithValue(ctx, entered{}, &block{l, outer}))
	s := l.state
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loss != nil {
		cancel()
	}
	s.cancel = cancel
	return inner, cancel
}

// blocks tells whether a lock of a block around ctx would never let c have the lock.
func blocks(ctx context.Context, c *Client, name string, mode C.enum_dlock_mode) bool {
	for b, _ := ctx.Value(entered{}).(*block); b != nil; b = b.outer {
		s := b.lock.state
		s.mu.Lock()
		same := s.client == c && s.name == name && !s.ending
		held := s.mode
		s.mu.Unlock()
		if same && mode != C.DLOCK_PERMIT && held != C.DLOCK_PERMIT && (mode != C.DLOCK_SHARED || held != C.DLOCK_SHARED) {
			return true
		}
	}
	return false
}
