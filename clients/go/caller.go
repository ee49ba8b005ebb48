package fairlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand"
	"os"
	"regexp"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	firstPause   = 50 * time.Millisecond // between tries
	longestPause = time.Second
	leaveTime    = time.Second // that a caller who gives up waits until it has left the queue
)

var errNoAnswer = errors.New("no answer in time")

// caller is one acquisition, until its release. clients/protocol.md tells what it does.
type caller struct {
	*ear
	locks    *Locks
	options  *options
	started  time.Time
	end      time.Time // of the wait
	address  string    // of the server that answered last
	tries    tries
	line     *redis.Client // of a session
	underWay chan reply    // to a command that was not waited for

	token         int64
	sent          time.Time // the ask or renewal from which the lease counts
	hasWaited     bool
	isUnhurried   bool // nothing ends its wait
	isKnown       bool // to the server, perhaps, as a waiter or a holder
	isUnheard     bool // a reply was lost: what was sent may be done
	isUnconfirmed bool // by replicas, the last grant
}

// tries are failures in a row that pass.
type tries struct {
	first error
	since time.Time
	pause time.Duration // before the next one
}

func (t *tries) failed(err error) {
	if t.first == nil {
		t.first, t.since, t.pause = err, time.Now(), firstPause/2
	}
	t.pause = min(2*t.pause, longestPause)
}

func (l *Locks) acquire(ctx context.Context, name string, o *options) (*Held, error) {
	l.mutex.Lock()
	if l.ctx.Err() != nil {
		l.mutex.Unlock()
		return nil, errClosed
	}
	l.calls.Add(1)
	l.mutex.Unlock()
	defer l.calls.Done()
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(errClosed) })()
	c := &caller{locks: l, ear: l.takeEar(name, o), options: o, started: time.Now()}
	wait := o.wait
	if wait == 0 { // There is still the time of one answer.
		wait = o.commandTimeout
	}
	c.end = c.started.Add(wait)
	c.isUnhurried = ctx.Done() == nil && (o.wait == 0 || o.wait == forever)
	if l.client != nil { // Errors name it even if it has not answered.
		c.address = l.client.Options().Addr
	}
	err := c.granted(waiting)
	c.end = time.Now().Add(forever) // What follows has limits of its own.
	if err == nil {
		return newHeld(ctx, c), nil
	} else if ctx.Err() != nil {
		err = ctx.Err()
	}
	left := make(chan struct{})
	go func() { // Beyond leaveTime, if the server does not answer.
		defer close(left)
		if c.underWay != nil {
			<-c.underWay
		}
		c.close(c.leave())
	}()
	_, _ = await(context.Background(), left, leaveTime)
	return nil, err
}

// granted returns when the lock is held.
func (c *caller) granted(ctx context.Context) error {
	for wasLate := false; ; {
		r, err := c.answered(ctx, c.options.retryTimeout, c.ask())
		if err != nil {
			return err
		}
		late, lease := time.Since(r.sent), c.options.lease
		token, isGranted := r.value.(int64)
		place, isQueued := r.value.([]any)
		c.isKnown = isGranted || isQueued
		switch {
		case isQueued && len(place) == 2:
			c.isUnconfirmed, wasLate = false, false
			after, _ := place[1].(int64)
			err = c.waits(ctx, time.Duration(max(after, 1))*time.Millisecond)
		case !isGranted:
			err = c.notInTime()
		case !r.isConfirmed || token <= c.released:
			c.token = token
			err = c.giveBack(ctx)
		case late >= lease || late >= lease/3 && !wasLate:
			if c.token = token; wasLate {
				err = c.pause(ctx, firstPause, nil)
			}
			wasLate = true // To ask again renews the lease of a holder, and puts any other in the queue.
		default:
			c.token, c.sent = token, r.sent
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// ask is the command that acquires.
func (c *caller) ask() []any {
	o := c.options
	words := append(make([]any, 0, 12), "FAIRLOCK.ACQUIRE", c.name, c.owner)
	if o.shared || o.limit != nil {
		words = append(words, "SHARED")
	}
	if o.limit != nil {
		words = append(words, *o.limit)
	}
	words = append(words, "LEASE", ms(o.lease), "ONCE")
	if o.session {
		words = append(words, "SESSION")
	}
	if o.wait == 0 {
		return append(words, "NOWAIT")
	}
	return append(words, "ENQUEUE", "PATIENCE", ms(o.patience))
}

// waits in the queue, until a message or for some time.
func (c *caller) waits(ctx context.Context, after time.Duration) error {
	if err := c.locks.listen(ctx, c.ear); err != nil {
		return refusal(err, c.name, c.address, c.options)
	}
	if !c.hasWaited {
		c.hasWaited = true
		tell(c.options.hooks.OnWait, Event{Name: c.name, Owner: c.owner})
	}
	return c.pause(ctx, after+time.Duration(mathrand.Int63n(int64(after/10)+1)), c.woken)
}

// giveBack what too few replicas have confirmed, or a new master does not know to be released.
func (c *caller) giveBack(ctx context.Context) error {
	if _, err := c.answered(ctx, c.options.retryTimeout, c.giving()); err != nil {
		return err
	}
	token := c.token
	c.token, c.isKnown = 0, false
	if token <= c.released { // It is asked again at once.
		c.released = 0
		return nil
	}
	c.released, c.isUnconfirmed = token, true
	return c.pause(ctx, firstPause, nil)
}

// giving is the command that releases.
func (c *caller) giving() []any { return []any{"FAIRLOCK.RELEASE", c.name, c.owner, "TOKEN", c.token} }

// left of the wait.
func (c *caller) left() time.Duration { return max(time.Until(c.end), 0) }

// pause until woken, or for some time, within the wait.
func (c *caller) pause(ctx context.Context, length time.Duration, woken <-chan struct{}) error {
	_, _ = await(ctx, woken, min(length, c.left()))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	} else if c.left() == 0 {
		return c.notInTime()
	}
	return nil
}

// answered sends a command until it is answered, which NOTHELD is, too: no longer than longest, nor than the wait.
func (c *caller) answered(ctx context.Context, longest time.Duration, words []any) (reply, error) {
	defer func() { c.tries = tries{} }()
	for ctx.Err() == nil {
		r := c.send(ctx, words)
		if r.address != "" {
			c.address = r.address
		}
		if r.err == nil || codeOf(r.err) == "NOTHELD" {
			return r, nil
		}
		if replied(r.err) == nil || r.value != nil { // The reply was lost, or only that of the replicas was a refusal.
			c.isKnown, c.isUnheard = true, true
		}
		c.tries.failed(r.err)
		switch first := c.tries.first; {
		case ctx.Err() != nil:
		case !isPassing(r.err):
			return r, refusal(r.err, c.name, c.address, c.options)
		case c.left() > 0 && time.Since(c.tries.since) >= longest:
			return r, failed(ErrUnavailable, first, "%s: %s: not available for %v: %v", c.name, c.address, longest, first)
		default:
			if err := c.pause(ctx, c.tries.pause, nil); err != nil {
				return r, err
			}
		}
	}
	return reply{}, context.Cause(ctx)
}

// send sends a command. It does not wait for the reply when ctx is done, although go-redis does.
func (c *caller) send(ctx context.Context, words []any) reply {
	isAsk, within := words[0] == "FAIRLOCK.ACQUIRE", time.Duration(0)
	if isAsk {
		within = min(c.options.syncTimeout, max(c.left(), time.Millisecond))
		select {
		case <-c.woken: // This ask comes after that message.
		default:
		}
	}
	do := func() reply {
		if !isAsk || !c.options.session {
			return c.locks.send(ctx, nil, c.options, within, words)
		}
		if err := c.connect(ctx); err != nil {
			return reply{err: err}
		}
		return c.locks.send(ctx, c.line, c.options, within, words)
	}
	if ctx.Done() == nil || c.isUnhurried {
		return do()
	}
	underWay := make(chan reply, 1)
	go func() { underWay <- do() }()
	r, err := await(ctx, underWay, c.left()+leaveTime)
	if err != nil {
		c.underWay, r = underWay, reply{err: err}
	}
	return r
}

// leave the queue, and give back what may be held, until the lease would be over. With an owner that was given, another
// caller may hold the lock then. isClean: the owner certainly neither waits nor holds.
func (c *caller) leave() (isClean bool) {
	if c.leaveToOthers() || !c.isKnown {
		return !c.isUnheard
	}
	longest := c.options.lease
	if c.options.owner != nil {
		longest = leaveTime
	}
	r, err := c.answered(context.Background(), longest, []any{"FAIRLOCK.CANCEL", c.name, c.owner})
	if number, _ := r.value.(int64); number == 1 {
		return true
	} else if err == nil && (c.isUnheard || c.token != 0) {
		_, _ = c.answered(context.Background(), longest, []any{"FAIRLOCK.RELEASE", c.name, c.owner})
	}
	return false
}

// leaveToOthers is whether others with its owner stay: the place, or the lock, is theirs, too, and the last one gives it up.
func (c *caller) leaveToOthers() (isLeft bool) {
	c.locks.mutex.Lock()
	defer c.locks.mutex.Unlock()
	given := c.locks.given
	c.isKnown, c.isUnheard = c.isKnown || given[c.ear], c.isUnheard || given[c.ear]
	delete(given, c.ear)
	for each := range given {
		if each.channel == c.channel {
			given[each], isLeft = given[each] || c.isKnown, true
		}
	}
	return isLeft
}

// release the lock. isClean: as by leave.
func (c *caller) release(longest time.Duration) (isClean bool, err error) {
	wasUnheard := c.isUnheard
	c.isUnheard = false
	r, err := c.answered(context.Background(), longest, c.giving())
	if err == nil && r.err != nil && !c.isUnheard {
		err = c.lost(CauseNotHeld)
	}
	return err == nil && r.err == nil && !wasUnheard, err
}

func (c *caller) notInTime() error {
	kind, what, within := ErrNotInTime, c.address, "at once"
	if c.tries.first != nil {
		what = fmt.Sprintf("%s: %v", c.address, c.tries.first)
	} else if c.isUnconfirmed {
		kind, what = ErrNotReplicated, c.address+": too few replicas have confirmed it (see MinReplicas)"
	}
	if c.options.wait > 0 {
		within = fmt.Sprintf("within %v", c.options.wait)
	}
	return failed(kind, c.tries.first, "%s: not acquired %s: %s", c.name, within, what)
}

func (c *caller) lost(cause Cause) *Error {
	loss := failed(ErrLockLost, nil, "%s: the lock was lost (%s): %s", c.name, cause, c.address)
	if loss.Cause = cause; cause == CauseNotHeld {
		loss.Code = "NOTHELD"
	}
	return loss
}

// connect makes the connection of a session, to the server that has the lock now.
func (c *caller) connect(ctx context.Context) error {
	node, err := c.locks.node(ctx, c.name)
	if err != nil || c.line != nil && c.line.Options().Addr == node.Options().Addr {
		return err
	}
	if c.line != nil {
		c.line.Close()
	}
	options := *node.Options()
	options.PoolSize, options.MinIdleConns, options.MaxIdleConns, options.MaxActiveConns = 1, 0, 0, 0
	options.ConnMaxIdleTime, options.ConnMaxLifetime = -1, -1
	options.Protocol = 2 // The handlers of RESP3's messages are those of the user's client.
	c.line = redis.NewClient(&options)
	return nil
}

// close ends the connection of a session, and what the owner receives, unless it can be used again.
func (c *caller) close(isClean bool) {
	if c.line != nil {
		c.line.Close()
	}
	c.released = max(c.released, c.token)
	c.locks.putEar(c.ear, isClean && c.options.owner == nil)
}

// await waits for what comes by from, until ctx is done, and no longer than longest.
func await[T any](ctx context.Context, from <-chan T, longest time.Duration) (got T, err error) {
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case got = <-from:
	case <-timer.C:
		err = errNoAnswer
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return got, err
}

// ownerPrefix names the machine, by at most 200 bytes, and the process.
var ownerPrefix = func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	host = regexp.MustCompile(`[^A-Za-z0-9._-]`).ReplaceAllString(host, "-")
	return fmt.Sprintf("%s:%d:", host[:min(len(host), 200)], os.Getpid())
}()

// newOwner is unique.
func newOwner() string {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		panic(err) // Without randomness two callers could hold one lock.
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return fmt.Sprintf("%s%x-%x-%x-%x-%x", ownerPrefix, id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}
