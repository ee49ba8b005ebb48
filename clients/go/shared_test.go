package fairlock_test

// Rows 50 and 51: shared and limited locks.

import (
	"testing"

	fairlock "fairlock.example/clients/go"
)

func TestR50SharedHoldersHoldTogether(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	var readers []*fairlock.Held
	tokens := map[int64]bool{}
	for count := 0; count < 3; count++ {
		readers = append(readers, acquire(t, locks, name, fairlock.Shared()))
		tokens[readers[count].Token()] = true
	}
	expect(t, len(tokens) == 3, "each has a token of its own")
	writer := begin(locks, name)
	view.waits(name, 1)
	late := begin(locks, name, fairlock.Shared())
	view.waits(name, 2)
	for _, reader := range readers {
		expect(t, !writer.isDone(), "it waits for all of them")
		release(t, reader)
	}
	held := writer.get(t)
	expect(t, !late.isDone(), "it waits")
	release(t, held)
	release(t, late.get(t))
	expect(t, view.isFree(name), "free")
}

func TestR51AtMostSoManyHold(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	first, second := acquire(t, locks, name, fairlock.Limit(2)), acquire(t, locks, name, fairlock.Limit(2))
	_, err := locks.TryAcquire(ctx, name, fairlock.Limit(2))
	want(t, err, fairlock.ErrNotInTime)
	third := begin(locks, name, fairlock.Limit(2))
	view.waits(name, 1)
	expect(t, !third.isDone(), "it waits")
	release(t, second)
	release(t, third.get(t))
	release(t, first)
	expect(t, view.isFree(name), "free")
}
