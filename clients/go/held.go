package fairlock

import (
	"context"
	"errors"
	"log"
	"sync"
	"sync/atomic"
	"time"
)

// Held is a lock that is held.
type Held struct {
	*caller
	ctx      context.Context
	cancel   context.CancelCauseFunc
	acquired time.Time
	expiry   *time.Timer // of the lease
	renewal  *time.Timer
	stop     func() bool // watching whether Locks is closed
	renewing sync.Mutex  // one renewal at a time

	unanswered atomic.Int32 // renewals, which may still set their lease

	mutex      sync.Mutex // guards what follows
	loss       error
	isReleased bool
	holds      int
	lease      time.Duration
	until      time.Time // the lease lasts, as far as this side knows
}

type heldKey struct {
	locks *Locks
	name  string
}

func newHeld(ctx context.Context, c *caller) *Held {
	h := &Held{caller: c, acquired: time.Now(), holds: 1, lease: c.options.lease, until: c.sent.Add(c.options.lease)}
	h.ctx, h.cancel = context.WithCancelCause(ctx)
	if c.options.reentrant {
		h.ctx = context.WithValue(h.ctx, heldKey{h.locks, c.name}, h)
	}
	h.mutex.Lock()
	h.expiry = time.AfterFunc(time.Until(h.until), func() { h.lose(CauseLease) })
	h.stop = context.AfterFunc(h.locks.ctx, func() { h.lose(CauseClosed) })
	first := time.Until(c.sent.Add(h.lease / 3))
	if c.options.noRenewal && !c.options.session {
		first = forever
	}
	h.renewal = time.AfterFunc(first, func() {
		if ctx.Err() != nil { // Its holder is gone.
			return
		}
		err := h.renew(0)
		if err != nil && h.ctx.Err() == nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrNotReplicated) {
			log.Printf("fairlock: the lock %q cannot be renewed: %v", c.name, err)
		}
	})
	h.mutex.Unlock()
	h.tell(c.options.hooks.OnAcquired, Event{Waited: h.acquired.Sub(c.started)})
	return h
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

// Lease is what each renewal sets.
func (h *Held) Lease() time.Duration {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.lease
}

// Lost is nil as long as the lock is not known to be lost, and then an *Error that is ErrLockLost and has a Cause.
func (h *Held) Lost() error {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.loss
}

// again is the lock that the caller holds already, if its context says so.
func (l *Locks) again(ctx context.Context, name string) (*Held, error) {
	h, ok := ctx.Value(heldKey{l, name}).(*Held)
	if !ok {
		return nil, nil
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.loss != nil {
		return nil, h.loss
	}
	if h.isReleased {
		return nil, nil
	}
	h.holds++
	return h, nil
}

func (h *Held) tell(hook func(Event), event Event) {
	event.Name, event.Owner, event.Token = h.name, h.owner, h.token
	tell(hook, event)
}

// Renew sets the lease anew, to another length, or with 0 to the same; later renewals in the background use that
// length, too. Failures that pass are tried again until the lease is over. ErrNotReplicated: too few replicas have
// confirmed it.
func (h *Held) Renew(ctx context.Context, lease time.Duration) error {
	if lease != 0 && lease < time.Millisecond {
		return failed(ErrArgument, nil, "Lease is less than 1ms")
	}
	done := make(chan error, 1)
	go func() {
		var tries tries
		err := h.renew(min(lease, forever))
		for errors.Is(err, ErrUnavailable) && ctx.Err() == nil && h.ctx.Err() == nil {
			tries.failed(err)
			time.Sleep(tries.pause)
			err = h.renew(min(lease, forever))
		}
		done <- err
	}()
	err, ended := await(ctx, done, forever)
	if ended != nil {
		return ended
	}
	return err
}

// renew tries once.
func (h *Held) renew(lease time.Duration) error {
	h.renewing.Lock()
	defer h.renewing.Unlock()
	h.mutex.Lock()
	if lease == 0 {
		lease = h.lease
	}
	if h.loss != nil || h.isReleased {
		h.mutex.Unlock()
		return h.notHeld()
	}
	h.unanswered.Add(1)
	h.mutex.Unlock()
	r := h.locks.send(context.Background(), nil, h.options, h.options.syncTimeout, []any{"FAIRLOCK.RENEW", h.name, h.owner, "LEASE", ms(lease)})
	if r.err == nil || replied(r.err) != nil {
		h.unanswered.Add(-1)
	}
	if codeOf(r.err) == "NOTHELD" {
		h.lose(CauseNotHeld)
		return h.notHeld()
	}
	return h.renewed(r, lease)
}

func (h *Held) notHeld() error {
	if loss := h.Lost(); loss != nil {
		return loss
	}
	return failed(ErrRefused, nil, "%s: the lock was released", h.name)
}

func (h *Held) renewed(r reply, lease time.Duration) error {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	next := time.Now().Add(max(h.lease/10, firstPause))
	if r.err == nil && r.isConfirmed {
		h.lease, next = lease, r.sent.Add(lease/3)
	}
	if end := r.sent.Add(lease); r.err == nil && (r.isConfirmed || end.Before(h.until)) {
		h.until = end // A shorter lease counts even if it was not confirmed.
	}
	if h.loss == nil && !h.isReleased {
		h.expiry.Reset(time.Until(h.until))
		if !h.options.noRenewal || h.options.session {
			h.renewal.Reset(time.Until(next))
		}
	}
	switch {
	case r.err == nil && r.isConfirmed:
		return nil
	case r.err == nil:
		return failed(ErrNotReplicated, nil, "%s: too few replicas have confirmed the renewal: %s", h.name, r.address)
	case isPassing(r.err):
		return failed(ErrUnavailable, r.err, "%s: not renewed: %s: %v", h.name, r.address, r.err)
	}
	return refusal(r.err, h.name, r.address, h.options)
}

// lose handles a lock that is known to be lost, unless it was released.
func (h *Held) lose(cause Cause) {
	h.mutex.Lock()
	if h.loss != nil || h.isReleased || cause == CauseLease && time.Now().Before(h.until) {
		h.mutex.Unlock()
		return
	}
	h.loss = h.lost(cause)
	h.mutex.Unlock()
	h.ended(h.loss)
	if h.close(false); cause == CauseLease { // Perhaps only by this side's clock.
		go func() { _, _ = h.release(0) }()
	}
	h.tell(h.options.hooks.OnLost, Event{Cause: cause, Held: time.Since(h.acquired)})
}

func (h *Held) ended(why error) {
	h.expiry.Stop()
	h.renewal.Stop()
	h.stop()
	h.cancel(why)
}

// Release gives up the lock. ErrLockLost: it was lost before. Failures that pass are tried again for ReleaseTimeout.
// Releasing again does nothing, and neither does releasing nil: defer held.Release() may stand before err is checked.
func (h *Held) Release() error {
	if h == nil {
		return nil
	}
	h.mutex.Lock()
	if h.holds--; h.isReleased || h.holds > 0 {
		h.mutex.Unlock()
		return nil
	}
	h.isReleased = true
	loss, left := h.loss, time.Until(h.until)
	h.mutex.Unlock()
	if loss != nil {
		return loss
	}
	h.ended(nil)
	isClean, err := h.release(min(h.options.releaseTimeout, left))
	if h.close(isClean && h.unanswered.Load() == 0); errors.Is(err, ErrUnavailable) && h.options.session {
		err = nil // The end of its connection frees the lock as well.
	}
	if err == nil {
		h.tell(h.options.hooks.OnReleased, Event{Held: time.Since(h.acquired)})
	}
	return err
}
