package fairlock

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	silence = 5 * time.Second // of a connection that listens, before it is asked whether it lives
	kept    = time.Minute     // an ear that nobody uses
)

// ear is an owner, and what it receives. It is kept for the next caller, so that its first ask is listened to.
type ear struct {
	name, owner, channel string
	woken                chan struct{}
	released             int64       // the last token of this owner
	listener             *listener   // guarded by the mutex of Locks
	refused              error       // why it may not listen; likewise
	idle                 *time.Timer // ends it if nobody uses it
}

func (l *Locks) takeEar(name string, o *options) *ear {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	owner := o.owner
	if owner == nil {
		if its := l.idle[name]; len(its) > 0 && its[len(its)-1].idle.Stop() {
			l.idle[name] = its[:len(its)-1]
			return its[len(its)-1]
		}
		unique := newOwner()
		owner = &unique
	}
	e := &ear{name: name, owner: *owner, channel: key("redisson_lock__channel", name) + ":" + *owner, woken: make(chan struct{}, 1)}
	if o.owner != nil {
		l.given[e] = false
	}
	return e
}

// putEar takes back an ear, which may be used again or not.
func (l *Locks) putEar(e *ear, mayBeUsed bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	delete(l.given, e)
	if e.listener == nil || !mayBeUsed || l.ctx.Err() != nil {
		l.drop(e)
		return
	}
	l.idle[e.name] = append(l.idle[e.name], e)
	e.idle = time.AfterFunc(kept, func() {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		l.drop(e)
		l.idle[e.name] = slices.DeleteFunc(l.idle[e.name], func(each *ear) bool { return each == e })
		if len(l.idle[e.name]) == 0 {
			delete(l.idle, e.name)
		}
	})
}

// listen makes an ear receive its messages, at the server that has the lock now. When it does, it is woken, and when that
// is refused, which the next call returns.
func (l *Locks) listen(ctx context.Context, e *ear) error {
	node, err := l.node(ctx, e.name)
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if e.refused != nil || err != nil || l.ctx.Err() != nil || e.listener != nil && e.listener.node == node {
		return e.refused
	}
	l.drop(e)
	its := l.listeners[node]
	if its == nil {
		its = &listener{locks: l, node: node, ears: map[string][]*ear{}, pubsub: node.Subscribe(context.Background())}
		l.listeners[node] = its
		l.calls.Add(1) // Whoever closes the client next would close it first, which go-redis logs.
		context.AfterFunc(l.ctx, func() {
			defer l.calls.Done()
			its.pubsub.Close()
		})
		go its.receive()
	}
	e.listener, its.ears[e.channel] = its, append(its.ears[e.channel], e)
	go its.subscribe(e.channel)
	return nil
}

// drop ends what an ear receives, with the mutex held.
func (l *Locks) drop(e *ear) {
	its := e.listener
	if its == nil {
		return
	}
	e.listener = nil
	its.ears[e.channel] = slices.DeleteFunc(its.ears[e.channel], func(each *ear) bool { return each == e })
	if len(its.ears[e.channel]) == 0 {
		delete(its.ears, e.channel)
		go its.subscribe(e.channel)
	}
}

// listener is the connection that listens at one server.
type listener struct {
	locks     *Locks
	node      *redis.Client
	pubsub    *redis.PubSub
	ears      map[string][]*ear // by channel; guarded by the mutex of Locks
	sent      []string          // channels in requests without an answer yet; likewise
	following sync.Mutex        // what ears says, one at a time
}

// subscribe to a channel, or end that, as it is wanted. A cluster's messages come by sharded channels, unless it has
// none, or Sentinels look after it.
func (n *listener) subscribe(channel string) {
	n.following.Lock()
	defer n.following.Unlock()
	n.locks.mutex.Lock()
	do, sharded := n.pubsub.Subscribe, n.pubsub.SSubscribe
	if len(n.ears[channel]) == 0 {
		do, sharded = n.pubsub.Unsubscribe, n.pubsub.SUnsubscribe
	}
	n.sent = append(n.sent, channel)
	if n.locks.cluster != nil {
		n.sent = append(n.sent, channel)
	}
	n.locks.mutex.Unlock()
	if n.locks.cluster != nil {
		_ = sharded(context.Background(), channel)
	}
	_ = do(context.Background(), channel) // That it has failed is heard.
}

// receive takes what comes, until Locks or the client is closed, or the server has left the cluster.
func (n *listener) receive() {
	for isAsked := false; ; {
		longest, ctx, cancel := silence, context.Background(), context.CancelFunc(func() {})
		if isAsked { // Whether it lives: go-redis connects again if it is silent still.
			longest = 0
			ctx, cancel = context.WithTimeout(ctx, silence)
		}
		said, err := n.pubsub.ReceiveTimeout(ctx, longest)
		cancel()
		var failure net.Error
		switch {
		case err == nil:
			isAsked = false
		case errors.Is(err, redis.ErrClosed):
			n.end()
			return
		case slices.Contains([]string{"NOPERM", "MOVED", "CROSSSLOT"}, codeOf(err)) || isUnknown(err):
			n.refuse(err)
		case !isAsked && errors.As(err, &failure) && failure.Timeout():
			isAsked = true
			_ = n.pubsub.Ping(ctx)
		default:
			isAsked = false
			n.subscribeAgain()
		}
		n.locks.mutex.Lock()
		switch said := said.(type) {
		case *redis.Message:
			n.wake(said.Channel, false)
		case *redis.Subscription: // If it ends although it is wanted, its slot has moved.
			if at := slices.Index(n.sent, said.Channel); at >= 0 {
				n.sent = slices.Delete(n.sent, at, at+1)
			}
			n.wake(said.Channel, said.Kind == "sunsubscribe")
		}
		n.locks.mutex.Unlock()
	}
}

// refuse the first request without an answer: its waiters learn that they may not listen, or ask now and then all the same.
// Without one it is the request of go-redis, for all channels at once: each is listened for anew.
func (n *listener) refuse(why error) {
	n.locks.mutex.Lock()
	defer n.locks.mutex.Unlock()
	isKnown := len(n.sent) > 0
	for channel, its := range n.ears {
		if codeOf(why) != "NOPERM" || isKnown && channel != n.sent[0] {
			continue
		}
		for _, each := range its {
			if isKnown {
				each.refused = why
			}
		}
		n.wake(channel, true)
	}
	n.sent = n.sent[min(1, len(n.sent)):]
}

// subscribeAgain after a failure. So does go-redis, but to the channels of different slots at once, which is refused.
func (n *listener) subscribeAgain() {
	n.locks.mutex.Lock()
	n.sent = nil
	n.locks.mutex.Unlock()
	time.Sleep(2 * firstPause)
	if n.pubsub.Ping(context.Background()) != nil || n.locks.cluster == nil {
		return
	}
	n.locks.mutex.Lock()
	defer n.locks.mutex.Unlock()
	for channel := range n.ears {
		go n.subscribe(channel)
	}
}

func (n *listener) end() {
	n.locks.mutex.Lock()
	defer n.locks.mutex.Unlock()
	delete(n.locks.listeners, n.node)
	for channel := range n.ears {
		n.wake(channel, true)
	}
}

// wake those that have this channel, with the mutex of Locks held. Where it is gone they listen anew, perhaps elsewhere.
func (n *listener) wake(channel string, isGone bool) {
	for _, each := range n.ears[channel] {
		select {
		case each.woken <- struct{}{}:
		default:
		}
		if isGone {
			each.listener = nil
		}
	}
	if isGone && len(n.ears[channel]) > 0 {
		delete(n.ears, channel)
		go n.subscribe(channel)
	}
}
