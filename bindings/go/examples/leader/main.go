// leader URI NAME: one of all the processes that run this leads, until it is interrupted or loses its lock; then another one
// does.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"dlock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := dlock.Open(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for ctx.Err() == nil {
		if err := client.Do(ctx, os.Args[2], lead); err != nil && ctx.Err() == nil {
			log.Print(err) // not the leader, or not any more
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// lead works until ctx ends: the process is to stop, or somebody else leads.
func lead(ctx context.Context, l *dlock.Lock) error {
	fmt.Println("leads, fence", l.Fence())
	for ctx.Err() == nil {
		// One step of the work goes here. What it changes is told the fence.
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return ctx.Err()
}
