package fairlock

import (
	"context"
	"time"

	"fairlock.example/clients/go/internal/wire"
)

const leaveTime = time.Second // for which a caller that gives up tries to leave the queue

// ask is one acquisition under way.
type ask struct {
	name, owner   string
	options       options
	started       time.Time
	tries         tries
	isWaiting     bool // and said so
	isQueued      bool // so that to block is next
	mayBeKnown    bool // to the server, as waiter or holder
	isUnconfirmed bool // by replicas, at the last grant
	onceAt        string
	address       string // that was asked last
}

// grant is what the server gave, and when it was asked for that.
type grant struct {
	token          int64
	sent, received time.Time
	seen           stand
	role           []wire.Reply
	isConfirmed    bool
}

func newAsk(name string, o options) *ask {
	a := &ask{name: name, owner: o.owner, options: o, started: time.Now()}
	if a.owner == "" {
		a.owner = newOwner()
	}
	a.tries.longest = o.retryTimeout
	if o.wait == 0 { // With no time to wait there is that of one answer.
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

// notInTime says what happened first, where the server could not be asked.
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

// passed returns nil if it is worth asking again, and what the caller gets if not.
func (l *Locks) passed(ctx context.Context, a *ask, err error, address string) error {
	a.onceAt = ""
	if _, ok := err.(*Error); ok {
		return err
	}
	if onceAt, ok := l.redirected(&a.tries, err, address); ok {
		a.onceAt = onceAt
		return nil
	}
	if !isPassing(err) {
		return refusal(err, a.name, address)
	}
	l.distrust(address, err)
	left := a.left()
	if a.options.wait == 0 {
		left = forever // The time of one answer is there for trying again.
	}
	if isExhausted(err) && a.options.wait != 0 && left != 0 {
		// A descriptor may be free later; until then it asks without blocking, and keeps its place by that.
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
	if got == nil && err == nil {
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
		if codeOf(err) == "NOTHELD" { // It was lost meanwhile.
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

// askInOrder asks without blocking, after those who called before, so that the queue has the order of the calls. It
// returns nil for both where to block is next. A session asks on a connection of its own.
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
	words := append(wire.Command{"FAIRLOCK.ACQUIRE", a.name, a.owner}, a.options.arguments()...)
	if a.options.wait == 0 {
		words = append(words, "NOWAIT")
	} else {
		words = append(words, "ENQUEUE", "PATIENCE", ms(patience))
	}
	got, err := l.send(ctx, c, a, a.options.commandTimeout, words)
	if err != nil || got.token > 0 {
		got.received = got.sent // It was not waited for.
		return got, err
	}
	if a.options.wait == 0 {
		return nil, a.notInTime()
	}
	a.isQueued, a.mayBeKnown = true, true
	if !a.isWaiting {
		a.isWaiting = true
		tell("OnWait", a.options.hooks.OnWait, Event{Name: a.name, Owner: a.owner})
	}
	return nil, nil
}

// askOnLine waits on a connection that nobody else has until it ends.
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
	if err == nil {
		got.isConfirmed, err = l.confirm(ctx, c, &a.options, got.role)
	}
	return got, c, err
}

// askLast blocks until the lock is granted, or the wait is over.
func (l *Locks) askLast(ctx context.Context, c *conn, a *ask) (*grant, error) {
	words := append(wire.Command{"FAIRLOCK.ACQUIRE", a.name, a.owner}, a.options.arguments()...)
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
	ctx context.Context, c *conn, a *ask, longest time.Duration, words wire.Command,
) (*grant, error) {
	wasKnown := a.mayBeKnown
	a.mayBeKnown = true
	got := &grant{seen: l.stand(c.place.address), sent: time.Now()}
	replies := c.send(ctx, longest, a.options.andRole(words)...)
	got.received, got.role = time.Now(), replies[1:]
	if err := replies[0].Err; err != nil {
		// A refusal changes nothing: what an earlier ask brought is still there, though its reply was lost, and so is
		// the place of a caller that is to ask again.
		if replied(err) != nil {
			a.mayBeKnown = !isSettled(err) && (wasKnown || a.isWaiting && isPassing(err))
		}
		return got, err
	}
	a.tries.succeeded()
	got.token, _ = replies[0].Value.(int64)
	a.mayBeKnown = got.token > 0
	return got, nil
}

// isSettled says that by this refusal the owner neither waits nor holds, or that another caller has its place.
func isSettled(err error) bool {
	switch codeOf(err) {
	case "TAKENOVER", "QUEUEFULL", "NOTALOCK", "WRONGTYPE", "CROSSSLOT":
		return true
	}
	return false
}

// withdraw is for a caller that does not know whether it waits, holds the lock, or neither.
func (l *Locks) withdraw(a *ask) {
	if l.leave(a, min(leaveTime, l.options.commandTimeout)) || a.options.isOwned {
		return
	}
	// A network that comes back must not leave the lock to a caller that has gone. With an owner that was given,
	// the caller may hold the lock again by then.
	go l.leave(a, a.options.lease)
}

// leave says whether the owner neither waits nor holds any more, as far as the server could be asked.
func (l *Locks) leave(a *ask, longest time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	for _, command := range []string{"FAIRLOCK.CANCEL", "FAIRLOCK.RELEASE"} {
		_, err := l.control(ctx, a.name, longest, command, a.name, a.owner)
		switch refused, ok := err.(*Error); {
		case ok && refused.kind == ErrClosed:
			return true
		case err != nil && !ok, ok && refused.kind == ErrUnavailable:
			return false
		} // A refusal is fine, such as NOTHELD: it does not hold it.
	}
	return true
}
