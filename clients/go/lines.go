package fairlock

import (
	"context"
	"time"

	"fairlock.example/clients/go/internal/wire"
)

const (
	firstPause   = 50 * time.Millisecond // between tries
	longestPause = time.Second
	maxIdle      = 16 // connections of a kind, for each server
	redirects    = 16 // in a row, before they count as failures
)

// kind says what a connection is for.
type kind int

const (
	asking kind = iota
	control
	session
)

type place struct {
	kind    kind
	address string
}

// conn is a connection that Locks knows of.
type conn struct {
	wire.Line
	place place
}

// tries is how long, and how often, something that fails for the time being is tried again.
type tries struct {
	longest, pause time.Duration
	since          time.Time
	redirects      int
}

func (t *tries) succeeded() { *t = tries{longest: t.longest} }

// after sleeps, or returns ErrUnavailable when it has been long enough. left: forever is no limit.
func (t *tries) after(ctx context.Context, err error, left time.Duration) error {
	now := time.Now()
	if t.since.IsZero() {
		t.since, t.pause = now, firstPause
	}
	rest := t.longest - now.Sub(t.since)
	if rest <= 0 {
		unavailable := failed(ErrUnavailable, err, "not available for %v: %v", t.longest, err)
		unavailable.Code = codeOf(err)
		return unavailable
	}
	pause := least(t.pause, rest)
	if left != forever {
		pause = least(pause, left)
	}
	t.pause = least(2*t.pause, longestPause)
	return sleep(ctx, pause)
}

func least(one, other time.Duration) time.Duration {
	if one < other {
		return one
	}
	return other
}

func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// redirected says whether another node was named, or the same is to be asked again at once; and the node to be
// asked just this once.
func (l *Locks) redirected(t *tries, err error, asked string) (onceAt string, ok bool) {
	code := codeOf(err)
	if code != "MOVED" && code != "ASK" && code != "UNBLOCKED" || t.redirects >= redirects {
		return "", false
	}
	t.redirects++
	if code == "UNBLOCKED" {
		return "", true
	}
	address := l.route.redirect(err, asked)
	if code == "MOVED" {
		return "", address != ""
	}
	return address, address != ""
}

// address is the node for a lock; the cluster is asked where that is not known.
func (l *Locks) address(ctx context.Context, name string) (string, error) {
	if address, ok := l.route.node(name); ok {
		return address, nil
	}
	var err error
	for _, node := range l.route.known() {
		var reply any
		if reply, err = l.callOnce(ctx, node, false, "CLUSTER", "SLOTS"); err == nil {
			l.route.learn(reply, node)
			break
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
	}
	if err != nil {
		return "", err
	}
	if address, ok := l.route.node(name); ok {
		return address, nil
	}
	return "", wire.ReplyError("CLUSTERDOWN no node has the slot")
}

// control sends a command on a connection that no waiter can have, for so long as the connection fails. Refusals
// that do not pass are returned as *Error.
func (l *Locks) control(ctx context.Context, name string, longest time.Duration, words ...any) (any, error) {
	again, mayBeDone, onceAt := tries{longest: longest}, false, ""
	for {
		address, err := onceAt, error(nil)
		if onceAt == "" {
			address, err = l.address(ctx, name)
		}
		if err == nil {
			var reply any
			if reply, err = l.callOnce(ctx, address, onceAt != "", words...); err == nil {
				return reply, nil
			}
		}
		if ours, ok := err.(*Error); ok {
			return nil, ours
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		next, ok := l.redirected(&again, err, address)
		if onceAt = next; ok {
			continue
		}
		if !isPassing(err) {
			refused := refusal(err, l.route.describe(address))
			refused.mayBeDone = mayBeDone
			return nil, refused
		}
		mayBeDone = mayBeDone || replied(err) == nil
		l.distrust(address, err)
		if err := again.after(ctx, err, forever); err != nil {
			return nil, err
		}
	}
}

func (l *Locks) callOnce(ctx context.Context, address string, isAsked bool, words ...any) (any, error) {
	c, err := l.take(ctx, control, address)
	if err != nil {
		return nil, err
	}
	defer l.give(c)
	if isAsked {
		if _, err := c.Call(ctx, l.options.commandTimeout, "ASKING"); err != nil {
			return nil, err
		}
	}
	return c.Call(ctx, l.options.commandTimeout, words...)
}

// reserve sees that there is a connection to release by, before one is taken to wait on: a full server must not keep
// a holder from releasing.
func (l *Locks) reserve(ctx context.Context, address string) error {
	l.mutex.Lock()
	isThere := len(l.idle[place{control, address}]) > 0
	l.mutex.Unlock()
	if isThere {
		return nil
	}
	c, err := l.take(ctx, control, address)
	if err == nil {
		l.give(c)
	}
	return err
}

func (l *Locks) take(ctx context.Context, kind kind, address string) (*conn, error) {
	where := place{kind, address}
	if c, err := l.takeIdle(where); c != nil || err != nil {
		return c, err
	}
	made, err := l.route.dial(ctx, address, l.options.commandTimeout)
	if err != nil {
		return nil, err
	}
	c := &conn{made, where}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if err := l.refuses(kind); err != nil {
		c.Close()
		return nil, err
	}
	l.busy[c] = true
	return c, nil
}

// refuses says that Locks is closed; while it closes, waiters still leave their queues.
func (l *Locks) refuses(kind kind) error {
	if l.isClosed || l.isClosing && kind != control {
		return errClosed
	}
	return nil
}

func (l *Locks) takeIdle(where place) (*conn, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if err := l.refuses(where.kind); err != nil {
		return nil, err
	}
	idle := l.idle[where]
	for len(idle) > 0 {
		c := idle[len(idle)-1]
		idle = idle[:len(idle)-1]
		l.idle[where] = idle
		if !c.IsClosed() {
			l.busy[c] = true
			return c, nil
		}
	}
	return nil, nil
}

// give puts a connection back, unless it has failed, or was a session's: holds are bound to that.
func (l *Locks) give(c *conn) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	delete(l.busy, c)
	idle := l.idle[c.place]
	if c.place.kind == session || l.isClosed || c.IsClosed() || len(idle) >= maxIdle {
		c.Close()
		return
	}
	l.idle[c.place] = append(idle, c)
}

// distrust closes idle connections after a failure: they, and what is known of the cluster, may be of the past.
func (l *Locks) distrust(address string, err error) {
	code := codeOf(err)
	if code == "TRYAGAIN" {
		return
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for where, idle := range l.idle {
		if where.address == address {
			closeAll(idle)
			delete(l.idle, where)
		}
	}
	delete(l.aloneUntil, address)
	if l.route.isCluster {
		l.route.forget()
	}
}

func closeAll(conns []*conn) {
	for _, c := range conns {
		c.Close()
	}
}
