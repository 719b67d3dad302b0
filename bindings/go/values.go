package dlock

// #include "bridge.h"
import "C"

import (
	"math"
	"runtime/cgo"
	"time"
)

const forever = time.Duration(math.MaxInt64)

// Option is an option of an acquisition.
type Option func(*terms)

type terms struct {
	mode           C.enum_dlock_mode
	permits        int
	flags          C.uint32_t
	lease, timeout time.Duration
	err            error
}

// Shared acquires as a reader.
func Shared() Option { return func(t *terms) { t.mode = C.DLOCK_SHARED } }

// Permits acquires one of n permits; all holders give the same number.
func Permits(n int) Option {
	return func(t *terms) {
		t.mode, t.permits = C.DLOCK_PERMIT, n
		if n < 1 || n > C.DLOCK_LIMIT_MAX {
			t.err = fail(ErrInvalid, "", "there cannot be %d permits", n)
		}
	}
}

// Lease is how long the lock outlives its holder; the default is the URI's `lease`.
func Lease(lease time.Duration) Option {
	return func(t *terms) {
		t.lease = lease
		if lease <= 0 {
			t.err = fail(ErrInvalid, "", "the lease %v is not positive", lease)
		}
	}
}

// Fixed lets the lock end with its lease: it is not renewed, unless by Extend.
func Fixed() Option { return func(t *terms) { t.flags |= C.DLOCK_FIXED_LEASE } }

// Timeout bounds the wait, which then ends with ErrTimedOut; 0 tries once, which may end with ErrBusy.
func Timeout(timeout time.Duration) Option {
	return func(t *terms) {
		t.timeout = timeout
		if timeout < 0 {
			t.err = fail(ErrInvalid, "", "the timeout %v is negative", timeout)
		}
	}
}

func termsOf(options []Option) (terms, error) {
	t := terms{timeout: forever}
	for _, option := range options {
		option(&t)
	}
	return t, t.err
}

func (t terms) options() C.struct_dlock_options {
	return C.struct_dlock_options{
		mode: t.mode, limit: C.uint32_t(t.permits), flags: t.flags, lease_ms: milliseconds(t.lease),
	}
}

// milliseconds rounds up, so that no wait and no lease is shorter than it was meant.
func milliseconds(d time.Duration) C.int64_t {
	ms := C.int64_t(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

func timeoutOf(d time.Duration) C.int64_t {
	if d == forever {
		return C.DLOCK_FOREVER
	}
	return milliseconds(d)
}

// duration is -1 for an unknown number of milliseconds.
func duration(ms C.int64_t) time.Duration {
	if ms < 0 {
		return -1
	}
	if ms > C.int64_t(forever/time.Millisecond) {
		return forever
	}
	return time.Duration(ms) * time.Millisecond
}

// Holder is a holder of a lock, as the server reports it; it may be outdated.
type Holder struct {
	Name, Token string
	Mode        string // "exclusive", "shared" or "permit"
	Waiters     int    // in the server's queue
	Limit       int    // of permits
	Fence       uint64
	Remaining   time.Duration // of the lease; -1: unknown
	HeldFor     time.Duration // -1: unknown
	Host        string        // "" and 0 where the token does not tell
	PID         int64
	Label       string
}

//export dlockHolder
func dlockHolder(arg C.uintptr_t, info *C.struct_dlock_info) {
	holders := cgo.Handle(arg).Value().(*[]Holder)
	*holders = append(*holders, Holder{
		Name: C.GoString(info.name), Token: C.GoString(info.token),
		Mode:    [...]string{"exclusive", "shared", "permit"}[info.mode],
		Waiters: int(info.waiters), Limit: int(info.limit), Fence: uint64(info.fence),
		Remaining: duration(info.remaining_ms), HeldFor: duration(info.held_ms),
		Host: C.GoString(info.host), PID: int64(info.pid), Label: C.GoString(info.label),
	})
}

// Stats are the counters of a client since it was opened.
type Stats struct {
	Grants, LocalGrants, Losses           uint64
	Renewals, RenewalFailures, Reconnects uint64
	Waiting, Held                         uint64 // now
	Waits                                 uint64 // that have ended
	Waited                                time.Duration
	LastAnswer                            time.Duration // how long ago the server answered; -1: it has not yet
}

// Stats returns the client's counters; zeros after Close.
func (c *Client) Stats() Stats {
	stats := C.struct_dlock_stats{size: C.sizeof_struct_dlock_stats, last_answer_ms: -1}
	c.use("", "", func(client *C.dlock_client, _ *C.char, err *C.struct_dlock_error) C.int {
		return C.dlock_client_stats(client, &stats, err)
	})
	return Stats{
		Grants: uint64(stats.grants), LocalGrants: uint64(stats.local_grants), Losses: uint64(stats.losses),
		Renewals: uint64(stats.renewals), RenewalFailures: uint64(stats.renewal_failures),
		Reconnects: uint64(stats.reconnects), Waiting: uint64(stats.waiting), Held: uint64(stats.held),
		Waits: uint64(stats.waits), Waited: time.Duration(stats.wait_us) * time.Microsecond,
		LastAnswer: duration(stats.last_answer_ms),
	}
}

// Backend returns the name of the client's backend, such as "redis", and the words of its capabilities, as in DLOCK_CAPS of
// dlock.h.
func (c *Client) Backend() (name string, capabilities []string) {
	c.use("", "", func(client *C.dlock_client, _ *C.char, _ *C.struct_dlock_error) C.int {
		info := C.dlock_client_backend(client)
		name = C.GoString(info.name)
		for bit := C.int(0); bit < 32; bit++ {
			if word := C.dlock_go_capability(bit); word != nil && info.caps&(1<<bit) != 0 {
				capabilities = append(capabilities, C.GoString(word))
			}
		}
		return 0
	})
	return name, capabilities
}
