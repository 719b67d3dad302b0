package dlock

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"fmt"
	"strings"
	"unsafe"
)

// Code is what went wrong, as in DLOCK_ERRORS of dlock.h. It is itself an error, so that errors.Is(err, dlock.ErrBusy) is
// true of each Error with that code.
type Code int

const (
	ErrBusy        Code = C.DLOCK_EBUSY
	ErrTimedOut    Code = C.DLOCK_ETIMEDOUT
	ErrCanceled    Code = C.DLOCK_ECANCELED
	ErrLost        Code = C.DLOCK_ELOST
	ErrOwner       Code = C.DLOCK_EOWNER
	ErrDeadlock    Code = C.DLOCK_EDEADLK
	ErrUnavailable Code = C.DLOCK_EUNAVAILABLE
	ErrAuth        Code = C.DLOCK_EAUTH
	ErrInvalid     Code = C.DLOCK_EINVAL
	ErrNoMemory    Code = C.DLOCK_ENOMEM
	ErrUnsupported Code = C.DLOCK_ENOTSUP
	ErrProtocol    Code = C.DLOCK_EPROTO
	ErrNoBackend   Code = C.DLOCK_ENOBACKEND
	ErrABI         Code = C.DLOCK_EABI
	ErrForked      Code = C.DLOCK_EFORKED
	ErrNotReady    Code = C.DLOCK_ENOTREADY
)

// Error describes the code.
func (c Code) Error() string { return C.GoString(C.dlock_strerror(C.int(c))) }

// Advice says what the caller should do; "" if there is no such code.
func (c Code) Advice() string { return C.GoString(C.dlock_go_advice(C.int(c))) }

// Retry is true if the same call may succeed later.
func (c Code) Retry() bool {
	return c == ErrBusy || c == ErrTimedOut || c == ErrUnavailable || c == ErrNotReady
}

// Loss is why a grant was lost.
type Loss int

const (
	NotLost   Loss = C.DLOCK_NOT_LOST
	Expired   Loss = C.DLOCK_LOSS_EXPIRED   // not renewed in time
	FixedEnd  Loss = C.DLOCK_LOSS_FIXED_END // its fixed lease has ended
	Broken    Loss = C.DLOCK_LOSS_BROKEN    // somebody took it away
	Forgotten Loss = C.DLOCK_LOSS_FORGOTTEN // the server has it no longer, and cannot tell why
	Session   Loss = C.DLOCK_LOSS_SESSION   // its connection or session has ended
)

// Error is every error of the library. Waits that a context ends return the context's error instead.
type Error struct {
	Code    Code
	Message string // what is wrong and what to do, for a person
	Lock    string // the lock's name; "" unless the error is about one
	Fence   uint64 // of a loss or a release: the grant's
	Loss    Loss   // of a loss that was reported by Lost: the reason
}

// Error is the message.
func (e *Error) Error() string { return "dlock: " + e.Message }

// Unwrap returns the code.
func (e *Error) Unwrap() error { return e.Code }

func fail(code Code, lock, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Lock: lock}
}

func released(lock string) *Error { return fail(ErrOwner, lock, "lock %q is released already", lock) }
func closed(lock string) *Error {
	return fail(ErrCanceled, lock, "lock %q: the client is closed", lock)
}

func failed(rc C.int, err *C.struct_dlock_error, lock string) *Error {
	return fail(Code(rc), lock, "%s", C.GoString(&err.message[0]))
}

// text makes a string of C, which free() ends.
func text(value, what string) (*C.char, error) {
	if strings.IndexByte(value, 0) >= 0 {
		return nil, fail(ErrInvalid, "", "%s has a NUL in it: %q", what, value)
	}
	return C.CString(value), nil
}

func free(text *C.char) { C.free(unsafe.Pointer(text)) }
