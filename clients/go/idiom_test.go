package fairlock_test

// What is Go's own: arguments that compile, errors.Is, Run and defer, contexts, goroutines, child processes. The rows that are the
// same in every language are tested by clients/conformance.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	fairlock "fairlock.example/clients/go"
	"github.com/redis/go-redis/v9"
)

const (
	longest      = 2 * time.Minute // that anything here may take
	childAddress = "FAIRLOCK_TEST_CHILD"
)

var (
	ctx     = context.Background()
	address string // of the one server
)

func TestMain(m *testing.M) {
	if os.Getenv(childAddress) != "" {
		os.Exit(beChild())
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	address = listener.Addr().String()
	listener.Close()
	folder, err := os.MkdirTemp("", "fairlock")
	if err != nil {
		panic(err)
	}
	server := exec.Command("redis-server", "--port", address[strings.LastIndex(address, ":")+1:], "--bind", "127.0.0.1", "--save", "",
		"--dir", folder, "--loadmodule", os.Getenv("FAIRLOCK_MODULE"))
	if err := server.Start(); err != nil {
		panic(err)
	}
	client := redis.NewClient(&redis.Options{Addr: address})
	for start := time.Now(); client.Ping(ctx).Err() != nil && time.Since(start) < longest; {
		time.Sleep(10 * time.Millisecond)
	}
	client.Close()
	code := m.Run()
	server.Process.Kill()
	server.Wait()
	os.RemoveAll(folder)
	os.Exit(code)
}

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

func TestAnArgumentThatIsWrongIsToldByTheFirstAcquisition(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	failover := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "locks", SentinelAddrs: []string{"127.0.0.1:1"}})
	defer failover.Close()
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	for _, wrong := range []struct {
		locks        *fairlock.Locks
		option, text string
	}{
		{fairlock.New(nil), "client", "is nil: a *redis.Client or a *redis.ClusterClient is wanted"},
		{fairlock.New((*redis.Client)(nil)), "client", "is nil"},
		{fairlock.New(ring), "client", "is *redis.Ring: a *redis.Client"},
		{fairlock.New(failover), "client", "give its options to fairlock.NewFailover"},
		{fairlock.NewFailover(nil), "client", "needs the MasterName and the SentinelAddrs"},
		{fairlock.New(client, nil), "options", "nil"},
		{fairlock.New(client, fairlock.Lease(time.Millisecond-1)), "Lease", "is less than 1ms"},
		{fairlock.New(client, fairlock.Wait(-1)), "Wait", "is less than 0s"},
		{fairlock.New(client, fairlock.MinReplicas(-1)), "MinReplicas", "is less than 0"},
	} {
		_, err := wrong.locks.Acquire(ctx, "orders")
		var argument *fairlock.ArgumentError
		expect(t, errors.As(err, &argument) && argument.Option == wrong.option && strings.Contains(err.Error(), wrong.text), "%v", err)
		wrong.locks.Close()
	}
}

func TestErrorsAreFoundByErrorsIs(t *testing.T) {
	locks, client := open(t)
	var none *fairlock.Held
	expect(t, none.Release() == nil, "defer held.Release() may stand before err is checked")
	held := acquire(t, locks, fairlock.Lease(time.Second))
	_, err := locks.TryAcquire(ctx, t.Name())
	expect(t, errors.Is(err, fairlock.ErrNotInTime) && !errors.Is(err, fairlock.ErrNotReplicated), "%v", err)
	client.Del(ctx, t.Name())
	<-held.Context().Done()
	expect(t, errors.Is(context.Cause(held.Context()), fairlock.ErrLockLost), "the context tells why")
	err = held.Release()
	var lost *fairlock.Error
	expect(t, errors.Is(err, fairlock.ErrLockLost) && errors.As(err, &lost) && lost.Cause == fairlock.CauseNotHeld && lost.Code == "NOTHELD", "%v", err)
	expect(t, held.Release() == nil, "releasing again does nothing")
}

func TestRunReleasesWhenTheWorkPanicsAndJoinsBothErrors(t *testing.T) {
	locks, client := open(t)
	func() {
		defer func() { expect(t, recover() == "the work's", "it goes on") }()
		locks.Run(ctx, t.Name(), func(context.Context, *fairlock.Held) error { panic("the work's") })
	}()
	expect(t, client.Exists(ctx, t.Name()).Val() == 0, "it is free")
	mine := errors.New("the work's own")
	err := locks.Run(ctx, t.Name(), func(work context.Context, held *fairlock.Held) error {
		client.Del(ctx, t.Name())
		return mine
	})
	expect(t, errors.Is(err, mine) && errors.Is(err, fairlock.ErrLockLost), "%v", err)
}

func TestAContextThatIsDoneLeavesTheQueueAndEndsTheRenewal(t *testing.T) {
	locks, client := open(t, fairlock.Lease(time.Second))
	working, stop := context.WithCancel(ctx)
	held, err := locks.Acquire(working, t.Name())
	expect(t, err == nil, "%v", err)
	waiting, cancel := context.WithCancel(ctx)
	failed := make(chan error)
	go func() {
		_, err := locks.Acquire(waiting, t.Name())
		failed <- err
	}()
	queue := func() int64 { return client.LLen(ctx, "redisson_lock_queue:{"+t.Name()+"}").Val() }
	until(t, "it waits", func() bool { return queue() == 1 })
	cancel()
	expect(t, errors.Is(<-failed, context.Canceled), "the context's error")
	until(t, "it has left", func() bool { return queue() == 0 })
	stop()
	<-held.Context().Done()
	until(t, "the lease has ended", func() bool { return client.Exists(ctx, t.Name()).Val() == 0 && held.Lost() != nil })
	expect(t, errors.Is(held.Lost(), fairlock.ErrLockLost), "%v", held.Lost())
}

func TestReentrantIsWhoAsksWithAContextThatDerivesFromTheHolds(t *testing.T) {
	locks, client := open(t)
	outer := acquire(t, locks, fairlock.Reentrant())
	below, cancel := context.WithCancel(outer.Context())
	defer cancel()
	inner, err := locks.Acquire(below, t.Name(), fairlock.Reentrant())
	expect(t, err == nil && inner == outer, "the same: %v", err)
	expect(t, inner.Release() == nil && client.Exists(ctx, t.Name()).Val() == 1, "still held")
	_, err = locks.Acquire(ctx, t.Name(), fairlock.Reentrant(), fairlock.Wait(0))
	expect(t, errors.Is(err, fairlock.ErrNotInTime), "another caller: %v", err)
	expect(t, outer.Release() == nil && client.Exists(ctx, t.Name()).Val() == 0, "free")
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
		expect(t, goroutines() > 0, "something keeps it")
		expect(t, held.Release() == nil, "released")
		until(t, "nothing is left", func() bool { return goroutines() == 0 })
		locks.Close()
		client.Close()
	}
}

func TestAChildProcessHasNoConnectionOfItsParent(t *testing.T) {
	locks, _ := open(t)
	parents := acquire(t, locks, fairlock.Session())
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childAddress+"="+address)
	var said bytes.Buffer
	child.Stdout, child.Stderr = &said, os.Stderr
	expect(t, child.Run() == nil && said.String() == "0 sockets\n", "it said %s", &said)
	expect(t, parents.Lost() == nil && parents.Release() == nil, "the parent's is its own")
}

func beChild() int {
	links, _ := filepath.Glob("/proc/self/fd/*")
	count := 0
	for _, link := range links {
		if target, _ := os.Readlink(link); strings.HasPrefix(target, "socket:") {
			count++
		}
	}
	locks := fairlock.New(redis.NewClient(&redis.Options{Addr: os.Getenv(childAddress)}))
	defer locks.Close()
	err := locks.Run(ctx, "a child's", func(context.Context, *fairlock.Held) error {
		_, err := fmt.Println(count, "sockets")
		return err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
