// Package fairlock takes fair locks on Redis or Valkey with the fairlock module: who asks first is served first, the
// server does the waiting, and each acquisition has a fencing token. Where a server does not have the module, locks are
// taken by scripts; Session, Shared and Limit are refused there.
//
//	locks := fairlock.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"}))
//	held, err := locks.Acquire(ctx, "orders", fairlock.Wait(30*time.Second))
//	if err != nil {
//		return err
//	}
//	defer held.Release()
//
// Locks opens connections of its own, and leaves the client alone.
package fairlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	errClosed   = failed(ErrClosed, nil, "Locks is closed")
	errNoOption = &ArgumentError{"options", "have one that is nil"}
)

// Locks takes fair locks at one server, at the master that sentinels name, or at a cluster. Make one for the
// process; it can be used by many goroutines.
type Locks struct {
	options options
	wrong   error // what New could not return
	route   *route

	mutex               sync.Mutex // guards what follows
	idle                map[place][]*conn
	busy                map[*conn]bool
	open                map[place]int // idle and busy ones
	turns               map[place]chan struct{}
	breaks              map[string]int  // of connections, and changes of its role, by address
	without             map[string]bool // the module, by address: the last answer there
	native, isKnown     bool            // the last answer of all
	hasWarned           bool
	held                map[*Held]bool
	asks                map[int]context.CancelFunc
	asked               int
	endWatch            context.CancelFunc // nil where none is going on
	verifying           map[string]bool
	isClosing, isClosed bool
	quiet               chan struct{} // closed when it closes and no request is left

	worry        chan struct{} // wakes the watch
	lookedAround time.Time     // by the watch
	looked       time.Time     // for the masters; held by the goroutine that looks
}

// New makes a Locks from a *redis.Client or a *redis.ClusterClient; NewFailover is for Sentinels. Nothing is sent
// before the first acquisition, which also returns the error if the client is of another type, or an option here is out
// of range.
func New(client redis.UniversalClient, options ...Option) *Locks {
	route, err := newRoute(client)
	return newLocks(route, err, options)
}

// NewFailover makes a Locks from the options of redis.NewFailoverClient: the master is the one that Sentinels name.
func NewFailover(sentinels *redis.FailoverOptions, options ...Option) *Locks {
	route, err := failoverRoute(sentinels)
	return newLocks(route, err, options)
}

func newLocks(route *route, wrong error, given []Option) *Locks {
	l := &Locks{
		options: defaults(), route: route, wrong: wrong, idle: map[place][]*conn{}, busy: map[*conn]bool{},
		open: map[place]int{}, turns: map[place]chan struct{}{}, breaks: map[string]int{},
		without: map[string]bool{}, held: map[*Held]bool{},
		asks: map[int]context.CancelFunc{}, verifying: map[string]bool{},
		quiet: make(chan struct{}), worry: make(chan struct{}, 1),
	}
	for _, option := range given {
		if option == nil {
			l.wrong = errNoOption
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
	return l.acquire(ctx, name, all)
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
		return all, &ArgumentError{"name", "of the lock is empty"}
	}
	for _, option := range given {
		if option == nil {
			return all, errNoOption
		}
		option.apply(&all)
	}
	return all, all.check()
}

// begin starts an acquisition, whose context also ends when Locks is closed.
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
	l.attend()
	return ctx, func() { l.ended(number) }, nil
}

func (l *Locks) ended(number int) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.asks[number]()
	delete(l.asks, number)
	l.attend()
	if l.isClosing && len(l.asks) == 0 {
		close(l.quiet)
	}
}

// keep remembers a lock that is held, unless Locks is being closed.
func (l *Locks) keep(h *Held) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.isClosing {
		return false
	}
	l.held[h] = true
	l.attend()
	return true
}

func (l *Locks) drop(h *Held) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	delete(l.held, h)
	l.attend()
}

// Close ends all waits (ErrClosed) and closes the connections; locks that are held are lost. It returns nil.
func (l *Locks) Close() error {
	l.mutex.Lock()
	if l.isClosing {
		l.mutex.Unlock()
		return nil
	}
	l.isClosing = true
	l.attend()
	held, isQuiet := l.holding(), len(l.asks) == 0
	for _, cancel := range l.asks {
		cancel()
	}
	l.mutex.Unlock()
	for _, each := range held {
		each.lose(CauseClosed)
	}
	if !isQuiet {
		// Waiters leave their queues first.
		select {
		case <-l.quiet:
		case <-time.After(l.options.commandTimeout):
		}
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.isClosed = true
	for where := range l.idle {
		l.closeIdle(where)
	}
	for c := range l.busy {
		c.close()
	}
	return nil
}

func (l *Locks) holding() (held []*Held) {
	for each := range l.held {
		held = append(held, each)
	}
	return held
}
