package tests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"dlock"
)

// Another client takes the lock away; the holder asks for a renewal so often.
var short = []string{"lease", "1s"}

var losses = map[int]func(*tools){
	26: func(c *tools) {
		l := c.acquire(c.open(short...))
		c.want(l.Err() == nil, "%v", l.Err())
		c.ok(c.other.Break(c.name))
		told(c, l.Lost())
		var lost *dlock.Error
		c.want(errors.As(l.Err(), &lost) && lost.Code == dlock.ErrLost, "%v", l.Err())
		c.want(strings.Contains(lost.Message, c.name) && lost.Lock == c.name && lost.Fence == l.Fence(), "%+v", lost)
		c.want(lost.Loss == dlock.Broken || backend == "redis" && lost.Loss == dlock.Forgotten, "%v", lost.Loss)
		c.want(!l.Held() && l.Remaining() == 0, "still held")
		c.fails(l.Release(), dlock.ErrLost)
	},
	27: func(c *tools) {
		c.fails(c.open(short...).Do(c.ctx, c.name, func(_ context.Context, l *dlock.Lock) error {
			c.ok(c.other.Break(c.name))
			told(c, l.Lost())
			return nil
		}), dlock.ErrLost)
	},
	28: func(c *tools) {
		c.fails(c.open(short...).Do(c.ctx, c.name, func(ctx context.Context, l *dlock.Lock) error {
			c.ok(c.other.Break(c.name))
			told(c, ctx.Done())
			return ctx.Err()
		}), dlock.ErrLost)
	},
	29: func(c *tools) {
		client := c.open(short...)
		l := c.acquire(client)
		c.ok(c.other.Break(c.name))
		told(c, l.Lost())
		var lost *dlock.Error
		c.want(errors.As(l.Release(), &lost) && lost.Code == dlock.ErrLost && lost.Fence == l.Fence(), "%v", lost)
		next := c.acquire(client)
		c.want(next.Fence() > l.Fence(), "%d", next.Fence())
		c.ok(next.Release())
	},
	30: func(c *tools) {
		c.fails(c.other.Break(c.name), dlock.ErrOwner)
		l := c.acquire(c.open(short...))
		c.ok(c.other.Break(c.name))
		told(c, l.Lost())
		c.until("free", func() bool { return c.free(c.other) })
		c.fails(l.Release(), dlock.ErrLost)
	},
}

var ends = map[int]func(*tools){
	31: func(c *tools) {
		l := c.acquire(c.other)
		wait := begin(func() error {
			_, err := c.client.Acquire(c.ctx, c.name)
			return err
		})
		c.waits(c.client, 1)
		c.ok(c.client.Close())
		c.fails(told(c, wait), dlock.ErrCanceled)
		c.ok(l.Release())
	},
	32: func(c *tools) {
		l := c.acquire(c.client)
		c.ok(c.client.Close())
		told(c, l.Lost())
		c.fails(l.Err(), dlock.ErrCanceled)
		c.want(!l.Held() && c.free(c.other), "held")
		c.fails(l.Release(), dlock.ErrCanceled)
	},
	33: func(c *tools) {
		c.ok(c.client.Close())
		c.ok(c.client.Close())
		_, err := c.client.Acquire(c.ctx, c.name)
		c.fails(err, dlock.ErrCanceled)
		_, err = c.client.Inspect(c.name)
		c.fails(err, dlock.ErrCanceled)
	},
	34: func(c *tools) { // Go programs do not fork
		locker := c.client.Locker(c.name)
		number := 0 // the race detector sees if two are inside
		var group sync.WaitGroup
		for i := 0; i < 8; i++ {
			group.Add(1)
			go func() {
				defer group.Done()
				for i := 0; i < 10; i++ {
					locker.Lock()
					number++
					locker.Unlock()
				}
			}()
		}
		group.Wait()
		c.want(number == 80 && c.free(c.other), "%d", number)
	},
	35: func(c *tools) {
		child := c.run("exit", short...)
		err := child.Wait()
		c.want(child.ProcessState.ExitCode() == 3, "%v", err)
		c.until("free", func() bool { return c.free(c.other) })
	},
	36: func(c *tools) {
		l := c.acquire(c.client)
		child := c.run("wait")
		c.want(child.line() == "waits", "it does not wait")
		c.ok(child.Process.Signal(syscall.SIGTERM))
		child.Wait()
		c.ok(l.Release())
		c.ok(c.acquire(c.client).Release())
	},
	37: func(c *tools) {
		l := c.acquire(c.client)
		plain, handled := c.run("wait"), c.run("handle")
		c.want(plain.line() == "waits" && handled.line() == "waits", "they do not wait")
		c.ok(plain.Process.Signal(syscall.SIGTERM))
		plain.Wait()
		c.want(plain.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGTERM, "%v", plain.ProcessState)
		c.ok(handled.Process.Signal(syscall.SIGINT))
		c.want(strings.Contains(handled.line(), "context canceled"), "another error")
		handled.Wait()
		c.want(handled.ProcessState.ExitCode() == 4, "%v", handled.ProcessState)
		c.ok(l.Release())
	},
	38: func(c *tools) {
		c.want(c.free(c.client), "not free")
		before := threads()
		locks := make([]*dlock.Lock, 1000)
		var group sync.WaitGroup
		for i := range locks {
			i := i
			group.Add(1)
			go func() {
				defer group.Done()
				locks[i], _ = c.client.Acquire(c.ctx, fmt.Sprint(c.name, "-", i))
			}()
		}
		group.Wait()
		for _, l := range locks {
			c.want(l != nil && l.Held(), "not held")
		}
		c.want(threads() <= before+100, "%d threads, then %d", before, threads())
		c.ok(dlock.Locks(locks).Release())
		c.want(c.client.Stats().Held == 0, "held")
	},
	39: func(c *tools) {
		c.want(c.free(c.client), "not free")
		l := c.acquire(c.other)
		before := threads()
		ended := make(chan error, 1000)
		for i := 0; i < 1000; i++ {
			go func() {
				_, err := c.client.Acquire(c.ctx, c.name)
				ended <- err
			}()
		}
		c.waits(c.client, 1000)
		c.want(threads() <= before+100, "%d threads, then %d", before, threads())
		c.ok(c.client.Close())
		for i := 0; i < 1000; i++ {
			c.fails(told(c, ended), dlock.ErrCanceled)
		}
		c.ok(l.Release())
	},
	40: func(c *tools) {
		codes := []dlock.Code{dlock.ErrBusy, dlock.ErrTimedOut, dlock.ErrCanceled, dlock.ErrLost, dlock.ErrOwner,
			dlock.ErrDeadlock, dlock.ErrUnavailable, dlock.ErrAuth, dlock.ErrInvalid, dlock.ErrNoMemory, dlock.ErrUnsupported,
			dlock.ErrProtocol, dlock.ErrNoBackend, dlock.ErrABI, dlock.ErrForked, dlock.ErrNotReady}
		told := readABI(c.T).Errors[1:]
		c.want(len(told) == len(codes), "%d codes, not %d", len(codes), len(told))
		for i, code := range codes {
			row := told[i]
			c.want(int(code) == row.Number && code.Error() == row.Text && code.Advice() == row.Advice, "%v", row)
		}
	},
	41: func(c *tools) {
		l := c.acquire(c.other)
		_, err := c.client.Acquire(c.ctx, c.name, dlock.Timeout(100*time.Millisecond))
		var refused *dlock.Error
		c.want(errors.As(err, &refused) && refused.Lock == c.name && refused.Code.Retry(), "%v", err)
		c.want(refused.Code.Advice() != "" && strings.Contains(err.Error(), c.name), "%v", err)
		holders, err := c.client.Inspect(refused.Lock)
		c.ok(err)
		c.want(len(holders) == 1 && holders[0].Token == l.Token() && holders[0].Mode == "exclusive", "%v", holders)
		c.want(holders[0].PID == int64(os.Getpid()), "%v", holders)
		holders, err = c.client.List(c.name)
		c.ok(err)
		c.want(len(holders) == 1 && holders[0].Name == c.name, "%v", holders)
		c.ok(l.Release())
	},
	42: func(c *tools) {
		refused := func(word, name string, options ...dlock.Option) {
			c.Helper()
			_, err := c.client.Acquire(c.ctx, name, options...)
			c.fails(err, dlock.ErrInvalid)
			c.want(strings.Contains(err.Error(), word), "%v", err)
		}
		refused("name", "")
		refused("NUL", "a\x00b")
		refused("timeout", c.name, dlock.Timeout(-1))
		refused("lease", c.name, dlock.Lease(time.Millisecond))
		refused("lease", c.name, dlock.Lease(0))
		refused("permits", c.name, dlock.Permits(0))
		_, err := dlock.Open(uri("no_such_key", "1"))
		c.fails(err, dlock.ErrInvalid)
		c.want(strings.Contains(err.Error(), "no_such_key"), "%v", err)
	},
	43: func(c *tools) {
		_, err := dlock.Open("redis://127.0.0.1:1?timeout=1s")
		c.fails(err, dlock.ErrUnavailable)
		client, err := dlock.Open("redis://127.0.0.1:1?timeout=1s", dlock.Lazy())
		c.ok(err)
		defer client.Close()
		wait := begin(func() error {
			_, err := client.Acquire(c.ctx, c.name, dlock.Timeout(500*time.Millisecond))
			return err
		})
		for turns := 0; ; turns++ {
			select {
			case err := <-wait:
				c.fails(err, dlock.ErrUnavailable)
				c.want(turns > 10, "%d", turns)
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	},
	44: func(c *tools) {
		var warnings bytes.Buffer
		log.SetOutput(&warnings)
		defer log.SetOutput(os.Stderr)
		func() { c.acquire(c.client) }()
		c.until("free", func() bool {
			runtime.GC()
			return c.free(c.other)
		})
		c.want(strings.Contains(warnings.String(), c.name), "%s", warnings.String())
	},
}

// child is what the other processes of the cases do.
func child(what, uri, name string) {
	client, err := dlock.Open(uri)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if what == "exit" {
		if _, err := client.Acquire(ctx, name); err == nil {
			os.Exit(3)
		}
	}
	if what == "handle" {
		ctx, _ = signal.NotifyContext(ctx, syscall.SIGINT)
	}
	go func() {
		for client.Stats().Waiting == 0 {
			time.Sleep(5 * time.Millisecond)
		}
		fmt.Println("waits")
	}()
	_, err = client.Acquire(ctx, name)
	fmt.Println(err)
	client.Close()
	os.Exit(4)
}

// The numbers that Go shows are those of dlock.h.
func TestABI(t *testing.T) {
	told := readABI(t)
	losses := map[string]dlock.Loss{"NOT_LOST": dlock.NotLost, "LOSS_EXPIRED": dlock.Expired, "LOSS_FIXED_END": dlock.FixedEnd,
		"LOSS_BROKEN": dlock.Broken, "LOSS_FORGOTTEN": dlock.Forgotten, "LOSS_SESSION": dlock.Session}
	if len(losses) != len(told.Enums["dlock_loss"]) {
		t.Error("there are other losses:", told.Enums["dlock_loss"])
	}
	for name, loss := range losses {
		if number, known := told.Enums["dlock_loss"]["DLOCK_"+name]; !known || dlock.Loss(number) != loss {
			t.Error(name)
		}
	}
	known := map[string]bool{}
	for _, capability := range told.Capabilities {
		known[capability.Word] = true
	}
	client, err := dlock.Open("mem:")
	if err != nil {
		t.Fatal(err)
	}
	name, words := client.Backend()
	if name != "mem" || len(words) == 0 {
		t.Error(name, words)
	}
	for _, word := range words {
		if !known[word] {
			t.Error("no capability", word)
		}
	}
}
