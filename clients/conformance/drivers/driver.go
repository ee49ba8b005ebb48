// The driver of the Go package: README.md beside has the lines. Each operation runs in a goroutine of its own.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"os"
	"reflect"
	"sync"
	"time"

	fairlock "fairlock.example/clients/go"
	"github.com/redis/go-redis/v9"
)

type object = map[string]any

// A request, with the fields of all operations, and what came of it.
type request struct {
	ID, Of            int
	Op, Hooks, Name   string
	Options           map[string]json.RawMessage
	IsTry, Fail, Ping bool
	Lease, Wait       time.Duration
	Inner             *request
	Client            struct {
		redis.UniversalOptions
		Kind string
		TLS  *struct{ Cert, Key string }
		Map  map[string]string
	}

	user   redis.UniversalClient
	locks  *fairlock.Locks
	held   *fairlock.Held
	left   chan bool
	cancel context.CancelFunc
}

var (
	errBody, errUnknown = errors.New("body"), errors.New("unknown")
	requests            sync.Map
	makers              = map[string]any{
		"wait": fairlock.Wait, "lease": fairlock.Lease, "renew": fairlock.NoRenewal, "session": fairlock.Session, "owner": fairlock.Owner,
		"reentrant": fairlock.Reentrant, "shared": fairlock.Shared, "limit": fairlock.Limit, "min_replicas": fairlock.MinReplicas,
		"sync_timeout": fairlock.SyncTimeout, "patience": fairlock.Patience, "module": fairlock.RequireModule,
		"retry_timeout": fairlock.RetryTimeout, "command_timeout": fairlock.CommandTimeout, "release_timeout": fairlock.ReleaseTimeout,
	}
	// In the order in which they are looked for: what is not replicated is not in time, either; and the body's own error comes first.
	kinds = []error{errBody, errUnknown, fairlock.ErrNotReplicated, fairlock.ErrNotInTime, fairlock.ErrLockLost, fairlock.ErrQueueFull, fairlock.ErrNotALock,
		fairlock.ErrWrongType, fairlock.ErrCrossSlot, fairlock.ErrNoModule, fairlock.ErrRefused, fairlock.ErrArgument, fairlock.ErrUnavailable,
		fairlock.ErrClosed, context.Canceled}
)

func say(line object) {
	_ = json.NewEncoder(os.Stdout).Encode(line) // in one piece
}

// optionsOf are those of New (T is Option) or of one lock (LockOption).
func optionsOf[T fairlock.Option](given map[string]json.RawMessage) (options []T) {
	for name, raw := range given {
		maker, arguments := reflect.ValueOf(makers[name]), []reflect.Value{}
		if maker.Type().NumIn() == 1 {
			value := reflect.New(maker.Type().In(0))
			_ = json.Unmarshal(raw, value.Interface())
			arguments = append(arguments, value.Elem())
		}
		options = append(options, maker.Call(arguments)[0].Interface().(T))
	}
	return options
}

func (r *request) connect() redis.UniversalClient {
	all := &r.Client.UniversalOptions
	all.IsClusterMode = r.Client.Kind == "cluster"
	all.MasterName = map[string]string{"sentinel": "locks"}[r.Client.Kind]
	if r.Client.Map != nil {
		all.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
			if mapped, ok := r.Client.Map[address]; ok {
				address = mapped
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	}
	if files := r.Client.TLS; files != nil { // The server's certificate is the library's concern.
		pair, _ := tls.LoadX509KeyPair(files.Cert, files.Key)
		all.TLSConfig = &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}
	}
	return redis.NewUniversalClient(all)
}

func (r *request) hook(which string) func(fairlock.Event) {
	return func(event fairlock.Event) {
		if r.Hooks == "fail" {
			panic(errBody)
		}
		say(object{"event": "hook", "locks": r.ID, "hook": which, "with": event})
	}
}

func (r *request) body(ctx context.Context, held *fairlock.Held) error {
	r.held = held
	say(object{"event": "inside", "id": r.ID, "token": held.Token(), "owner": held.Owner()})
	if r.Inner != nil {
		r.Inner.answer(ctx)
	}
	<-r.left
	return map[bool]error{true: errBody}[r.Fail]
}

func (r *request) operate(ctx context.Context) (ok any, err error) {
	found, _ := requests.LoadOrStore(r.Of, r)
	of := found.(*request)
	switch r.Op {
	case "new":
		options := optionsOf[fairlock.Option](r.Options)
		if r.Hooks != "" {
			options = append(options, fairlock.Hooks{OnWait: r.hook("wait"), OnAcquired: r.hook("acquired"), OnLost: r.hook("lost"), OnReleased: r.hook("released")})
		}
		r.user = r.connect()
		r.locks = fairlock.New(r.user, options...)
	case "acquire", "abandon":
		acquire := of.locks.Acquire
		if r.IsTry {
			acquire = of.locks.TryAcquire
		}
		if r.held, err = acquire(ctx, r.Name, optionsOf[fairlock.LockOption](r.Options)...); err == nil {
			ok = object{"token": r.held.Token(), "owner": r.held.Owner()}
		}
	case "block":
		err = of.locks.Run(ctx, r.Name, r.body, optionsOf[fairlock.LockOption](r.Options)...)
	case "leave":
		close(of.left)
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
	case "cancel":
		of.cancel()
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

func failure(err error) object {
	failed, ours := object{"type": reflect.TypeOf(err).String(), "text": err.Error()}, new(fairlock.Error)
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			failed["type"] = kind.Error()
			break
		}
	}
	if errors.As(err, &ours) {
		failed["code"], failed["cause"] = ours.Code, ours.Cause
		if below := errors.Unwrap(ours); below != nil {
			failed["because"] = below.Error()
		}
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		failed["also"] = []string{joined.Unwrap()[1].Error()}
	}
	return failed
}

func (r *request) answer(ctx context.Context) {
	ctx, r.cancel = context.WithCancel(ctx)
	r.left = make(chan bool)
	requests.Store(r.ID, r)
	if ok, err := r.operate(ctx); err != nil {
		say(object{"id": r.ID, "failed": failure(err)})
	} else {
		say(object{"id": r.ID, "ok": ok})
	}
	if r.Op == "abandon" {
		r.cancel()
	}
}

func main() {
	lines := json.NewDecoder(os.Stdin)
	for r := new(request); lines.Decode(r) == nil; r = new(request) {
		go r.answer(context.Background())
	}
}
