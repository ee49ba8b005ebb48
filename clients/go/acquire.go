package fairlock

import (
	"context"
	"strconv"
	"strings"
	"time"
)

const (
	aloneFor  = time.Second // for which a server without replicas is believed to have none
	leaveTime = time.Second // for which a caller that gives up tries to leave the queue
)

// ask is one acquisition under way.
type ask struct {
	name, owner   string
	options       options
	started       time.Time
	tries         tries
	isWaiting     bool
	mayBeKnown    bool // to the server, as waiter or holder
	isUnconfirmed bool // by a replica, at the last grant
	onceAt        string
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
	if left := a.options.wait - time.Since(a.started); left > 0 {
		return left
	}
	return 0
}

func (a *ask) notInTime(reason error) error {
	if a.isUnconfirmed {
		return failed(ErrNotReplicated, reason, "%s: no replica has confirmed it in time", a.name)
	}
	return failed(ErrNotInTime, reason, "%s: not in time", a.name)
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
		return l.refusal(err, a, address)
	}
	l.distrust(address, err)
	left := a.left()
	if a.options.wait == 0 {
		left = forever // The time of one answer is there for trying again.
	}
	if left == 0 {
		return a.notInTime(err)
	}
	return a.tries.after(ctx, err, left)
}

func (l *Locks) refusal(err error, a *ask, address string) error {
	refused := refusal(err, l.route.describe(address))
	text := strings.ToLower(refused.text)
	if refused.Code == "NOPERM" && a.options.syncTimeout > 0 &&
		(strings.Contains(text, "'info'") || strings.Contains(text, "'wait'")) {
		refused.text += " (allow INFO and WAIT, which confirm that a replica has the lock, or say SyncTimeout(0);" +
			" sync_timeout in the documentation)"
	}
	return refused
}

// askAt returns nil for both where no replica has confirmed the lock, which was given back.
func (l *Locks) askAt(ctx, holder context.Context, address string, a *ask) (*Held, error) {
	if err := l.reserve(ctx, address); err != nil {
		return nil, err
	}
	kind := asking
	if a.options.session {
		kind = session
	}
	c, err := l.take(ctx, kind, address)
	if err != nil {
		return nil, err
	}
	token, sent, err := l.token(ctx, c, a)
	received := time.Now()
	isConfirmed := false
	if err == nil {
		isConfirmed, err = l.confirm(ctx, c, a)
	}
	if err == nil && isConfirmed && ctx.Err() == nil {
		if kind == asking {
			l.give(c)
			c = nil
		}
		return newHeld(l, holder, a, token, sent, received, c), nil
	}
	if err == nil && !isConfirmed {
		_, err = a.call(ctx, c, a.options.commandTimeout, "FAIRLOCK.RELEASE", a.name, a.owner)
		if codeOf(err) == "NOTHELD" { // It was lost meanwhile.
			err = nil
		}
	}
	l.give(c)
	return nil, err
}

func (l *Locks) unconfirmed(ctx context.Context, a *ask) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	a.isUnconfirmed, a.mayBeKnown = true, false
	if a.left() == 0 {
		return a.notInTime(nil)
	}
	return sleep(ctx, firstPause)
}

// token is the fencing token, and when the ask was sent that brought it.
func (l *Locks) token(ctx context.Context, c *conn, a *ask) (int64, time.Time, error) {
	words := append([]any{"FAIRLOCK.ACQUIRE", a.name, a.owner}, a.options.arguments()...)
	if !a.isWaiting {
		sent := time.Now()
		token, err := a.ask(ctx, c, a.options.commandTimeout, append(words, "NOWAIT"))
		if token > 0 || err != nil {
			return token, sent, err
		}
		if a.options.wait == 0 {
			return 0, sent, a.notInTime(nil)
		}
		a.isWaiting = true
		tell("OnWait", a.options.hooks.OnWait, Event{Name: a.name, Owner: a.owner})
	}
	left, longest := a.left(), time.Duration(0)
	if left == 0 {
		return 0, time.Now(), a.notInTime(nil)
	}
	if left != forever {
		words = append(words, "WAIT", ms(left))
		longest = left + a.options.commandTimeout
	}
	sent := time.Now()
	token, err := a.ask(ctx, c, longest, words)
	if token == 0 && err == nil {
		err = a.notInTime(nil)
	}
	return token, sent, err
}

func (a *ask) ask(ctx context.Context, c *conn, longest time.Duration, words []any) (int64, error) {
	wasKnown := a.mayBeKnown
	a.mayBeKnown = true
	reply, err := a.call(ctx, c, longest, words...)
	if err != nil {
		// A refusal changes nothing: what an earlier ask brought is still there, though its reply was lost, and so is
		// the place of a caller that is to ask again.
		if replied(err) != nil {
			a.mayBeKnown = !isSettled(err) && (wasKnown || a.isWaiting && isPassing(err))
		}
		return 0, err
	}
	a.tries.succeeded()
	token, _ := reply.(int64)
	a.mayBeKnown = token > 0
	return token, nil
}

// isSettled says that by this refusal the owner neither waits nor holds, or that another caller has its place.
func isSettled(err error) bool {
	switch codeOf(err) {
	case "TAKENOVER", "QUEUEFULL", "NOTALOCK", "WRONGTYPE", "CROSSSLOT":
		return true
	}
	return false
}

func (a *ask) call(ctx context.Context, c *conn, longest time.Duration, words ...any) (any, error) {
	if a.onceAt != "" {
		if _, err := c.Call(ctx, a.options.commandTimeout, "ASKING"); err != nil {
			return nil, err
		}
	}
	return c.Call(ctx, longest, words...)
}

// confirm says whether a replica has the acquisition, or there is none.
//
// INFO comes right before WAIT: WAIT covers what was written before the last command of this connection, which a
// grant to a blocked client is not until another command has been run.
func (l *Locks) confirm(ctx context.Context, c *conn, a *ask) (bool, error) {
	longest, address := a.options.syncTimeout, c.place.address
	if longest == 0 || l.isAlone(address) {
		return true, nil
	}
	text, err := c.Call(ctx, a.options.commandTimeout, "INFO", "replication")
	if err != nil {
		return false, err
	}
	replicas := replicas(text)
	if replicas == 0 {
		l.alone(address)
		return true, nil
	}
	confirmed, err := c.Call(ctx, longest+a.options.commandTimeout, "WAIT", replicas, ms(longest))
	count, _ := confirmed.(int64)
	return count >= 1, err
}

func (l *Locks) isAlone(address string) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return time.Now().Before(l.aloneUntil[address])
}

func (l *Locks) alone(address string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.aloneUntil[address] = time.Now().Add(aloneFor)
}

// replicas is connected_slaves in what INFO says.
func replicas(info any) int {
	text, _ := info.(string)
	_, rest, _ := strings.Cut(text, "connected_slaves:")
	digits, _, _ := strings.Cut(rest, "\r\n")
	count, _ := strconv.Atoi(digits)
	return count
}

// withdraw is for a caller that does not know whether it waits, holds the lock, or neither.
func (l *Locks) withdraw(a *ask) {
	if l.leave(a, least(leaveTime, l.options.commandTimeout)) || a.options.isOwned {
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
