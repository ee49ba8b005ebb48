package fairlock_test

// Rows 01 to 19: one server.

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	fairlock "fairlock.example/clients/go"
)

type bodyError struct{}

func (*bodyError) Error() string { return "the body's own" }

func TestR01AFreeLockIsAcquiredAndReleased(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	held := acquire(t, locks, name)
	expect(t, held.Token() > 0 && view.info(name)["token"] == held.Token(), "the token is INFO's")
	expect(t, held.Name() == name && view.owner(name) == held.Owner(), "name and owner")
	release(t, held)
	expect(t, view.isFree(name), "it is free")
	second := acquire(t, locks, name)
	expect(t, second.Token() > held.Token(), "tokens grow")
	release(t, second)
}

func TestR02RunReleasesAlsoWhenTheBodyFails(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	err := locks.Run(ctx, name, func(_ context.Context, held *fairlock.Held) error {
		expect(t, view.owner(name) == held.Owner(), "it is held")
		return nil
	})
	expect(t, err == nil && view.isFree(name), "released: %v", err)
	body := &bodyError{}
	err = locks.Run(ctx, name, func(context.Context, *fairlock.Held) error { return body })
	expect(t, err == body, "unchanged: %v", err)
	expect(t, view.isFree(name), "released")
	func() {
		defer func() { expect(t, recover() == body, "the panic arrives") }()
		_ = locks.Run(ctx, name, func(context.Context, *fairlock.Held) error { panic(body) })
	}()
	expect(t, view.isFree(name), "released")
}

func TestR03TheOwnerNamesTheMachineAndIsNewEachTime(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	held := acquire(t, locks, name)
	host, err := os.Hostname()
	expect(t, err == nil, "%v", err)
	host = regexp.MustCompile(`[^A-Za-z0-9._-]`).ReplaceAllString(host, "-")
	form := fmt.Sprintf(`^%s:%d:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`, regexp.QuoteMeta(host), os.Getpid())
	owner := view.owner(name)
	expect(t, owner == held.Owner() && regexp.MustCompile(form).MatchString(owner), "owner %s", owner)
	_, err = locks.Acquire(ctx, name, fairlock.Wait(50*time.Millisecond))
	want(t, err, fairlock.ErrNotInTime)
	expect(t, view.owner(name) == held.Owner(), "still its own")
	release(t, held)
	second := acquire(t, locks, name)
	expect(t, second.Owner() != held.Owner(), "another")
	release(t, second)
	held = acquire(t, locks, name, fairlock.Owner("the nightly job"))
	expect(t, view.owner(name) == "the nightly job", "the given one")
	release(t, held)
}

func TestR04NoTimeToWait(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	held := acquire(t, locks, name)
	_, err := locks.Acquire(ctx, name, fairlock.Wait(0))
	want(t, err, fairlock.ErrNotInTime)
	none, err := locks.TryAcquire(ctx, name)
	want(t, err, fairlock.ErrNotInTime)
	expect(t, none.Release() == nil, "to release none does nothing")
	expect(t, len(view.queue(name)) == 0, "no queue")
	release(t, held)
	held, err = locks.TryAcquire(ctx, name)
	expect(t, err == nil && held.Token() > 0, "had: %v", err)
	release(t, held)
}

func TestR05TheWaitRunsOut(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	held := acquire(t, locks, name)
	start := time.Now()
	_, err := locks.Acquire(ctx, name, fairlock.Wait(300*time.Millisecond))
	want(t, err, fairlock.ErrNotInTime)
	expect(t, time.Since(start) >= 300*time.Millisecond, "it waited")
	expect(t, len(view.queue(name)) == 0, "no queue")
	release(t, held)
}

func TestR06FirstComeFirstServed(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	first := acquire(t, locks, name)
	var waiting []*future
	for count := 1; count <= 3; count++ {
		waiting = append(waiting, begin(locks, name))
		view.waits(name, count)
	}
	release(t, first)
	last := first.Token()
	for _, each := range waiting {
		held := each.get(t)
		expect(t, held.Token() > last, "in their order")
		last = held.Token()
		release(t, held)
	}
}

func TestR07TheNextOneHasItAtOnce(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t, fairlock.Lease(long))
	first := acquire(t, locks, name)
	waiting := begin(locks, name)
	view.waits(name, 1)
	start := time.Now()
	release(t, first)
	second := waiting.get(t)
	expect(t, time.Since(start) < atOnce, "at once")
	release(t, second)
}

func TestR08AWaitOutlivesTheClientsReadTimeout(t *testing.T) {
	t.Parallel()
	for what, options := range map[string][]fairlock.LockOption{"limit": {fairlock.Wait(longest)}, "no limit": nil} {
		options := options
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			_, view, name := one(t)
			locks := locksOf(t, redis.NewClient(&redis.Options{
				Addr: commonOne.get(t).address("a"), ReadTimeout: 300 * time.Millisecond,
			}))
			held := acquire(t, locks, name)
			waiting := begin(locks, name, options...)
			view.waits(name, 1)
			time.Sleep(time.Second)
			expect(t, !waiting.isDone(), "it waits")
			release(t, held)
			release(t, waiting.get(t))
		})
	}
}

func TestR09CancellingLeavesTheQueue(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	held := acquire(t, locks, name)
	cancelled, cancel := context.WithCancel(ctx)
	waiting := beginWith(cancelled, locks, name)
	view.waits(name, 1)
	cancel()
	expect(t, waiting.error(t) == context.Canceled, "the context's: %v", waiting.err)
	expect(t, len(view.queue(name)) == 0, "no queue")
	limited, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err := locks.Acquire(limited, name)
	expect(t, err == context.DeadlineExceeded, "the context's: %v", err)
	expect(t, len(view.queue(name)) == 0, "no queue")
	_, err = locks.Acquire(cancelled, newName(t))
	expect(t, err == context.Canceled, "the context's: %v", err)
	release(t, held)
	expect(t, view.isFree(name), "free")
}

func TestR10AGrantOnItsWayToOneThatWasCancelledIsGivenBack(t *testing.T) {
	t.Parallel()
	s, locks, view, name := own(t, fairlock.Lease(long), fairlock.CommandTimeout(500*time.Millisecond))
	view.run("FAIRLOCK.ACQUIRE", name, "another", "LEASE", 5000)
	cancelled, cancel := context.WithCancel(ctx)
	defer cancel()
	waiting := beginWith(cancelled, locks, name)
	view.waits(name, 1)
	view.settles(locks, name)
	s.tell(t, "freeze")
	until(t, "granted", func() bool { owner := view.owner(name); return owner != "" && owner != "another" })
	cancel()
	expect(t, waiting.error(t) == context.Canceled, "the context's: %v", waiting.err)
	expect(t, !view.isFree(name), "nothing has come through")
	s.tell(t, "thaw")
	start := time.Now()
	until(t, "it is free", func() bool { return view.isFree(name) })
	expect(t, time.Since(start) < atOnce, "soon")
}

func TestR11TheLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	held := acquire(t, locks, name, fairlock.Lease(9*time.Second))
	time.Sleep(19 * time.Second)
	expect(t, view.info(name)["token"] == held.Token() && held.Lost() == nil, "held: %v", held.Lost())
	release(t, held)
}

func TestR12WithoutRenewalTheLeaseEnds(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	start := time.Now()
	held := acquire(t, locks, name, fairlock.Lease(400*time.Millisecond), fairlock.NoRenewal())
	wantLost(t, held, fairlock.CauseLease)
	expect(t, time.Since(start) >= 300*time.Millisecond, "not before")
	until(t, "it is free", func() bool { return view.isFree(name) })
	wantCause(t, held.Release(), fairlock.CauseLease)
}

func TestR13RenewSetsTheLease(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	within := func(from, to int64) {
		t.Helper()
		lease := view.info(name)["lease"].(int64)
		expect(t, from < lease && lease <= to, "lease %d", lease)
	}
	held := acquire(t, locks, name, fairlock.Lease(30*time.Second))
	expect(t, held.Renew(ctx, 90*time.Second) == nil, "renewed")
	within(80_000, 90_000)
	release(t, held)
	held = acquire(t, locks, name, fairlock.Lease(30*time.Second), fairlock.NoRenewal())
	view.run("PEXPIRE", name, 10_000)
	expect(t, held.Renew(ctx, 0) == nil, "renewed")
	within(20_000, 30_000)
	release(t, held)
	expect(t, held.Renew(ctx, 0) != nil, "released")
}

// Not parallel: it looks at the goroutines of the whole process.
func TestR14NothingIsLeftAfterTheRelease(t *testing.T) {
	s := start(t, "one")
	locks, view, name := locksAt(t, s, "a"), look(t, s, "a"), newName(t)
	held := acquire(t, locks, name, fairlock.Lease(9*time.Second))
	before := view.calls("renew")
	until(t, "renewed", func() bool { return view.calls("renew") > before })
	expect(t, goroutines() > 0, "something renews it")
	release(t, held)
	until(t, "nothing is left", func() bool { return goroutines() == 0 })
	renewals := view.calls("renew")
	time.Sleep(6300 * time.Millisecond) // Two more would have been due.
	expect(t, view.calls("renew") == renewals && goroutines() == 0, "no renewal")
	held = acquire(t, locks, name, withModule(fairlock.Session())...)
	expect(t, goroutines() > 0, "something watches it")
	release(t, held)
	until(t, "nothing is left", func() bool { return goroutines() == 0 })
}

// goroutines of the package.
func goroutines() (count int) {
	stacks := make([]byte, 1<<20)
	for _, stack := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "fairlock.example/clients/go.") {
			count++
		}
	}
	return count
}

func TestR15RenewalDoesNotOutliveTheHolder(t *testing.T) {
	t.Parallel()
	kinds := map[string][]fairlock.LockOption{"renewed": nil, "session": {fairlock.Session()}}
	if withoutModule {
		delete(kinds, "session")
	}
	for what, options := range kinds {
		options := append(options, fairlock.Lease(3*time.Second))
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			locks, view, name := one(t)
			working, stop := context.WithCancel(ctx)
			defer stop()
			held, err := locks.Acquire(working, name, options...)
			expect(t, err == nil, "%v", err)
			time.Sleep(4 * time.Second)
			expect(t, view.owner(name) == held.Owner(), "held as long as there is a holder")
			stop()
			expect(t, held.Context().Err() == context.Canceled, "its context is done with the holder's")
			until(t, "it is free", func() bool { return view.isFree(name) })
			until(t, "and lost", func() bool { return held.Lost() != nil })
			wantCause(t, held.Lost(), fairlock.CauseLease)
		})
	}
}

func TestR16ALockThatIsBrokenIsLost(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	held := acquire(t, locks, name, fairlock.Lease(3*time.Second))
	view.run("FAIRLOCK.BREAK", name)
	start := time.Now()
	wantLost(t, held, fairlock.CauseNotHeld)
	expect(t, time.Since(start) < 3*time.Second, "before the lease would be over")
	err := held.Release()
	wantCause(t, err, fairlock.CauseNotHeld)
	expect(t, asError(t, err).Code == "NOTHELD", "code")
}

func TestR17TheLockOfAnotherIsLeftAlone(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	held := acquire(t, locks, name, fairlock.Lease(3*time.Second))
	view.run("DEL", name)
	token := view.run("FAIRLOCK.ACQUIRE", name, "another")
	wantLost(t, held, fairlock.CauseNotHeld)
	want(t, held.Release(), fairlock.ErrLockLost)
	expect(t, view.info(name)["token"] == token, "the other has it")
	name = newName(t)
	held = acquire(t, locks, name, fairlock.Owner("me"))
	view.run("DEL", name)
	token = view.run("FAIRLOCK.ACQUIRE", name, "me")
	want(t, held.Release(), fairlock.ErrLockLost)
	expect(t, view.info(name)["token"] == token, "it was another acquisition, if by the same owner")
}

func TestR18AServerThatIsSilent(t *testing.T) {
	t.Parallel()
	s, locks, _, name := own(t)
	held := acquire(t, locks, name, fairlock.Lease(1500*time.Millisecond))
	s.tell(t, "freeze")
	start := time.Now()
	wantLost(t, held, fairlock.CauseLease)
	// The last renewal may have been answered just before.
	expect(t, time.Since(start) < 1500*time.Millisecond+atOnce, "no later than the lease")
	s.tell(t, "thaw")
}

func TestAGrantThatArrivesWhenItsLeaseIsOverIsNone(t *testing.T) {
	t.Parallel()
	for what, options := range map[string][]fairlock.LockOption{"renewed": nil, "not renewed": {fairlock.NoRenewal()}} {
		options := append(options, fairlock.Lease(time.Second))
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, locks, view, name := own(t)
			view.run("FAIRLOCK.ACQUIRE", name, "first", "LEASE", long.Milliseconds())
			waiting := begin(locks, name, options...)
			view.waits(name, 1)
			s.tell(t, "freeze")
			view.run("FAIRLOCK.RELEASE", name, "first")
			// Another gets the lock after that lease.
			token := view.run("FAIRLOCK.ACQUIRE", name, "second", "LEASE", long.Milliseconds()).(int64)
			s.tell(t, "thaw")
			until(t, "it waits again, or takes itself for the holder", func() bool {
				return waiting.isDone() || len(view.queue(name)) > 0
			})
			expect(t, !waiting.isDone(), "it waits")
			view.run("FAIRLOCK.RELEASE", name, "second")
			expect(t, waiting.get(t).Token() > token, "granted after that")
		})
	}
}

func TestR19ALostLockIsNotRenewed(t *testing.T) {
	t.Parallel()
	locks, _, name := one(t)
	held := acquire(t, locks, name, fairlock.Lease(200*time.Millisecond), fairlock.NoRenewal())
	wantLost(t, held, fairlock.CauseLease)
	wantCause(t, held.Renew(ctx, 0), fairlock.CauseLease)
}
