package service

// Tests of a service without a server.

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	engine "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	fairlock "fairlock.example/clients/go"
)

var ctx = context.Background()

// The piece of the README.
func TestTheServiceStopsWithItsLock(t *testing.T) {
	server := miniredis.RunT(t)
	locks := fairlock.New(redis.NewClient(&redis.Options{Addr: server.Addr()}))
	defer locks.Close()

	held, err := locks.Acquire(context.Background(), "orders", fairlock.Lease(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	server.Del("orders") // The lock is broken: a third of the lease later the holder knows it.
	<-held.Context().Done()
	if err := held.Release(); !errors.Is(err, fairlock.ErrLockLost) {
		t.Fatal(err)
	}
}

func start(t *testing.T) (*miniredis.Miniredis, *fairlock.Locks) {
	server := miniredis.RunT(t)
	locks := fairlock.New(redis.NewClient(&redis.Options{Addr: server.Addr()}))
	t.Cleanup(func() { locks.Close() })
	return server, locks
}

func expect(t *testing.T, isSo bool, what string, values ...any) {
	t.Helper()
	if !isSo {
		t.Fatalf("not so: "+what, values...)
	}
}

func acquire(t *testing.T, locks *fairlock.Locks) *fairlock.Held {
	t.Helper()
	held, err := locks.Acquire(ctx, "orders")
	expect(t, err == nil, "held: %v", err)
	return held
}

func TestAWaiterIsServed(t *testing.T) {
	server, locks := start(t)
	first := acquire(t, locks)
	served := make(chan error)
	go func() {
		served <- locks.Run(ctx, "orders", func(context.Context, *fairlock.Held) error { return nil })
	}()
	for !server.Exists("redisson_lock_queue:{orders}") {
		time.Sleep(time.Millisecond)
	}
	expect(t, first.Release() == nil && <-served == nil, "served")
}

// Upstash's error for an unknown command.
func TestAServiceThatSaysItOtherwise(t *testing.T) {
	server, locks := start(t)
	for _, command := range []string{"FAIRLOCK.ACQUIRE", "FAIRLOCK.RELEASE", "FAIRLOCK.INFO", "ROLE"} {
		command := command
		err := server.Server().Register(command, func(c *engine.Peer, _ string, _ []string) {
			c.WriteError("ERR Command is not available: '" + command + "'. See https://upstash.com/docs for details")
		})
		expect(t, err == nil, "%v", err)
	}
	held := acquire(t, locks)
	info, err := locks.Info(ctx, "orders")
	expect(t, err == nil && info.Owner == held.Owner(), "info: %+v, %v", info, err)
	_, err = locks.Acquire(ctx, "orders", fairlock.Session())
	expect(t, errors.Is(err, fairlock.ErrNoModule), "no module: %v", err)
	expect(t, held.Release() == nil, "released")
}

// What go-redis logs.
type refused struct{ *testing.T }

func (r refused) Printf(_ context.Context, format string, values ...any) { r.Errorf(format, values...) }

func TestASessionsConnectionIsNotLogged(t *testing.T) {
	_, locks := start(t)
	redis.SetLogger(refused{t})
	t.Cleanup(func() { redis.SetLogger(nil) })
	_, err := locks.Acquire(ctx, "orders", fairlock.Session())
	expect(t, errors.Is(err, fairlock.ErrNoModule), "no module: %v", err)
}
