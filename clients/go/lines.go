package fairlock

import (
	"context"
	"strings"
	"syscall"
	"time"
)

const (
	firstPause   = 50 * time.Millisecond // between tries
	longestPause = time.Second
	freePause    = 10 * time.Millisecond // between looks for a connection that is free again
	maxIdle      = 16                    // connections of a kind, for each server
	redirects    = 16                    // in a row, before they count as failures
)

// kind says what a connection is for.
type kind int

const (
	asking    kind = iota // without waiting: one for all callers, one after another
	waiting               // one for each caller that waits
	listening             // one for each caller that waits and asks now and then
	control               // releases, and other commands that are answered at once
	renewal               // and the wait for replicas, which must not hold up releases
	session
	guide // to a Sentinel, or to any node of a cluster
)

// isWaiters reports whether there is one for each waiting caller: these must not use up the descriptors that holders
// need.
func (k kind) isWaiters() bool { return k == waiting || k == listening || k == session }

type place struct {
	kind    kind
	address string
}

// conn is a connection that Locks knows of.
type conn struct {
	*line
	locks     *Locks
	place     place
	isAsked   bool // by a cluster to ask this node just this once
	knowsNone bool // of the module's commands, or may not run them, by its last answer to one
}

// call sends one command.
func (c *conn) call(ctx context.Context, longest time.Duration, words ...any) (any, error) {
	reply := c.send(ctx, longest, words)[0]
	return reply.value, reply.err
}

func (c *conn) pass(ctx context.Context, longest time.Duration, commands []request) []answer {
	if !c.isAsked {
		return c.line.exchange(ctx, longest, commands...)
	}
	return c.line.exchange(ctx, longest, append([]request{{"ASKING"}}, commands...)...)[1:]
}

// stand identifies a server's state when it answered: another one, or one whose connection broke since, may not have
// the lock.
type stand struct {
	address string
	breaks  int
}

func (l *Locks) stand(address string) stand {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return stand{address, l.breaks[address]}
}

// onNode lets do use a connection to the lock's node, again for as long as the connection fails. Refusals that do not
// pass are returned as *Error.
func (l *Locks) onNode(ctx context.Context, kind kind, name string, longest time.Duration, do func(*conn) error) error {
	again, mayBeDone, onceAt := tries{longest: longest}, false, ""
	for {
		address, err := onceAt, error(nil)
		if onceAt == "" {
			address, err = l.address(ctx, name)
		}
		if err == nil {
			err = l.onPlace(ctx, place{kind, address}, onceAt != "", do)
		}
		if err == nil {
			return nil
		}
		if ours, ok := err.(*Error); ok {
			return ours
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		next, ok := l.redirected(&again, err, address)
		if onceAt = next; ok {
			continue
		}
		if !isPassing(err) {
			refused := l.refusal(err, name, address, "")
			refused.mayBeDone = mayBeDone
			return refused
		}
		mayBeDone = mayBeDone || replied(err) == nil
		l.distrust(address, err)
		if err := again.after(ctx, name, addressed(address, err), forever); err != nil {
			return err
		}
	}
}

// onPlace is for callers that know where to ask.
func (l *Locks) onPlace(ctx context.Context, where place, isAsked bool, do func(*conn) error) error {
	c, err := l.take(ctx, where)
	if err != nil {
		return err
	}
	defer l.give(c)
	c.isAsked = isAsked
	return do(c)
}

// control sends a command on a connection that no waiter can have.
func (l *Locks) control(ctx context.Context, name string, longest time.Duration, words ...any) (reply any, err error) {
	err = l.onNode(ctx, control, name, longest, func(c *conn) (err error) {
		reply, err = c.call(ctx, l.options.commandTimeout, words...)
		return err
	})
	return reply, err
}

// enter waits for its turn at a place: first come, first served. The function that it returns ends the turn.
func (l *Locks) enter(ctx context.Context, where place) (leave func(), err error) {
	l.mutex.Lock()
	turn := l.turns[where]
	if turn == nil {
		turn = make(chan struct{}, 1)
		l.turns[where] = turn
	}
	l.mutex.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// reserve opens the connections for releases and renewals before any for waiting: neither a full server nor a lack of
// descriptors must keep a holder from these.
func (l *Locks) reserve(ctx context.Context, address string) error {
	for _, kind := range []kind{control, renewal} {
		where := place{kind, address}
		if l.isOpen(where) {
			continue
		}
		c, err := l.take(ctx, where)
		if err != nil {
			return err
		}
		l.give(c)
	}
	return nil
}

func (l *Locks) isOpen(where place) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.open[where] > 0
}

// take is a connection for one caller until give. If no more can be opened for lack of descriptors, holders wait for an
// open one.
func (l *Locks) take(ctx context.Context, where place) (*conn, error) {
	for {
		if c, err := l.takeIdle(where); c != nil || err != nil {
			return c, err
		}
		made, err := l.connect(ctx, where)
		if err == nil {
			return l.taken(&conn{line: made, locks: l, place: where})
		}
		if where.kind.isWaiters() || !isExhausted(err) || !l.isOpen(where) {
			return nil, err
		}
		if err := sleep(ctx, freePause); err != nil {
			return nil, err
		}
	}
}

// connect opens a connection, but only to a master, by the Sentinels' answer and its own.
func (l *Locks) connect(ctx context.Context, where place) (*line, error) {
	longest := l.options.commandTimeout
	switch {
	case where.kind == guide:
		return dial(ctx, l.route.guide, where.address, min(guideTime, longest))
	case l.route.masterName != "":
		if err := l.look(ctx, time.Now()); err != nil {
			return nil, err
		}
		if !l.route.isMaster(where.address) {
			return nil, replyError("READONLY the Sentinels name another master")
		}
	}
	made, err := dial(ctx, l.route.server, where.address, longest)
	if err != nil {
		return nil, err
	}
	_, err = l.connected(made.exchange(ctx, longest, request{"ROLE"})[0])
	if codeOf(err) == "NOPERM" { // SyncTimeout(0) does without; a caller that needs it asks again.
		err = nil
	}
	if err != nil {
		made.close()
		return nil, err
	}
	return made, nil
}

func (l *Locks) taken(c *conn) (*conn, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if err := l.refuses(c.place.kind); err != nil {
		c.close()
		return nil, err
	}
	l.busy[c] = true
	l.open[c.place]++
	return c, nil
}

// refuses says that Locks is closed; while it closes, waiters still leave their queues.
func (l *Locks) refuses(kind kind) error {
	if l.isClosed || l.isClosing && kind != control && kind != guide {
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
	if len(idle) == 0 {
		return nil, nil
	}
	c := idle[len(idle)-1]
	l.idle[where] = idle[:len(idle)-1]
	l.busy[c] = true
	return c, nil
}

// give puts a connection back, unless it has failed, or was a session's: holds are bound to that. After a failure the
// idle ones may lead to a former master, too.
func (l *Locks) give(c *conn) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	c.isAsked = false
	delete(l.busy, c)
	idle := l.idle[c.place]
	if c.place.kind == session || l.isClosed || c.isClosed() || len(idle) >= maxIdle {
		if c.isClosed() {
			l.closeIdle(c.place)
		}
		l.open[c.place]--
		c.close()
		return
	}
	l.idle[c.place] = append(idle, c)
}

// closeIdle, with the mutex held.
func (l *Locks) closeIdle(where place) {
	for _, c := range l.idle[where] {
		c.close()
	}
	l.open[where] -= len(l.idle[where])
	delete(l.idle, where)
}

// distrust is for a server that has failed: the known masters may be out of date, and its locks may be gone.
func (l *Locks) distrust(address string, err error) {
	if isExhausted(err) || codeOf(err) == "TRYAGAIN" {
		return
	}
	l.route.doubt()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.breaks[address]++
	l.lookAround()
}

// abandon closes all connections to a server that is no longer a master.
func (l *Locks) abandon(address string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.breaks[address]++
	l.lookAround()
	for where := range l.idle {
		if where.address == address && where.kind != guide {
			l.closeIdle(where)
		}
	}
	for c := range l.busy {
		if c.place.address == address && c.place.kind != guide {
			c.close()
		}
	}
}

// redirected reports whether another node was named, or the same one must be asked again at once; and the node to be
// asked only once.
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

// tries is how long, and how often, a temporary failure is tried again.
type tries struct {
	longest, pause time.Duration
	since          time.Time
	first          error
	redirects      int
}

func (t *tries) succeeded() { *t = tries{longest: t.longest} }

// after sleeps, or returns ErrUnavailable when it has been long enough. left: forever is no limit.
func (t *tries) after(ctx context.Context, name string, err error, left time.Duration) error {
	now := time.Now()
	if t.since.IsZero() {
		t.since, t.pause, t.first = now, firstPause, err
	}
	rest := t.longest - now.Sub(t.since)
	if rest <= 0 {
		unavailable := failed(ErrUnavailable, t.first, "%s: not available for %v: %v", name, t.longest, t.first)
		unavailable.Code = codeOf(t.first)
		return unavailable
	}
	pause := min(t.pause, rest)
	if left != forever {
		pause = min(pause, left)
	}
	t.pause = min(2*t.pause, longestPause)
	return sleep(ctx, pause)
}

// isExhausted reports whether the process, or the machine, has no descriptor left. Looking up a name may say so only by
// its text.
func isExhausted(err error) bool {
	return err != nil && strings.Contains(err.Error(), syscall.EMFILE.Error())
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
