package fairlock_test

// Rows 67 to 71: servers without the module, and one that gets it.

import (
	"bytes"
	"log"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	fairlock "fairlock.example/clients/go"
)

// Not parallel: it takes the log of the whole process.
func TestR67LocksAreTakenByScripts(t *testing.T) {
	var said bytes.Buffer
	defer log.SetOutput(log.Writer())
	log.SetOutput(&said)
	s := start(t, "plain")
	locks, view, name := locksAt(t, s, "a"), look(t, s, "a"), newName(t)
	_, isKnown := locks.Native()
	expect(t, !isKnown, "nothing was asked")
	for round := 0; round < 2; round++ {
		held := acquire(t, locks, name)
		expect(t, view.owner(name) == held.Owner(), "held")
		release(t, held)
		expect(t, view.isFree(name), "free")
	}
	native, isKnown := locks.Native()
	expect(t, !native && isKnown, "by scripts")
	expect(t, strings.Count(said.String(), "\n") == 1 && strings.Contains(said.String(), s.address("a")+
		": the server does not have the fairlock module: locks are taken by scripts. Load it for hand-off, sessions and "+
		`shared locks, or set module to "required" to refuse`), "said: %s", said.String())
	said.Reset()
	s = start(t, "one", "--with-module")
	locks = locksAt(t, s, "a")
	release(t, acquire(t, locks, name))
	native, isKnown = locks.Native()
	expect(t, native && isKnown && said.Len() == 0, "by the module, and said: %s", said.String())
}

func TestR68WhatNeedsTheModule(t *testing.T) {
	t.Parallel()
	s := start(t, "plain")
	locks, view, name := locksAt(t, s, "a"), look(t, s, "a"), newName(t)
	held := acquire(t, locks, name)
	for option, each := range map[string]fairlock.LockOption{
		"Session": fairlock.Session(), "Shared": fairlock.Shared(), "Limit": fairlock.Limit(2),
	} {
		start := time.Now()
		_, err := locks.Acquire(ctx, name, each)
		want(t, err, fairlock.ErrNoModule)
		expect(t, time.Since(start) < atOnce, "at once")
		expect(t, strings.HasPrefix(err.Error(), s.address("a")+": "+option+" needs the fairlock module, which the "+
			"server does not have (unknown command 'FAIRLOCK.ACQUIRE'). Load it: "), "text: %v", err)
		expect(t, asError(t, err).Code == "ERR" && len(view.queue(name)) == 0, "no queue")
	}
	release(t, held)
}

func TestR69TheModuleIsLoadedMeanwhile(t *testing.T) {
	t.Parallel()
	s := start(t, "plain")
	locks, view, name := locksAt(t, s, "a", fairlock.Lease(long)), look(t, s, "a"), newName(t)
	held := acquire(t, locks, name)
	var waiting []*future
	for count := 1; count <= 2; count++ {
		waiting = append(waiting, begin(locks, name))
		until(t, "it waits", func() bool { return len(view.queue(name)) == count })
	}
	owners := view.queue(name)
	s.tell(t, "load", "a")
	expect(t, held.Renew(ctx, 0) == nil, "renewed")
	newer := locksAt(t, s, "a")
	_, err := newer.TryAcquire(ctx, name)
	want(t, err, fairlock.ErrNotInTime)
	native, _ := newer.Native()
	expect(t, native, "by the module")
	start := time.Now()
	for number, owner := range owners {
		last := held
		release(t, last)
		held = waiting[number].get(t)
		expect(t, held.Owner() == owner && held.Token() > last.Token(), "in their order")
	}
	expect(t, time.Since(start) < atOnce, "at once")
	release(t, held)
	// What scripts know nothing of is asked of the module as soon as there is one.
	shared := acquire(t, locks, name, fairlock.Shared())
	release(t, acquire(t, locks, name, fairlock.Shared()))
	expect(t, shared.Renew(ctx, 0) == nil, "renewed")
	release(t, shared)
	native, _ = locks.Native()
	expect(t, native, "by the module")
}

func TestR70ADeadHeadIsPassedOver(t *testing.T) {
	t.Parallel()
	s := start(t, "plain")
	locks, view, name := locksAt(t, s, "a", fairlock.Lease(3*time.Second)), look(t, s, "a"), newName(t)
	held := acquire(t, locks, name)
	process := child(view, "one", name, "")
	expect(t, process.Start() == nil, "it starts")
	until(t, "it waits", func() bool { return len(view.queue(name)) == 1 })
	waiting := begin(locks, name)
	until(t, "both wait", func() bool { return len(view.queue(name)) == 2 })
	expect(t, process.Process.Kill() == nil, "killed")
	_ = process.Wait()
	release(t, held)
	start := time.Now()
	release(t, waiting.get(t))
	expect(t, time.Since(start) < 20*time.Second, "after its turn")
}

func TestALockWhoseNameHasBracesIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := start(t, "plain")
	locks, view := locksAt(t, s, "a", fairlock.Lease(long)), look(t, s, "a")
	held := acquire(t, locks, "{a}:b")
	waiting := begin(locks, "{a}:b")
	until(t, "it waits", func() bool { return view.run("LLEN", "redisson_lock_queue:{a}:b") == int64(1) })
	until(t, "it listens", func() bool {
		return len(view.run("PUBSUB", "CHANNELS", "redisson_lock__channel:{a}:b:*").([]any)) == 1
	})
	start := time.Now()
	release(t, held)
	release(t, waiting.get(t))
	expect(t, time.Since(start) < atOnce, "at once")
	until(t, "the channels are closed", func() bool { return len(view.run("PUBSUB", "CHANNELS").([]any)) == 0 })
}

// One waiter after another listens on the same connection.
func TestAConnectionToListenOnIsKept(t *testing.T) {
	t.Parallel()
	s := start(t, "plain")
	locks, view, name := locksOf(t, redis.NewClient(&redis.Options{Addr: s.address("a")})), look(t, s, "a"), newName(t)
	var connections int
	for round := 0; round < 5; round++ {
		held := acquire(t, locks, name)
		waiting := begin(locks, name)
		until(t, "it listens", func() bool { return len(view.run("PUBSUB", "CHANNELS").([]any)) == 1 })
		release(t, held)
		release(t, waiting.get(t))
		until(t, "the channels are closed", func() bool { return len(view.run("PUBSUB", "CHANNELS").([]any)) == 0 })
		if round == 0 {
			connections = len(view.clients())
		}
	}
	expect(t, len(view.clients()) == connections, "no more connections than after the first")
}

// Also a caller that waits blocked, and a holder, go over to scripts where the new master knows nothing else.
func TestAFailoverToAServerWithoutTheModule(t *testing.T) {
	t.Parallel()
	s, err := startServersWith([]string{"FAIRLOCK_SCRIPTS=1"}, "sentinel")
	expect(t, err == nil, "%v", err)
	t.Cleanup(s.end)
	s.tell(t, "load", "a")
	locks, view, name := s.failover(t, fairlock.Lease(long), fairlock.MinReplicas(0)), look(t, s, "a"), newName(t)
	held := acquire(t, locks, name)
	waiting := begin(locks, name)
	until(t, "it is blocked", func() bool {
		queue := view.run("FAIRLOCK.QUEUE", name).([]any)
		return len(queue) == 1 && queue[0].([]any)[1] == "blocked"
	})
	native, _ := locks.Native()
	expect(t, native, "by the module")
	s.tell(t, "failover")
	view = look(t, s, "b")
	until(t, "it listens there", func() bool { return len(view.run("PUBSUB", "CHANNELS", "redisson*").([]any)) == 1 })
	expect(t, held.Renew(ctx, 0) == nil && view.owner(name) == held.Owner(), "renewed there")
	native, _ = locks.Native()
	expect(t, !native, "by scripts")
	start := time.Now()
	release(t, held)
	release(t, waiting.get(t))
	expect(t, time.Since(start) < atOnce, "at once")
}

func TestR71AUserWhoMayNotUseTheModuleGoesOnByScripts(t *testing.T) {
	t.Parallel()
	s := start(t, "plain")
	view, name := look(t, s, "a"), "app:"+newName(t)
	view.run(ruleOfUser(t, "scripts")...)
	user := func() *fairlock.Locks {
		return locksOf(t, redis.NewClient(&redis.Options{Addr: s.address("a"), Username: "packages", Password: "secret"}))
	}
	locks := user()
	held := acquire(t, locks, name, fairlock.Lease(9*time.Second))
	var waiting []*future
	for count := 1; count <= 2; count++ {
		waiting = append(waiting, begin(locks, name))
		until(t, "it waits", func() bool { return len(view.queue(name)) == count })
	}
	s.tell(t, "load", "a")
	// What opens connections: they must not lead the others to the module.
	others := user()
	_, err := others.TryAcquire(ctx, name)
	want(t, err, fairlock.ErrNotInTime)
	for _, each := range []*fairlock.Locks{locks, others} {
		for _, option := range []fairlock.LockOption{fairlock.Session(), fairlock.Shared()} {
			_, err := each.Acquire(ctx, name, option)
			want(t, err, fairlock.ErrRefused)
			expect(t, asError(t, err).Code == "NOPERM", "%v", err)
		}
	}
	expect(t, held.Renew(ctx, 0) == nil, "renewed")
	release(t, held)
	for _, each := range waiting {
		held = each.get(t)
		info, err := locks.Info(ctx, name)
		expect(t, held.Renew(ctx, 0) == nil && err == nil && info.Owner == held.Owner(), "%v, %v", info, err)
		release(t, held)
	}
	for _, each := range []*fairlock.Locks{locks, others} {
		native, isKnown := each.Native()
		expect(t, !native && isKnown, "by scripts")
	}
}

func TestAServerThatDoesNotKnowRoleIsAMaster(t *testing.T) {
	t.Parallel()
	s := start(t, "plain", "--rename-command", "ROLE", "HIDDEN")
	held := acquire(t, locksAt(t, s, "a"), newName(t))
	expect(t, held.Renew(ctx, 0) == nil, "renewed")
	release(t, held)
}
