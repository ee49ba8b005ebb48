package fairlock

import (
	"context"
	"time"
)

const (
	watchPause = time.Second            // between looks for the masters
	worryPause = 100 * time.Millisecond // where a connection has failed
)

// attend starts the watch if there is something to watch for, or ends it; with the mutex held.
func (l *Locks) attend() {
	isWanted := l.route.isGuided() && !l.isClosing && len(l.held)+len(l.asks) > 0
	switch {
	case isWanted && l.endWatch == nil:
		var ctx context.Context
		ctx, l.endWatch = context.WithCancel(context.Background())
		go l.watch(ctx)
	case !isWanted && l.endWatch != nil:
		l.endWatch()
		l.endWatch = nil
	}
}

// watch notices changes of the masters while locks are held or waited for: holders learn at once which locks the new
// one does not have, and no caller goes on waiting at the old one.
func (l *Locks) watch(ctx context.Context) {
	for l.watchPauses(ctx) == nil {
		if l.look(ctx, time.Now()) != nil {
			continue
		}
		for _, address := range l.watched() {
			go l.verify(ctx, address)
		}
	}
}

// watchPauses until the next look is due: locks may be held for less than a second each.
func (l *Locks) watchPauses(ctx context.Context) error {
	l.mutex.Lock()
	due := l.lookedAround.Add(watchPause)
	l.mutex.Unlock()
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.worry:
		if err := sleep(ctx, worryPause); err != nil {
			return err
		}
	case <-ctx.Done():
	}
	l.mutex.Lock()
	l.lookedAround = time.Now()
	l.mutex.Unlock()
	return ctx.Err()
}

// lookAround makes the watch look now, and not only when it is due; with the mutex held.
func (l *Locks) lookAround() {
	select {
	case l.worry <- struct{}{}:
	default:
	}
}

// watched are the masters that are in use, none of which is being verified already.
func (l *Locks) watched() (addresses []string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	add := func(address string) {
		if address != "" && !l.verifying[address] {
			l.verifying[address] = true
			addresses = append(addresses, address)
		}
	}
	for h := range l.held {
		address, _ := l.route.node(h.name)
		add(address)
	}
	for where, count := range l.open {
		if (where.kind == waiting || where.kind == listening) && count > 0 {
			add(where.address)
		}
	}
	return addresses
}

// verify asks a server whether it is a master, and for each lock that should be there whether it is.
func (l *Locks) verify(ctx context.Context, address string) {
	defer func() {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		delete(l.verifying, address)
	}()
	now, isMaster := l.stand(address), true
	err := l.onPlace(ctx, place{control, address}, false, func(c *conn) error {
		// Without ctx, because its end would close the connection.
		role, err := c.call(context.Background(), l.options.commandTimeout, "ROLE")
		if err == nil {
			_, wrong := replicas(role)
			isMaster = wrong == nil
		}
		return err
	})
	switch {
	case ctx.Err() != nil:
	case !isMaster:
		l.route.doubt()
		l.abandon(address)
	case err != nil && codeOf(err) != "NOPERM" && !isUnknown(err):
		l.distrust(address, err)
	default:
		for _, h := range l.heldAt(address) {
			h.check(now)
		}
	}
}

func (l *Locks) heldAt(address string) (held []*Held) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for h := range l.held {
		if node, _ := l.route.node(h.name); node == address {
			held = append(held, h)
		}
	}
	return held
}
