// Package dlock has one lock API for files, Redis, memcached, ZooKeeper, etcd, PostgreSQL and MySQL.
//
// A Client acquires Locks by name. A lock belongs to the value that Acquire returns, not to a goroutine or a thread, and is
// not re-entrant. All methods may be called by any goroutine at any time.
package dlock

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"context"
	"errors"
	"runtime"
	"runtime/cgo"
	"sort"
	"sync"
	"time"
	"unsafe"
)

// Version is the version of the C library.
func Version() string { return C.GoString(C.dlock_version()) }

// Client is a client of one server.
type Client struct {
	mu     sync.RWMutex    // held for reading during calls with `dlock`
	dlock  *C.dlock_client // nil: closed
	heldMu sync.Mutex
	held   map[*state]struct{} // nil: closed
}

// OpenOption is an option of Open.
type OpenOption func(*openTerms)

type openTerms struct {
	flags C.uint32_t
	label string
}

// Lazy lets Open connect to nothing; the first operation connects.
func Lazy() OpenOption { return func(t *openTerms) { t.flags |= C.DLOCK_CLIENT_LAZY } }

// Label tells people who look at a lock what its holder does.
func Label(label string) OpenOption { return func(t *openTerms) { t.label = label } }

// Open connects to the server that the URI names. It blocks up to the URI's `timeout`.
func Open(uri string, options ...OpenOption) (*Client, error) {
	var terms openTerms
	for _, option := range options {
		option(&terms)
	}
	cURI, err := text(uri, "the URI")
	if err != nil {
		return nil, err
	}
	defer free(cURI)
	label, err := text(terms.label, "the label")
	if err != nil {
		return nil, err
	}
	defer free(label)
	given := (*C.struct_dlock_client_options)(C.calloc(1, C.sizeof_struct_dlock_client_options))
	defer C.free(unsafe.Pointer(given))
	given.size, given.flags = C.sizeof_struct_dlock_client_options, terms.flags
	if terms.label != "" {
		given.label = label
	}
	client := &Client{held: map[*state]struct{}{}}
	var cErr C.struct_dlock_error
	if rc := C.dlock_open(cURI, given, &client.dlock, &cErr); rc != 0 {
		return nil, failed(rc, &cErr, "")
	}
	runtime.SetFinalizer(client, func(client *Client) { go client.Close() })
	return client, nil
}

// Stop ends the waits with ErrCanceled, and refuses new ones; what is held stays held.
func (c *Client) Stop() {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.dlock != nil {
		C.dlock_client_stop(c.dlock)
	}
}

// Close ends the waits with ErrCanceled, releases all locks and closes the connection. It returns nil, for io.Closer, and
// blocks up to the URI's `timeout`.
func (c *Client) Close() error {
	c.Stop()
	c.mu.Lock()
	open := c.dlock
	c.dlock = nil
	c.mu.Unlock()
	c.heldMu.Lock()
	held := c.held
	c.held = nil
	c.heldMu.Unlock()
	for s := range held {
		s.lose(closed(s.name))
	}
	C.dlock_close(open)
	return nil
}

// use calls f with the open client, and with a string of C.
func (c *Client) use(name, what string, f func(*C.dlock_client, *C.char, *C.struct_dlock_error) C.int) error {
	cName, err := text(name, what)
	if err != nil {
		return err
	}
	defer free(cName)
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.dlock == nil {
		return closed(name)
	}
	var cErr C.struct_dlock_error
	if rc := f(c.dlock, cName, &cErr); rc != 0 {
		return failed(rc, &cErr, name)
	}
	return nil
}

// Acquire waits for the lock: until the context ends, which returns its error, or the Timeout is over.
func (c *Client) Acquire(ctx context.Context, name string, options ...Option) (*Lock, error) {
	t, err := termsOf(options)
	if err != nil {
		return nil, err
	}
	return c.acquire(ctx, name, t, t.timeout)
}

// TryAcquire does not wait: the error is ErrBusy if somebody else has the lock.
func (c *Client) TryAcquire(ctx context.Context, name string, options ...Option) (*Lock, error) {
	return c.Acquire(ctx, name, append(options[:len(options):len(options)], Timeout(0))...)
}

// AcquireAll acquires all or none, in the order of their names, so that no two callers wait for each other.
func (c *Client) AcquireAll(ctx context.Context, names []string, options ...Option) (Locks, error) {
	t, err := termsOf(options)
	if err != nil {
		return nil, err
	}
	sorted := append([]string(nil), names...)
	sort.Strings(sorted)
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] {
			return nil, fail(ErrDeadlock, sorted[i], "lock %q occurs twice", sorted[i])
		}
	}
	begun := time.Now()
	locks := make(map[string]*Lock, len(names))
	all := make(Locks, len(names))
	for _, name := range sorted {
		left := t.timeout
		if left > 0 && left != forever {
			if left -= time.Since(begun); left < time.Millisecond {
				left = time.Millisecond
			}
		}
		if locks[name], err = c.acquire(ctx, name, t, left); err != nil {
			break
		}
	}
	for i, name := range names {
		all[i] = locks[name]
		if err == nil {
			err = all[i].Err() // lost while the others were waited for
		}
	}
	if err != nil {
		all.Release()
		return nil, err
	}
	return all, nil
}

// Do holds the lock while f runs. The context of f ends when the lock is lost, and carries the lock: an Acquire of the same
// lock with it fails with ErrDeadlock, instead of waiting for itself. Do returns the error of f, or else ErrLost if the lock
// was lost; also if f did nothing but return because its context had ended by that.
func (c *Client) Do(ctx context.Context, name string, f func(context.Context, *Lock) error, options ...Option) (err error) {
	l, err := c.Acquire(ctx, name, options...)
	if err != nil {
		return err
	}
	inner, cancel := l.context(ctx)
	defer cancel()
	finished := false
	defer func() { // also after a panic
		lost := l.Err()
		if l.state.ended() {
			return
		}
		failure := l.Release()
		if finished && (err == nil || lost != nil && ctx.Err() == nil && errors.Is(err, context.Canceled)) {
			err = failure
		}
	}()
	err = f(inner, l)
	finished = true
	return err
}

// Locker makes a sync.Locker of a name. Lock panics with the Error if it fails, and so does Unlock if the lock was lost.
func (c *Client) Locker(name string, options ...Option) sync.Locker {
	return &locker{client: c, name: name, options: options}
}

type locker struct {
	client  *Client
	name    string
	options []Option
	lock    *Lock // of who has it
}

func (l *locker) Lock() {
	lock, err := l.client.Acquire(context.Background(), l.name, l.options...)
	if err != nil {
		panic(err)
	}
	l.lock = lock
}

func (l *locker) Unlock() {
	lock := l.lock
	l.lock = nil
	if lock == nil {
		panic(fail(ErrOwner, l.name, "lock %q is not locked", l.name))
	}
	if err := lock.Release(); err != nil {
		panic(err)
	}
}

// Break takes the lock away from its holders.
func (c *Client) Break(name string) error {
	return c.use(name, "the name", func(client *C.dlock_client, name *C.char, err *C.struct_dlock_error) C.int {
		return C.dlock_break(client, name, err)
	})
}

// Inspect returns the holders of a lock.
func (c *Client) Inspect(name string) ([]Holder, error) {
	var holders []Holder
	handle := cgo.NewHandle(&holders)
	defer handle.Delete()
	err := c.use(name, "the name", func(client *C.dlock_client, name *C.char, err *C.struct_dlock_error) C.int {
		return C.dlock_go_inspect(client, name, C.uintptr_t(handle), err)
	})
	return holders, err
}

// List returns the holders of all locks whose names begin with the prefix.
func (c *Client) List(prefix string) ([]Holder, error) {
	var holders []Holder
	handle := cgo.NewHandle(&holders)
	defer handle.Delete()
	err := c.use(prefix, "the prefix", func(client *C.dlock_client, prefix *C.char, err *C.struct_dlock_error) C.int {
		return C.dlock_go_list(client, prefix, C.uintptr_t(handle), err)
	})
	return holders, err
}
