// Package fairlock takes fair locks on Redis or Valkey with the fairlock module: first come, first served, and each
// acquisition has a fencing token. Where a server does not have the module, locks are taken by scripts; Session, Shared
// and Limit are refused there.
//
//	locks := fairlock.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"}))
//	held, err := locks.Acquire(ctx, "orders", fairlock.Wait(30*time.Second))
//	if err != nil {
//		return err
//	}
//	defer held.Release()
//
// The client carries all commands. One connection more listens for all callers that wait (in a cluster one for each
// master), and each Session has one.
package fairlock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

var errClosed = failed(ErrClosed, nil, "Locks is closed")

// Locks takes fair locks. Make one for the process; it can be used by many goroutines.
type Locks struct {
	options  options
	wrong    error                // what New could not return
	client   *redis.Client        // nil for a cluster
	cluster  *redis.ClusterClient // or nil
	ctx      context.Context      // done when it is closed
	cancel   context.CancelFunc
	calls    sync.WaitGroup // that are under way
	mode     atomic.Int32
	replicas sync.Map // of asked, by address

	mutex     sync.Mutex        // guards what follows
	idle      map[string][]*ear // by name of the lock
	given     map[*ear]bool     // of callers that stay, whose owner was given: whether one that left may be known to the server
	listeners map[*redis.Client]*listener
}

// New makes a Locks from a *redis.Client, also one of redis.NewFailoverClient, or from a *redis.ClusterClient. Nothing is
// sent before the first acquisition, which also returns the error if the client is of another type, or an option here is
// out of range.
func New(client redis.UniversalClient, given ...Option) *Locks {
	l := &Locks{options: defaults(), idle: map[string][]*ear{}, given: map[*ear]bool{}, listeners: map[*redis.Client]*listener{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.client, _ = client.(*redis.Client)
	l.cluster, _ = client.(*redis.ClusterClient)
	if l.client == nil && l.cluster == nil {
		l.wrong = failed(ErrArgument, nil, "the client is no *redis.Client and no *redis.ClusterClient: %T", client)
	}
	for _, option := range given {
		if option == nil {
			l.wrong = failed(ErrArgument, nil, "an option is nil")
			return l
		}
		option.apply(&l.options)
	}
	if l.wrong == nil {
		l.wrong = l.options.check()
	}
	return l
}

// Acquire waits for the lock: ErrNotInTime if Wait is over, ctx.Err() if ctx is done before. The lease is renewed
// until Release, or until ctx is done: it has to live as long as the work.
func (l *Locks) Acquire(ctx context.Context, name string, options ...LockOption) (*Held, error) {
	all, err := l.with(name, options)
	if err != nil {
		return nil, err
	}
	if all.reentrant {
		if held, err := l.again(ctx, name); held != nil || err != nil {
			return held, err
		}
	}
	return l.acquire(ctx, name, &all)
}

// TryAcquire is Acquire with Wait(0): ErrNotInTime if the lock is not available at once.
func (l *Locks) TryAcquire(ctx context.Context, name string, options ...LockOption) (*Held, error) {
	return l.Acquire(ctx, name, append(options[:len(options):len(options)], Wait(0))...)
}

// Run works while it holds the lock; ctx is Held.Context. It returns the error of work. If the release fails, too,
// errors.Is finds both; if only the release fails, or the lock was lost, it returns that error.
func (l *Locks) Run(
	ctx context.Context, name string, work func(ctx context.Context, held *Held) error, options ...LockOption,
) (err error) {
	held, err := l.Acquire(ctx, name, options...)
	if err != nil {
		return err
	}
	defer func() {
		if release := held.Release(); err == nil {
			err = release
		} else if release != nil {
			err = errors.Join(err, release)
		}
	}()
	return work(held.Context(), held)
}

func (l *Locks) with(name string, given []LockOption) (options, error) {
	all := l.options
	if l.wrong != nil {
		return all, l.wrong
	}
	if name == "" {
		return all, failed(ErrArgument, nil, "the name of the lock is empty")
	}
	for _, option := range given {
		if option == nil {
			return all, failed(ErrArgument, nil, "an option is nil")
		}
		option(&all)
	}
	return all, all.check()
}

// Close ends all waits (ErrClosed) and the connections of this Locks; locks that are held are lost. The client stays
// open. It returns nil.
func (l *Locks) Close() error {
	l.mutex.Lock()
	l.cancel()
	l.mutex.Unlock()
	l.calls.Wait() // Waiters leave their queues first.
	return nil
}

// Native reports whether locks are taken by the server's module, or by scripts; known is false before the server's
// first answer.
func (l *Locks) Native() (native, known bool) {
	mode := l.mode.Load()
	return mode == byModule, mode != byNothingYet
}

// Info is the state of a lock at the server. If several hold it, Owner is the first of them, and Holds, Lease, Token
// and Session are that one's.
type Info struct {
	Owner   string        // "" if the lock is free
	Holds   int64         // the owner's hold count
	Lease   time.Duration // until it ends; below 0 if it is held without a lease
	Token   int64         // 0 if the lock is free, or was taken by a script
	Session bool
	Waiting int64 // callers in the queue
	Holders int64
	Limit   int64 // of holders in all: 1 if the lock is held exclusively, 0 if it is free or they tolerate any number
}

// Info returns a lock's holder, and how many wait for it. It asks once.
func (l *Locks) Info(ctx context.Context, name string) (info Info, err error) {
	o, err := l.with(name, nil)
	if err != nil {
		return info, err
	}
	o.session, o.shared, o.limit = false, false, nil // which the server need not have for this
	r := l.send(ctx, nil, &o, 0, []any{"FAIRLOCK.INFO", name})
	switch {
	case r.err != nil && isPassing(r.err):
		return info, failed(ErrUnavailable, r.err, "%s: %v", name, r.err)
	case r.err != nil:
		return info, refusal(r.err, name, r.address, &o)
	}
	fields, _ := r.value.(map[any]any) // of RESP3
	if said, isList := r.value.([]any); isList {
		fields = map[any]any{}
		for at := 1; at < len(said); at += 2 {
			fields[said[at-1]] = said[at]
		}
	}
	number := func(field string) int64 { value, _ := fields[field].(int64); return value }
	info.Owner, _ = fields["owner"].(string)
	info.Holds, info.Token, info.Waiting = number("holds"), number("token"), number("waiting")
	info.Lease, info.Holders, info.Limit = time.Duration(number("lease"))*time.Millisecond, number("holders"), number("limit")
	info.Session = number("session") == 1 || fields["session"] == true
	return info, nil
}
