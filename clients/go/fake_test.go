package fairlock_test

// Rows 48, 49 and 52: the fake.

import (
	"context"
	"errors"
	"testing"
	"time"

	fairlock "fairlock.example/clients/go"
	"fairlock.example/clients/go/fairlocktest"
)

func fakeWaits(t *testing.T, fake *fairlocktest.Fake, count int) {
	t.Helper()
	until(t, "they wait", func() bool { return len(fake.Waiting("orders")) == count })
}

func TestR48TheFakeIsFair(t *testing.T) {
	t.Parallel()
	fake := fairlocktest.New()
	defer fake.Close()
	first := acquire(t, fake, "orders")
	_, err := fake.Acquire(ctx, "orders", fairlock.Wait(50*time.Millisecond))
	want(t, err, fairlock.ErrNotInTime)
	_, err = fake.TryAcquire(ctx, "orders")
	want(t, err, fairlock.ErrNotInTime)
	cancelled, cancel := context.WithCancel(ctx)
	waiting := beginWith(cancelled, fake, "orders")
	fakeWaits(t, fake, 1)
	cancel()
	expect(t, waiting.error(t) == context.Canceled, "the context's: %v", waiting.err)
	expect(t, len(fake.Waiting("orders")) == 0, "no queue")
	var all []*future
	for count := 1; count <= 3; count++ {
		all = append(all, begin(fake, "orders"))
		fakeWaits(t, fake, count)
	}
	order, last := fake.Waiting("orders"), first.Token()
	release(t, first)
	for number, each := range all {
		held := each.get(t)
		expect(t, held.Owner() == order[number] && held.Token() > last, "in their order")
		last = held.Token()
		release(t, held)
	}
	outer := acquire(t, fake, "orders", fairlock.Reentrant())
	inner, err := fake.Acquire(outer.Context(), "orders", fairlock.Reentrant())
	expect(t, err == nil && inner == outer, "the same: %v", err)
	release(t, inner)
	_, err = fake.Acquire(ctx, "orders", fairlock.Reentrant(), fairlock.Wait(0))
	want(t, err, fairlock.ErrNotInTime)
	release(t, outer)
	var argument *fairlock.ArgumentError
	_, err = fake.Acquire(ctx, "orders", fairlock.Lease(0))
	expect(t, errors.As(err, &argument), "checked: %v", err)
	expect(t, len(fake.Holders("orders")) == 0, "free")
	var locks *fairlock.Locks = fake.Locks
	err = locks.Run(ctx, "orders", func(_ context.Context, held *fairlock.Held) error {
		return held.Renew(ctx, time.Minute)
	}, fairlock.Session())
	expect(t, err == nil && len(fake.Holders("orders")) == 0, "run: %v", err)
}

func TestR48TheFakeCallsHooks(t *testing.T) {
	t.Parallel()
	told := &told{}
	fake := fairlocktest.New(told.hooks())
	first := acquire(t, fake, "orders")
	waiting := begin(fake, "orders")
	fakeWaits(t, fake, 1)
	release(t, first)
	second := waiting.get(t)
	fake.Break("orders")
	which, _ := told.of(first.Owner())
	expect(t, which == "acquired released", "told %s", which)
	which, last := told.of(second.Owner())
	expect(t, which == "wait acquired lost" && last.Cause == fairlock.CauseNotHeld, "told %s", which)
	fake.Close()
	_, err := fake.Acquire(ctx, "orders")
	want(t, err, fairlock.ErrClosed)
}

func TestR49AFakeLockIsLost(t *testing.T) {
	t.Parallel()
	for cause, lose := range map[fairlock.Cause]func(*fairlocktest.Fake, string){
		fairlock.CauseLease: (*fairlocktest.Fake).Expire, fairlock.CauseNotHeld: (*fairlocktest.Fake).Break,
	} {
		fake := fairlocktest.New()
		held := acquire(t, fake, "orders", fairlock.Lease(time.Millisecond))
		waiting := begin(fake, "orders")
		fakeWaits(t, fake, 1)
		expect(t, held.Lost() == nil, "leases do not end by themselves")
		lose(fake, "orders")
		wantLost(t, held, cause)
		second := waiting.get(t)
		wantCause(t, held.Release(), cause)
		expect(t, len(fake.Holders("orders")) == 1 && fake.Holders("orders")[0] == second.Owner(), "the next one has it")
		release(t, second)
	}
}

// A lock that is broken while the grant is on its way to the waiter is lost as well.
func TestR49AFakeLockIsLostBeforeItsHolderKnowsThatItHasIt(t *testing.T) {
	t.Parallel()
	fake := fairlocktest.New()
	for round := 0; round < 200; round++ {
		waiting := begin(fake, "orders")
		until(t, "held", func() bool { return len(fake.Holders("orders")) == 1 })
		fake.Break("orders")
		wantLost(t, waiting.get(t), fairlock.CauseNotHeld)
	}
}

func TestR52TheFakeKnowsSharedAndLimitedLocks(t *testing.T) {
	t.Parallel()
	fake := fairlocktest.New()
	var readers []*fairlock.Held
	for count := 0; count < 3; count++ {
		readers = append(readers, acquire(t, fake, "orders", fairlock.Shared()))
	}
	writer := begin(fake, "orders")
	fakeWaits(t, fake, 1)
	late := begin(fake, "orders", fairlock.Shared())
	fakeWaits(t, fake, 2)
	for _, reader := range readers {
		expect(t, !writer.isDone(), "it waits for all of them")
		release(t, reader)
	}
	held := writer.get(t)
	expect(t, !late.isDone(), "it waits")
	release(t, held)
	release(t, late.get(t))
	first, second := acquire(t, fake, "orders", fairlock.Limit(2)), acquire(t, fake, "orders", fairlock.Limit(2))
	_, err := fake.TryAcquire(ctx, "orders", fairlock.Limit(2))
	want(t, err, fairlock.ErrNotInTime)
	third := begin(fake, "orders", fairlock.Limit(2))
	fakeWaits(t, fake, 1)
	release(t, first)
	release(t, third.get(t))
	release(t, second)
}
