package fairlock_test

// Rows 24 to 30 and 37 to 46: one server.

import (
	"bytes"
	"context"
	"errors"
	"log"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	fairlock "fairlock.example/clients/go"
)

func TestR24WaitersDoNotKeepTheHolderFromReleasing(t *testing.T) {
	t.Parallel()
	_, view, name := one(t)
	client := redis.NewClient(&redis.Options{Addr: commonOne.get(t).address("a"), PoolSize: 2})
	locks := locksOf(t, client, fairlock.Lease(long))
	held := acquire(t, locks, name)
	got, failed := make(chan *fairlock.Held), make(chan error, 10)
	for waiter := 0; waiter < 10; waiter++ {
		go func() {
			held, err := locks.Acquire(ctx, name)
			if err != nil {
				failed <- err
				return
			}
			got <- held
		}()
	}
	view.waits(name, 10)
	for waiter := 0; waiter < 10; waiter++ {
		release(t, held)
		select {
		case held = <-got:
		case err := <-failed:
			t.Fatal(err)
		case <-time.After(longest):
			t.Fatal("no waiter has it")
		}
	}
	release(t, held)
	expect(t, view.isFree(name), "free")
}

func TestR25AFailingReleaseDoesNotHideTheBodysError(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	body := &bodyError{}
	err := locks.Run(ctx, name, func(context.Context, *fairlock.Held) error {
		view.run("FAIRLOCK.BREAK", name)
		return body
	})
	var same *bodyError
	expect(t, errors.Is(err, body) && errors.As(err, &same), "the body's: %v", err)
	expect(t, strings.HasPrefix(err.Error(), body.Error()), "first: %v", err)
	wantCause(t, err, fairlock.CauseNotHeld)
}

func TestR26ALostLockIsToldAtTheEnd(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	err := locks.Run(ctx, name, func(context.Context, *fairlock.Held) error {
		view.run("FAIRLOCK.BREAK", name)
		return nil
	})
	want(t, err, fairlock.ErrLockLost)
	held := acquire(t, locks, name)
	release(t, held)
	other := acquire(t, locks, name)
	release(t, held)
	expect(t, view.owner(name) == other.Owner(), "a second release does nothing")
	release(t, other)
}

func TestR27TheReplyToReleaseIsLost(t *testing.T) {
	t.Parallel()
	s, locks, view, name := own(t)
	held := acquire(t, locks, name)
	s.lose(t, view, "RELEASE")
	release(t, held)
	expect(t, s.tell(t, "lost") == "1", "it was lost")
	expect(t, view.isFree(name), "free")
}

func TestR28TheReplyToAcquireIsLost(t *testing.T) {
	t.Parallel()
	has := func(t *testing.T, view *view, name string, held *fairlock.Held) {
		t.Helper()
		info := view.info(name)
		expect(t, info["holds"] == int64(1) && info["owner"] == held.Owner() && info["token"] == held.Token(),
			"one hold: %v", info)
		release(t, held)
		expect(t, view.isFree(name), "free")
	}
	t.Run("free", func(t *testing.T) {
		t.Parallel()
		s, locks, view, name := own(t)
		s.lose(t, view, "ACQUIRE")
		held := acquire(t, locks, name)
		expect(t, s.tell(t, "lost") == "1", "it was lost")
		has(t, view, name, held)
	})
	t.Run("waiting", func(t *testing.T) {
		t.Parallel()
		s, locks, view, name := own(t)
		view.run("FAIRLOCK.ACQUIRE", name, "another", "LEASE", 5000)
		waiting := begin(locks, name)
		view.waits(name, 1)
		owner := view.queue(name)[0]
		view.settles(locks, name)
		// Its reply goes with the connections.
		s.tell(t, "freeze")
		until(t, "granted", func() bool { return view.owner(name) == owner })
		s.tell(t, "cut")
		s.tell(t, "thaw")
		s.tell(t, "mend")
		held := waiting.get(t)
		expect(t, held.Owner() == owner, "the same owner")
		has(t, view, name, held)
	})
}

func TestR28TheReplyIsLostAndTheNextAskRefused(t *testing.T) {
	t.Parallel()
	s, locks, view, name := own(t)
	release(t, acquire(t, locks, name))
	s.tell(t, "freeze")
	waiting := begin(locks, name, fairlock.Lease(long))
	until(t, "the server has granted it", func() bool { return !view.isFree(name) })
	view.run("CONFIG", "SET", "maxmemory", 1)
	for _, command := range []string{"cut", "thaw", "mend"} {
		s.tell(t, command)
	}
	err := waiting.error(t)
	want(t, err, fairlock.ErrRefused)
	expect(t, asError(t, err).Code == "OOM", "the code: %v", err)
	until(t, "it is free", func() bool { return view.isFree(name) })
}

func TestR29ConnectionsAreCutWhileACallerWaits(t *testing.T) {
	t.Parallel()
	s, locks, view, name := own(t)
	view.run("FAIRLOCK.ACQUIRE", name, "another")
	waiting := begin(locks, name)
	view.waits(name, 1)
	s.tell(t, "cut")
	until(t, "it is cut off", func() bool { return len(view.clients()) == 0 })
	s.tell(t, "mend")
	view.waits(name, 1)
	view.run("FAIRLOCK.RELEASE", name, "another")
	release(t, waiting.get(t))
}

func TestR30UnblockedItAsksAgain(t *testing.T) {
	t.Parallel()
	s := start(t, "one")
	locks, view, name := locksAt(t, s, "a"), look(t, s, "a"), newName(t)
	view.run("FAIRLOCK.ACQUIRE", name, "another")
	waiting := begin(locks, name)
	view.waits(name, 1)
	owner, asked := view.queue(name)[0], view.calls("acquire")
	if withoutModule {
		s.tell(t, "kill", "a")
		s.tell(t, "start", "a")
		view, asked = look(t, s, "a"), 0
	}
	for _, each := range view.clients() {
		if strings.Contains(field(each, "flags"), "b") {
			view.run("CLIENT", "UNBLOCK", field(each, "id"), "ERROR")
		}
	}
	until(t, "it asks again", func() bool {
		queue := view.queue(name)
		return view.calls("acquire") > asked && len(queue) == 1 && queue[0] == owner
	})
	view.run("FAIRLOCK.RELEASE", name, "another")
	held := waiting.get(t)
	expect(t, held.Owner() == owner, "the same owner")
	release(t, held)
}

func TestR37TheSameCallerHoldsItAgain(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	outer := acquire(t, locks, name, fairlock.Reentrant())
	below, cancel := context.WithCancel(outer.Context())
	defer cancel()
	inner, err := locks.Acquire(below, name, fairlock.Reentrant())
	expect(t, err == nil && inner == outer && inner.Token() == outer.Token(), "the same: %v", err)
	release(t, inner)
	expect(t, view.owner(name) == outer.Owner() && outer.Context().Err() == nil, "still held")
	_, err = locks.Acquire(ctx, name, fairlock.Reentrant(), fairlock.Wait(0))
	want(t, err, fairlock.ErrNotInTime)
	release(t, outer)
	expect(t, view.isFree(name), "free")
	_, err = locks.Acquire(outer.Context(), name, fairlock.Reentrant())
	expect(t, err == context.Canceled, "it was released: %v", err)
	lost := acquire(t, locks, name, fairlock.Reentrant())
	view.run("FAIRLOCK.BREAK", name)
	want(t, lost.Renew(ctx, 0), fairlock.ErrLockLost)
	_, err = locks.Acquire(lost.Context(), name, fairlock.Reentrant())
	wantCause(t, err, fairlock.CauseNotHeld)
}

func TestR38NotReentrantUnlessAsked(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	held := acquire(t, locks, name)
	_, err := locks.Acquire(held.Context(), name, fairlock.Reentrant(), fairlock.Wait(50*time.Millisecond))
	want(t, err, fairlock.ErrNotInTime)
	release(t, held)
	held = acquire(t, locks, name, fairlock.Reentrant())
	_, err = locks.Acquire(held.Context(), name, fairlock.Wait(50*time.Millisecond))
	want(t, err, fairlock.ErrNotInTime)
	release(t, held)
	expect(t, view.isFree(name), "free")
}

// told are the calls of hooks, as "which owner".
type told struct {
	mutex  sync.Mutex
	which  []string
	events []fairlock.Event
}

func (h *told) add(which string) func(fairlock.Event) {
	return func(event fairlock.Event) {
		h.mutex.Lock()
		defer h.mutex.Unlock()
		h.which, h.events = append(h.which, which), append(h.events, event)
	}
}

func (h *told) hooks() fairlock.Hooks {
	return fairlock.Hooks{
		OnWait: h.add("wait"), OnAcquired: h.add("acquired"), OnLost: h.add("lost"), OnReleased: h.add("released"),
	}
}

// of an owner: which hooks, and the last event.
func (h *told) of(owner string) (which string, last fairlock.Event) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	for at, event := range h.events {
		if event.Owner == owner {
			which, last = strings.TrimSpace(which+" "+h.which[at]), event
		}
	}
	return which, last
}

func TestR39Hooks(t *testing.T) {
	t.Parallel()
	told := &told{}
	locks, view, name := one(t, told.hooks())
	first := acquire(t, locks, name)
	waiting := begin(locks, name)
	view.waits(name, 1)
	release(t, first)
	second := waiting.get(t)
	which, last := told.of(first.Owner())
	expect(t, which == "acquired released", "told %s", which)
	expect(t, last.Name == name && last.Token == first.Token() && last.Held > 0, "released: %+v", last)
	which, last = told.of(second.Owner())
	expect(t, which == "wait acquired", "told %s", which)
	expect(t, last.Name == name && last.Token == second.Token() && last.Waited > 0, "acquired: %+v", last)
	view.run("FAIRLOCK.BREAK", name)
	want(t, second.Renew(ctx, 0), fairlock.ErrLockLost)
	want(t, second.Release(), fairlock.ErrLockLost)
	which, last = told.of(second.Owner())
	expect(t, which == "wait acquired lost", "told %s", which)
	expect(t, last.Cause == fairlock.CauseNotHeld && last.Token == second.Token() && last.Held > 0, "lost: %+v", last)
}

// Not parallel: it takes the log of the whole process.
func TestR40AHookThatFailsDisturbsNothing(t *testing.T) {
	var said bytes.Buffer
	defer log.SetOutput(log.Writer())
	log.SetOutput(&said)
	fail := func(fairlock.Event) { panic("a hook") }
	locks, view, name := one(t, fairlock.Hooks{OnWait: fail, OnAcquired: fail, OnReleased: fail})
	first := acquire(t, locks, name)
	waiting := begin(locks, name)
	view.waits(name, 1)
	release(t, first)
	release(t, waiting.get(t))
	expect(t, view.isFree(name), "free")
	expect(t, strings.Count(said.String(), "has failed: a hook") == 5, "logged: %s", said.String())
}

func TestR41AServerWithoutTheModule(t *testing.T) {
	t.Parallel()
	plain := start(t, "plain")
	locks := locksAt(t, plain, "a", fairlock.RequireModule())
	start := time.Now()
	_, err := locks.Acquire(ctx, newName(t))
	want(t, err, fairlock.ErrNoModule)
	expect(t, time.Since(start) < atOnce, "at once")
	expect(t, err.Error() == plain.address("a")+": the server does not have the fairlock module (unknown command "+
		`'FAIRLOCK.ACQUIRE'). Load it: "loadmodule /path/to/libfairlock.so" in its redis.conf, or MODULE LOAD. `+
		"See docs/operations.md at https://fairlock.example", "text: %v", err)
	expect(t, asError(t, err).Code == "ERR", "code")
}

func TestR42RefusalsAreTyped(t *testing.T) {
	t.Parallel()
	options := []string{"one", "--fairlock.max-waiters", "1"}
	if withoutModule { // Scripts allow 100,000.
		options = options[:1]
	}
	s := start(t, options...)
	locks, view, name := locksAt(t, s, "a"), look(t, s, "a"), newName(t)
	refused := func(name string, kind error, code, text string) {
		t.Helper()
		_, err := locks.Acquire(ctx, name)
		want(t, err, kind)
		expect(t, asError(t, err).Code == code && strings.Contains(err.Error(), code), "code: %v", err)
		expect(t, strings.Contains(err.Error(), name) && strings.Contains(err.Error(), text), "text: %v", err)
	}
	held := acquire(t, locks, name)
	waiting := begin(locks, name)
	view.waits(name, 1)
	if !withoutModule {
		refused(name, fairlock.ErrQueueFull, "QUEUEFULL", "fairlock.max-waiters")
	}
	release(t, held)
	release(t, waiting.get(t))
	view.run("SET", "text", "hello")
	refused("text", fairlock.ErrWrongType, "WRONGTYPE", "wrong kind of value")
	view.run("HSET", "person", "name", "Ann")
	refused("person", fairlock.ErrNotALock, "NOTALOCK", "")
}

func TestR43OneOwnerHasOnePlace(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	held := acquire(t, locks, name)
	first := begin(locks, name, fairlock.Owner("me"))
	view.waits(name, 1)
	second := begin(locks, name, fairlock.Owner("me"))
	err := first.error(t)
	want(t, err, fairlock.ErrTakenOver)
	expect(t, asError(t, err).Code == "TAKENOVER", "code")
	queue := view.queue(name)
	expect(t, len(queue) == 1 && queue[0] == "me", "it keeps the place: %v", queue)
	release(t, held)
	release(t, second.get(t))
}

func TestR44AServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	s := start(t, "one")
	s.tell(t, "kill", "a")
	locks := locksAt(t, s, "a", fairlock.RetryTimeout(300*time.Millisecond))
	_, err := locks.Acquire(ctx, newName(t))
	want(t, err, fairlock.ErrUnavailable)
	expect(t, errors.Unwrap(err) != nil, "its cause")
	_, err = locks.Acquire(ctx, newName(t), fairlock.Wait(100*time.Millisecond))
	want(t, err, fairlock.ErrNotInTime)
	expect(t, errors.Unwrap(err) != nil, "its cause")
	locks = locksAt(t, s, "a")
	waiting := begin(locks, newName(t))
	time.Sleep(200 * time.Millisecond)
	expect(t, !waiting.isDone(), "it goes on")
	s.tell(t, "start", "a")
	release(t, waiting.get(t))
}

func TestR45ArgumentsAreCheckedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	s := start(t, "one")
	view, name := look(t, s, "a"), newName(t)
	refused := func(err error, option string) {
		t.Helper()
		var argument *fairlock.ArgumentError
		expect(t, errors.As(err, &argument) && argument.Option == option, "%s: %v", option, err)
	}
	locks := locksAt(t, s, "a")
	for option, wrong := range map[string][]fairlock.LockOption{
		"Lease":       {fairlock.Lease(0), fairlock.Lease(-1), fairlock.Lease(time.Millisecond - 1)},
		"Patience":    {fairlock.Patience(0), fairlock.Patience(-1)},
		"Wait":        {fairlock.Wait(-1), fairlock.Wait(-time.Second)},
		"Limit":       {fairlock.Limit(0), fairlock.Limit(1_000_001)},
		"Owner":       {fairlock.Owner(""), fairlock.Owner(strings.Repeat("x", 257)), fairlock.Owner("*")},
		"SyncTimeout": {fairlock.SyncTimeout(-1)},
		"MinReplicas": {fairlock.MinReplicas(-1), fairlock.MinReplicas(-2)},
	} {
		for _, each := range wrong {
			_, err := locks.Acquire(ctx, name, each)
			refused(err, option)
			_, err = locksAt(t, s, "a", each).TryAcquire(ctx, name, fairlock.SyncTimeout(0))
			refused(err, option)
		}
	}
	for option, wrong := range map[string]fairlock.Option{
		"RetryTimeout": fairlock.RetryTimeout(-1), "CommandTimeout": fairlock.CommandTimeout(0),
		"ReleaseTimeout": fairlock.ReleaseTimeout(-1),
	} {
		_, err := locksAt(t, s, "a", wrong).Acquire(ctx, name)
		refused(err, option)
	}
	expect(t, len(view.clients()) == 0, "nothing was sent")
	held := acquire(t, locks, name)
	refused(held.Renew(ctx, -time.Second), "Lease")
	expect(t, view.calls("renew") == 0, "nothing was sent")
	release(t, held)
}

func TestR46Closing(t *testing.T) {
	t.Parallel()
	s := start(t, "one")
	locks, view, name := locksAt(t, s, "a"), look(t, s, "a"), newName(t)
	held := acquire(t, locks, name)
	session := acquire(t, locks, newName(t), withModule(fairlock.Session())...)
	waiting := begin(locks, name)
	view.waits(name, 1)
	locks.Close()
	want(t, waiting.error(t), fairlock.ErrClosed)
	expect(t, len(view.queue(name)) == 0, "no queue")
	wantLost(t, held, fairlock.CauseClosed)
	wantLost(t, session, fairlock.CauseClosed)
	until(t, "all connections are closed", func() bool { return len(view.clients()) == 0 })
	_, err := locks.Acquire(ctx, name)
	want(t, err, fairlock.ErrClosed)
	expect(t, locks.Close() == nil, "a second time does nothing")
}
