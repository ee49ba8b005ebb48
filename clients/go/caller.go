package fairlock

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/redis/go-redis/v9"
)

// caller carries out an ask.
type caller struct {
	ask
	locks    *Locks
	ear      *ear
	line     *redis.Client // of a session
	lineTo   *redis.Client // the user's client for that server
	underWay chan reply    // to a command that was not waited for

	isUnhurried bool // its context cannot be done
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
	c := &caller{locks: l, ear: l.takeEar(name, o), isUnhurried: ctx.Done() == nil}
	c.ask = newAsk(name, c.ear.owner, o, time.Now())
	c.released = c.ear.released
	if l.client != nil { // Errors name it even if it has not answered.
		c.address = l.client.Options().Addr
	}
	err := c.run(waiting)
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
		c.leave()
		_ = c.run(context.Background())
		c.close()
	}()
	_, _ = await(context.Background(), left, leaveTime)
	return nil, err
}

// run does what the protocol says, until it is over or ctx is done.
func (c *caller) run(ctx context.Context) error {
	for ctx.Err() == nil {
		switch {
		case c.state == over:
			return c.err
		case c.pause > 0:
			c.pauses(ctx)
		default:
			c.send(ctx)
		}
	}
	return context.Cause(ctx)
}

func (c *caller) pauses(ctx context.Context) {
	pause, woken := c.pause, chan struct{}(nil)
	if c.options.wait > 0 && (c.state == asking || c.state == returning) {
		pause = min(pause, c.left(time.Now()))
	}
	if c.isWaiting {
		woken = c.ear.woken
		c.locks.listen(ctx, c.ear)
		if !c.hasWaited {
			c.hasWaited = true
			tell(c.options.hooks.OnWait, Event{Name: c.name, Owner: c.owner})
		}
	}
	_, _ = await(ctx, woken, pause)
	c.paused(time.Now())
}

// send sends the state's command. It does not wait for the reply when ctx is done, although go-redis does.
func (c *caller) send(ctx context.Context) {
	o, words, sent := c.options, c.words(), time.Now()
	within, longest := time.Duration(0), forever
	if c.state == asking {
		if within = o.syncTimeout; o.wait > 0 && o.wait < forever {
			within = min(within, max(c.left(sent), time.Millisecond))
			longest = c.left(sent) + leaveTime
		}
		select {
		case <-c.ear.woken: // This ask comes after that message.
		default:
		}
	}
	isOnLine := o.session && c.state == asking
	do := func() reply {
		if isOnLine {
			if err := c.connect(ctx); err != nil {
				return reply{err: err, sent: sent, came: time.Now()}
			}
			return c.locks.send(ctx, c.line, o, within, words)
		}
		return c.locks.send(ctx, nil, o, within, words)
	}
	if ctx.Done() == nil || c.isUnhurried && longest == forever {
		c.heard(do())
		return
	}
	underWay := make(chan reply, 1)
	go func() { underWay <- do() }()
	r, err := await(ctx, underWay, longest)
	if err != nil {
		c.underWay, r = underWay, reply{err: err, sent: sent, came: time.Now()}
	}
	c.heard(r)
}

// connect makes the connection of a session, to the server that has the lock now.
func (c *caller) connect(ctx context.Context) error {
	node, err := c.locks.node(ctx, c.name)
	if err != nil || node == c.lineTo {
		return err
	}
	if c.line != nil {
		c.line.Close()
	}
	options := *node.Options()
	options.PoolSize, options.MinIdleConns, options.MaxIdleConns, options.MaxActiveConns = 1, 0, 0, 0
	options.ConnMaxIdleTime, options.ConnMaxLifetime = -1, -1
	c.line, c.lineTo = redis.NewClient(&options), node
	return nil
}

// close ends the connection of a session, and what the owner receives, unless it can be used again.
func (c *caller) close() {
	if c.line != nil {
		c.line.Close()
	}
	c.ear.released = max(c.released, c.token)
	c.locks.putEar(c.ear, c.isClean && c.options.owner == nil)
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
