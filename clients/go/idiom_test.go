package fairlock_test

// What is Go's own: arguments that compile, errors.Is, Run and defer, contexts, goroutines, the page. The rows that are the
// same in every language are tested by clients/conformance.

import (
	"context"
	"errors"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	fairlock "fairlock.example/clients/go"
	"github.com/redis/go-redis/v9"
)

const longest = 2 * time.Minute // that anything here may take

var (
	ctx     = context.Background()
	address = "127.0.0.1:" + os.Getenv("FAIRLOCK_PORT") // of the server that scripts/clients/go starts
)

func expect(t *testing.T, isSo bool, what string, values ...any) {
	t.Helper()
	if !isSo {
		t.Fatalf(what, values...)
	}
}

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for start := time.Now(); !condition(); time.Sleep(10 * time.Millisecond) {
		expect(t, time.Since(start) < longest, "still not so: %s", what)
	}
}

func open(t *testing.T, options ...fairlock.Option) (*fairlock.Locks, *redis.Client) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: address})
	locks := fairlock.New(client, options...)
	t.Cleanup(func() {
		locks.Close()
		client.Close()
	})
	return locks, client
}

func acquire(t *testing.T, locks *fairlock.Locks, options ...fairlock.LockOption) *fairlock.Held {
	t.Helper()
	held, err := locks.Acquire(ctx, t.Name(), options...)
	expect(t, err == nil, "%v", err)
	return held
}

// traced is what a library for tracing could make of a client: not what New knows how to ask for the master of a key.
type traced struct{ redis.UniversalClient }

func TestAnArgumentThatIsWrongIsToldByTheFirstAcquisition(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	for _, wrong := range []struct {
		locks *fairlock.Locks
		text  string
	}{
		{fairlock.New(nil), "no *redis.Client and no *redis.ClusterClient: <nil>"},
		{fairlock.New((*redis.Client)(nil)), "the client is no"},
		{fairlock.New(ring), "*redis.Ring"},
		{fairlock.New(traced{client}), "traced"},
		{fairlock.New(client, nil), "nil"},
		{fairlock.New(client, fairlock.Lease(time.Millisecond-1)), "Lease is less than 1ms"},
		{fairlock.New(client, fairlock.MinReplicas(-1)), "MinReplicas is less than 0"},
	} {
		_, err := wrong.locks.Acquire(ctx, "orders")
		expect(t, errors.Is(err, fairlock.ErrArgument) && strings.Contains(err.Error(), wrong.text), "%v", err)
		wrong.locks.Close()
	}
}

func TestErrorsAreFoundByErrorsIs(t *testing.T) {
	locks, client := open(t)
	var none *fairlock.Held
	expect(t, none.Release() == nil, "defer held.Release() may stand before err is checked")
	held := acquire(t, locks, fairlock.Lease(9*time.Second))
	client.Del(ctx, t.Name())
	<-held.Context().Done()
	expect(t, errors.Is(context.Cause(held.Context()), fairlock.ErrLockLost), "the context tells why")
	err := held.Release()
	var lost *fairlock.Error
	expect(t, errors.Is(err, fairlock.ErrLockLost) && errors.As(err, &lost) && lost.Cause == fairlock.CauseNotHeld && lost.Code == "NOTHELD", "%v", err)
}

func TestRunReleasesWhenTheWorkPanics(t *testing.T) {
	locks, client := open(t)
	func() {
		defer func() { expect(t, recover() == "the work's", "it goes on") }()
		locks.Run(ctx, t.Name(), func(context.Context, *fairlock.Held) error { panic("the work's") })
	}()
	expect(t, client.Exists(ctx, t.Name()).Val() == 0, "it is free")
}

func TestTheLeaseIsRenewedWhileAHookIsCalled(t *testing.T) {
	_, client := open(t)
	last := time.Duration(1<<63 - 1)
	wasRenewed := func() bool {
		before := last
		last = client.PTTL(ctx, t.Name()).Val()
		return last > before
	}
	locks, _ := open(t, fairlock.Hooks{OnAcquired: func(fairlock.Event) { until(t, "it is renewed", wasRenewed) }})
	held := acquire(t, locks, fairlock.Lease(9*time.Second))
	expect(t, held.Release() == nil, "it was not lost")
}

func TestReentrantIsWhoAsksWithAContextThatDerivesFromTheHolds(t *testing.T) {
	locks, client := open(t)
	outer := acquire(t, locks, fairlock.Reentrant())
	below, cancel := context.WithCancel(outer.Context())
	defer cancel()
	inner, err := locks.Acquire(below, t.Name(), fairlock.Reentrant())
	expect(t, err == nil && inner == outer, "the same: %v", err)
	expect(t, inner.Release() == nil && outer.Release() == nil && client.Exists(ctx, t.Name()).Val() == 0, "free")
	_, err = locks.Acquire(outer.Context(), t.Name(), fairlock.Reentrant())
	expect(t, errors.Is(err, context.Canceled), "it was released: %v", err)
}

// goroutines of the package.
func goroutines() (count int) {
	stacks := make([]byte, 1<<20)
	for _, stack := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "fairlock.example/clients/go.") {
			count++
		}
	}
	return count
}

func TestNoGoroutineIsLeftAfterTheRelease(t *testing.T) {
	for _, options := range [][]fairlock.LockOption{nil, {fairlock.Session()}} {
		client := redis.NewClient(&redis.Options{Addr: address})
		locks := fairlock.New(client)
		held := acquire(t, locks, options...)
		expect(t, held.Release() == nil, "released")
		until(t, "nothing is left", func() bool { return goroutines() == 0 })
		locks.Close()
		client.Close()
	}
}

// count of what go-redis logs.
type count struct{ atomic.Int32 }

func (c *count) Printf(context.Context, string, ...any) { c.Add(1) }

func TestTheClientCanBeClosedRightAfterLocks(t *testing.T) {
	var logged count
	redis.SetLogger(&logged)
	for n := 0; n < 20; n++ {
		client := redis.NewClient(&redis.Options{Addr: address})
		locks := fairlock.New(client)
		held := acquire(t, locks)
		waited := make(chan error)
		go func() { waited <- locks.Run(ctx, t.Name(), func(context.Context, *fairlock.Held) error { return nil }) }()
		until(t, "it waits", func() bool { info, _ := locks.Info(ctx, t.Name()); return info.Waiting == 1 })
		expect(t, held.Release() == nil && <-waited == nil, "released")
		locks.Close()
		client.Close()
	}
	expect(t, logged.Load() == 0, "%d lines are logged", logged.Load())
}

func TestTheTestOfTheREADMEIsTheOneThatRuns(t *testing.T) {
	test := regexp.MustCompile("(?s)```go\n(func Test.*?)```").FindStringSubmatch(read(t, "README.md"))[1]
	expect(t, strings.Contains(read(t, "testdata/miniredis/service_test.go"), test), "that of scripts/clients/go")
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	expect(t, err == nil, "%v", err)
	return string(text)
}
