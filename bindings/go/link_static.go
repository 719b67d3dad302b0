//go:build dlock_static

package dlock

// #cgo pkg-config: --static dlock
import "C"
