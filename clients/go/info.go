package fairlock

import (
	"context"
	"strconv"
	"time"
)

// Info is the state of a lock at the server. If several hold it, Owner is the first of them, and Holds, Lease, Token
// and Session are that one's.
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

// Info returns a lock's holder, and how many wait for it.
func (l *Locks) Info(ctx context.Context, name string) (Info, error) {
	if _, err := l.with(name, nil); err != nil {
		return Info{}, err
	}
	return l.info(ctx, name, l.options.retryTimeout)
}

func (l *Locks) info(ctx context.Context, name string, longest time.Duration) (info Info, err error) {
	err = l.onNode(ctx, control, name, longest, func(c *conn) error {
		if !c.lacksModule() {
			reply, err := c.call(ctx, l.options.commandTimeout, "FAIRLOCK.INFO", name)
			if !c.lacksModule() {
				info = infoOf(reply)
				return err
			}
		}
		replies := c.send(ctx, l.options.commandTimeout,
			request{"HGETALL", name}, request{"PTTL", name}, request{"LLEN", queueOf(name)})
		for _, each := range replies {
			if each.err != nil {
				return each.err
			}
		}
		info = infoByKeys(texts(replies[0].value), replies[1].value.(int64), replies[2].value.(int64))
		return nil
	})
	return info, err
}

func infoOf(reply any) Info {
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
	}
}

// infoByKeys reads the keys where the server lacks the module: the lock's hash has the owner's holds, and the token in a
// field without a name.
func infoByKeys(pairs []string, lease, waiting int64) Info {
	info := Info{Waiting: waiting}
	for at := 0; at+1 < len(pairs); at += 2 {
		number, _ := strconv.ParseInt(pairs[at+1], 10, 64)
		if pairs[at] == "" {
			info.Token = number
			continue
		}
		info.Owner, info.Holds, info.Holders, info.Limit = pairs[at], number, 1, 1
		info.Lease = time.Duration(lease) * time.Millisecond
	}
	return info
}
