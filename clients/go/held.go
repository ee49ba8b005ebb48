package fairlock

import (
	"context"
	"errors"
	"log"
	"sync"
	"time"
)

const soon = 50 * time.Millisecond // the shortest pause between tries to renew

type state int

const (
	isHeld state = iota
	isLost
	isReleased
)

// Held is a lock that is held.
type Held struct {
	locks       *Locks
	name, owner string
	token       int64
	options     options
	acquired    time.Time
	session     *conn
	holder      context.Context // the one given to Acquire
	ctx         context.Context
	cancel      context.CancelFunc
	renewed     chan struct{} // by Renew, so that the next renewal is due later
	mutex       sync.Mutex    // guards what follows
	state       state
	loss        *Error
	lease       time.Duration
	end         time.Time // of the lease, as far as this side knows
	expiry      *time.Timer
	holds       int
}

type heldKey struct {
	locks *Locks
	name  string
}

func newHeld(l *Locks, holder context.Context, a *ask, token int64, sent, received time.Time, line *conn) *Held {
	h := &Held{
		locks: l, name: a.name, owner: a.owner, token: token, options: a.options, acquired: received, session: line,
		holder: holder, lease: a.options.lease, holds: 1, renewed: make(chan struct{}, 1),
	}
	h.ctx, h.cancel = context.WithCancel(holder)
	if h.options.reentrant {
		h.ctx = context.WithValue(h.ctx, heldKey{l, h.name}, h)
	}
	// A process that was stopped while it waited may have lost the lock before it read that it has it.
	due := sent.Add(h.lease / 3)
	h.end = sent.Add(h.lease)
	if received.After(due) {
		due, h.end = received, received.Add(h.lease)
	}
	tell("OnAcquired", h.options.hooks.OnAcquired, h.event(Event{Waited: received.Sub(a.started)}))
	cause, isGone := l.keep(h)
	h.begin(due)
	if isGone {
		h.lose(cause)
	}
	return h
}

// begin starts what sees to the lease.
func (h *Held) begin(due time.Time) {
	if !h.locks.isFake && h.session == nil {
		h.mutex.Lock()
		h.expiry = time.AfterFunc(time.Until(h.end), h.expire)
		h.mutex.Unlock()
	}
	switch {
	case h.session != nil:
		go h.watch()
	case !h.options.noRenewal && !h.locks.isFake:
		go h.keepRenewing(time.Until(due))
	}
}

// Name is the lock's.
func (h *Held) Name() string { return h.name }

// Owner is who holds it, as the server knows it.
func (h *Held) Owner() string { return h.owner }

// Token is the fencing token: above 0, and greater with each acquisition.
func (h *Held) Token() int64 { return h.token }

// Context derives from the one given to Acquire. It is done as soon as the lock is known to be lost, and after
// Release; Lost tells which. With Reentrant, who asks with it holds the lock again.
func (h *Held) Context() context.Context { return h.ctx }

// Lost is nil as long as the lock is not known to be lost, and then an *Error that is ErrLockLost and has a Cause.
func (h *Held) Lost() error {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.loss == nil {
		return nil
	}
	return h.loss
}

func (h *Held) event(event Event) Event {
	event.Name, event.Owner, event.Token = h.name, h.owner, h.token
	return event
}

// again is the lock that the caller holds already, if its context says so.
func (l *Locks) again(ctx context.Context, name string) (*Held, error) {
	h, ok := ctx.Value(heldKey{l, name}).(*Held)
	if !ok {
		return nil, nil
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	switch h.state {
	case isLost:
		return nil, h.loss
	case isReleased:
		return nil, nil
	}
	h.holds++
	return h, nil
}

// ------------------------------------------------------------------------------------------------ renewal

// Renew sets the lease anew, to another length, or with 0 to its own; renewals in the background set that, too.
func (h *Held) Renew(ctx context.Context, lease time.Duration) error {
	if lease != 0 && lease < time.Millisecond {
		return &ArgumentError{"Lease", "is less than 1ms"}
	}
	err := h.renew(ctx, lease)
	if err == nil {
		select {
		case h.renewed <- struct{}{}:
		default:
		}
	}
	return err
}

func (h *Held) renew(ctx context.Context, lease time.Duration) error {
	h.mutex.Lock()
	state, loss := h.state, h.loss
	if lease == 0 {
		lease = h.lease
	}
	h.mutex.Unlock()
	switch state {
	case isLost:
		return loss
	case isReleased:
		return failed(ErrRefused, nil, "%s: the lock was released", h.name)
	}
	sent := time.Now()
	_, err := h.locks.control(ctx, h.name, 0, "FAIRLOCK.RENEW", h.name, h.owner, "LEASE", ms(lease))
	return h.answered(err, lease, sent)
}

// answered takes the answer to RENEW: the end, as far as this side knows, moves only by its success.
func (h *Held) answered(err error, lease time.Duration, sent time.Time) error {
	var refused *Error
	if errors.As(err, &refused) && refused.Code == "NOTHELD" {
		if loss := h.lose(CauseNotHeld); loss != nil {
			return loss
		}
	}
	if err != nil {
		return err
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.state == isHeld {
		h.lease, h.end = lease, sent.Add(lease)
		if h.expiry != nil {
			h.expiry.Reset(time.Until(h.end))
		}
	}
	return nil
}

func (h *Held) third() time.Duration { return h.leaseNow() / 3 }

func (h *Held) left() time.Duration {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return time.Until(h.end)
}

func (h *Held) leaseNow() time.Duration {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.lease
}

// keepRenewing ends with h.ctx: at release, when the lock is lost, and when the holder's context is done; then the
// lease ends by itself.
func (h *Held) keepRenewing(first time.Duration) {
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-h.renewed:
			timer.Stop()
			select {
			case <-timer.C:
			default:
			}
			timer.Reset(h.third())
		case <-timer.C:
			timer.Reset(h.renewInBackground())
		}
	}
}

// renewInBackground returns when to renew next.
func (h *Held) renewInBackground() time.Duration {
	err := h.renew(h.ctx, 0)
	if err == nil || h.ctx.Err() != nil {
		return h.third()
	}
	if !errors.Is(err, ErrUnavailable) {
		log.Printf("fairlock: the lock %q cannot be renewed: %v", h.name, err)
	}
	return h.retry()
}

func (h *Held) retry() time.Duration {
	if pause := h.leaseNow() / 10; pause > soon {
		return pause
	}
	return soon
}

// expire is called when the lease should be over, unless it was renewed meanwhile.
func (h *Held) expire() {
	h.mutex.Lock()
	left := time.Until(h.end)
	if left > 0 && h.state == isHeld {
		h.expiry.Reset(left)
	}
	h.mutex.Unlock()
	if left <= 0 {
		h.lose(CauseLease)
	}
}

// watch sees the end of a session's connection at once, and asks on it now and then whether the lock is still there.
// The server renews it, so that a check that this side is late with loses nothing; one that is not answered within two
// thirds of the lease does. Where the holder's context is done it asks no more: the lease ends here.
func (h *Held) watch() {
	defer h.locks.give(h.session)
	pause := h.third()
	for h.session.Watch(pause) == nil {
		if h.holder.Err() != nil {
			if pause = h.left(); pause <= 0 {
				h.lose(CauseLease)
				return
			}
			continue
		}
		sent, lease := time.Now(), h.leaseNow()
		_, err := h.session.Call(context.Background(), lease*2/3, "FAIRLOCK.RENEW", h.name, h.owner, "LEASE", ms(lease))
		pause = lease / 3
		switch {
		case err == nil:
			_ = h.answered(nil, lease, sent)
		case codeOf(err) == "NOTHELD":
			h.lose(CauseNotHeld)
			return
		case replied(err) != nil:
			pause = h.retry()
		case time.Since(sent) >= lease*2/3:
			h.lose(CauseLease)
			return
		}
	}
	h.lose(CauseConnection)
}

// --------------------------------------------------------------------------------------------------- loss

// lose is what happens once it is known that the lock is not its holder's; it returns nil if it was released.
func (h *Held) lose(cause Cause) error {
	h.mutex.Lock()
	if h.state != isHeld {
		defer h.mutex.Unlock()
		if h.state == isReleased {
			return nil
		}
		return h.loss
	}
	h.state, h.loss = isLost, lost(h.name, cause)
	h.mutex.Unlock()
	h.leave()
	h.endSession()
	tell("OnLost", h.options.hooks.OnLost, h.event(Event{Cause: cause, Held: time.Since(h.acquired)}))
	return h.loss
}

func (h *Held) leave() {
	h.cancel()
	h.locks.drop(h)
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.expiry != nil {
		h.expiry.Stop()
	}
}

func (h *Held) endSession() {
	if h.session != nil {
		h.session.Close() // Who watches it gives it back.
	}
}

// ------------------------------------------------------------------------------------------------- release

// Release gives up the lock. ErrLockLost: it was lost before. A second time does nothing.
func (h *Held) Release() error {
	h.mutex.Lock()
	state, loss, left := h.state, h.loss, time.Until(h.end)
	if state == isReleased {
		h.mutex.Unlock()
		return nil
	}
	if h.holds > 1 {
		h.holds--
		h.mutex.Unlock()
		return nil
	}
	h.state = isReleased
	h.mutex.Unlock()
	h.leave()
	if state == isLost {
		if loss.Cause == CauseLease { // By our clock, perhaps, only.
			_ = h.releaseFor(0)
		}
		return loss
	}
	err := h.release(left)
	h.endSession()
	if err == nil {
		tell("OnReleased", h.options.hooks.OnReleased, h.event(Event{Held: time.Since(h.acquired)}))
	}
	return err
}

func (h *Held) releaseFor(longest time.Duration) error {
	words := []any{"FAIRLOCK.RELEASE", h.name, h.owner, "TOKEN", h.token}
	_, err := h.locks.control(context.Background(), h.name, longest, words...)
	return err
}

func (h *Held) release(left time.Duration) error {
	err := h.releaseFor(least(h.options.releaseTimeout, left))
	var refused *Error
	switch {
	case err == nil || !errors.As(err, &refused):
		return err
	case refused.kind == ErrUnavailable && h.session != nil:
		return nil // The end of its connection frees the lock as well.
	case refused.Code == "NOTHELD" && refused.mayBeDone:
		return nil // Only the reply was lost: an earlier try has released it.
	case refused.Code == "NOTHELD":
		return lost(h.name, CauseNotHeld)
	}
	return err
}
