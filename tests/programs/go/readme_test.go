package tests

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"dlock"
)

// The program of the README, word for word.
func report(ctx context.Context, writeReport func(context.Context, uint64) error) error {
	client, err := dlock.Open("redis://locks.example")
	if err != nil {
		return err
	}
	defer client.Close()
	err = client.Do(ctx, "nightly-report", func(ctx context.Context, l *dlock.Lock) error {
		return writeReport(ctx, l.Fence()) // ctx ends if the lock is lost
	}, dlock.Timeout(5*time.Second))
	if errors.Is(err, dlock.ErrTimedOut) {
		return nil // somebody else writes it
	}
	return err
}

func TestReadme(t *testing.T) {
	_ = report // it is compiled
	page, err := os.ReadFile("../../../bindings/go/README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(page), "```go\n")
	code, _, _ = strings.Cut(code, "```")
	if !strings.Contains(string(source), "\t"+strings.ReplaceAll(strings.TrimSpace(code), "\n", "\n\t")) {
		t.Error("bindings/go/README.md has another program")
	}
}
