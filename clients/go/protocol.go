package fairlock

import (
	"errors"
	"fmt"
	"math/rand"
	"time"
)

const (
	firstPause   = 50 * time.Millisecond // between tries
	longestPause = time.Second
	leaveTime    = time.Second // that a caller who gives up waits until it has left the queue
)

var errNoAnswer = errors.New("no answer in time")

// ask is the protocol of one acquisition, until its release: it says what to send and how long to pause, and is told
// what came of it. It sends nothing, knows no client, and has no clock.
type ask struct {
	name, owner string
	options     *options
	started     time.Time
	address     string // of the server that answered last

	state     state
	pause     time.Duration // before the state's command is sent
	isWaiting bool          // in the queue: a message ends the pause
	hasWaited bool
	token     int64
	released  int64     // the last token that the owner has released
	sent      time.Time // the ask or renewal from which the lease counts
	err       error     // once it is over

	tries         tries
	longest       time.Duration // for tries in this state
	isKnown       bool          // to the server, perhaps, as a waiter or a holder
	isUnheard     bool          // a reply was lost: what was sent may be done
	wasLate       bool          // the last grant
	isUnconfirmed bool          // by replicas, the last grant
	isClean       bool          // at the end: the owner certainly neither waits nor holds
}

type state int

const (
	asking    state = iota
	returning       // what too few replicas have confirmed, or a new master does not know to be released
	leaving         // the queue
	giving          // up what may be held although nobody waits for it
	releasing
	over
)

// reply is what came of a command.
type reply struct {
	value       any
	err         error
	sent, came  time.Time
	address     string
	isConfirmed bool // by as many replicas as must
}

// tries are failures in a row that pass.
type tries struct {
	first error
	since time.Time
	pause time.Duration // before the next one
}

func (t *tries) failed(err error, now time.Time) {
	if t.first == nil {
		t.first, t.since, t.pause = err, now, firstPause/2
	}
	t.pause = min(2*t.pause, longestPause)
}

func newAsk(name, owner string, o *options, now time.Time) ask {
	a := ask{name: name, owner: owner, options: o, started: now, longest: o.retryTimeout}
	if o.wait == 0 {
		a.longest = min(o.retryTimeout, o.commandTimeout)
	}
	return a
}

// words are the state's command.
func (a *ask) words() []any {
	o := a.options
	switch a.state {
	case leaving:
		return []any{"FAIRLOCK.CANCEL", a.name, a.owner}
	case giving:
		return []any{"FAIRLOCK.RELEASE", a.name, a.owner}
	case returning, releasing:
		return []any{"FAIRLOCK.RELEASE", a.name, a.owner, "TOKEN", a.token}
	}
	words := append(make([]any, 0, 12), "FAIRLOCK.ACQUIRE", a.name, a.owner)
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

// left of the wait.
func (a *ask) left(now time.Time) time.Duration { return max(a.options.wait-now.Sub(a.started), 0) }

// paused is told when a pause is over, or a message has ended it.
func (a *ask) paused(now time.Time) {
	if a.pause = 0; a.isOver(now) {
		a.end(a.notInTime())
	}
}

// isOver says that it has waited long enough.
func (a *ask) isOver(now time.Time) bool {
	return (a.state == asking || a.state == returning) && a.options.wait > 0 && a.left(now) == 0
}

// heard takes the reply to words.
func (a *ask) heard(r reply) {
	if r.address != "" {
		a.address = r.address
	}
	isNotHeld := codeOf(r.err) == "NOTHELD" // the answer to a RELEASE, and no failure
	if r.err != nil && !isNotHeld {
		a.failed(r)
		return
	}
	a.tries, a.pause = tries{}, 0
	switch number, _ := r.value.(int64); a.state {
	case asking:
		a.asked(r)
	case returning:
		token := a.token
		a.state, a.token, a.isKnown = asking, 0, false
		if token <= a.released { // It is asked again at once.
			a.released = 0
			return
		}
		a.released, a.isUnconfirmed, a.pause = token, true, firstPause
		if a.left(r.came) == 0 {
			a.end(a.notInTime())
		}
	case leaving:
		if a.isClean = number == 1; !a.isClean && (a.isUnheard || a.token != 0) {
			a.state = giving
			return
		}
		a.end(nil)
	case releasing:
		a.isClean = !isNotHeld
		if isNotHeld && !a.isUnheard {
			a.end(a.lost(CauseNotHeld))
			return
		}
		a.end(nil)
	default:
		a.end(nil)
	}
}

func (a *ask) asked(r reply) {
	late := r.came.Sub(r.sent)
	token, isGranted := r.value.(int64)
	place, isQueued := r.value.([]any)
	a.isKnown, a.isWaiting = isGranted || isQueued, isQueued
	switch {
	case isQueued && len(place) == 2:
		after, _ := place[1].(int64)
		a.pause = time.Duration(max(after, 1)) * time.Millisecond
		a.pause += time.Duration(rand.Int63n(int64(a.pause/10) + 1))
		a.isUnconfirmed, a.wasLate = false, false
	case !isGranted:
		a.end(a.notInTime())
	case !r.isConfirmed || token <= a.released:
		a.token, a.state = token, returning
	case late >= a.options.lease || late >= a.options.lease/3 && !a.wasLate:
		if a.token = token; a.wasLate && a.left(r.came) == 0 {
			a.end(a.notInTime())
		} else if a.wasLate {
			a.pause = firstPause
		}
		a.wasLate = true // To ask again renews the lease of a holder, and puts any other in the queue.
	default:
		a.token, a.sent = token, r.sent
		a.end(nil)
	}
}

func (a *ask) failed(r reply) {
	if replied(r.err) == nil || r.value != nil { // The reply was lost, or only that of the replicas was a refusal.
		a.isKnown, a.isUnheard = true, true
	}
	a.isWaiting = false
	a.tries.failed(r.err, r.came)
	switch {
	case !isPassing(r.err):
		a.end(refusal(r.err, a.name, a.address, a.options))
	case a.isOver(r.came):
		a.end(a.notInTime())
	case r.came.Sub(a.tries.since) >= a.longest:
		a.end(failed(ErrUnavailable, a.tries.first, "%s: %s: not available for %v: %v", a.name, a.address, a.longest, a.tries.first))
	default:
		a.pause = a.tries.pause
	}
}

func (a *ask) end(err error) { a.state, a.err, a.pause = over, err, 0 }

// leave begins to take the owner out of the queue, and to give back what it may hold: until the lease would be over. With
// an owner that was given, another caller may hold the lock then.
func (a *ask) leave() {
	a.tries, a.pause, a.longest, a.state = tries{}, 0, a.options.lease, leaving
	if a.options.owner != nil {
		a.longest = leaveTime
	}
	if a.isClean = false; !a.isKnown {
		a.isClean = !a.isUnheard
		a.end(nil)
	}
}

// release begins to release the lock.
func (a *ask) release(longest time.Duration) {
	a.tries, a.pause, a.longest, a.state, a.isUnheard = tries{}, 0, longest, releasing, false
}

func (a *ask) notInTime() error {
	kind, what, within := ErrNotInTime, a.address, "at once"
	if a.tries.first != nil {
		what = fmt.Sprintf("%s: %v", a.address, a.tries.first)
	} else if a.isUnconfirmed {
		kind, what = ErrNotReplicated, a.address+": too few replicas have confirmed it (see MinReplicas)"
	}
	if a.options.wait > 0 {
		within = fmt.Sprintf("within %v", a.options.wait)
	}
	return failed(kind, a.tries.first, "%s: not acquired %s: %s", a.name, within, what)
}

func (a *ask) lost(cause Cause) *Error {
	loss := failed(ErrLockLost, nil, "%s: the lock was lost (%s): %s", a.name, cause, a.address)
	if loss.Cause = cause; cause == CauseNotHeld {
		loss.Code = "NOTHELD"
	}
	return loss
}
