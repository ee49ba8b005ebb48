package fairlock

// The protocol without a server: what is sent, how long it pauses, and what the answers lead to.

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

type refused string

func (r refused) Error() string { return string(r) }
func (r refused) RedisError()   {}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// told is an ask after answers, each of which came so many milliseconds after noon, to what was sent at noon.
func told(o options, answers ...reply) *ask {
	a := newAsk("orders", "me", &o, noon)
	for _, each := range answers {
		if a.pause > 0 {
			a.paused(each.came)
		}
		if a.state != over {
			a.heard(each)
		}
	}
	return &a
}

func after(milliseconds int, value any) reply {
	r := reply{value: value, sent: noon, came: noon.Add(time.Duration(milliseconds) * time.Millisecond), address: "there", isConfirmed: true}
	if err, ok := value.(error); ok {
		r.value, r.err = nil, err
	}
	return r
}

func with(change func(*options)) options {
	o := defaults()
	change(&o)
	return o
}

func TestTheProtocol(t *testing.T) {
	queued, unconfirmed := []any{int64(1), int64(3000)}, after(1, int64(7))
	unconfirmed.isConfirmed = false
	waits := with(func(o *options) { o.wait = time.Second })
	brief := with(func(o *options) { o.wait, o.lease = time.Second, time.Millisecond })
	once := with(func(o *options) { o.wait = 0 })
	for what, each := range map[string]struct {
		a    *ask
		want string // the command, the pause, and the error
	}{
		"a free lock":                 {told(defaults(), after(1, int64(7))), "over 0s <nil>"},
		"a queue is waited in":        {told(defaults(), after(1, queued)), "ACQUIRE 3s <nil>"},
		"try once":                    {told(once, after(1, nil)), "over 0s not in time"},
		"the wait is over":            {told(waits, after(1, queued), after(1001, queued)), "over 0s not in time"},
		"a late grant is asked again": {told(defaults(), after(11_000, int64(7))), "ACQUIRE 0s <nil>"},
		"and then it is not late":     {told(defaults(), after(11_000, int64(7)), after(12_000, int64(7))), "over 0s <nil>"},
		"but it may be over":          {told(defaults(), after(11_000, int64(7)), after(31_000, int64(7))), "ACQUIRE 50ms <nil>"},
		"not beyond the wait":         {told(brief, after(1001, int64(7)), after(1002, int64(7))), "over 0s not in time"},
		"too few replicas":            {told(defaults(), unconfirmed), "RELEASE 0s <nil>"},
		"and then again":              {told(defaults(), unconfirmed, after(2, int64(0))), "ACQUIRE 50ms <nil>"},
		"nor if it cannot return it":  {told(waits, unconfirmed, after(1001, io.EOF)), "over 0s not in time"},
		"unless the wait is over":     {told(waits, unconfirmed, after(1001, int64(0))), "over 0s not replicated in time"},
		"a failure passes":            {told(defaults(), after(1, io.EOF)), "ACQUIRE 50ms <nil>"},
		"pauses grow":                 {told(defaults(), after(1, io.EOF), after(60, refused("BUSY script"))), "ACQUIRE 100ms <nil>"},
		"but not for ever":            {told(defaults(), after(1, io.EOF), after(31_000, io.EOF)), "over 0s unavailable"},
		"a refusal is the caller's":   {told(defaults(), after(1, refused("WRONGTYPE it is a string"))), "over 0s wrong type"},
	} {
		if was := describe(each.a); was != each.want {
			t.Errorf("%s: %s, and not %s", what, was, each.want)
		}
	}
}

func describe(a *ask) string {
	err := a.err
	if ours, ok := err.(*Error); ok {
		err = ours.kind
	}
	pause := a.pause
	if pause > time.Second { // and up to a tenth more
		pause = pause.Truncate(time.Second)
	}
	next := strings.TrimPrefix(a.words()[0].(string), "FAIRLOCK.")
	if a.state == over {
		next = "over"
	}
	return fmt.Sprint(next, " ", pause, " ", err)
}

func TestLeavingReleasesOnlyWhatMayBeHeld(t *testing.T) {
	queued := after(1, []any{int64(1), int64(3000)})
	for what, each := range map[string]struct {
		asked, left []reply
		next        state
		isClean     bool
	}{
		"nothing was sent":        {nil, nil, over, true},
		"it was refused":          {[]reply{after(1, refused("OOM"))}, nil, over, true},
		"it left":                 {[]reply{queued}, []reply{after(2, int64(1))}, over, true},
		"all was heard":           {[]reply{queued}, []reply{after(2, int64(0))}, over, false},
		"a reply was lost":        {[]reply{after(1, io.EOF)}, []reply{after(2, int64(0))}, giving, false},
		"and is given up":         {[]reply{after(1, io.EOF)}, []reply{after(2, int64(0)), after(3, int64(0))}, over, false},
		"the server is not there": {[]reply{queued}, []reply{after(2, io.EOF)}, leaving, false},
	} {
		a := told(defaults(), each.asked...)
		a.leave()
		for _, r := range each.left {
			a.heard(r)
		}
		if a.state != each.next || a.isClean != each.isClean {
			t.Errorf("%s: %v, %v", what, a.state, a.isClean)
		}
	}
}

func TestAReleaseThatWasNotHeardMayHaveBeenDone(t *testing.T) {
	for lost, want := range map[bool]error{false: ErrLockLost, true: nil} {
		a := told(defaults(), after(1, int64(7)))
		a.release(time.Second)
		if lost {
			a.heard(after(2, io.EOF))
		}
		if a.heard(after(3, refused("NOTHELD no"))); a.state != over || !errors.Is(a.err, want) {
			t.Errorf("%v: %v", lost, a.err)
		}
	}
}
