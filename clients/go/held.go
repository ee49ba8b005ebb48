package fairlock

import (
	"context"
	"errors"
	"sync"
	"time"
)

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
	cancel      context.CancelCauseFunc
	renewed     chan struct{} // by Renew, so that the next renewal is due later
	doubted     chan struct{} // by the watch, so that the next renewal is due now
	mutex       sync.Mutex    // guards what follows
	state       state
	loss        *Error
	lease       time.Duration
	end         time.Time // of the lease, as far as this side knows
	seen        stand     // of the server that said last that it is held
	expiry      *time.Timer
	holds       int
}

type heldKey struct {
	locks *Locks
	name  string
}

func newHeld(l *Locks, holder context.Context, a *ask, got *grant, line *conn) *Held {
	h := &Held{
		locks: l, name: a.name, owner: a.owner, token: got.token, options: a.options, acquired: time.Now(), session: line,
		holder: holder, lease: a.options.lease, holds: 1, seen: got.seen,
		renewed: make(chan struct{}, 1), doubted: make(chan struct{}, 1),
	}
	h.ctx, h.cancel = context.WithCancelCause(holder)
	if h.options.reentrant {
		h.ctx = context.WithValue(h.ctx, heldKey{l, h.name}, h)
	}
	h.end = got.sent.Add(h.lease)
	if line != nil { // Until now the server has renewed it.
		h.end = h.acquired.Add(h.lease)
	}
	tell("OnAcquired", h.options.hooks.OnAcquired, h.event(Event{Waited: h.acquired.Sub(a.started)}))
	isKept := l.keep(h)
	h.begin(got.sent.Add(h.lease / 3))
	if !isKept {
		h.lose(CauseClosed)
	}
	return h
}

// begin starts the renewal, or the watch of the session.
func (h *Held) begin(due time.Time) {
	if h.session == nil {
		h.mutex.Lock()
		h.expiry = time.AfterFunc(time.Until(h.end), h.expire)
		h.mutex.Unlock()
	}
	switch {
	case h.session != nil:
		go h.watch()
	case !h.options.noRenewal:
		go h.keepRenewing(time.Until(due))
	}
}

// Name is the lock's.
func (h *Held) Name() string { return h.name }

// Owner is the holder's name at the server.
func (h *Held) Owner() string { return h.owner }

// Token is the fencing token: above 0, and greater with each acquisition.
func (h *Held) Token() int64 { return h.token }

// Context derives from the one given to Acquire. It is done as soon as the lock is known to be lost, and after Release;
// Lost tells which, and so does context.Cause. With Reentrant, a caller that asks with it holds the lock again.
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

func (h *Held) isHeld() bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.state == isHeld
}

// address of the server that said last that it is held.
func (h *Held) address() string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.seen.address
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

// --------------------------------------------------------------------------------------------------- loss

// lose handles a lock that is known to be lost; it returns nil if it was released.
func (h *Held) lose(cause Cause) error {
	h.mutex.Lock()
	if h.state != isHeld {
		defer h.mutex.Unlock()
		if h.state == isReleased {
			return nil
		}
		return h.loss
	}
	h.state, h.loss = isLost, lost(h.name, h.seen.address, cause)
	h.mutex.Unlock()
	h.leave(h.loss)
	h.endSession()
	tell("OnLost", h.options.hooks.OnLost, h.event(Event{Cause: cause, Held: time.Since(h.acquired)}))
	return h.loss
}

func (h *Held) leave(why error) {
	h.cancel(why)
	h.locks.drop(h)
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.expiry != nil {
		h.expiry.Stop()
	}
}

func (h *Held) endSession() {
	if h.session != nil {
		h.session.close() // The goroutine that watches it gives it back.
	}
}

// ------------------------------------------------------------------------------------------------- release

// Release gives up the lock. ErrLockLost: it was lost before. Releasing again does nothing, and neither does releasing
// nil: defer held.Release() may stand before err is checked.
func (h *Held) Release() error {
	if h == nil {
		return nil
	}
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
	h.leave(nil)
	if state == isLost {
		if loss.Cause == CauseLease { // Perhaps only by this side's clock.
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
	err := h.releaseFor(min(h.options.releaseTimeout, left))
	var refused *Error
	switch {
	case err == nil || !errors.As(err, &refused):
		return err
	case refused.kind == ErrUnavailable && h.session != nil:
		return nil // The end of its connection frees the lock as well.
	case refused.Code == "NOTHELD" && refused.mayBeDone:
		return nil // Only the reply was lost: an earlier try has released it.
	case refused.Code == "NOTHELD":
		return lost(h.name, h.address(), CauseNotHeld)
	}
	return err
}
