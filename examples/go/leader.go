// Leader election with a session.
//
//	scripts/clients/go run examples/go/leader.go [redis://127.0.0.1:6379] [NAME]
//
// Start several. One leads; if it dies, is stopped for longer than its connection lives, or ends, the next one leads at
// once: the server frees the lock with the connection. Ctrl-C resigns.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	fairlock "fairlock.example/clients/go"
	"github.com/redis/go-redis/v9"
)

func main() {
	url, name := "redis://127.0.0.1:6379", fmt.Sprintf("process %d", os.Getpid())
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	if len(os.Args) > 2 {
		name = os.Args[2]
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		log.Fatal(err)
	}
	locks := fairlock.New(redis.NewClient(options), fairlock.Session(), fairlock.Lease(5*time.Second))
	defer locks.Close()
	resigned, end := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer end()
	for resigned.Err() == nil {
		stand(resigned, locks, name)
	}
}

// stand waits until it is this one's turn to lead, and leads until it resigns or the lock is lost.
func stand(resigned context.Context, locks *fairlock.Locks, name string) {
	err := locks.Run(resigned, "leader", func(ctx context.Context, held *fairlock.Held) error {
		lead(ctx, name, held.Token())
		return nil
	})
	switch {
	case err == nil:
		fmt.Println(name, "has resigned")
	case errors.Is(err, fairlock.ErrLockLost):
		fmt.Println(name, "leads no more:", err)
	case resigned.Err() == nil:
		log.Fatal(err)
	}
}

// lead is what only the leader does; ctx is done as soon as it leads no more.
func lead(ctx context.Context, name string, token int64) {
	fmt.Println(name, "leads, token", token)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
