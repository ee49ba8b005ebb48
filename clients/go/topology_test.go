package fairlock_test

// Rows 31 to 36 and 47: Sentinel, replicas, a cluster.

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	fairlock "fairlock.example/clients/go"
)

func TestR31SentinelFailsOver(t *testing.T) {
	t.Parallel()
	s := start(t, "sentinel")
	view, name := look(t, s, "a"), newName(t)
	locks := s.failover(t)
	held := acquire(t, locks, name, fairlock.Lease(long))
	var waiting []*future
	for count := 1; count <= 2; count++ {
		waiting = append(waiting, begin(locks, name))
		view.waits(name, count)
	}
	owners := view.queue(name)
	s.tell(t, "failover")
	s.tell(t, "start", "a") // Without a replica nothing is granted or renewed.
	view = look(t, s, "b")
	expect(t, view.owner(name) == held.Owner() && view.info(name)["token"] == held.Token(), "it is there")
	until(t, "renewed at the new master", func() bool {
		err := held.Renew(ctx, 0)
		isPassing := errors.Is(err, fairlock.ErrUnavailable) || errors.Is(err, fairlock.ErrNotReplicated)
		expect(t, err == nil || isPassing, "%v", err)
		return err == nil
	})
	release(t, held)
	for number, each := range waiting {
		next := each.get(t)
		expect(t, view.owner(name) == next.Owner() && next.Owner() == owners[number], "in their order")
		release(t, next)
	}
}

func (s *servers) failover(t *testing.T, options ...fairlock.Option) *fairlock.Locks {
	locks := fairlock.NewFailover(&redis.FailoverOptions{
		MasterName: "locks", SentinelAddrs: []string{s.address("s")},
	}, options...)
	t.Cleanup(func() { locks.Close() })
	return locks
}

func (s *servers) cluster(t *testing.T, options ...fairlock.Option) *fairlock.Locks {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.address("a"), s.address("b")}})
	return locksOf(t, client, options...)
}

// slotOf asks the server.
func slotOf(view *view, name string) int64 { return view.run("CLUSTER", "KEYSLOT", name).(int64) }

// nameOn is a lock in a slot of a master.
func nameOn(t *testing.T, s *servers, node string) string {
	view := look(t, s, node)
	for number, name := 0, newName(t); ; number++ {
		each := fmt.Sprint(name, ":", number)
		if slotOf(view, each)/5461 == int64(node[0]-'a') {
			return each
		}
	}
}

func TestR32LocksOnAllMasters(t *testing.T) {
	t.Parallel()
	s := commonCluster.get(t)
	locks := s.cluster(t, fairlock.Lease(long))
	for _, node := range []string{"a", "b", "c"} {
		view, name := look(t, s, node), nameOn(t, s, node)
		held := acquire(t, locks, name)
		expect(t, view.owner(name) == held.Owner(), "there")
		waiting := begin(locks, name)
		view.waits(name, 1)
		start := time.Now()
		release(t, held)
		second := waiting.get(t)
		expect(t, time.Since(start) < atOnce, "at once")
		release(t, second)
		expect(t, view.isFree(name), "free")
	}
	held := acquire(t, locks, "{tag}"+newName(t), withModule(fairlock.Session())...)
	release(t, held)
}

func TestR33TheSlotMovesUnderAWaiter(t *testing.T) {
	t.Parallel()
	s := start(t, "cluster")
	locks, name := s.cluster(t, fairlock.Lease(long)), nameOn(t, s, "b")
	held := acquire(t, locks, name)
	waiting := begin(locks, name)
	look(t, s, "b").waits(name, 1)
	s.tell(t, "move", slotOf(look(t, s, "b"), name), "c")
	view := look(t, s, "c")
	until(t, "it waits there", func() bool { return view.areBlocked(name, 1) })
	start := time.Now()
	release(t, held)
	second := waiting.get(t)
	expect(t, time.Since(start) < atOnce, "at once")
	expect(t, view.owner(name) == second.Owner(), "there")
	release(t, second)
}

func TestR33AReplicaTakesOver(t *testing.T) {
	t.Parallel()
	s := start(t, "cluster")
	locks, name := s.cluster(t, fairlock.Lease(long), fairlock.RetryTimeout(longest)), nameOn(t, s, "a")
	held := acquire(t, locks, name)
	waiting := begin(locks, name)
	look(t, s, "a").waits(name, 1)
	s.tell(t, "failover")
	s.tell(t, "start", "a") // Without a replica nothing is granted.
	view := look(t, s, "d")
	expect(t, view.owner(name) == held.Owner(), "it is there")
	until(t, "it waits there", func() bool { return view.areBlocked(name, 1) })
	release(t, held)
	second := waiting.get(t)
	expect(t, view.owner(name) == second.Owner(), "there")
	release(t, second)
}

func TestR34AMasterIsGoneForAWhile(t *testing.T) {
	t.Parallel()
	s := start(t, "cluster")
	locks := s.cluster(t, fairlock.Lease(long), fairlock.RetryTimeout(longest))
	nodes, names := []string{"b", "c"}, []string{nameOn(t, s, "b"), nameOn(t, s, "c")}
	var held []*fairlock.Held
	var waiting []*future
	for number, name := range names {
		held = append(held, acquire(t, locks, name))
		waiting = append(waiting, begin(locks, name))
		look(t, s, nodes[number]).waits(name, 1)
	}
	s.tell(t, "kill", "c")
	b := look(t, s, "b")
	until(t, "the cluster is down", func() bool {
		return strings.Contains(b.run("CLUSTER", "INFO").(string), "cluster_state:fail")
	})
	expect(t, !waiting[0].isDone() && !waiting[1].isDone(), "they wait")
	s.tell(t, "start", "c")
	for number, name := range names {
		view := look(t, s, nodes[number])
		until(t, nodes[number]+" serves again", func() bool { return view.areBlocked(name, 1) })
	}
	for number := range names {
		release(t, held[number])
		release(t, waiting[number].get(t))
	}
}

func TestR35AnAcquisitionIsOnTheReplica(t *testing.T) {
	t.Parallel()
	s := start(t, "replica")
	locks, view, replica, name := locksAt(t, s, "a"), look(t, s, "a"), look(t, s, "b"), newName(t)
	isThere := func(held *fairlock.Held) {
		t.Helper()
		expect(t, replica.run("HEXISTS", name, held.Owner()) == int64(1), "the replica has it")
	}
	for round := 0; round < 50; round++ {
		held := acquire(t, locks, name)
		isThere(held)
		release(t, held)
	}
	for round := 0; round < 20; round++ {
		first := acquire(t, locks, name)
		waiting := begin(locks, name)
		view.waits(name, 1)
		release(t, first)
		second := waiting.get(t)
		isThere(second)
		release(t, second)
	}
}

// A replica that stands still shows that a hand-off to a blocked caller is confirmed, too.
func TestR35AHandOffWaitsForTheReplica(t *testing.T) {
	t.Parallel()
	s := start(t, "replica")
	locks := locksAt(t, s, "a", fairlock.SyncTimeout(longest))
	view, name := look(t, s, "a"), newName(t)
	first := acquire(t, locks, name)
	waiting := begin(locks, name)
	view.waits(name, 1)
	// Its place is confirmed; only the grant is not yet.
	view.run("SET", "any", "thing")
	expect(t, view.run("WAIT", 1, 0) == int64(1), "the replica follows")
	s.tell(t, "stop", "b")
	release(t, first)
	until(t, "granted", func() bool { owner := view.owner(name); return owner != "" && owner != first.Owner() })
	time.Sleep(300 * time.Millisecond)
	expect(t, !waiting.isDone(), "it is not confirmed")
	s.tell(t, "cont", "b")
	release(t, waiting.get(t))
}

func TestR36NoReplicaConfirms(t *testing.T) {
	t.Parallel()
	s := start(t, "replica")
	locks := locksAt(t, s, "a", fairlock.SyncTimeout(100*time.Millisecond))
	view, name := look(t, s, "a"), newName(t)
	s.tell(t, "stop", "b")
	_, err := locks.Acquire(ctx, name, fairlock.Wait(500*time.Millisecond))
	want(t, err, fairlock.ErrNotReplicated)
	want(t, err, fairlock.ErrNotInTime)
	_, err = locks.TryAcquire(ctx, name)
	want(t, err, fairlock.ErrNotReplicated)
	expect(t, view.isFree(name), "free")
	// The lease is over before the wait for replicas.
	short := []fairlock.LockOption{fairlock.Wait(500 * time.Millisecond), fairlock.Lease(20 * time.Millisecond), fairlock.NoRenewal()}
	_, err = locks.Acquire(ctx, name, short...)
	want(t, err, fairlock.ErrNotReplicated)
	start := time.Now()
	release(t, acquire(t, locks, name, fairlock.SyncTimeout(0), fairlock.Wait(0)))
	expect(t, time.Since(start) < atOnce, "at once")
	before := view.calls("release")
	waiting := begin(locks, name, fairlock.Wait(longest))
	until(t, "it was released again", func() bool { return view.calls("release") > before+1 })
	s.tell(t, "cont", "b")
	held := waiting.get(t)
	expect(t, view.owner(name) == held.Owner(), "held")
	release(t, held)
}

func TestR47BracesThatWouldSpreadALock(t *testing.T) {
	t.Parallel()
	_, err := commonCluster.get(t).cluster(t).Acquire(ctx, "a{b")
	want(t, err, fairlock.ErrCrossSlot)
	expect(t, asError(t, err).Code == "CROSSSLOT", "code")
}
