package fairlock_test

// Rows 57 to 61: refusals and their texts, permissions, and the state at the server.

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	fairlock "fairlock.example/clients/go"
)

func TestR57WhatIsNoClient(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	failover := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "locks", SentinelAddrs: []string{"127.0.0.1:1"}})
	defer failover.Close()
	at := func(address string) redis.UniversalClient { return redis.NewClient(&redis.Options{Addr: address}) }
	for _, wrong := range []struct {
		locks *fairlock.Locks
		text  string
	}{
		{fairlock.New(nil), "is nil: a *redis.Client or a *redis.ClusterClient is wanted"},
		{fairlock.New((*redis.Client)(nil)), "is nil"},
		{fairlock.New((*redis.ClusterClient)(nil)), "is nil"},
		{fairlock.New(ring), "is *redis.Ring: a *redis.Client"},
		{fairlock.New(failover), "give its options to fairlock.NewFailover"},
		{fairlock.New(at("localhost")), `"localhost": host:port is wanted`},
		{fairlock.New(at("redis://127.0.0.1:6379")), "host:port is wanted"},
		{fairlock.New(redis.NewClusterClient(&redis.ClusterOptions{})), "has no address"},
		{fairlock.New(redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"a"}})), "host:port is wanted"},
		{fairlock.NewFailover(nil), "needs the MasterName and the SentinelAddrs"},
		{fairlock.NewFailover(&redis.FailoverOptions{MasterName: "locks"}), "needs the MasterName"},
		{fairlock.NewFailover(&redis.FailoverOptions{MasterName: "locks", SentinelAddrs: []string{"a"}}), "host:port"},
	} {
		_, err := wrong.locks.Acquire(ctx, "orders")
		refusedArgument(t, err, "client", wrong.text)
		_, err = wrong.locks.Info(ctx, "orders")
		refusedArgument(t, err, "client", wrong.text)
		wrong.locks.Close()
	}
}

func refusedArgument(t *testing.T, err error, option, text string) {
	t.Helper()
	var argument *fairlock.ArgumentError
	expect(t, errors.As(err, &argument) && argument.Option == option, "%s: %v", option, err)
	expect(t, strings.Contains(err.Error(), text), "%s: %v", text, err)
}

func TestR58NoNameAndNoOption(t *testing.T) {
	t.Parallel()
	s := start(t, "one")
	locks, view := locksAt(t, s, "a"), look(t, s, "a")
	_, err := locks.Acquire(ctx, "")
	refusedArgument(t, err, "name", "empty")
	_, err = locks.Info(ctx, "")
	refusedArgument(t, err, "name", "empty")
	_, err = locks.TryAcquire(ctx, "orders", nil)
	refusedArgument(t, err, "options", "nil")
	_, err = locksAt(t, s, "a", nil).Acquire(ctx, "orders")
	refusedArgument(t, err, "options", "nil")
	expect(t, len(view.clients()) == 0, "nothing was sent")
}

func TestR59WhatHappenedFirst(t *testing.T) {
	t.Parallel()
	s := start(t, "one")
	s.tell(t, "kill", "a")
	_, err := locksAt(t, s, "a").Acquire(ctx, "orders", fairlock.Wait(300*time.Millisecond))
	want(t, err, fairlock.ErrNotInTime)
	want(t, err, syscall.ECONNREFUSED)
	expect(t, err.Error() == fmt.Sprintf("fairlock: orders: not acquired within 300ms: dial tcp %s: connect: connection refused",
		s.address("a")), "text: %v", err)
	expect(t, errors.Is(errors.Unwrap(err), syscall.ECONNREFUSED), "its cause")
	_, err = locksAt(t, s, "a", fairlock.RetryTimeout(0)).Acquire(ctx, "orders")
	want(t, err, fairlock.ErrUnavailable)
	want(t, err, syscall.ECONNREFUSED)
	for _, part := range []string{"orders", s.address("a")} {
		expect(t, strings.Contains(err.Error(), part), "text: %v", err)
	}
}

func TestR59ALockThatIsHeld(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	held := acquire(t, locks, name)
	_, err := locks.Acquire(ctx, name, fairlock.Wait(50*time.Millisecond))
	want(t, err, fairlock.ErrNotInTime)
	expect(t, errors.Unwrap(err) == nil && strings.Contains(err.Error(), name) &&
		strings.Contains(err.Error(), view.Options().Addr), "text: %v", err)
	view.run("FAIRLOCK.BREAK", name)
	err = held.Release()
	want(t, err, fairlock.ErrLockLost)
	expect(t, strings.Contains(err.Error(), name) && strings.Contains(err.Error(), view.Options().Addr), "text: %v", err)
}

func TestR59WhoIsNotLetIn(t *testing.T) {
	t.Parallel()
	s := start(t, "one")
	view := look(t, s, "a")
	view.run("CONFIG", "SET", "requirepass", "secret")
	for code, password := range map[string]string{"NOAUTH": "", "WRONGPASS": "guessed"} {
		client := redis.NewClient(&redis.Options{Addr: s.address("a"), Password: password})
		start := time.Now()
		_, err := locksOf(t, client).Acquire(ctx, "orders", fairlock.Wait(long))
		want(t, err, fairlock.ErrRefused)
		expect(t, time.Since(start) < atOnce, "at once")
		expect(t, asError(t, err).Code == code, "code: %v", err)
		for _, part := range []string{code, "orders", s.address("a")} {
			expect(t, strings.Contains(err.Error(), part), "text: %v", err)
		}
		expect(t, code != "NOAUTH" || strings.Contains(err.Error(), "give the client a password"), "hint: %v", err)
	}
}

func TestR59WhatAUserMayNotDo(t *testing.T) {
	t.Parallel()
	s := start(t, "one")
	view, name := look(t, s, "a"), newName(t)
	user := func(rules ...any) *fairlock.Locks {
		view.run(append([]any{"ACL", "SETUSER", "worker", "reset", "on", ">secret", "~*", "&*", "+@all"}, rules...)...)
		return locksOf(t, redis.NewClient(&redis.Options{Addr: s.address("a"), Username: "worker", Password: "secret"}))
	}
	forbidden := []any{"-evalsha"}
	if !withoutModule {
		forbidden = append(forbidden, "-fairlock.acquire")
	}
	_, err := user(forbidden...).Acquire(ctx, name)
	want(t, err, fairlock.ErrRefused)
	expect(t, asError(t, err).Code == "NOPERM" && strings.Contains(err.Error(), "SECURITY.md"), "hint: %v", err)
	locks := user("-role")
	_, err = locks.Acquire(ctx, name)
	want(t, err, fairlock.ErrRefused)
	expect(t, asError(t, err).Code == "NOPERM" && strings.Contains(err.Error(), "SyncTimeout(0)"), "hint: %v", err)
	expect(t, view.isFree(name), "the grant is given back")
	release(t, acquire(t, locks, name, fairlock.SyncTimeout(0)))
}

// ruleOf is the user of SECURITY.md for the packages.
func ruleOf(t *testing.T) (words []any) {
	if withoutModule {
		return ruleOfUser(t, "scripts")
	}
	return ruleOfUser(t, "packages")
}

// ruleOfUser is another's, but with the name and the password of that.
func ruleOfUser(t *testing.T, user string) (words []any) {
	t.Helper()
	rule := regexp.MustCompile("(?m)^    ACL SETUSER " + user + " on >[^ ]+ (.*)$").FindStringSubmatch(read(t, "../../SECURITY.md"))
	words = []any{"ACL", "SETUSER", "packages", "on", ">secret"}
	for _, word := range strings.Fields(rule[1]) {
		words = append(words, word)
	}
	return words
}

func TestR60ThePackagesUserCanDoAll(t *testing.T) {
	t.Parallel()
	t.Run("one", func(t *testing.T) {
		t.Parallel()
		s := start(t, "one")
		view := allow(t, s, "a")
		view.run("ACL", "SETUSER", "default", "off")
		client := redis.NewClient(&redis.Options{
			Addr: s.address("a"), Username: "packages", Password: "secret", ClientName: "worker",
		})
		doAll(t, locksOf(t, client), view, "app:orders")
	})
	t.Run("replica", func(t *testing.T) {
		t.Parallel()
		s := start(t, "replica")
		view := allow(t, s, "a")
		client := redis.NewClient(&redis.Options{Addr: s.address("a"), Username: "packages", Password: "secret"})
		doAll(t, locksOf(t, client, fairlock.MinReplicas(1)), view, "app:orders")
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		s := start(t, "sentinel")
		view := allow(t, s, "a")
		locks := fairlock.NewFailover(&redis.FailoverOptions{
			MasterName: "locks", SentinelAddrs: []string{s.address("s")}, Username: "packages", Password: "secret",
		})
		defer locks.Close()
		doAll(t, locks, view, "app:orders")
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		s := start(t, "cluster")
		for _, node := range []string{"b", "c", "d"} {
			allow(t, s, node)
		}
		view := allow(t, s, "a")
		locks := locksOf(t, redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{s.address("b")}, Username: "packages", Password: "secret",
		}))
		name := "app:0"
		for number := 0; slotOf(view, name) > 5460; number++ {
			name = fmt.Sprint("app:", number)
		}
		doAll(t, locks, view, name)
	})
}

func allow(t *testing.T, s *servers, node string) *view {
	view := look(t, s, node)
	view.run(ruleOf(t)...)
	return view
}

func doAll(t *testing.T, locks *fairlock.Locks, view *view, name string) {
	held := acquire(t, locks, name)
	cancelled, cancel := context.WithCancel(ctx)
	waiting := beginWith(cancelled, locks, name)
	view.waits(name, 1)
	cancel()
	want(t, waiting.error(t), context.Canceled)
	waiting = begin(locks, name, withModule(fairlock.Session())...)
	view.waits(name, 1)
	expect(t, held.Renew(ctx, time.Minute) == nil, "renewed")
	info, err := locks.Info(ctx, name)
	expect(t, err == nil && info.Owner == held.Owner() && info.Waiting == 1, "info: %+v, %v", info, err)
	release(t, held)
	release(t, waiting.get(t))
	if !withoutModule {
		held = acquire(t, locks, name, fairlock.Limit(2))
		release(t, acquire(t, locks, name, fairlock.Limit(2)))
		release(t, held)
	}
	_, err = locks.TryAcquire(ctx, "others:"+name)
	expect(t, asError(t, err).Code == "NOPERM", "not what is another's: %v", err)
}

func TestR61Info(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	info, err := locks.Info(ctx, name)
	expect(t, err == nil && info == fairlock.Info{}, "free: %+v, %v", info, err)
	held := acquire(t, locks, name, append(withModule(fairlock.Session()), fairlock.Lease(time.Minute))...)
	waiting := begin(locks, name, withModule(fairlock.Limit(2))...)
	view.waits(name, 1)
	info, err = locks.Info(ctx, name)
	expect(t, err == nil && info.Lease > 40*time.Second && info.Lease <= time.Minute, "lease: %+v, %v", info, err)
	info.Lease = 0
	expect(t, info == fairlock.Info{
		Owner: held.Owner(), Holds: 1, Token: held.Token(), Session: !withoutModule, Waiting: 1, Holders: 1, Limit: 1,
	}, "held: %+v", info)
	release(t, held)
	shared := waiting.get(t)
	if withoutModule {
		release(t, shared)
		return
	}
	other := acquire(t, locks, name, fairlock.Limit(2))
	info, err = locks.Info(ctx, name)
	expect(t, err == nil && info.Holders == 2 && info.Limit == 2 && info.Owner == shared.Owner(), "shared: %+v, %v", info, err)
	release(t, shared)
	release(t, other)
	view.run("FAIRLOCK.ACQUIRE", name, "a script", "LEASE", 60000)
	view.run("HDEL", name, "")
	info, err = locks.Info(ctx, name)
	expect(t, err == nil && info.Owner == "a script" && info.Token == 0, "without a token: %+v, %v", info, err)
}
