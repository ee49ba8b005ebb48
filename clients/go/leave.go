package fairlock

import (
	"context"
	"time"
)

const leaveTime = time.Second // for which a caller that gives up tries to leave the queue

// outlasting is done a little after ctx: a request on its way to the server must not arrive after the CANCEL that a
// caller sends on another connection when it gives up.
func outlasting(ctx context.Context, pause time.Duration) (context.Context, func()) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(pause, cancel) })
	return lasting, func() {
		stop()
		cancel()
	}
}

// withdraw is for a caller that does not know whether it waits, holds the lock, or neither.
func (l *Locks) withdraw(a *ask) {
	if l.leave(a, min(leaveTime, l.options.commandTimeout)) || a.options.isOwned {
		return
	}
	// A network that comes back must not leave the lock to a caller that has gone. With an owner that was given,
	// the caller may hold the lock again by then.
	go l.leave(a, a.options.lease)
}

// leave reports whether the owner neither waits nor holds any more, if the server could be asked.
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
