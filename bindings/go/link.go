//go:build !dlock_static

package dlock

// #cgo LDFLAGS: -ldlock
import "C"
