package fairlock

import (
	"context"
	"time"
)

// ask is one acquisition under way.
type ask struct {
	name, owner   string
	options       options
	started       time.Time
	tries         tries
	isWaiting     bool          // and said so
	isQueued      bool          // so that to wait is next
	isPolling     bool          // it cannot block at the server
	retryAfter    time.Duration // by the server's last answer to an ask that was queued
	mayBeKnown    bool          // to the server, as waiter or holder
	isUnconfirmed bool          // by replicas, at the last grant
	onceAt        string
	address       string // that was asked last
}

// grant is the server's answer to an acquisition.
type grant struct {
	token       int64
	sent        time.Time // the request, or one that has renewed the lease since
	seen        stand
	retryAfter  time.Duration // of an owner that is in the queue
	role        []answer
	isConfirmed bool
}

func newAsk(name string, o options) *ask {
	a := &ask{name: name, owner: o.owner, options: o, started: time.Now()}
	if a.owner == "" {
		a.owner = newOwner()
	}
	a.tries.longest = o.retryTimeout
	if o.wait == 0 { // Without a wait there is still the time of one answer.
		a.tries.longest = o.commandTimeout
	}
	return a
}

// left of the wait; forever is no limit.
func (a *ask) left() time.Duration {
	if a.options.wait == forever {
		return forever
	}
	return max(a.options.wait-time.Since(a.started), 0)
}

// notInTime adds the first failure, if the server could not be asked.
func (a *ask) notInTime() error {
	kind, reason, what := ErrNotInTime, a.tries.first, a.address
	if reason != nil {
		what = reason.Error()
	} else if a.isUnconfirmed {
		kind, what = ErrNotReplicated, "no replica has confirmed it (see MinReplicas): "+a.address
	}
	within := "at once"
	if a.options.wait > 0 {
		within = "within " + a.options.wait.String()
	}
	return failed(kind, reason, "%s: not acquired %s: %s", a.name, within, what)
}

func (l *Locks) acquire(ctx context.Context, name string, o options) (*Held, error) {
	if o.reentrant {
		if held, err := l.again(ctx, name); held != nil || err != nil {
			return held, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	asking, end, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	a := newAsk(name, o)
	held, err := l.untilGranted(asking, ctx, a)
	if err == nil {
		return held, nil
	}
	if a.mayBeKnown {
		l.withdraw(a)
	}
	switch {
	case asking.Err() == nil:
		return nil, err
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, errClosed
}

func (l *Locks) untilGranted(ctx, holder context.Context, a *ask) (*Held, error) {
	for {
		address, err := a.onceAt, error(nil)
		if address == "" {
			address, err = l.address(ctx, a.name)
		}
		var held *Held
		if err == nil {
			a.address = address
			held, err = l.askAt(ctx, holder, address, a)
		}
		switch {
		case held != nil:
			return held, nil
		case err == nil:
			err = l.unconfirmed(ctx, a)
		case ctx.Err() != nil:
			err = ctx.Err()
		default:
			err = l.passed(ctx, a, err, address)
		}
		if err != nil {
			return nil, err
		}
	}
}

// passed returns nil if asking again may help, and otherwise the caller's error.
func (l *Locks) passed(ctx context.Context, a *ask, err error, address string) error {
	a.onceAt = ""
	if _, ok := err.(*Error); ok {
		return err
	}
	if onceAt, ok := l.redirected(&a.tries, err, address); ok {
		a.onceAt = onceAt
		return nil
	}
	if codeOf(err) == "NOTHELD" { // The lease was over when the grant arrived.
		a.mayBeKnown = false
		return nil
	}
	if isOutOfReach(err) && !a.isPolling && !l.options.isRequired && a.options.needsModule() == "" {
		a.isPolling = true
		return nil
	}
	if !isPassing(err) {
		return l.refusal(err, a.name, address, a.options.needsModule())
	}
	l.distrust(address, err)
	left := a.left()
	if a.options.wait == 0 {
		left = forever // There is still the time of one answer for another try.
	}
	if isExhausted(err) && a.options.wait != 0 && left != 0 {
		// A descriptor may be free later; until then it keeps its place by asking without blocking.
		a.isQueued = false
		return sleep(ctx, a.shorter(longestPause))
	}
	err = addressed(address, err)
	if left == 0 {
		if a.tries.first == nil {
			a.tries.first = err
		}
		return a.notInTime()
	}
	return a.tries.after(ctx, a.name, err, left)
}

// shorter is a pause that ends with the wait.
func (a *ask) shorter(pause time.Duration) time.Duration {
	if left := a.left(); left != forever {
		return min(pause, left)
	}
	return pause
}

// askAt returns nil for both where replicas have not confirmed the lock, which was given back.
func (l *Locks) askAt(ctx, holder context.Context, address string, a *ask) (*Held, error) {
	var line *conn
	got, err := l.askInOrder(ctx, address, a)
	switch {
	case got != nil || err != nil:
	case a.isPolling:
		got, err = l.askAndListen(ctx, address, a)
	default:
		got, line, err = l.askOnLine(ctx, address, a)
	}
	if err == nil && got.isConfirmed && ctx.Err() == nil {
		if line != nil && line.place.kind != session {
			l.give(line)
			line = nil
		}
		return newHeld(l, holder, a, got, line), nil
	}
	if line != nil {
		l.give(line)
	}
	if err == nil && !got.isConfirmed {
		err = l.onPlace(ctx, place{control, address}, a.onceAt != "", func(c *conn) error {
			_, err := c.call(ctx, l.options.commandTimeout, "FAIRLOCK.RELEASE", a.name, a.owner)
			return err
		})
		if codeOf(err) == "NOTHELD" { // It was lost in between.
			err = nil
		}
	}
	return nil, err
}

func (l *Locks) unconfirmed(ctx context.Context, a *ask) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	a.isUnconfirmed, a.mayBeKnown = true, false
	if a.left() == 0 {
		return a.notInTime()
	}
	return sleep(ctx, firstPause)
}
