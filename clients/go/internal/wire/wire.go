// Package wire is what lies between fairlock and its connections, so that package fairlocktest can put others in
// their place.
package wire

import (
	"context"
	"time"
)

// Command is a command's words.
type Command []any

// Reply is the reply to a command: nil for a null.
type Reply struct {
	Value any
	Err   error
}

// Line is a connection that one goroutine uses at a time.
type Line interface {
	// Call sends commands at once and returns their replies. It ends when ctx is done or longest is over (0: never),
	// and the line is closed then.
	Call(ctx context.Context, longest time.Duration, commands ...Command) []Reply
	// Watch returns nil when longest is over, and an error as soon as the connection ends.
	Watch(longest time.Duration) error
	// Close ends also what another goroutine is waiting for on it.
	Close()
	// IsClosed says that it is of no use any more.
	IsClosed() bool
}

// Failed is the reply to each of some commands that did not get one.
func Failed(count int, err error) []Reply {
	replies := make([]Reply, count)
	for each := range replies {
		replies[each].Err = err
	}
	return replies
}

// ReplyError is a refusal, as go-redis has them.
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// RedisError makes it a redis.Error.
func (e ReplyError) RedisError() {}

// Fake is what package fairlock gives to package fairlocktest: a *fairlock.Locks whose leases do not end by
// themselves, and a function that makes locks lost to their holders.
type Fake struct {
	Locks any
	Lose  func(tokens []int64, cause string)
}

// NewFake is set by package fairlock; options is a []fairlock.Option.
var NewFake func(dial func() Line, options any) Fake
