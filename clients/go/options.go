package fairlock

import (
	"crypto/rand"
	"fmt"
	"log"
	"os"
	"strings"
	"time"
)

const (
	forever  = time.Duration(-1)
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
	wait, lease, patience, syncTimeout           time.Duration
	noRenewal, session, reentrant, shared        bool
	owner                                        string
	isOwned                                      bool // the owner was given
	limit                                        int
	isLimited                                    bool
	minReplicas                                  int
	retryTimeout, commandTimeout, releaseTimeout time.Duration
	isRequired                                   bool // the module
	hooks                                        Hooks
}

func defaults() options {
	return options{
		wait: forever, lease: 30 * time.Second, patience: 30 * time.Second, syncTimeout: time.Second, minReplicas: unset,
		retryTimeout: 30 * time.Second, commandTimeout: 5 * time.Second, releaseTimeout: 5 * time.Second,
	}
}

// Wait limits the wait; 0: try once, never queue. Without it there is no limit.
func Wait(longest time.Duration) LockOption {
	return lockOption(func(o *options) {
		if o.wait = longest; longest < 0 {
			o.wait = forever - 1 // Not the value for no limit.
		}
	})
}

// Lease is the lease of the acquisition and of each renewal: 30 seconds by default, 1 ms or more.
func Lease(length time.Duration) LockOption { return lockOption(func(o *options) { o.lease = length }) }

// Patience is how long a waiter that has died keeps its place where the server does not have the module: 30 seconds by
// default, 1 ms or more. It asks again at half of that at the latest. With the module it counts only until the waiter
// blocks: a blocked one that has died is dropped at once.
func Patience(length time.Duration) LockOption {
	return lockOption(func(o *options) { o.patience = length })
}

// NoRenewal lets the lease end. Without it the lease is renewed in the background at every third of it, until Release,
// and until the context given to Acquire is done.
func NoRenewal() LockOption { return lockOption(func(o *options) { o.noRenewal = true }) }

// Session makes the server renew the lease as long as a connection of the lock's own is open, and free the lock as
// soon as it is closed.
func Session() LockOption { return lockOption(func(o *options) { o.session = true }) }

// Owner sets the owner, 1 to 256 bytes, for owners that outlive a process. Two callers with one owner both hold the
// lock. Without it the owner is host:pid:uuid, with another uuid for each acquisition.
func Owner(name string) LockOption {
	return lockOption(func(o *options) { o.owner, o.isOwned = name, true })
}

// Reentrant lets a caller that asks with a context that derives from Held.Context hold the lock again at once. The last
// Release frees it. Both acquisitions need the option.
func Reentrant() LockOption { return lockOption(func(o *options) { o.reentrant = true }) }

// Shared holds the lock together with others that are shared.
func Shared() LockOption { return lockOption(func(o *options) { o.shared = true }) }

// Limit holds the lock together with others, up to a number of holders, 1 to 1,000,000.
func Limit(holders int) LockOption {
	return lockOption(func(o *options) { o.limit, o.isLimited = holders, true })
}

// SyncTimeout is how long replicas may take to confirm an acquisition or a renewal, 1 second by default; 0: do not ask
// them.
func SyncTimeout(longest time.Duration) LockOption {
	return lockOption(func(o *options) { o.syncTimeout = longest })
}

// MinReplicas is how many replicas must confirm an acquisition or a renewal; if any is connected, at least one must.
// The default is 1 if the Sentinels or the cluster know a replica of the master, even one that is down, and 0
// otherwise.
func MinReplicas(count int) LockOption {
	return lockOption(func(o *options) {
		if o.minReplicas = count; count < 0 {
			o.minReplicas = unset - 1 // Not the value for the default.
		}
	})
}

// RetryTimeout is how long a server that cannot be reached, or refuses temporarily, is asked again: 30 seconds by
// default, and no longer than the wait.
func RetryTimeout(longest time.Duration) Option {
	return locksOption(func(o *options) { o.retryTimeout = longest })
}

// CommandTimeout is the longest time for an answer to a command that does not block: 5 seconds by default.
func CommandTimeout(longest time.Duration) Option {
	return locksOption(func(o *options) { o.commandTimeout = longest })
}

// ReleaseTimeout is how long a release is sent again if its connection fails: 5 seconds by default.
func ReleaseTimeout(longest time.Duration) Option {
	return locksOption(func(o *options) { o.releaseTimeout = longest })
}

// RequireModule refuses servers without the fairlock module (ErrNoModule). Without it locks are taken by scripts there.
func RequireModule() Option { return locksOption(func(o *options) { o.isRequired = true }) }

// Hooks is an option of New: functions for tracing and metrics, each of which may be nil. They are called in the
// goroutine that caused the event. A panic in one is logged and has no other effect.
type Hooks struct {
	OnWait     func(Event) // once for each acquisition that has to wait
	OnAcquired func(Event) // with Token and Waited
	OnLost     func(Event) // with Token, Cause and Held
	OnReleased func(Event) // with Token and Held
}

func (h Hooks) apply(o *options) { o.hooks = h }

// Event is the argument of a hook.
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

// check refuses values out of range before anything is sent.
func (o *options) check() error {
	for _, each := range []struct {
		name        string
		value, from time.Duration
	}{
		{"Lease", o.lease, time.Millisecond}, {"Patience", o.patience, time.Millisecond}, {"CommandTimeout", o.commandTimeout, time.Millisecond},
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

// needsModule is the first option that scripts do not have, or "".
func (o *options) needsModule() string {
	switch {
	case o.session:
		return "Session"
	case o.isLimited:
		return "Limit"
	case o.shared:
		return "Shared"
	}
	return ""
}

// arguments are those of ACQUIRE in every ask.
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
func (o *options) andRole(command request) []request {
	if o.syncTimeout == 0 {
		return []request{command}
	}
	return []request{command, {"ROLE"}}
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

// newOwner is a unique owner that names the machine.
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
