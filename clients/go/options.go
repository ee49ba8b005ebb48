package fairlock

import (
	"crypto/rand"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"fairlock.example/clients/go/internal/wire"
)

const (
	forever  = time.Duration(-1)
	patience = 30 * time.Second // a place in the queue outlives a caller that died before it could block
	unset    = -1
	maxLimit = 1_000_000
	maxOwner = 256
	maxHost  = 200
)

// Option is an option of New.
type Option interface{ apply(*options) }

// LockOption is an option of one acquisition; given to New it is the default for all.
type LockOption interface {
	Option
	ofLock()
}

type lockOption func(*options)

func (o lockOption) apply(all *options) { o(all) }
func (o lockOption) ofLock()            {}

type locksOption func(*options)

func (o locksOption) apply(all *options) { o(all) }

type options struct {
	wait, lease, syncTimeout                     time.Duration
	noRenewal, session, reentrant, shared        bool
	owner                                        string
	isOwned                                      bool // the owner was given
	limit                                        int
	isLimited                                    bool
	minReplicas                                  int
	retryTimeout, commandTimeout, releaseTimeout time.Duration
	hooks                                        Hooks
}

func defaults() options {
	return options{
		wait: forever, lease: 30 * time.Second, syncTimeout: time.Second, minReplicas: unset,
		retryTimeout: 30 * time.Second, commandTimeout: 5 * time.Second, releaseTimeout: 5 * time.Second,
	}
}

// Wait limits the wait; 0: try once, never queue. Without it there is no limit.
func Wait(longest time.Duration) LockOption {
	return lockOption(func(o *options) {
		if o.wait = longest; longest < 0 {
			o.wait = forever - 1 // Not to be taken for no limit.
		}
	})
}

// Lease is the lease that is asked for, and that each renewal sets: 30 seconds unless said otherwise, 1 ms or more.
func Lease(length time.Duration) LockOption { return lockOption(func(o *options) { o.lease = length }) }

// NoRenewal lets the lease end when it ends. Without it the lease is renewed in the background at every third of it,
// until Release, and until the context given to Acquire is done.
func NoRenewal() LockOption { return lockOption(func(o *options) { o.noRenewal = true }) }

// Session makes the server renew the lease as long as a connection of the lock's own is open, and free the lock as
// soon as it is closed.
func Session() LockOption { return lockOption(func(o *options) { o.session = true }) }

// Owner names who asks, in 1 to 256 bytes, for owners that outlive a process. Two callers with one owner both hold
// the lock. Without it the owner is host:pid:uuid, with another uuid for each acquisition.
func Owner(name string) LockOption {
	return lockOption(func(o *options) { o.owner, o.isOwned = name, true })
}

// Reentrant lets who asks with a context that derives from Held.Context hold the lock again at once. The last
// Release frees it. Both acquisitions need the option.
func Reentrant() LockOption { return lockOption(func(o *options) { o.reentrant = true }) }

// Shared holds the lock together with others that are shared.
func Shared() LockOption { return lockOption(func(o *options) { o.shared = true }) }

// Limit holds the lock together with others as long as there are at most so many holders, 1 to 1,000,000.
func Limit(holders int) LockOption {
	return lockOption(func(o *options) { o.limit, o.isLimited = holders, true })
}

// SyncTimeout is how long replicas may take to confirm an acquisition or a renewal, 1 second unless said otherwise; 0:
// do not ask them.
func SyncTimeout(longest time.Duration) LockOption {
	return lockOption(func(o *options) { o.syncTimeout = longest })
}

// MinReplicas is how many replicas must confirm an acquisition or a renewal, and at least one does where any is
// connected. Without it that is 1 where the Sentinels or the cluster know a replica of the master, be it down, and else 0.
func MinReplicas(count int) LockOption {
	return lockOption(func(o *options) {
		if o.minReplicas = count; count < 0 {
			o.minReplicas = unset - 1 // Not to be taken for the default.
		}
	})
}

// RetryTimeout is how long a server that cannot be reached, or refuses for the time being, is asked again: 30
// seconds unless said otherwise, and no longer than the wait.
func RetryTimeout(longest time.Duration) Option {
	return locksOption(func(o *options) { o.retryTimeout = longest })
}

// CommandTimeout is the longest time for an answer that the server gives at once: 5 seconds unless said otherwise.
func CommandTimeout(longest time.Duration) Option {
	return locksOption(func(o *options) { o.commandTimeout = longest })
}

// ReleaseTimeout is how long a release that fails for the connection is sent again: 5 seconds unless said otherwise.
func ReleaseTimeout(longest time.Duration) Option {
	return locksOption(func(o *options) { o.releaseTimeout = longest })
}

// Hooks is an option of New: functions for tracing and metrics, each of which may be nil. They are called in the
// goroutine that caused them. One that panics disturbs nothing; the panic is logged.
type Hooks struct {
	OnWait     func(Event) // once for each acquisition that has to wait
	OnAcquired func(Event) // with Token and Waited
	OnLost     func(Event) // with Token, Cause and Held
	OnReleased func(Event) // with Token and Held
}

func (h Hooks) apply(o *options) { o.hooks = h }

// Event is what a hook is told.
type Event struct {
	Name, Owner string
	Token       int64
	Waited      time.Duration // since the call of Acquire
	Held        time.Duration
	Cause       Cause
}

func tell(which string, hook func(Event), event Event) {
	if hook == nil {
		return
	}
	defer func() {
		if failure := recover(); failure != nil {
			log.Printf("fairlock: the hook %s has failed: %v", which, failure)
		}
	}()
	hook(event)
}

// check refuses what is out of range, before anything is sent.
func (o *options) check() error {
	for _, each := range []struct {
		name        string
		value, from time.Duration
	}{
		{"Lease", o.lease, time.Millisecond}, {"CommandTimeout", o.commandTimeout, time.Millisecond},
		{"SyncTimeout", o.syncTimeout, 0}, {"RetryTimeout", o.retryTimeout, 0}, {"ReleaseTimeout", o.releaseTimeout, 0},
		{"Wait", o.wait, forever},
	} {
		if each.value < each.from {
			from := each.from
			if from < 0 {
				from = 0
			}
			return &ArgumentError{each.name, fmt.Sprintf("is less than %v", from)}
		}
	}
	if o.isLimited && (o.limit < 1 || o.limit > maxLimit) {
		return &ArgumentError{"Limit", fmt.Sprintf("is not from 1 to %d: %d", maxLimit, o.limit)}
	}
	if o.minReplicas < unset {
		return &ArgumentError{"MinReplicas", "is less than 0"}
	}
	if o.isOwned && (len(o.owner) < 1 || len(o.owner) > maxOwner) {
		return &ArgumentError{"Owner", fmt.Sprintf("is not 1 to %d bytes long", maxOwner)}
	}
	if o.owner == "*" {
		return &ArgumentError{"Owner", "is * (a connection's own identity), which connections here are not kept for"}
	}
	return nil
}

// arguments are what ACQUIRE is given in every ask.
func (o *options) arguments() (words []any) {
	if o.shared || o.isLimited {
		words = append(words, "SHARED")
	}
	if o.isLimited {
		words = append(words, o.limit)
	}
	words = append(words, "LEASE", ms(o.lease), "ONCE")
	if o.session {
		words = append(words, "SESSION")
	}
	return words
}

// andRole asks for the replicas, too, where they have to confirm.
func (o *options) andRole(command wire.Command) []wire.Command {
	if o.syncTimeout == 0 {
		return []wire.Command{command}
	}
	return []wire.Command{command, {"ROLE"}}
}

// ms is whole milliseconds, rounded up, for the server.
func ms(length time.Duration) int64 {
	whole := int64(length / time.Millisecond)
	if length%time.Millisecond > 0 {
		whole++
	}
	if whole < 1 {
		return 1
	}
	return whole
}

var host = hostName()

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '-'
	}, name)
	if len(name) > maxHost {
		return name[:maxHost]
	}
	return name
}

// newOwner is an owner that nobody else has, and that names the machine.
func newOwner() string {
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		panic(err) // Without randomness two callers could hold one lock.
	}
	random[6] = random[6]&0x0f | 0x40
	random[8] = random[8]&0x3f | 0x80
	return fmt.Sprintf("%s:%d:%x-%x-%x-%x-%x", host, os.Getpid(),
		random[:4], random[4:6], random[6:8], random[8:10], random[10:])
}
