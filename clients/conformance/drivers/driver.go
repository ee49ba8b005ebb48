// The driver of the Go package: README.md beside has the lines. Each operation runs in a goroutine of its own.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	fairlock "fairlock.example/clients/go"
	"github.com/redis/go-redis/v9"
)

type object = map[string]any

// A request, with the fields of all operations, and what came of it.
type request struct {
	ID, Of          int
	Op, Hooks, Name string
	Options         map[string]json.RawMessage
	Fail, Ping      bool
	Lease, Wait     time.Duration
	Inner           *request
	Client          client

	user  redis.UniversalClient
	locks *fairlock.Locks
	held  *fairlock.Held
	end   context.CancelFunc // of its wait, or of its block
}

var (
	errBody, errUnknown = errors.New("body"), errors.New("unknown")
	requests            sync.Map
	// In the order in which they are looked for: what is not replicated is not in time, either; and the body's own error comes first.
	kinds = []error{errBody, errUnknown, fairlock.ErrNotReplicated, fairlock.ErrNotInTime, fairlock.ErrLockLost, fairlock.ErrQueueFull, fairlock.ErrNotALock,
		fairlock.ErrWrongType, fairlock.ErrCrossSlot, fairlock.ErrNoModule, fairlock.ErrRefused, fairlock.ErrArgument, fairlock.ErrUnavailable,
		fairlock.ErrClosed, context.Canceled}
)

func say(line object) {
	_ = json.NewEncoder(os.Stdout).Encode(line) // in one piece
}

func (r *request) hook(which string) func(fairlock.Event) {
	return func(event fairlock.Event) {
		switch r.Hooks {
		case "fail":
			panic(errBody)
		case "tell":
			say(object{"event": "hook", "locks": r.ID, "hook": which, "with": event})
		}
	}
}

func (r *request) body(ctx context.Context, held *fairlock.Held) error {
	left, leave := context.WithCancel(context.Background())
	r.held, r.end = held, leave
	say(object{"event": "inside", "id": r.ID, "token": held.Token(), "owner": held.Owner()})
	if r.Inner != nil {
		r.Inner.answer(ctx)
	}
	<-left.Done()
	return map[bool]error{true: errBody}[r.Fail]
}

func (r *request) operate(ctx context.Context, of *request) (ok any, err error) {
	switch r.Op {
	case "new":
		r.user = r.Client.connect()
		hooks := fairlock.Hooks{OnWait: r.hook("wait"), OnAcquired: r.hook("acquired"), OnLost: r.hook("lost"), OnReleased: r.hook("released")}
		r.locks = fairlock.New(r.user, append(optionsOf[fairlock.Option](r.Options), hooks)...)
	case "acquire", "tryAcquire", "abandon":
		acquire := of.locks.Acquire
		if r.Op == "tryAcquire" {
			acquire = of.locks.TryAcquire
		}
		if r.held, err = acquire(ctx, r.Name, optionsOf[fairlock.LockOption](r.Options)...); err == nil {
			ok = object{"token": r.held.Token(), "owner": r.held.Owner()}
		}
	case "block":
		err = of.locks.Run(ctx, r.Name, r.body, optionsOf[fairlock.LockOption](r.Options)...)
	case "end":
		of.end()
	case "renew":
		err = of.held.Renew(ctx, r.Lease)
		ok = object{"lease": of.held.Lease()}
	case "release":
		err = of.held.Release()
	case "lost":
		ended, cancel := context.WithTimeout(of.held.Context(), r.Wait)
		defer cancel()
		<-ended.Done()
		err = of.held.Lost()
	case "info":
		return of.locks.Info(ctx, r.Name)
	case "native":
		native, isKnown := of.locks.Native()
		ok = map[bool]object{true: {"native": native}}[isKnown]
	case "close":
		if err = of.locks.Close(); r.Ping && err == nil {
			err = of.user.Ping(ctx).Err()
		}
		_ = of.user.Close()
	default:
		err = errUnknown
	}
	return ok, err
}

// failure is null if there is none.
func failure(err error) object {
	if err == nil {
		return nil
	}
	all, ours := append(kinds, err), new(fairlock.Error)
	kind := slices.IndexFunc(all, func(kind error) bool { return errors.Is(err, kind) })
	errors.As(err, &ours)
	below := failure(errors.Unwrap(err))
	return object{"type": all[kind].Error(), "text": err.Error(), "code": ours.Code, "cause": ours.Cause, "because": below}
}

func (r *request) answer(ctx context.Context) {
	ctx, r.end = context.WithCancel(ctx)
	requests.Store(r.ID, r)
	of, _ := requests.LoadOrStore(r.Of, r)
	ok, err := r.operate(ctx, of.(*request))
	say(object{"id": r.ID, "ok": ok, "failed": failure(err)})
}

func main() {
	lines := json.NewDecoder(os.Stdin)
	for r := new(request); lines.Decode(r) == nil; r = new(request) {
		go r.answer(context.Background())
	}
}
