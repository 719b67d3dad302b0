// queue URI FOLDER: does the jobs in a folder, one file each, beside other processes that run this. Each job is done once.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"dlock"
)

func main() {
	client, err := dlock.Open(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	jobs, _ := filepath.Glob(filepath.Join(os.Args[2], "*.job"))
	for _, job := range jobs {
		err := client.Do(context.Background(), filepath.Base(job), func(context.Context, *dlock.Lock) error {
			content, err := os.ReadFile(job)
			if errors.Is(err, os.ErrNotExist) {
				return nil // somebody else has done it since the folder was read
			}
			if err != nil {
				return err
			}
			fmt.Printf("%s: %s", filepath.Base(job), content) // the work
			return os.Remove(job)
		}, dlock.Timeout(0))
		if err != nil && !errors.Is(err, dlock.ErrBusy) { // ErrBusy: somebody else is doing it
			log.Print(err)
		}
	}
}
