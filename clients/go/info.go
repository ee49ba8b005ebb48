package fairlock

import (
	"context"
	"time"
)

// Info is what the server knows of a lock. If several hold it, Owner is the first of them, and Holds, Lease, Token and
// Session are that one's.
type Info struct {
	Owner   string        // "" if the lock is free
	Holds   int64         // the owner's hold count
	Lease   time.Duration // until it ends; below 0 if it is held without a lease
	Token   int64         // 0 if the lock is free, or was taken by a script
	Session bool
	Waiting int64 // callers in the queue
	Holders int64
	Limit   int64 // of holders in all: 1 if the lock is held exclusively, 0 if it is free or they tolerate any number
}

// Info says who holds a lock, and how many wait for it.
func (l *Locks) Info(ctx context.Context, name string) (Info, error) {
	if _, err := l.with(name, nil); err != nil {
		return Info{}, err
	}
	return l.info(ctx, name, l.options.retryTimeout)
}

func (l *Locks) info(ctx context.Context, name string, longest time.Duration) (Info, error) {
	reply, err := l.control(ctx, name, longest, "FAIRLOCK.INFO", name)
	if err != nil {
		return Info{}, err
	}
	fields := map[string]any{}
	pairs, _ := reply.([]any)
	for at := 0; at+1 < len(pairs); at += 2 {
		field, _ := pairs[at].(string)
		fields[field] = pairs[at+1]
	}
	number := func(field string) int64 {
		value, _ := fields[field].(int64)
		return value
	}
	owner, _ := fields["owner"].(string)
	return Info{
		Owner: owner, Holds: number("holds"), Lease: time.Duration(number("lease")) * time.Millisecond,
		Token: number("token"), Session: number("session") == 1, Waiting: number("waiting"),
		Holders: number("holders"), Limit: number("limit"),
	}, nil
}
