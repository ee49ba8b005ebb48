package fairlock_test

// Rows 54 to 56 and 66: a process with many callers, and one that starts others.

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	fairlock "fairlock.example/clients/go"
)

// childName is set in a child process that a test starts from its own program: the task.
const childName, childAddress, childLock = "FAIRLOCK_TEST_CHILD", "FAIRLOCK_TEST_ADDRESS", "FAIRLOCK_TEST_LOCK"

var children = map[string]func(locks *fairlock.Locks, name string) error{
	"one": childTakesIt, "exhausted": childIsExhausted, "twenty": childWithTwentyCallers,
}

func beChild() int {
	locks := fairlock.New(redis.NewClient(&redis.Options{Addr: os.Getenv(childAddress)}), fairlock.Lease(long))
	defer locks.Close()
	if err := children[os.Getenv(childName)](locks, os.Getenv(childLock)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// child is this program again, as a process of its own, started by a shell that may say more.
func child(view *view, name, lock, shell string) *exec.Cmd {
	command := exec.Command("sh", "-c", shell+` exec "$0"`, os.Args[0])
	command.Env = append(os.Environ(),
		childName+"="+name, childAddress+"="+view.Options().Addr, childLock+"="+lock)
	return command
}

func TestR54TheQueueHasTheOrderOfTheCalls(t *testing.T) {
	t.Parallel()
	for _, callers := range []int{10, 100} {
		callers := callers
		t.Run(fmt.Sprint(callers), func(t *testing.T) {
			t.Parallel()
			locks, view, name := one(t, fairlock.Lease(long))
			first := acquire(t, locks, name)
			var all []*future
			for count := 1; count <= callers; count++ {
				all = append(all, begin(locks, name))
				until(t, "it is in the queue", func() bool { return len(view.queue(name)) == count })
			}
			release(t, first)
			last := first.Token()
			for number, each := range all {
				held := each.get(t)
				expect(t, held.Token() > last, "number %d is in its order", number)
				last = held.Token()
				release(t, held)
			}
		})
	}
}

// Goroutines that call at the same time have no order of their own: they are served in the queue's order.
func TestR54AThousandGoroutines(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t, fairlock.Lease(long))
	first := acquire(t, locks, name)
	served, failures := []string{}, make(chan error)
	for count := 0; count < 1000; count++ {
		go func() {
			failures <- locks.Run(ctx, name, func(_ context.Context, held *fairlock.Held) error {
				served = append(served, held.Owner())
				return nil
			})
		}()
	}
	until(t, "all are in the queue", func() bool { return len(view.queue(name)) == 1000 })
	queue := view.queue(name)
	release(t, first)
	for range queue {
		if err := <-failures; err != nil {
			t.Fatal(err)
		}
	}
	expect(t, reflect.DeepEqual(served, queue), "in the order of the queue")
}

func TestR55AChildHasNoConnectionOfItsParent(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t, fairlock.Lease(long))
	parents := acquire(t, locks, name+":parent", withModule(fairlock.Session())...)
	release(t, acquire(t, locks, name))
	const count = 4
	var all []*exec.Cmd
	said := make([]bytes.Buffer, count)
	for number := range said {
		each := child(view, "one", name, "")
		each.Stdout, each.Stderr = &said[number], os.Stderr
		expect(t, each.Start() == nil, "it starts")
		all = append(all, each)
	}
	tokens := map[string]bool{}
	for number, each := range all {
		expect(t, each.Wait() == nil, "it ends well")
		tokens[said[number].String()] = true
		expect(t, strings.HasSuffix(said[number].String(), " 0 sockets\n"), "said %s", &said[number])
	}
	expect(t, len(tokens) == count, "each has a token of its own: %v", tokens)
	expect(t, view.isFree(name), "free")
	expect(t, view.info(name + ":parent")["token"] == parents.Token() && parents.Lost() == nil, "the parent's is its own")
	release(t, parents)
}

func childTakesIt(locks *fairlock.Locks, name string) error {
	inherited := sockets()
	held, err := locks.Acquire(ctx, name, fairlock.Wait(longest))
	if err != nil {
		return err
	}
	fmt.Println(held.Token(), inherited, "sockets")
	return held.Release()
}

// sockets that this process has open.
func sockets() (count int) {
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, link := range links {
		if target, _ := os.Readlink(link); strings.HasPrefix(target, "socket:") {
			count++
		}
	}
	return count
}

func TestR56OutOfDescriptors(t *testing.T) {
	t.Parallel()
	_, view, name := one(t)
	process := child(view, "exhausted", name, "ulimit -n 100;")
	process.Stderr = os.Stderr
	expect(t, process.Run() == nil, "see standard error")
	expect(t, view.isFree(name), "free")
}

// childIsExhausted has more waiters than descriptors.
func childIsExhausted(locks *fairlock.Locks, name string) error {
	const callers = 120
	view := redis.NewClient(&redis.Options{Addr: os.Getenv(childAddress), Protocol: 2, PoolSize: 1})
	defer view.Close()
	held, err := locks.Acquire(ctx, name, fairlock.Lease(9*time.Second))
	if err != nil {
		return err
	}
	var all []*future
	for len(all) < callers {
		all = append(all, begin(locks, name))
		for length := int64(0); length < int64(len(all)); {
			if length, err = view.LLen(ctx, "redisson_lock_queue:{"+name+"}").Result(); err != nil {
				return err
			}
		}
	}
	if _, err := os.Open("/dev/null"); err == nil {
		return fmt.Errorf("there are descriptors left")
	}
	if err := held.Renew(ctx, 0); err != nil {
		return err
	}
	time.Sleep(10 * time.Second)
	if held.Lost() != nil {
		return held.Lost()
	}
	if err := held.Release(); err != nil {
		return err
	}
	for last, number := held.Token(), 0; number < callers; number++ {
		<-all[number].done
		if err := all[number].err; err != nil {
			return err
		}
		if held = all[number].held; held.Token() < last {
			return fmt.Errorf("number %d is not in its order", number)
		}
		last = held.Token()
		if err := held.Release(); err != nil {
			return err
		}
	}
	return nil
}

func TestR66NothingIsSaid(t *testing.T) {
	t.Parallel()
	_, view, name := one(t)
	process := child(view, "twenty", name, "")
	said, err := process.CombinedOutput()
	if line := string(said); withoutModule && strings.Contains(line, "locks are taken by scripts") {
		_, line, _ = strings.Cut(line, "\n")
		said = []byte(line)
	}
	expect(t, err == nil && len(said) == 0, "%v, said: %s", err, said)
}

func childWithTwentyCallers(locks *fairlock.Locks, name string) error {
	failures := make(chan error)
	for caller := 0; caller < 20; caller++ {
		go func() {
			// As short as this, a lease is renewed all the time, also while the lock is being released.
			held, err := locks.Acquire(ctx, name, fairlock.Lease(600*time.Millisecond))
			if err == nil {
				time.Sleep(250 * time.Millisecond)
				err = held.Release()
			}
			failures <- err
		}()
	}
	for caller := 0; caller < 20; caller++ {
		if err := <-failures; err != nil {
			return err
		}
	}
	return nil
}
