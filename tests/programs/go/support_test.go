// Package tests has the cases of bindings/cases.md for bindings/go. DLOCK_TEST_BACKEND is the word of a backend.
package tests

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"dlock"
)

const long = 100 * time.Second // longer than anything takes on a busy machine; nothing waits for it to pass

var backend = os.Getenv("DLOCK_TEST_BACKEND")

// uri is the server's, with other values for some of its keys.
func uri(keys ...string) string {
	address := os.Getenv("DLOCK_TEST_URI_" + backend)
	if backend == "mem" {
		address = "mem:"
	}
	address, query, _ := strings.Cut(address, "?")
	values, _ := url.ParseQuery(query)
	for i := 0; i < len(keys); i += 2 {
		values.Set(keys[i], keys[i+1])
	}
	if len(values) == 0 {
		return address
	}
	return address + "?" + values.Encode()
}

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "child" {
		child(os.Args[2], os.Args[3], os.Args[4])
		os.Exit(0)
	}
	if setting := "DLOCK_TEST_URI_" + backend; os.Getenv(setting) == "" && backend == "file" {
		folder, err := os.MkdirTemp("", "dlock-go-")
		if err != nil {
			panic(err)
		}
		os.Setenv(setting, "file:"+folder)
		status := m.Run()
		os.RemoveAll(folder)
		os.Exit(status)
	} else if os.Getenv(setting) == "" && backend != "mem" {
		fmt.Fprintln(os.Stderr, "no server for", backend+": run the tests with tests/run.sh")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// tools are what a case works with: two clients, which end with it, and a name of its own.
type tools struct {
	*testing.T
	ctx           context.Context
	client, other *dlock.Client
	name          string
}

func prepare(t *testing.T) *tools {
	ctx, cancel := context.WithTimeout(context.Background(), long)
	t.Cleanup(cancel)
	random := make([]byte, 8)
	rand.Read(random)
	c := &tools{T: t, ctx: ctx, name: "go-" + hex.EncodeToString(random)}
	c.client, c.other = c.open(), c.open()
	return c
}

func (c *tools) open(keys ...string) *dlock.Client {
	client, err := dlock.Open(uri(keys...))
	c.ok(err)
	c.Cleanup(func() { client.Close() })
	return client
}

func (c *tools) ok(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c *tools) want(condition bool, format string, args ...any) {
	c.Helper()
	if !condition {
		c.Fatalf(format, args...)
	}
}

func (c *tools) fails(err, with error) {
	c.Helper()
	if !errors.Is(err, with) {
		c.Fatalf("%v instead of %v", err, with)
	}
}

func (c *tools) acquire(client *dlock.Client, options ...dlock.Option) *dlock.Lock {
	c.Helper()
	l, err := client.Acquire(c.ctx, c.name, options...)
	c.ok(err)
	return l
}

// free tells whether a client's try gets the lock.
func (c *tools) free(client *dlock.Client) bool {
	c.Helper()
	l, err := client.TryAcquire(c.ctx, c.name)
	if err != nil {
		c.fails(err, dlock.ErrBusy)
		return false
	}
	c.ok(l.Release())
	return true
}

func (c *tools) until(what string, condition func() bool) {
	c.Helper()
	for end := time.Now().Add(long); !condition(); time.Sleep(5 * time.Millisecond) {
		c.want(time.Now().Before(end), "this did not become true: %s", what)
	}
}

func (c *tools) waits(client *dlock.Client, n uint64) {
	c.Helper()
	c.until("it waits", func() bool { return client.Stats().Waiting == n })
}

// told waits for a channel of a goroutine.
func told[T any](c *tools, channel <-chan T) T {
	c.Helper()
	select {
	case value := <-channel:
		return value
	case <-time.After(long):
		c.Fatal("nothing came")
		panic("")
	}
}

// begin runs f in a goroutine.
func begin(f func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	return ended
}

type process struct {
	*exec.Cmd
	lines *bufio.Reader
}

// run starts this program again, for child().
func (c *tools) run(what string, keys ...string) *process {
	command := exec.Command(os.Args[0], "child", what, uri(keys...), c.name)
	command.Stderr = os.Stderr
	pipe, err := command.StdoutPipe()
	c.ok(err)
	c.ok(command.Start())
	c.Cleanup(func() { command.Process.Kill() })
	return &process{command, bufio.NewReader(pipe)}
}

func (p *process) line() string {
	line, _ := p.lines.ReadString('\n')
	return strings.TrimSpace(line)
}

func threads() int {
	tasks, _ := os.ReadDir("/proc/self/task")
	return len(tasks)
}

// abi is build/bindings/abi.json.
type abi struct {
	Constants map[string]int64
	Enums     map[string]map[string]int64
	Errors    []struct {
		Name, Text, Advice string
		Number             int
	}
	Capabilities []struct{ Word string }
}

func readABI(t *testing.T) (told abi) {
	content, err := os.ReadFile(os.Getenv("DLOCK_TEST_ABI"))
	if err == nil {
		err = json.Unmarshal(content, &told)
	}
	if err != nil {
		t.Fatal(err)
	}
	return told
}

// page is what bindings/cases.md says of each case.
func page(t *testing.T) map[int][2]string {
	content, err := os.ReadFile("../../../bindings/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[int][2]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \| ([a-z-]+) \| .* \| ([a-z]*) ?\|$`).FindAllStringSubmatch(string(content), -1) {
		number, _ := strconv.Atoi(row[1])
		found[number] = [2]string{row[2], row[3]}
	}
	return found
}
