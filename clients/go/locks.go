// Package fairlock takes fair locks on Redis or Valkey with the fairlock module: who asks first is served first, the
// server does the waiting, and each acquisition has a fencing token.
//
//	locks := fairlock.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"}))
//	held, err := locks.Acquire(ctx, "orders", fairlock.Wait(30*time.Second))
//	if err != nil {
//		return err
//	}
//	defer held.Release()
//
// Locks opens connections of its own, and leaves the client alone. Package fairlocktest has a fake for tests.
package fairlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"fairlock.example/clients/go/internal/wire"
)

var errClosed = failed(ErrClosed, nil, "Locks is closed")

// Locks takes fair locks at one server, at the master that sentinels name, or at a cluster. Make one for the
// process; it can be used by many goroutines.
type Locks struct {
	options options
	wrong   error // what New could not return
	route   *route
	isFake  bool

	mutex               sync.Mutex // guards what follows
	idle                map[place][]*conn
	busy                map[*conn]bool
	held                map[*Held]bool
	asks                map[int]context.CancelFunc
	asked               int
	aloneUntil          map[string]time.Time
	gone                map[int64]Cause // in the fake, by token: lost before its holder knew that it has it
	isClosing, isClosed bool
	quiet               chan struct{} // closed when it closes and nobody asks any more
}

// New makes a Locks from a *redis.Client, also one of NewFailoverClient, or a *redis.ClusterClient. Nothing is sent
// before the first acquisition, which also returns the error if an option here is out of range.
func New(client redis.UniversalClient, options ...Option) *Locks {
	route, err := newRoute(client)
	made := newLocks(route, options)
	if made.wrong == nil {
		made.wrong = err
	}
	return made
}

func newLocks(route *route, given []Option) *Locks {
	l := &Locks{
		options: defaults(), route: route, idle: map[place][]*conn{}, busy: map[*conn]bool{}, held: map[*Held]bool{},
		asks: map[int]context.CancelFunc{}, aloneUntil: map[string]time.Time{}, gone: map[int64]Cause{},
		quiet: make(chan struct{}),
	}
	for _, option := range given {
		option.apply(&l.options)
	}
	l.wrong = l.options.check()
	return l
}

// Acquire waits for the lock: ErrNotInTime if Wait is over, ctx.Err() if ctx is done before. The lease is renewed
// until Release, or until ctx is done: it has to live as long as the work.
func (l *Locks) Acquire(ctx context.Context, name string, options ...LockOption) (*Held, error) {
	all, err := l.with(options)
	if err != nil {
		return nil, err
	}
	return l.acquire(ctx, name, all)
}

// TryAcquire returns nil and no error if the lock cannot be had at once.
func (l *Locks) TryAcquire(ctx context.Context, name string, options ...LockOption) (*Held, error) {
	all, err := l.with(append(options[:len(options):len(options)], Wait(0)))
	if err != nil {
		return nil, err
	}
	held, err := l.acquire(ctx, name, all)
	if errors.Is(err, ErrNotInTime) && !errors.Is(err, ErrNotReplicated) {
		return nil, nil
	}
	return held, err
}

// Run works while it holds the lock; ctx is Held.Context. The error of work is what it returns. If the release fails,
// too, errors.Is finds both; if only the release does, or the lock was lost, it returns that.
func (l *Locks) Run(
	ctx context.Context, name string, work func(ctx context.Context, held *Held) error, options ...LockOption,
) (err error) {
	held, err := l.Acquire(ctx, name, options...)
	if err != nil {
		return err
	}
	defer func() {
		release := held.Release()
		switch {
		case err == nil:
			err = release
		case release != nil:
			err = &bodyError{err, release}
		}
	}()
	return work(held.Context(), held)
}

func (l *Locks) with(given []LockOption) (options, error) {
	all := l.options
	if l.wrong != nil {
		return all, l.wrong
	}
	for _, option := range given {
		option.apply(&all)
	}
	return all, all.check()
}

// begin is the start of an acquisition, whose context ends also when Locks is closed.
func (l *Locks) begin(ctx context.Context) (context.Context, func(), error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.isClosing {
		return nil, nil, errClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	l.asked++
	number := l.asked
	l.asks[number] = cancel
	return ctx, func() { l.ended(number) }, nil
}

func (l *Locks) ended(number int) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.asks[number]()
	delete(l.asks, number)
	if l.isClosing && len(l.asks) == 0 {
		close(l.quiet)
	}
}

// keep remembers a lock that is held; or says why it is not any more.
func (l *Locks) keep(h *Held) (Cause, bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.isClosing {
		return CauseClosed, true
	}
	if cause, ok := l.gone[h.token]; ok {
		delete(l.gone, h.token)
		return cause, true
	}
	l.held[h] = true
	return "", false
}

func (l *Locks) drop(h *Held) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	delete(l.held, h)
}

// Close ends all waits (ErrClosed) and closes the connections; locks that are held are lost. It returns nil.
func (l *Locks) Close() error {
	l.mutex.Lock()
	if l.isClosing {
		l.mutex.Unlock()
		return nil
	}
	l.isClosing = true
	held, isQuiet := l.holding(), len(l.asks) == 0
	for _, cancel := range l.asks {
		cancel()
	}
	l.mutex.Unlock()
	for _, each := range held {
		each.lose(CauseClosed)
	}
	if !isQuiet {
		// Who waits leaves its queue first.
		select {
		case <-l.quiet:
		case <-time.After(l.options.commandTimeout):
		}
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.isClosed = true
	for where, idle := range l.idle {
		closeAll(idle)
		delete(l.idle, where)
	}
	for c := range l.busy {
		c.Close()
	}
	return nil
}

func (l *Locks) holding() (held []*Held) {
	for each := range l.held {
		held = append(held, each)
	}
	return held
}

func init() {
	wire.NewFake = func(dial func() wire.Line, options any) wire.Fake {
		locks := newLocks(&route{fake: dial}, options.([]Option))
		locks.isFake = true
		return wire.Fake{Locks: locks, Lose: locks.lose}
	}
}

// lose makes the locks with these tokens lost, at once or as soon as their holders know that they have them.
func (l *Locks) lose(tokens []int64, cause string) {
	for _, token := range tokens {
		if h := l.heldWith(token, Cause(cause)); h != nil {
			h.lose(Cause(cause))
		}
	}
}

func (l *Locks) heldWith(token int64, cause Cause) *Held {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for h := range l.held {
		if h.token == token {
			return h
		}
	}
	l.gone[token] = cause
	return nil
}
