package fairlock

import (
	"log"
	"time"
)

const forever = 100 * 365 * 24 * time.Hour // what is longer counts as this, so that sums do not overflow

// Option is an option of New.
type Option interface{ apply(*options) }

// LockOption is an option of one acquisition; given to New it is the default for all.
type LockOption func(*options)

type locksOption func(*options)

func (o LockOption) apply(all *options)  { o(all) }
func (o locksOption) apply(all *options) { o(all) }

type options struct {
	wait, lease, patience, syncTimeout           time.Duration
	retryTimeout, commandTimeout, releaseTimeout time.Duration
	noRenewal, session, reentrant, shared        bool
	owner                                        *string // nil: a new one
	limit, minReplicas                           *int    // nil: none, and as the server has replicas
	isRequired                                   bool    // the module
	hooks                                        Hooks
}

func defaults() options {
	return options{
		wait: forever, lease: 30 * time.Second, patience: 10 * time.Second, syncTimeout: time.Second,
		retryTimeout: 30 * time.Second, commandTimeout: 5 * time.Second, releaseTimeout: 5 * time.Second,
	}
}

// Wait limits the wait; 0: try once, never queue. Without it there is no limit.
func Wait(longest time.Duration) LockOption { return func(o *options) { o.wait = longest } }

// Lease is the lease of the acquisition and of each renewal: 30 seconds by default, 1 ms or more.
func Lease(length time.Duration) LockOption { return func(o *options) { o.lease = length } }

// Patience is how long a waiter may be silent before it counts as dead: 10 seconds by default, 1 ms or more. It asks at
// least twice in that time.
func Patience(length time.Duration) LockOption { return func(o *options) { o.patience = length } }

// NoRenewal lets the lease end. Without it the lease is renewed in the background at every third of it, until Release,
// and until the context given to Acquire is done.
func NoRenewal() LockOption { return func(o *options) { o.noRenewal = true } }

// Session makes the server renew the lease as long as a connection of the lock's own is open, and free the lock as
// soon as it is closed. It needs the module.
func Session() LockOption { return func(o *options) { o.session = true } }

// Owner sets the owner, 1 to 256 bytes, for owners that outlive a process. Two callers with one owner share its place,
// and both hold the lock. Without it the owner is host:pid:uuid.
func Owner(name string) LockOption { return func(o *options) { o.owner = &name } }

// Reentrant lets a caller that asks with a context that derives from Held.Context hold the lock again at once. The last
// Release frees it. Both acquisitions need the option.
func Reentrant() LockOption { return func(o *options) { o.reentrant = true } }

// Shared holds the lock together with others that are shared. It needs the module.
func Shared() LockOption { return func(o *options) { o.shared = true } }

// Limit holds the lock together with others, up to a number of holders, 1 to 1,000,000. It needs the module.
func Limit(holders int) LockOption { return func(o *options) { o.limit = &holders } }

// SyncTimeout is how long replicas may take to confirm an acquisition or a renewal, 1 second by default; 0: do not ask
// them.
func SyncTimeout(longest time.Duration) LockOption {
	return func(o *options) { o.syncTimeout = longest }
}

// MinReplicas is how many replicas must confirm an acquisition or a renewal. The default is 1 if the master had a
// replica when this Locks first asked it, and 0 otherwise.
func MinReplicas(count int) LockOption { return func(o *options) { o.minReplicas = &count } }

// RetryTimeout is how long a server that cannot be reached, or refuses for the moment, is asked again: 30 seconds by
// default, and no longer than the wait.
func RetryTimeout(longest time.Duration) Option {
	return locksOption(func(o *options) { o.retryTimeout = longest })
}

// CommandTimeout is the longest time for an answer: 5 seconds by default, 1 ms or more.
func CommandTimeout(longest time.Duration) Option {
	return locksOption(func(o *options) { o.commandTimeout = longest })
}

// ReleaseTimeout is how long a release that fails is sent again: 5 seconds by default, and no longer than the lease.
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

func tell(hook func(Event), event Event) {
	defer func() {
		if failure := recover(); failure != nil {
			log.Printf("fairlock: a hook has failed: %v", failure)
		}
	}()
	if hook != nil {
		hook(event)
	}
}

// check refuses values out of range before anything is sent.
func (o *options) check() error {
	for _, each := range []struct {
		name  string
		value *time.Duration
		least time.Duration
	}{
		{"Lease", &o.lease, time.Millisecond}, {"Patience", &o.patience, time.Millisecond},
		{"CommandTimeout", &o.commandTimeout, time.Millisecond}, {"ReleaseTimeout", &o.releaseTimeout, 0},
		{"RetryTimeout", &o.retryTimeout, 0}, {"SyncTimeout", &o.syncTimeout, 0}, {"Wait", &o.wait, 0},
	} {
		if *each.value < each.least {
			return failed(ErrArgument, nil, "%s is less than %v", each.name, each.least)
		}
		*each.value = min(*each.value, forever)
	}
	switch {
	case o.limit != nil && (*o.limit < 1 || *o.limit > 1_000_000):
		return failed(ErrArgument, nil, "Limit is not from 1 to 1000000: %d", *o.limit)
	case o.minReplicas != nil && *o.minReplicas < 0:
		return failed(ErrArgument, nil, "MinReplicas is less than 0")
	case o.owner != nil && (len(*o.owner) < 1 || len(*o.owner) > 256 || *o.owner == "*"):
		return failed(ErrArgument, nil, "Owner is not 1 to 256 bytes long, or is *, which stands for a connection")
	}
	return nil
}

// needsModule is the first option that scripts do not have, or "".
func (o *options) needsModule() string {
	switch {
	case o.session:
		return "Session"
	case o.limit != nil:
		return "Limit"
	case o.shared:
		return "Shared"
	}
	return ""
}

// ms is whole milliseconds, rounded up, for the server.
func ms(length time.Duration) int64 {
	return max(1, int64((length+time.Millisecond-1)/time.Millisecond))
}
