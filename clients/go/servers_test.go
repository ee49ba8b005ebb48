package fairlock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	fairlock "fairlock.example/clients/go"
)

const (
	longest = time.Minute     // until a condition is given up; only ever reached on failure
	atOnce  = 5 * time.Second // where the alternative is a minute
	long    = 2 * time.Minute
)

var ctx = context.Background()

// withoutModule is true if the servers do not have it.
var withoutModule = os.Getenv("FAIRLOCK_SCRIPTS") != ""

// withModule are options that there are only with the module.
func withModule(options ...fairlock.LockOption) []fairlock.LockOption {
	if withoutModule {
		return nil
	}
	return options
}

// servers are real ones, by clients/testing/servers.
type servers struct {
	process *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Scanner
	ports   map[string]string
}

func startServers(arguments ...string) (*servers, error) { return startServersWith(nil, arguments...) }

func startServersWith(settings []string, arguments ...string) (*servers, error) {
	program := os.Getenv("FAIRLOCK_SERVERS")
	if program == "" {
		program = "../testing/servers"
	}
	s := &servers{process: exec.Command(program, arguments...), ports: map[string]string{}}
	s.process.Stderr, s.process.Env = os.Stderr, append(os.Environ(), settings...)
	s.input, _ = s.process.StdinPipe()
	output, err := s.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	s.output = bufio.NewScanner(output)
	for s.output.Scan() {
		if s.output.Text() == "ready" {
			return s, nil
		}
		words := strings.Fields(s.output.Text())
		s.ports[words[0]] = words[1]
	}
	return nil, errors.New("no servers: see standard error")
}

func (s *servers) end() {
	s.input.Close()
	_ = s.process.Wait()
}

func (s *servers) tell(t *testing.T, words ...any) string {
	t.Helper()
	fmt.Fprintln(s.input, words...)
	if !s.output.Scan() || !strings.HasPrefix(s.output.Text(), "ok") {
		t.Fatalf("%v: %s", words, s.output.Text())
	}
	return strings.TrimPrefix(s.output.Text(), "ok ")
}

func (s *servers) address(name string) string { return "127.0.0.1:" + s.ports[name] }

// start starts servers that end with the test.
func start(t *testing.T, arguments ...string) *servers {
	t.Helper()
	s, err := startServers(arguments...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.end)
	return s
}

// common are servers for all tests that leave them intact.
type common struct {
	kind    string
	once    sync.Once
	servers *servers
	err     error
}

var commonOne, commonCluster = &common{kind: "one"}, &common{kind: "cluster"}

func (c *common) get(t *testing.T) *servers {
	t.Helper()
	c.once.Do(func() { c.servers, c.err = startServers(c.kind) })
	if c.err != nil {
		t.Fatal(c.err)
	}
	return c.servers
}

func TestMain(m *testing.M) {
	if os.Getenv(childName) != "" {
		os.Exit(beChild())
	}
	code := m.Run()
	for _, each := range []*common{commonOne, commonCluster} {
		if each.servers != nil {
			each.servers.end()
		}
	}
	os.Exit(code)
}

// view shows a server's locks.
type view struct {
	t *testing.T
	*redis.Client
}

func look(t *testing.T, s *servers, name string) *view {
	client := redis.NewClient(&redis.Options{
		Addr: s.address(name), Protocol: 2, PoolSize: 1, ReadTimeout: longest, ClientName: "view",
	})
	t.Cleanup(func() { client.Close() })
	return &view{t, client}
}

func (v *view) run(words ...any) any {
	v.t.Helper()
	reply, err := v.ask(words...)
	if err != nil && !errors.Is(err, redis.Nil) {
		v.t.Fatalf("%v: %v", words, err)
	}
	return reply
}

// ask answers the module's commands from the lock's keys for a server without the module.
func (v *view) ask(words ...any) (any, error) {
	reply, err := v.Do(ctx, words...).Result()
	if err == nil || !strings.Contains(err.Error(), "unknown command") {
		return reply, err
	}
	command, name := strings.ToLower(strings.TrimPrefix(words[0].(string), "FAIRLOCK.")), words[1].(string)
	queue := "redisson_lock_queue:{" + name + "}"
	switch command {
	case "queue":
		owners, err := v.LRange(ctx, queue, 0, -1).Result()
		waiters := []any{}
		for _, owner := range owners {
			waiters = append(waiters, []any{owner, "polling"})
		}
		return waiters, err
	case "info":
		info := []any{"waiting", v.LLen(ctx, queue).Val(), "lease", v.PTTL(ctx, name).Val().Milliseconds()}
		for field, value := range v.HGetAll(ctx, name).Val() {
			number, _ := strconv.ParseInt(value, 10, 64)
			if field == "" {
				info = append(info, "token", number)
			} else {
				info = append(info, "owner", field, "holds", number)
			}
		}
		return info, nil
	case "break":
		return v.Del(ctx, name).Result()
	case "acquire":
		words = append(words, "NOWAIT")
	}
	keys := []string{name, queue, "redisson_lock_timeout:{" + name + "}", "fairlock_token:{" + name + "}"}
	return v.Eval(ctx, read(v.t, "../lua/"+command+".lua"), keys, words[2:]...).Result()
}

func (v *view) info(name string) map[string]any {
	v.t.Helper()
	reply, info := v.run("FAIRLOCK.INFO", name).([]any), map[string]any{}
	for at := 0; at < len(reply); at += 2 {
		info[reply[at].(string)] = reply[at+1]
	}
	return info
}

func (v *view) owner(name string) string {
	v.t.Helper()
	owner, _ := v.info(name)["owner"].(string)
	return owner
}

func (v *view) isFree(name string) bool {
	v.t.Helper()
	return v.owner(name) == ""
}

func (v *view) queue(name string) (owners []string) {
	v.t.Helper()
	for _, waiter := range v.run("FAIRLOCK.QUEUE", name).([]any) {
		owners = append(owners, waiter.([]any)[0].(string))
	}
	return owners
}

func (v *view) waits(name string, count int) {
	v.t.Helper()
	until(v.t, fmt.Sprint(count, " wait"), func() bool { return v.areBlocked(name, count) })
}

// areBlocked reports whether this many wait, blocked if the server has the module; false if the server cannot be asked.
func (v *view) areBlocked(name string, count int) bool {
	reply, err := v.ask("FAIRLOCK.QUEUE", name)
	queue, _ := reply.([]any)
	for _, waiter := range queue {
		if waiter.([]any)[1] != "blocked" && !withoutModule {
			return false
		}
	}
	return err == nil && len(queue) == count
}

// settles waits until the only waiter of a server has nothing to do until the lease ends: without the module it has asked
// again because it listens now.
func (v *view) settles(locks *fairlock.Locks, name string) {
	v.t.Helper()
	until(v.t, "it listens", func() bool { return !withoutModule || v.calls("acquire") > 1 })
	_, err := locks.Info(ctx, name) // It comes later than the answer to that.
	expect(v.t, err == nil, "%v", err)
}

// marks are the commands that tell of a script: one that no other script calls.
var marks = map[string]string{"acquire": "evalsha", "renew": "pexpire", "release": "del"}

// calls is how often a command was called. By scripts, a renewal counts if it succeeded, as an acquisition does.
func (v *view) calls(command string) (count int) {
	v.t.Helper()
	stat := "fairlock." + command
	if withoutModule {
		stat = marks[command]
	}
	_, rest, _ := strings.Cut(v.run("INFO", "commandstats").(string), "cmdstat_"+stat+":calls=")
	_, _ = fmt.Sscanf(rest, "%d", &count)
	return count
}

// wasAsked reports an attempt to acquire, release or look.
func (v *view) wasAsked() bool {
	v.t.Helper()
	stats := v.run("INFO", "commandstats").(string)
	return strings.Contains(stats, "cmdstat_fairlock") || strings.Contains(stats, "cmdstat_eval")
}

// clients are the connections but those of views: what CLIENT LIST says of each.
func (v *view) clients() (lines []string) {
	v.t.Helper()
	for _, line := range strings.Split(strings.TrimSpace(v.run("CLIENT", "LIST").(string)), "\n") {
		if !strings.Contains(line, " name=view ") {
			lines = append(lines, line)
		}
	}
	return lines
}

func field(line, name string) string {
	_, rest, _ := strings.Cut(" "+line, " "+name+"=")
	value, _, _ := strings.Cut(rest, " ")
	return value
}

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(longest); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still not so: %s", what)
		}
	}
}

func locksAt(t *testing.T, s *servers, name string, options ...fairlock.Option) *fairlock.Locks {
	client := redis.NewClient(&redis.Options{Addr: s.address(name)})
	return locksOf(t, client, options...)
}

func locksOf(t *testing.T, client redis.UniversalClient, options ...fairlock.Option) *fairlock.Locks {
	locks := fairlock.New(client, options...)
	t.Cleanup(func() {
		locks.Close()
		client.Close()
	})
	return locks
}

// lose loses the next reply to a command, or to its script.
func (s *servers) lose(t *testing.T, view *view, command string) {
	t.Helper()
	word := "FAIRLOCK." + command
	if withoutModule {
		text := read(t, "../lua/"+strings.ToLower(command)+".lua")
		word = view.run("SCRIPT", "LOAD", text).(string)
	}
	s.tell(t, "lose", word)
}

var numbers int64

// newName is a lock that no other test has.
func newName(t *testing.T) string {
	return fmt.Sprintf("lock:%s:%d", t.Name(), atomic.AddInt64(&numbers, 1))
}

// one is the common server, locks at it, a view of it, and the name of a lock.
func one(t *testing.T, options ...fairlock.Option) (*fairlock.Locks, *view, string) {
	t.Helper()
	s := commonOne.get(t)
	return locksAt(t, s, "a", options...), look(t, s, "a"), newName(t)
}

// own is a server of the test's own, with locks through its proxy.
func own(t *testing.T, options ...fairlock.Option) (*servers, *fairlock.Locks, *view, string) {
	t.Helper()
	s := start(t, "one")
	return s, locksAt(t, s, "proxy", options...), look(t, s, "a"), newName(t)
}

func acquire(t *testing.T, locks *fairlock.Locks, name string, options ...fairlock.LockOption) *fairlock.Held {
	t.Helper()
	held, err := locks.Acquire(ctx, name, options...)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func release(t *testing.T, held *fairlock.Held) {
	t.Helper()
	if err := held.Release(); err != nil {
		t.Fatal(err)
	}
}

// future is an acquisition under way.
type future struct {
	done chan struct{}
	held *fairlock.Held
	err  error
}

func begin(locks *fairlock.Locks, name string, options ...fairlock.LockOption) *future {
	return beginWith(ctx, locks, name, options...)
}

func beginWith(ctx context.Context, locks *fairlock.Locks, name string, options ...fairlock.LockOption) *future {
	f := &future{done: make(chan struct{})}
	go func() {
		defer close(f.done)
		f.held, f.err = locks.Acquire(ctx, name, options...)
	}()
	return f
}

func (f *future) isDone() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

func (f *future) error(t *testing.T) error {
	t.Helper()
	select {
	case <-f.done:
	case <-time.After(longest):
		t.Fatal("the acquisition does not end")
	}
	return f.err
}

func (f *future) get(t *testing.T) *fairlock.Held {
	t.Helper()
	if err := f.error(t); err != nil {
		t.Fatal(err)
	}
	return f.held
}

// wantLost waits until the lock is lost.
func wantLost(t *testing.T, held *fairlock.Held, cause fairlock.Cause) {
	t.Helper()
	select {
	case <-held.Context().Done():
	case <-time.After(longest):
		t.Fatal("it is not lost")
	}
	wantCause(t, held.Lost(), cause)
}

func wantCause(t *testing.T, err error, cause fairlock.Cause) {
	t.Helper()
	want(t, err, fairlock.ErrLockLost)
	if got := asError(t, err).Cause; got != cause {
		t.Fatalf("cause %s, not %s", got, cause)
	}
}

func asError(t *testing.T, err error) *fairlock.Error {
	t.Helper()
	var ours *fairlock.Error
	if !errors.As(err, &ours) {
		t.Fatalf("no error of fairlock: %v", err)
	}
	return ours
}

func want(t *testing.T, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("%v, not %v", err, kind)
	}
}

func expect(t *testing.T, isSo bool, what string, values ...any) {
	t.Helper()
	if !isSo {
		t.Fatalf("not so: "+what, values...)
	}
}
