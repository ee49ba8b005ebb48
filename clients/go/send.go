package fairlock

import (
	"context"
	"errors"
	"log"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlock.example/clients/lua"
	"github.com/redis/go-redis/v9"
)

// reply is what came of a command.
type reply struct {
	value       any
	err         error
	sent        time.Time
	address     string
	isConfirmed bool // by as many replicas as must
}

// scripts do what the commands do, where the server does not have the module.
var scripts = map[any]*redis.Script{
	"FAIRLOCK.ACQUIRE": redis.NewScript(lua.Acquire), "FAIRLOCK.RELEASE": redis.NewScript(lua.Release),
	"FAIRLOCK.RENEW": redis.NewScript(lua.Renew), "FAIRLOCK.CANCEL": redis.NewScript(lua.Cancel),
	"FAIRLOCK.INFO": redis.NewScript(lua.Info),
}

// put adds a command to a pipeline, or its script, by EVALSHA or EVAL.
func put(ctx context.Context, pipe redis.Pipeliner, verb string, words []any) *redis.Cmd {
	if verb == "" {
		return pipe.Do(ctx, words...)
	}
	script, name := scripts[words[0]], words[1].(string)
	keys := []string{name, key("redisson_lock_queue", name), key("redisson_lock_timeout", name), key("fairlock_token", name)}
	if verb == "EVAL" {
		return script.Eval(ctx, pipe, keys, words[2:]...)
	}
	return script.EvalSha(ctx, pipe, keys, words[2:]...)
}

// key is one of a lock besides its own, with Redisson's names: prefix:{name}, or prefix:name if the name has braces.
func key(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// node is the client that the lock's commands go to.
func (l *Locks) node(ctx context.Context, name string) (*redis.Client, error) {
	if l.cluster == nil {
		return l.client, nil
	}
	return l.cluster.MasterForKey(ctx, name)
}

// send sends a command to the lock's master, or on a session's line. Replicas have as long as within to confirm it; 0: they
// are not asked.
func (l *Locks) send(ctx context.Context, line *redis.Client, o *options, within time.Duration, words []any) (r reply) {
	var node *redis.Client
	r.sent = time.Now()
	if node = line; line == nil {
		node, r.err = l.node(ctx, words[1].(string))
	}
	if r.err == nil {
		l.sendTo(ctx, node, o, within, words, false, &r)
	}
	switch code := codeOf(r.err); {
	case l.cluster == nil:
	case line == nil && (code == "MOVED" || code == "ASK"):
		l.sendAround(ctx, o, within, words, &r)
	case r.err != nil && isPassing(r.err):
		l.cluster.ReloadState(ctx)
	}
	return r
}

// sendAround asks all masters of a cluster: each but the one that has the slot, or imports it, points to another.
func (l *Locks) sendAround(ctx context.Context, o *options, within time.Duration, words []any, r *reply) {
	var mutex sync.Mutex
	_ = l.cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		its := reply{sent: r.sent}
		l.sendTo(ctx, node, o, within, words, true, &its)
		mutex.Lock()
		defer mutex.Unlock()
		if code := codeOf(its.err); code != "MOVED" && code != "ASK" && (its.err == nil || replied(r.err) != nil) {
			*r = its
		}
		return nil
	})
}

// sendTo sends the command to a server, or the script for it.
func (l *Locks) sendTo(
	ctx context.Context, node *redis.Client, o *options, within time.Duration, words []any, isAsking bool, r *reply,
) {
	r.address = node.Options().Addr
	replicas := 0
	if within > 0 {
		if replicas, r.err = l.wanted(ctx, node, o); r.err != nil {
			return
		}
	}
	if replicas == 0 {
		within = 0
	}
	hasScript := o.needsModule() == "" && !l.options.isRequired
	for _, verb := range []string{"", "EVALSHA", "EVAL"} {
		if isScript := verb != ""; isScript && !hasScript || !isScript && hasScript && l.mode.Load() == byScripts {
			continue
		}
		var command *redis.Cmd
		confirm := redis.NewIntCmd(ctx, "WAIT", replicas, ms(within))
		exchange(ctx, node, o, within, func(pipe redis.Pipeliner) {
			if isAsking {
				pipe.Do(ctx, "ASKING")
			}
			command = put(ctx, pipe, verb, words)
			if replicas > 0 { // In one pipeline: WAIT is about what its own connection has written.
				_ = pipe.Process(ctx, confirm)
			}
		})
		if r.value, r.err = command.Result(); errors.Is(r.err, redis.Nil) {
			r.value, r.err = nil, nil
		}
		if r.isConfirmed = confirm.Val() >= int64(replicas); r.err == nil {
			r.err = confirm.Err()
		}
		if verb == "" && !l.lacks(r, o) || verb != "" && codeOf(r.err) != "NOSCRIPT" {
			break
		}
	}
	if r.err == nil && !r.isConfirmed && o.minReplicas == nil {
		l.forget(ctx, node)
	}
}

// exchange sends commands in one pipeline, once: go-redis would send them again, but not on a Conn that has failed. The client's
// own limit holds where it is shorter, unless replicas have as long as within.
func exchange(ctx context.Context, node *redis.Client, o *options, within time.Duration, fill func(redis.Pipeliner)) {
	longest := o.commandTimeout + within
	if own := node.Options().ReadTimeout; within == 0 && own > 0 {
		longest = min(longest, own)
	}
	conn := node.WithTimeout(longest).Conn() // With options of its own: go-redis writes to them while it connects.
	defer conn.Close()
	pipe := conn.Pipeline()
	fill(pipe)
	commands, err := pipe.Exec(ctx)
	hasFailed := func(each redis.Cmder) bool { return each.Err() != nil }
	if err != nil && !slices.ContainsFunc(commands, hasFailed) { // There was no connection: go-redis says so nowhere else.
		for _, each := range commands {
			each.SetErr(err)
		}
	}
}

// asked is what came of asking a server for its replicas.
type asked struct {
	wanted int    // that must confirm by default
	master string // that Sentinels named then
}

// wanted is how many replicas must confirm. Each server is asked once whether it has any.
func (l *Locks) wanted(ctx context.Context, node *redis.Client, o *options) (int, error) {
	if o.minReplicas != nil {
		return *o.minReplicas, nil
	}
	if known, isKnown := l.replicas.Load(node.Options().Addr); isKnown {
		return known.(asked).wanted, nil
	}
	var role *redis.Cmd
	exchange(ctx, node, o, 0, func(pipe redis.Pipeliner) { role = pipe.Do(ctx, "ROLE") })
	said, err := role.Slice()
	if err != nil && !isUnknown(err) {
		return 0, err
	}
	var now asked
	if len(said) == 3 {
		if replicas, _ := said[2].([]any); len(replicas) > 0 {
			now = asked{1, named(ctx, node)}
		}
	}
	// Behind Sentinels it may be another master each time: asked until one had a replica.
	isKnown := now.master != "" || node.Options().Addr != "FailoverClient"
	if isKnown && (err != nil || said[0] == "master") {
		l.replicas.Store(node.Options().Addr, now)
	}
	return now.wanted, nil
}

// forget how many replicas must confirm, which too few have, if Sentinels name another master since it was asked.
func (l *Locks) forget(ctx context.Context, node *redis.Client) {
	known, _ := l.replicas.Load(node.Options().Addr)
	before, _ := known.(asked)
	if master := named(ctx, node); master != "" && master != before.master {
		l.replicas.Delete(node.Options().Addr)
	}
}

// named is the address of the master that Sentinels name, which go-redis tells nowhere else; empty without Sentinels.
func named(ctx context.Context, node *redis.Client) string {
	if node.Options().Addr != "FailoverClient" {
		return ""
	}
	conn, err := node.Options().Dialer(ctx, "tcp", "")
	if err != nil {
		return ""
	}
	defer conn.Close()
	return conn.RemoteAddr().String()
}

// How locks are taken, by the server's first answer.
const (
	byNothingYet int32 = iota
	byModule
	byScripts
)

// lacks says that the server does not have the module for this user, as far as a reply tells.
func (l *Locks) lacks(r *reply, o *options) bool {
	why, cure := "the server does not have the fairlock module", "Load it"
	switch {
	case isDenied(r.err):
		why, cure = "the user may not run the commands of the fairlock module", "Allow them"
	case !isUnknown(r.err):
		if r.err == nil || codeOf(r.err) != "" {
			l.mode.CompareAndSwap(byNothingYet, byModule)
		}
		return false
	}
	if o.needsModule() == "" && !l.options.isRequired && l.mode.Swap(byScripts) != byScripts {
		log.Printf("fairlock: %s: %s: locks are taken by scripts. %s for hand-off, sessions and shared locks, "+
			"or set module to \"required\" to refuse (RequireModule)", r.address, why, cure)
	}
	return true
}
