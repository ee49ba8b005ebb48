package fairlock

import (
	"context"
	"errors"
	"log"
	"time"
)

// Renew sets the lease anew, to another length, or with 0 to the same; later renewals in the background use that
// length, too.
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
	var sent time.Time
	isConfirmed := false
	err := h.locks.onNode(ctx, renewal, h.name, 0, func(c *conn) (err error) {
		seen := h.locks.stand(c.place.address)
		sent = time.Now()
		isConfirmed, err = h.locks.renewOn(ctx, c, h.name, h.owner, lease, &h.options)
		if err == nil {
			h.saw(seen)
		}
		return err
	})
	if err == nil && !isConfirmed {
		err = failed(ErrNotReplicated, nil, "%s: no replica has confirmed the renewal: %s", h.name, h.address())
	}
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
	h.mutex.Lock()
	defer h.mutex.Unlock()
	end := sent.Add(lease)
	// A shorter lease counts even without a replica's confirmation.
	if isShorter := errors.Is(err, ErrNotReplicated) && end.Before(h.end); h.state != isHeld || err != nil && !isShorter {
		return err
	}
	h.end = end
	if err == nil {
		h.lease = lease
	}
	if h.expiry != nil {
		h.expiry.Reset(time.Until(h.end))
	}
	return err
}

func (h *Held) saw(seen stand) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.seen = seen
}

// check asks a server whether the lock is there, unless it has confirmed that since it was found to be the master.
func (h *Held) check(now stand) {
	h.mutex.Lock()
	isSeen := h.seen == now || h.state != isHeld
	h.mutex.Unlock()
	switch {
	case isSeen || h.session != nil:
	case h.options.noRenewal:
		h.lookUp(now)
	default:
		select {
		case h.doubted <- struct{}{}:
		default:
		}
	}
}

// lookUp checks a lock without renewing it. If several hold it, INFO may name another of them.
func (h *Held) lookUp(now stand) {
	info, err := h.locks.info(context.Background(), h.name, 0)
	switch {
	case err != nil:
	case info.Holders > 1, info.Owner == h.owner && info.Token == h.token:
		h.saw(now)
	default:
		h.lose(CauseNotHeld)
	}
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
		case <-h.doubted:
			timer.Reset(h.renewInBackground())
		case <-timer.C:
			timer.Reset(h.renewInBackground())
		}
	}
}

// renewInBackground returns when to renew next.
func (h *Held) renewInBackground() time.Duration {
	// Without h.ctx, because its end would close the connection, and a release must not cost a connection.
	err := h.renew(context.Background(), 0)
	if err == nil {
		return h.third()
	}
	if h.isHeld() && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrNotReplicated) {
		log.Printf("fairlock: the lock %q cannot be renewed: %v", h.name, err)
	}
	return h.retry()
}

func (h *Held) retry() time.Duration {
	return max(h.leaseNow()/10, firstPause)
}

// expire is called when the lease should be over, unless it was renewed before.
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
// The server renews it, so a late check loses nothing; a check without an answer within two thirds of the lease loses
// the lock. When the holder's context is done it stops asking: the lease ends here.
func (h *Held) watch() {
	defer h.locks.give(h.session)
	pause := h.third()
	for h.session.watch(pause) == nil {
		if h.holder.Err() != nil {
			if pause = h.left(); pause <= 0 {
				h.lose(CauseLease)
				return
			}
			continue
		}
		sent, lease := time.Now(), h.leaseNow()
		_, err := h.session.call(context.Background(), lease*2/3, "FAIRLOCK.RENEW", h.name, h.owner, "LEASE", ms(lease))
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
