package fairlock

import (
	"context"
	"time"
)

// askInOrder asks without blocking, after earlier callers, so that the queue has the order of the calls. It returns nil
// for both if the caller has to wait next. A session asks on a connection of its own.
func (l *Locks) askInOrder(ctx context.Context, address string, a *ask) (*grant, error) {
	if a.isQueued {
		return nil, nil
	}
	leave, err := l.enterInTime(ctx, place{asking, address}, a)
	if err != nil {
		return nil, err
	}
	var got *grant
	err = l.reserve(ctx, address)
	if err == nil && !a.options.session {
		err = l.onPlace(ctx, place{asking, address}, a.onceAt != "", func(c *conn) (err error) {
			got, err = l.askFirst(ctx, c, a)
			return err
		})
	}
	leave()
	if got == nil || err != nil {
		return nil, err
	}
	// The connection is not kept from others while replicas confirm.
	_, wanted, err := l.wanted(address, &a.options, got.role)
	if got.isConfirmed = wanted == 0; got.isConfirmed || err != nil {
		return got, err
	}
	err = l.onPlace(ctx, place{renewal, address}, a.onceAt != "", func(c *conn) (err error) {
		got.isConfirmed, err = l.renewOn(ctx, c, a.name, a.owner, a.options.lease, &a.options)
		return err
	})
	if codeOf(err) == "NOTHELD" {
		err = nil
	}
	return got, err
}

// enterInTime is enter, for no longer than the wait, but long enough to ask at least once.
func (l *Locks) enterInTime(ctx context.Context, where place, a *ask) (leave func(), err error) {
	longest := max(a.left(), firstPause)
	switch a.options.wait {
	case forever:
		return l.enter(ctx, where)
	case 0:
		longest = l.options.commandTimeout
	}
	limited, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	leave, err = l.enter(limited, where)
	if err != nil && ctx.Err() == nil {
		err = a.notInTime()
	}
	return leave, err
}

// askFirst returns nil for both where the owner is in the queue now.
func (l *Locks) askFirst(ctx context.Context, c *conn, a *ask) (*grant, error) {
	words := append(request{"FAIRLOCK.ACQUIRE", a.name, a.owner}, a.options.arguments()...)
	if a.options.wait == 0 {
		words = append(words, "NOWAIT")
	} else {
		words = append(words, "ENQUEUE", "PATIENCE", ms(a.options.patience))
	}
	lasting, end := outlasting(ctx, leaveTime)
	defer end()
	got, err := l.send(lasting, c, a, a.options.commandTimeout, words)
	if err != nil || got.token > 0 {
		return got, err
	}
	if a.options.wait == 0 {
		return nil, a.notInTime()
	}
	a.isQueued, a.mayBeKnown, a.retryAfter = true, true, got.retryAfter
	a.isPolling = a.isPolling || c.lacksModule()
	if !a.isWaiting {
		a.isWaiting = true
		tell("OnWait", a.options.hooks.OnWait, Event{Name: a.name, Owner: a.owner})
	}
	return nil, nil
}

// askOnLine waits on a connection of its own until it ends.
func (l *Locks) askOnLine(ctx context.Context, address string, a *ask) (got *grant, c *conn, err error) {
	where := place{waiting, address}
	if a.options.session {
		where.kind = session
	}
	c, err = l.take(ctx, where)
	if err != nil {
		return nil, nil, err
	}
	c.isAsked = a.onceAt != ""
	if !a.isQueued {
		got, err = l.askFirst(ctx, c, a)
	}
	if got == nil && err == nil {
		got, err = l.askLast(ctx, c, a)
	}
	switch {
	case err != nil:
	case a.options.session || time.Since(got.sent) < a.options.lease/3:
		got.isConfirmed, err = l.confirm(ctx, c, &a.options, got.role)
	default: // It may have been on its way for longer than its lease.
		got.sent = time.Now()
		got.isConfirmed, err = l.renewOn(ctx, c, a.name, a.owner, a.options.lease, &a.options)
	}
	return got, c, err
}

// askLast blocks until the lock is granted, or the wait is over.
func (l *Locks) askLast(ctx context.Context, c *conn, a *ask) (*grant, error) {
	words := append(request{"FAIRLOCK.ACQUIRE", a.name, a.owner}, a.options.arguments()...)
	left, longest := a.left(), time.Duration(0)
	if left == 0 {
		return nil, a.notInTime()
	}
	if left != forever {
		words = append(words, "WAIT", ms(left))
		longest = left + a.options.commandTimeout
	}
	got, err := l.send(ctx, c, a, longest, words)
	if err == nil && got.token == 0 {
		err = a.notInTime()
	}
	return got, err
}

func (l *Locks) send(
	ctx context.Context, c *conn, a *ask, longest time.Duration, words request,
) (*grant, error) {
	wasKnown := a.mayBeKnown
	a.mayBeKnown = true
	got := &grant{seen: l.stand(c.place.address), sent: time.Now()}
	replies := c.send(ctx, longest, a.options.andRole(words)...)
	got.role = replies[1:]
	if err := replies[0].err; err != nil {
		// A refusal changes nothing. A hold from an earlier ask whose reply was lost is still there, and so is the place of a
		// caller that asks again.
		if replied(err) != nil {
			a.mayBeKnown = !isSettled(err) && (wasKnown || a.isWaiting && isPassing(err))
		}
		return got, err
	}
	a.tries.succeeded()
	got.token, _ = replies[0].value.(int64)
	if waits, _ := replies[0].value.([]any); len(waits) == 2 {
		after, _ := waits[1].(int64)
		got.retryAfter = time.Duration(max(after, 1)) * time.Millisecond
	}
	a.mayBeKnown = got.token > 0
	return got, nil
}

// isSettled reports whether the refusal means that the owner neither waits nor holds, or that another caller has its
// place.
func isSettled(err error) bool {
	switch codeOf(err) {
	case "TAKENOVER", "QUEUEFULL", "NOTALOCK", "WRONGTYPE", "CROSSSLOT":
		return true
	}
	return false
}
