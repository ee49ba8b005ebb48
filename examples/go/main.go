// fairlock with go-redis: go run . [redis://127.0.0.1:6379]
//
// The upper half is to copy; the lower half shows it at work, and fails if anything is not as it says.
//
// Timeouts. go-redis gives up a command after ReadTimeout, 3 seconds unless you say otherwise, and sends
// it again on another connection, by which a waiter goes to the end of the queue. A context does not
// shorten or lengthen that. So those who wait have a client of their own, with ReadTimeout -1: none.
// Nor does cancelling a context end a read; Hold does it by FAIRLOCK.CANCEL.
//
// Each goroutine that waits has a connection of the pool. Releases go through another pool, so that they
// never queue behind those who wait for them.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrNotInTime says that the lock was not to be had within the wait.
	ErrNotInTime = errors.New("fairlock: not in time")
	// ErrLost says that the lease ended before the work did, or that an operator broke the lock.
	ErrLost = errors.New("fairlock: lost")
)

// Locks takes fair locks.
type Locks struct {
	client  *redis.Client
	waiting *redis.Client
}

// NewLocks takes locks at a server. At most so many goroutines can wait at a time.
func NewLocks(options redis.Options, waiters int) *Locks {
	patient := options
	patient.ReadTimeout = -1
	patient.PoolSize = waiters
	return &Locks{client: redis.NewClient(&options), waiting: redis.NewClient(&patient)}
}

// Close closes the connections.
func (l *Locks) Close() {
	l.client.Close()
	l.waiting.Close()
}

// Hold works while it holds the lock, and hands the work the fencing token. QUEUEFULL and other refusals
// are returned as they are.
func (l *Locks) Hold(
	ctx context.Context, name string, wait, lease time.Duration, work func(token int64) error,
) (err error) {
	// Nobody else has this owner's name, so no other goroutine can take its place or its lock.
	owner := newOwner()
	token, err := l.acquire(ctx, name, owner, wait, lease)
	if err != nil {
		// It may be queued still or, if only the reply was lost, hold the lock.
		l.client.Do(context.Background(), "FAIRLOCK.CANCEL", name, owner)
		l.client.Do(context.Background(), "FAIRLOCK.RELEASE", name, owner)
		return err
	}
	defer func() {
		// Also when the context was cancelled meanwhile, and when the work panics.
		released := l.client.Do(context.Background(), "FAIRLOCK.RELEASE", name, owner).Err()
		if released != nil && strings.HasPrefix(released.Error(), "NOTHELD") {
			released = ErrLost
		}
		if err == nil {
			err = released
		}
	}()
	return work(token)
}

func (l *Locks) acquire(
	ctx context.Context, name, owner string, wait, lease time.Duration,
) (int64, error) {
	answered := make(chan struct{})
	defer close(answered)
	go l.cancelWith(ctx, name, owner, answered)
	end := time.Now().Add(wait)
	for {
		left := time.Until(end).Milliseconds()
		if left < 1 {
			left = 1
		}
		// ONCE: go-redis sends a command again if the connection breaks before the reply.
		token, err := l.waiting.Do(ctx, "FAIRLOCK.ACQUIRE", name, owner,
			"WAIT", left, "LEASE", lease.Milliseconds(), "ONCE").Int64()
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case err == nil:
			return token, nil
		case errors.Is(err, redis.Nil):
			return 0, ErrNotInTime
		case !strings.HasPrefix(err.Error(), "UNBLOCKED"):
			return 0, err
		}
		// A failover: the place in the queue is still there.
	}
}

// cancelWith makes a blocked ACQUIRE return when the context is cancelled.
func (l *Locks) cancelWith(ctx context.Context, name, owner string, answered <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-answered:
		return
	}
	for {
		l.client.Do(context.Background(), "FAIRLOCK.CANCEL", name, owner)
		select {
		case <-answered:
			return
		// CANCEL may have come before ACQUIRE.
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Session is a lock that is held for as long as a connection of its own is open. The server renews the
// lease, and frees the lock as soon as the process is gone; the lease bounds it if the server is.
type Session struct {
	name       string
	connection *redis.Client
}

// AcquireSession waits for the lock at most so long.
func AcquireSession(
	ctx context.Context, options redis.Options, name string, wait, lease time.Duration,
) (*Session, error) {
	options.ReadTimeout = wait + 5*time.Second
	// One connection, which is not closed for being idle; another would be another session.
	options.PoolSize = 1
	options.ConnMaxIdleTime = -1
	options.MaxRetries = -1
	connection := redis.NewClient(&options)
	err := connection.Do(ctx, "FAIRLOCK.ACQUIRE", name, "*", "SESSION",
		"WAIT", wait.Milliseconds(), "LEASE", lease.Milliseconds()).Err()
	if errors.Is(err, redis.Nil) {
		err = ErrNotInTime
	}
	if err != nil {
		connection.Close()
		return nil, err
	}
	return &Session{name: name, connection: connection}, nil
}

// Check is for those who work for long to ask now and then: an error means that the lock is lost.
func (s *Session) Check(ctx context.Context) error {
	return s.connection.Do(ctx, "FAIRLOCK.RENEW", s.name, "*").Err()
}

// Close ends the session, and frees the lock.
func (s *Session) Close() error { return s.connection.Close() }

func newOwner() string {
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		panic(err)
	}
	return fmt.Sprintf("%x", random)
}

// A store that has seen a token refuses all that are smaller.
var conditionalWrite = redis.NewScript(`
if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'token') or 0) then
	return redis.error_reply('STALE token')
end
return redis.call('HSET', KEYS[1], 'token', ARGV[1], 'amount', ARGV[2])`)

// ------------------------------------------------------------------------------------- at work

const (
	lock  = "example:go-redis"
	stock = "example:go-redis:stock"
	wait  = 30 * time.Second
	lease = 10 * time.Second
)

func main() {
	url := "redis://127.0.0.1:6379"
	if named := os.Getenv("FAIRLOCK_URL"); named != "" {
		url = named
	}
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	parsed, err := redis.ParseURL(url)
	must(err)
	options := *parsed // Not those of a client, which has made them its own.
	client := redis.NewClient(parsed)
	defer client.Close()
	locks := NewLocks(options, 16)
	defer locks.Close()
	ctx := context.Background()
	must(client.Del(ctx, stock).Err())

	manyWorkersLoseNothing(ctx, client, locks)
	whoeverGivesUpLeavesTheQueue(ctx, client, locks)
	aHolderPastItsLeaseCannotWrite(ctx, client, locks)
	aWaitOutlivesTheTimeout(ctx, options, client)
	aSessionEndsWithItsConnection(ctx, options, locks)
}

func manyWorkersLoseNothing(ctx context.Context, client *redis.Client, locks *Locks) {
	var workers sync.WaitGroup
	for worker := 0; worker < 4; worker++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for round := 0; round < 5; round++ {
				must(locks.Hold(ctx, lock, wait, lease, func(token int64) error {
					before := amount(ctx, client)
					time.Sleep(2 * time.Millisecond) // Time enough for others to write, if they could.
					return write(ctx, client, token, before+1)
				}))
			}
		}()
	}
	workers.Wait()
	expect(amount(ctx, client) == 20, "4 workers have added 5 each")
}

func whoeverGivesUpLeavesTheQueue(ctx context.Context, client *redis.Client, locks *Locks) {
	never := func(int64) error { return errors.New("two hold the lock") }
	must(locks.Hold(ctx, lock, wait, lease, func(int64) error {
		err := locks.Hold(ctx, lock, 50*time.Millisecond, lease, never)
		expect(errors.Is(err, ErrNotInTime), "not in time: somebody else has the lock")
		soon, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		err = locks.Hold(soon, lock, wait, lease, never)
		expect(errors.Is(err, context.DeadlineExceeded), "a context ends a wait")
		queue, err := client.Do(ctx, "FAIRLOCK.QUEUE", lock).Slice()
		expect(err == nil && len(queue) == 0, "both have left the queue")
		return nil
	}))
}

func aHolderPastItsLeaseCannotWrite(ctx context.Context, client *redis.Client, locks *Locks) {
	err := locks.Hold(ctx, lock, wait, 50*time.Millisecond, func(old int64) error {
		// This holder sleeps. Meanwhile its lease ends, and the next one takes the lock.
		must(locks.Hold(ctx, lock, wait, lease, func(token int64) error {
			expect(token > old, "tokens grow")
			return write(ctx, client, token, 7)
		}))
		refusal := write(ctx, client, old, 9)
		expect(refusal != nil && strings.HasPrefix(refusal.Error(), "STALE"), "the store refuses the old token")
		return nil
	})
	expect(errors.Is(err, ErrLost), "and the release tells that the lock was lost")
	expect(amount(ctx, client) == 7, "the newer value stays")
}

func aWaitOutlivesTheTimeout(ctx context.Context, options redis.Options, client *redis.Client) {
	options.ReadTimeout = 2 * time.Second
	options.MaxRetries = -1
	hasty := options
	ordinary := redis.NewClient(&hasty)
	defer ordinary.Close()
	// Somebody has it for three seconds.
	must(client.Do(ctx, "FAIRLOCK.ACQUIRE", lock, "somebody", "LEASE", 3000).Err())
	err := ordinary.Do(ctx, "FAIRLOCK.ACQUIRE", lock, "hasty", "WAIT", 10000).Err()
	var timeout net.Error
	expect(errors.As(err, &timeout) && timeout.Timeout(), "an ordinary client gives up after two seconds")
	patient := NewLocks(options, 1)
	defer patient.Close()
	must(client.Do(ctx, "FAIRLOCK.ACQUIRE", lock, "somebody", "LEASE", 3000, "ONCE").Err())
	start := time.Now()
	must(patient.Hold(ctx, lock, wait, lease, func(int64) error { return nil }))
	expect(time.Since(start) > 2*time.Second, "the client for those who wait does not")
}

func aSessionEndsWithItsConnection(ctx context.Context, options redis.Options, locks *Locks) {
	session, err := AcquireSession(ctx, options, lock, wait, time.Minute)
	must(err)
	expect(session.Check(ctx) == nil, "the session holds")
	start := time.Now()
	// As when the process dies: the connection ends, and nobody releases.
	time.AfterFunc(200*time.Millisecond, func() { session.Close() })
	must(locks.Hold(ctx, lock, wait, lease, func(int64) error {
		waited := time.Since(start)
		expect(waited >= 150*time.Millisecond, "the next one waits as long as the connection is open")
		expect(waited < 20*time.Second, "then it has the lock at once, not when a minute's lease ends")
		return nil
	}))
}

func amount(ctx context.Context, client *redis.Client) int64 {
	amount, err := client.HGet(ctx, stock, "amount").Int64()
	if !errors.Is(err, redis.Nil) {
		must(err)
	}
	return amount
}

func write(ctx context.Context, client *redis.Client, token, amount int64) error {
	return conditionalWrite.Run(ctx, client, []string{stock}, token, amount).Err()
}

func must(err error) {
	if err != nil {
		expect(false, "no error: "+err.Error())
	}
}

func expect(isSo bool, what string) {
	if !isSo {
		fmt.Fprintln(os.Stderr, "not so:", what)
		os.Exit(1)
	}
	fmt.Println(what)
}
