package fairlock_test

// Rows 62 to 65: which replicas have to confirm, and what a change of the master does.

import (
	"strings"
	"testing"
	"time"

	fairlock "fairlock.example/clients/go"
)

// replicas is the number of connected ones, as the server says.
func (v *view) replicas() int { return len(v.run("ROLE").([]any)[2].([]any)) }

func TestR62TheOnlyReplicaIsDown(t *testing.T) {
	t.Parallel()
	s := start(t, "sentinel")
	locks, view, name := s.failover(t), look(t, s, "a"), newName(t)
	s.tell(t, "kill", "b")
	until(t, "it is gone", func() bool { return view.replicas() == 0 })
	_, err := locks.Acquire(ctx, name, fairlock.Wait(500*time.Millisecond), fairlock.SyncTimeout(100*time.Millisecond))
	want(t, err, fairlock.ErrNotReplicated)
	expect(t, strings.Contains(err.Error(), "MinReplicas"), "hint: %v", err)
	expect(t, view.isFree(name), "free")
	start := time.Now()
	release(t, acquire(t, locks, name, fairlock.MinReplicas(0)))
	release(t, acquire(t, locksAt(t, s, "a"), name))
	expect(t, time.Since(start) < atOnce, "at once")
	_, err = locksAt(t, s, "a").TryAcquire(ctx, name, fairlock.MinReplicas(1), fairlock.SyncTimeout(100*time.Millisecond))
	want(t, err, fairlock.ErrNotReplicated)
	plain, _, name := one(t)
	release(t, acquire(t, plain, name, fairlock.Wait(0)))
}

func TestR62AMasterOfAClusterWithoutItsReplica(t *testing.T) {
	t.Parallel()
	s := start(t, "cluster")
	locks, view := s.cluster(t, fairlock.SyncTimeout(100*time.Millisecond)), look(t, s, "a")
	s.tell(t, "kill", "d")
	until(t, "it is gone", func() bool { return view.replicas() == 0 })
	name := nameOn(t, s, "a")
	_, err := locks.Acquire(ctx, name, fairlock.Wait(500*time.Millisecond))
	want(t, err, fairlock.ErrNotReplicated)
	release(t, acquire(t, locks, name, fairlock.MinReplicas(0)))
	release(t, acquire(t, locks, nameOn(t, s, "b")))
}

func TestR63TheOldMasterComesBackAsAMaster(t *testing.T) {
	t.Parallel()
	s := start(t, "sentinel")
	locks, name := s.failover(t, fairlock.MinReplicas(0)), newName(t)
	release(t, acquire(t, locks, name))
	s.tell(t, "failover")
	// Sentinel makes it a replica some seconds later.
	s.tell(t, "start", "a")
	old, view := look(t, s, "a"), look(t, s, "b")
	role := func() any { return old.run("ROLE").([]any)[0] }
	expect(t, role() == "master", "it is one, for now")
	held := acquire(t, locks, name)
	expect(t, view.owner(name) == held.Owner(), "held at the new one")
	until(t, "it follows", func() bool { return role() == "slave" })
	release(t, held)
	expect(t, !old.wasAsked(), "nothing was asked")
}

func TestR63AServerThatIsNoMaster(t *testing.T) {
	t.Parallel()
	s := start(t, "replica")
	view := look(t, s, "b")
	_, err := locksAt(t, s, "b").Acquire(ctx, newName(t), fairlock.Wait(300*time.Millisecond))
	want(t, err, fairlock.ErrNotInTime)
	expect(t, strings.Contains(err.Error(), "READONLY") && strings.Contains(err.Error(), s.address("b")), "why: %v", err)
	expect(t, !view.wasAsked(), "nothing was asked")
}

func TestR64HoldersCheckAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t, "sentinel")
	locks := s.failover(t, fairlock.Lease(long))
	names := []string{newName(t), newName(t)}
	var kept, gone []*fairlock.Held
	replica := look(t, s, "b")
	replica.run("CONFIG", "SET", "replica-read-only", "no")
	for number, options := range [][]fairlock.LockOption{nil, {fairlock.NoRenewal()}} {
		kept = append(kept, acquire(t, locks, names[number]+":kept", options...))
		gone = append(gone, acquire(t, locks, names[number]+":gone", options...))
		replica.run("DEL", gone[number].Name())
	}
	s.tell(t, "failover")
	start, failed := time.Now(), 1
	if withoutModule {
		failed = 0
	}
	for _, each := range gone {
		wantLost(t, each, fairlock.CauseNotHeld)
	}
	expect(t, time.Since(start) < atOnce, "at once")
	until(t, "the other one is renewed", func() bool { return replica.calls("renew") > failed })
	for _, each := range kept {
		expect(t, each.Lost() == nil && replica.owner(each.Name()) == each.Owner(), "it goes on: %v", each.Lost())
		release(t, each)
	}
}

// A master that is up, but that the other servers can no longer see.
func TestR64AWaiterAtAServerThatHangs(t *testing.T) {
	t.Parallel()
	s := start(t, "sentinel")
	locks, view, name := s.failover(t, fairlock.Lease(long), fairlock.MinReplicas(0)), look(t, s, "a"), newName(t)
	held := acquire(t, locks, name)
	waiting := begin(locks, name)
	view.waits(name, 1)
	session := acquire(t, locks, newName(t), withModule(fairlock.Session())...)
	s.tell(t, "stop", "a")
	view = look(t, s, "b")
	until(t, "it waits at the new master", func() bool { return view.areBlocked(name, 1) })
	if !withoutModule {
		wantLost(t, session, fairlock.CauseConnection)
	}
	release(t, held)
	release(t, waiting.get(t))
	s.tell(t, "cont", "a")
}

func TestR64InAClusterToo(t *testing.T) {
	t.Parallel()
	s := start(t, "cluster")
	locks, name := s.cluster(t, fairlock.Lease(long)), nameOn(t, s, "a")
	held := acquire(t, locks, name)
	s.tell(t, "failover")
	view, start := look(t, s, "d"), time.Now()
	until(t, "it is renewed there", func() bool { return view.calls("renew") > 0 })
	expect(t, time.Since(start) < atOnce, "at once")
	expect(t, held.Lost() == nil, "it goes on: %v", held.Lost())
	release(t, held)
}

func TestR65ARenewalThatNoReplicaConfirms(t *testing.T) {
	t.Parallel()
	s := start(t, "replica")
	locks, view := locksAt(t, s, "a", fairlock.SyncTimeout(200*time.Millisecond)), look(t, s, "a")
	lost := acquire(t, locks, newName(t), fairlock.Lease(3*time.Second))
	kept := acquire(t, locks, newName(t), fairlock.Lease(9*time.Second))
	s.tell(t, "stop", "b")
	start := time.Now()
	want(t, kept.Renew(ctx, 0), fairlock.ErrNotReplicated)
	wantLost(t, lost, fairlock.CauseLease)
	expect(t, time.Since(start) < 3*time.Second+atOnce, "no later than the lease")
	before := view.calls("renew")
	until(t, "it is renewed", func() bool { return view.calls("renew") > before })
	s.tell(t, "cont", "b")
	until(t, "its first lease would be over", func() bool { return time.Since(start) > 10*time.Second })
	expect(t, kept.Lost() == nil && view.owner(kept.Name()) == kept.Owner(), "it is not lost: %v", kept.Lost())
	release(t, kept)
}
