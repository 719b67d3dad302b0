package tests

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"dlock"
)

// alone are the cases that look at the whole process.
var alone = map[int]bool{38: true, 39: true, 44: true}

func TestCases(t *testing.T) {
	client, err := dlock.Open(uri())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, capabilities := client.Backend()
	given := map[string]bool{"": true, backend: true, "processes": backend != "mem", "leases": backend != "file"}
	for _, word := range capabilities {
		given[word] = true
	}
	cases := map[int]func(*tools){}
	for _, part := range []map[int]func(*tools){blocks, waits, terms, losses, ends} {
		for number, run := range part {
			cases[number] = run
		}
	}
	for number, row := range page(t) {
		number, row, run := number, row, cases[number]
		t.Run(fmt.Sprintf("%d-%s", number, row[0]), func(t *testing.T) {
			if run == nil {
				t.Fatal("there is no test for this case")
			}
			if !given[row[1]] {
				t.Skip(backend, "has no", row[1])
			}
			if !alone[number] {
				t.Parallel()
			}
			run(prepare(t))
		})
	}
}

var errOwn = errors.New("of the block")

var blocks = map[int]func(*tools){
	1: func(c *tools) {
		c.ok(c.client.Do(c.ctx, c.name, func(_ context.Context, l *dlock.Lock) error {
			c.want(l.Held() && !c.free(c.other), "not held")
			return nil
		}))
		c.want(c.free(c.other), "not released")
	},
	2: func(c *tools) {
		err := c.client.Do(c.ctx, c.name, func(context.Context, *dlock.Lock) error { return errOwn })
		c.want(err == errOwn, "%v", err)
		func() {
			defer func() { c.want(recover() == errOwn, "another panic") }()
			c.client.Do(c.ctx, c.name, func(context.Context, *dlock.Lock) error { panic(errOwn) })
		}()
		c.want(c.free(c.other), "not released")
	},
	3: func(c *tools) {
		value := 0
		c.ok(c.client.Do(c.ctx, c.name, func(context.Context, *dlock.Lock) error {
			for {
				value = 7
				return nil
			}
		}))
		c.want(value == 7 && c.free(c.other), "not released")
	},
	4: func(c *tools) {
		ctx, cancel := context.WithCancel(c.ctx)
		c.fails(c.client.Do(ctx, c.name, func(ctx context.Context, _ *dlock.Lock) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}), context.Canceled)
		c.want(c.free(c.other), "not released")
	},
	5: func(c *tools) {
		var next *dlock.Lock
		c.ok(c.client.Do(c.ctx, c.name, func(_ context.Context, l *dlock.Lock) error {
			c.ok(l.Release())
			next = c.acquire(c.other)
			return nil
		}))
		c.want(next.Held(), "released twice")
		c.ok(next.Release())
	},
	6: func(c *tools) {
		l := c.acquire(c.client)
		c.ok(l.Release())
		next := c.acquire(c.other)
		c.fails(l.Release(), dlock.ErrOwner)
		c.fails(l.Extend(0), dlock.ErrOwner)
		c.want(next.Held() && !c.free(c.client), "the next holder lost it")
		c.ok(next.Release())
	},
}

var waits = map[int]func(*tools){
	7: func(c *tools) {
		l, err := c.client.TryAcquire(c.ctx, c.name)
		c.ok(err)
		c.want(l.Held() && l.Token() != "" && l.Name() == c.name && l.Remaining() > 0, "%+v", l)
		c.ok(l.Release())
	},
	8: func(c *tools) {
		l := c.acquire(c.other)
		_, err := c.client.TryAcquire(c.ctx, c.name)
		c.fails(err, dlock.ErrBusy)
		c.ok(l.Release())
	},
	9: func(c *tools) {
		l := c.acquire(c.other)
		begun := time.Now()
		_, err := c.client.Acquire(c.ctx, c.name, dlock.Timeout(300*time.Millisecond))
		c.fails(err, dlock.ErrTimedOut)
		ctx, cancel := context.WithTimeout(c.ctx, 300*time.Millisecond)
		defer cancel()
		_, err = c.client.Acquire(ctx, c.name)
		c.fails(err, context.DeadlineExceeded)
		c.want(time.Since(begun) >= 599*time.Millisecond, "after %v", time.Since(begun))
		c.ok(l.Release())
	},
	10: func(c *tools) {
		l := c.acquire(c.other)
		wait := begin(func() error { return c.acquire(c.client).Release() })
		c.waits(c.client, 1)
		c.ok(l.Release())
		c.ok(told(c, wait))
	},
	11: func(c *tools) {
		l := c.acquire(c.other)
		order := make(chan int, 3)
		for i := uint64(1); i <= 3; i++ {
			i := i
			go c.client.Do(c.ctx, c.name, func(context.Context, *dlock.Lock) error {
				order <- int(i)
				return nil
			})
			c.waits(c.client, i)
		}
		c.ok(l.Release())
		for i := 1; i <= 3; i++ {
			c.want(told(c, order) == i, "not in order")
		}
	},
	12: func(c *tools) {
		l := c.acquire(c.other)
		ctx, cancel := context.WithCancel(c.ctx)
		wait := begin(func() error {
			_, err := c.client.Acquire(ctx, c.name)
			return err
		})
		c.waits(c.client, 1)
		cancel()
		c.fails(told(c, wait), context.Canceled)
		c.ok(l.Release())
		c.until("free", func() bool { return c.free(c.other) })
		c.want(c.client.Stats().Held == 0, "held")
	},
	13: func(c *tools) {
		ctx, cancel := context.WithCancel(c.ctx)
		cancel()
		client, err := dlock.Open(uri(), dlock.Lazy())
		c.ok(err)
		defer client.Close()
		_, err = client.Acquire(ctx, c.name)
		c.fails(err, context.Canceled)
		c.want(client.Stats().LastAnswer == -1, "it asked the server")
	},
	14: func(c *tools) {
		for pause := time.Duration(0); pause < 20; pause++ {
			l := c.acquire(c.other)
			ctx, cancel := context.WithCancel(c.ctx)
			wait := begin(func() error {
				l, err := c.client.Acquire(ctx, c.name)
				if err == nil {
					err = l.Release()
				}
				return err
			})
			c.waits(c.client, 1)
			released := begin(l.Release)
			time.Sleep(pause * 20 * time.Microsecond)
			cancel()
			c.ok(told(c, released))
			if err := told(c, wait); err != nil {
				c.fails(err, context.Canceled)
			}
		}
		c.until("free", func() bool { return c.free(c.other) })
	},
	15: func(c *tools) {
		c.ok(c.client.Do(c.ctx, c.name, func(ctx context.Context, _ *dlock.Lock) error {
			_, err := c.client.Acquire(ctx, c.name)
			c.fails(err, dlock.ErrDeadlock)
			_, err = c.client.AcquireAll(ctx, []string{"a-" + c.name, c.name})
			c.fails(err, dlock.ErrDeadlock)
			return nil
		}))
		c.want(c.free(c.client), "not released")
	},
}

var terms = map[int]func(*tools){
	16: func(c *tools) {
		one, two := c.acquire(c.client, dlock.Shared()), c.acquire(c.other, dlock.Shared())
		c.want(!c.free(c.other), "a writer beside readers")
		c.ok(one.Release())
		c.want(!c.free(c.client), "a writer beside a reader")
		c.ok(two.Release())
		c.until("free", func() bool { return c.free(c.other) })
	},
	17: func(c *tools) {
		l := c.acquire(c.client)
		fence := l.Fence()
		c.ok(l.Downgrade())
		c.want(l.Fence() > fence && l.Held() && !c.free(c.other), "not a reader")
		c.ok(c.acquire(c.other, dlock.Shared()).Release())
		c.ok(l.Release())
	},
	18: func(c *tools) {
		first, second := c.acquire(c.client, dlock.Permits(2)), c.acquire(c.other, dlock.Permits(2))
		_, err := c.other.TryAcquire(c.ctx, c.name, dlock.Permits(2))
		c.fails(err, dlock.ErrBusy)
		wait := begin(func() error { return c.acquire(c.other, dlock.Permits(2)).Release() })
		c.ok(first.Release())
		c.ok(told(c, wait))
		c.ok(second.Release())
	},
	19: func(c *tools) {
		l := c.acquire(c.client, dlock.Permits(2))
		_, err := c.other.Acquire(c.ctx, c.name, dlock.Permits(3))
		c.fails(err, dlock.ErrInvalid)
		c.ok(l.Release())
	},
	20: func(c *tools) {
		names := []string{c.name + "-a", c.name + "-b", c.name + "-c"}
		inside := 0 // the race detector sees if two are inside
		rounds := func(client *dlock.Client, names ...string) <-chan error {
			return begin(func() error {
				for i := 0; i < 10; i++ {
					all, err := client.AcquireAll(c.ctx, names)
					if err != nil {
						return err
					}
					inside++
					if err := all.Release(); err != nil {
						return err
					}
				}
				return nil
			})
		}
		one, two := rounds(c.client, names...), rounds(c.other, names[2], names[0], names[1])
		three := rounds(c.client, names[1], names[2], names[0])
		for _, each := range []<-chan error{one, two, three} {
			c.ok(told(c, each))
		}
		c.want(inside == 30, "%d times", inside)
	},
	21: func(c *tools) {
		names := []string{c.name + "-a", c.name, c.name + "-z"}
		l := c.acquire(c.other)
		_, err := c.client.AcquireAll(c.ctx, names, dlock.Timeout(300*time.Millisecond))
		c.fails(err, dlock.ErrTimedOut)
		_, err = c.client.AcquireAll(c.ctx, names, dlock.Timeout(0))
		c.fails(err, dlock.ErrBusy)
		for _, name := range []string{names[0], names[2]} {
			free, err := c.other.TryAcquire(c.ctx, name)
			c.ok(err)
			c.ok(free.Release())
		}
		c.ok(l.Release())
	},
	22: func(c *tools) {
		_, err := c.client.AcquireAll(c.ctx, []string{c.name, "x", c.name})
		c.fails(err, dlock.ErrDeadlock)
	},
	23: func(c *tools) {
		l := c.acquire(c.client, dlock.Fixed(), dlock.Lease(5*time.Second))
		fence := l.Fence()
		c.ok(l.Extend(time.Minute))
		c.want(l.Remaining() > 30*time.Second && l.Fence() == fence, "%v left", l.Remaining())
		c.ok(l.Release())
	},
	24: func(c *tools) {
		l := c.acquire(c.open("lease", "800ms"))
		time.Sleep(2500 * time.Millisecond)
		c.want(l.Held() && !c.free(c.other), "not renewed")
		c.ok(l.Release())
	},
	25: func(c *tools) {
		last := uint64(0)
		for i := 0; i < 6; i++ {
			client := c.client
			if i%2 == 1 {
				client = c.other
			}
			l := c.acquire(client)
			c.want(l.Fence() > last, "%d after %d", l.Fence(), last)
			last = l.Fence()
			c.ok(l.Release())
		}
	},
}
