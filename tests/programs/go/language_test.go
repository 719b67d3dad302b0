package tests

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"runtime"
	"sync"
	"testing"
	"time"

	"dlock"
)

// What only Go has.

func TestClientWithoutReferences(t *testing.T) {
	use := func() {
		client, err := dlock.Open(uri())
		if err != nil {
			t.Fatal(err)
		}
		if l, err := client.Acquire(context.Background(), "go-garbage"); err != nil || l.Release() != nil {
			t.Fatal(err)
		}
	}
	use()
	before := threads()
	for i := 0; i < 20; i++ {
		use()
	}
	c := &tools{T: t}
	c.until("closed", func() bool {
		runtime.GC()
		return threads() < before+20 // each of the 20 clients has two, and Go has some for calls into C
	})
}

func TestLocker(t *testing.T) {
	c := prepare(t)
	panics := func(code dlock.Code, f func()) {
		defer func() {
			err, _ := recover().(error)
			c.fails(err, code)
		}()
		f()
	}
	locker := c.client.Locker(c.name, dlock.Timeout(time.Minute))
	panics(dlock.ErrOwner, locker.Unlock)
	locker.Lock()
	panics(dlock.ErrTimedOut, c.other.Locker(c.name, dlock.Timeout(10*time.Millisecond)).Lock)
	c.ok(c.client.Close())
	panics(dlock.ErrCanceled, locker.Unlock)
}

// Waits that are cancelled, granted and closed at the same time leave nothing behind.
func TestTurmoil(t *testing.T) {
	c := prepare(t)
	for round := 0; round < 5; round++ {
		client := c.open()
		var group sync.WaitGroup
		for i := 0; i < 50; i++ {
			i := i
			group.Add(1)
			go func() {
				defer group.Done()
				for {
					ctx, cancel := context.WithTimeout(c.ctx, time.Duration(rand.Intn(3000))*time.Microsecond)
					l, err := client.Acquire(ctx, fmt.Sprint(c.name, i%3))
					cancel()
					if err == nil {
						go l.Extend(0)
						err = l.Release()
					}
					if errors.Is(err, dlock.ErrCanceled) {
						return
					}
				}
			}()
		}
		time.Sleep(100 * time.Millisecond)
		c.ok(client.Close())
		group.Wait()
	}
	for i := 0; i < 3; i++ {
		l, err := c.other.Acquire(c.ctx, fmt.Sprint(c.name, i))
		c.ok(err)
		c.ok(l.Release())
	}
}
