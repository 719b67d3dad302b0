package dlock

// #include "bridge.h"
import "C"

import (
	"context"
	"fmt"
	"runtime/cgo"
	"sync"
	"sync/atomic"
	"time"
)

// state is what the library's callbacks know of a lock, from the begin of the wait to the end of the release. It does not
// refer to the Lock, which the program may drop. No goroutine belongs to it: the client's worker thread calls the functions
// that are exported here.
type state struct {
	client *Client
	name   string
	handle cgo.Handle
	lock   *C.dlock_lock
	done   chan error // the result of the acquire, then that of the release
	lost   chan struct{}

	mu        sync.Mutex
	mode      C.enum_dlock_mode
	refs      int  // one until the end, one of each call in progress; with the last one the lock is freed
	settled   bool // the acquire has ended
	abandoned bool // nobody waits for its end any more
	ending    bool // released, or about to be
	fence     uint64
	loss      error
	cancel    context.CancelFunc // of the block's context
}

// What the race detector knows of the order in which locks are held: a release comes before the next acquire.
var order int64

func (c *Client) acquire(ctx context.Context, name string, t terms, timeout time.Duration) (*Lock, error) {
	ended := func() error { return fmt.Errorf("dlock: lock %q: %w", name, ctx.Err()) }
	if ctx.Err() != nil {
		return nil, ended()
	}
	if blocks(ctx, c, name, t.mode) {
		return nil, fail(ErrDeadlock, name, "lock %q is held by the block around this call", name)
	}
	s := &state{client: c, name: name, mode: t.mode, done: make(chan error, 1), lost: make(chan struct{}), refs: 1}
	s.handle = cgo.NewHandle(s)
	err := c.use(name, "the name", func(client *C.dlock_client, name *C.char, err *C.struct_dlock_error) C.int {
		options := t.options()
		if rc := C.dlock_go_new(client, name, &options, C.uintptr_t(s.handle), &s.lock, err); rc != 0 {
			return rc
		}
		return C.dlock_go_acquire(s.lock, timeoutOf(timeout), C.uintptr_t(s.handle), err)
	})
	if err != nil {
		s.put()
		return nil, err
	}
	select {
	case err = <-s.done:
	case <-ctx.Done():
		if !s.abandon() && <-s.done == nil && s.end() {
			s.release()
		}
		return nil, ended()
	}
	if err != nil {
		return nil, err
	}
	atomic.AddInt64(&order, 1)
	return newLock(s), nil
}

// abandon ends the wait; false: it has ended already.
func (s *state) abandon() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settled {
		return false
	}
	s.abandoned = true
	C.dlock_cancel(s.lock)
	return true
}

//export dlockAcquired
func dlockAcquired(arg C.uintptr_t, cErr *C.struct_dlock_error) {
	s := cgo.Handle(arg).Value().(*state)
	s.mu.Lock()
	s.settled = true
	abandoned := s.abandoned
	s.fence = uint64(C.dlock_fence(s.lock))
	s.mu.Unlock()
	switch {
	case cErr != nil:
		s.done <- failed(cErr.code, cErr, s.name)
		s.put()
	case abandoned:
		s.end()
		s.release()
	default:
		s.client.hold(s)
		s.done <- nil
	}
}

// hold lets Close know of the lock.
func (c *Client) hold(s *state) {
	c.heldMu.Lock()
	defer c.heldMu.Unlock()
	if c.held != nil {
		c.held[s] = struct{}{}
	} else {
		s.lose(closed(s.name))
	}
}

// end begins the end of the lock; false: that has begun already.
func (s *state) end() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	begins := !s.ending
	s.ending = true
	return begins
}

func (s *state) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// release begins the release, after end. `done` gets its result.
func (s *state) release() {
	s.client.heldMu.Lock()
	delete(s.client.held, s)
	s.client.heldMu.Unlock()
	atomic.AddInt64(&order, 1)
	var cErr C.struct_dlock_error
	if C.dlock_go_release(s.lock, C.uintptr_t(s.handle), &cErr) != 0 {
		dlockReleased(C.uintptr_t(s.handle), &cErr)
	}
}

//export dlockReleased
func dlockReleased(arg C.uintptr_t, cErr *C.struct_dlock_error) {
	s := cgo.Handle(arg).Value().(*state)
	if cErr == nil {
		s.done <- nil
	} else {
		s.done <- s.failed(cErr)
	}
	s.put()
}

//export dlockLost
func dlockLost(arg C.uintptr_t, cErr *C.struct_dlock_error, loss C.int) {
	s := cgo.Handle(arg).Value().(*state)
	err := s.failed(cErr)
	err.Loss = Loss(loss)
	s.lose(err)
}

// failed is about a lock that is, or was, held.
func (s *state) failed(cErr *C.struct_dlock_error) *Error {
	err := failed(cErr.code, cErr, s.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	err.Fence = s.fence
	return err
}

// lose tells the program that the lock is lost.
func (s *state) lose(err error) {
	s.mu.Lock()
	cancel := s.cancel
	told := s.loss != nil || s.ending
	if !told {
		s.loss = err
		close(s.lost)
	}
	s.mu.Unlock()
	if !told && cancel != nil {
		cancel()
	}
}

// use calls f with the lock; false: it is released.
func (s *state) use(f func(*C.dlock_lock)) bool {
	s.mu.Lock()
	usable := !s.ending
	if usable {
		s.refs++
	}
	s.mu.Unlock()
	if usable {
		f(s.lock)
		s.put()
	}
	return usable
}

func (s *state) call(f func(*C.dlock_lock, *C.struct_dlock_error) C.int) (err error) {
	used := s.use(func(lock *C.dlock_lock) {
		var cErr C.struct_dlock_error
		if f(lock, &cErr) != 0 {
			err = s.failed(&cErr)
		}
	})
	if !used {
		err = released(s.name)
	}
	return err
}

func (s *state) put() {
	s.mu.Lock()
	s.refs--
	last := s.refs == 0
	s.mu.Unlock()
	if last {
		C.dlock_free(s.lock)
		s.handle.Delete()
	}
}
