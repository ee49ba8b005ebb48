package service

// Rows 48 and 49: tests of a service without a server.

import (
	"context"
	"errors"
	"reflect"
	"sync"
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

func start(t *testing.T, options ...fairlock.Option) (*miniredis.Miniredis, *fairlock.Locks) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	locks := fairlock.New(client, options...)
	t.Cleanup(func() { locks.Close() })
	return server, locks
}

func expect(t *testing.T, isSo bool, what string, values ...any) {
	t.Helper()
	if !isSo {
		t.Fatalf("not so: "+what, values...)
	}
}

func acquire(t *testing.T, locks *fairlock.Locks, options ...fairlock.LockOption) *fairlock.Held {
	t.Helper()
	held, err := locks.Acquire(ctx, "orders", options...)
	expect(t, err == nil, "held: %v", err)
	return held
}

// waiting returns the owners in the queue once there are count of them.
func waiting(t *testing.T, server *miniredis.Miniredis, count int) []string {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		owners, _ := server.List("redisson_lock_queue:{orders}")
		if len(owners) == count {
			return owners
		}
		expect(t, time.Now().Before(end), "%d wait", count)
	}
}

func TestR48FirstComeFirstServed(t *testing.T) {
	t.Parallel()
	server, locks := start(t)
	first := acquire(t, locks)
	_, err := locks.Acquire(ctx, "orders", fairlock.Wait(50*time.Millisecond))
	expect(t, errors.Is(err, fairlock.ErrNotInTime), "not in time: %v", err)
	_, err = locks.TryAcquire(ctx, "orders")
	expect(t, errors.Is(err, fairlock.ErrNotInTime), "not in time: %v", err)
	cancelled, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() {
		_, err := locks.Acquire(cancelled, "orders")
		ended <- err
	}()
	waiting(t, server, 1)
	cancel()
	expect(t, <-ended == context.Canceled, "the context's")
	waiting(t, server, 0)
	got := make(chan *fairlock.Held)
	for count := 1; count <= 3; count++ {
		go func() {
			held, _ := locks.Acquire(ctx, "orders")
			got <- held
		}()
		waiting(t, server, count)
	}
	order, last := waiting(t, server, 3), first.Token()
	expect(t, first.Release() == nil, "released")
	for _, owner := range order {
		held := <-got
		expect(t, held.Owner() == owner && held.Token() > last, "in their order")
		last = held.Token()
		expect(t, held.Release() == nil, "released")
	}
	outer := acquire(t, locks, fairlock.Reentrant())
	inner, err := locks.Acquire(outer.Context(), "orders", fairlock.Reentrant())
	expect(t, err == nil && inner == outer, "the same: %v", err)
	expect(t, inner.Release() == nil && outer.Release() == nil && !server.Exists("orders"), "free")
}

// Upstash's error for an unknown command.
func TestAServiceThatSaysItOtherwise(t *testing.T) {
	t.Parallel()
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

func TestR48Hooks(t *testing.T) {
	t.Parallel()
	var mutex sync.Mutex
	told := map[string][]string{}
	tell := func(which string) func(fairlock.Event) {
		return func(event fairlock.Event) {
			mutex.Lock()
			defer mutex.Unlock()
			told[event.Owner] = append(told[event.Owner], which)
		}
	}
	server, locks := start(t, fairlock.Hooks{
		OnWait: tell("wait"), OnAcquired: tell("acquired"), OnLost: tell("lost"), OnReleased: tell("released"),
	})
	first, got := acquire(t, locks), make(chan *fairlock.Held)
	go func() {
		held, _ := locks.Acquire(ctx, "orders")
		got <- held
	}()
	waiting(t, server, 1)
	expect(t, first.Release() == nil, "released")
	second := <-got
	server.Del("orders")
	expect(t, errors.Is(second.Renew(ctx, 0), fairlock.ErrLockLost), "lost")
	mutex.Lock()
	defer mutex.Unlock()
	expect(t, reflect.DeepEqual(told[first.Owner()], []string{"acquired", "released"}), "told: %v", told)
	expect(t, reflect.DeepEqual(told[second.Owner()], []string{"wait", "acquired", "lost"}), "told: %v", told)
}

func TestR49ALockIsLost(t *testing.T) {
	t.Parallel()
	for cause, lose := range map[fairlock.Cause]func(*miniredis.Miniredis){
		fairlock.CauseNotHeld: func(server *miniredis.Miniredis) { server.Del("orders") },
		fairlock.CauseLease:   func(server *miniredis.Miniredis) { server.FastForward(time.Minute) },
	} {
		cause, lose := cause, lose
		t.Run(string(cause), func(t *testing.T) {
			t.Parallel()
			server, locks := start(t)
			options := []fairlock.LockOption{fairlock.Lease(time.Second)}
			if cause == fairlock.CauseLease {
				options = append(options, fairlock.NoRenewal())
			}
			held, got := acquire(t, locks, options...), make(chan *fairlock.Held)
			go func() {
				next, _ := locks.Acquire(ctx, "orders")
				got <- next
			}()
			waiting(t, server, 1)
			expect(t, held.Lost() == nil, "held")
			lose(server)
			<-held.Context().Done()
			var loss *fairlock.Error
			expect(t, errors.As(held.Release(), &loss) && loss.Cause == cause, "lost: %v", held.Lost())
			next := <-got
			expect(t, next.Token() > held.Token() && next.Release() == nil, "the next one has it")
		})
	}
}
