// The driver of the Go package: README.md beside has the lines. Each operation runs in a goroutine of its own.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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
	ID, Locks, Held, Block, Call int
	Op, Hooks, Name              string
	Options                      map[string]json.RawMessage
	Try, Fail                    bool
	Lease, Wait                  time.Duration
	Client                       *struct {
		Kind, User, Password string
		At                   []string
		Timeout              time.Duration
		TLS                  *struct{ CA, Cert, Key string }
		Map                  map[string]string
	}

	user   redis.UniversalClient
	locks  *fairlock.Locks
	held   *fairlock.Held
	inside chan *request
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

func find(id int) *request {
	found, _ := requests.LoadOrStore(id, new(request))
	return found.(*request)
}

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
	all := redis.UniversalOptions{Addrs: r.Client.At, Username: r.Client.User, Password: r.Client.Password, ReadTimeout: r.Client.Timeout}
	switch r.Client.Kind {
	case "nothing":
		return nil
	case "sentinel":
		all.MasterName = "locks"
	case "cluster":
		all.IsClusterMode = true
	}
	if r.Client.Map != nil {
		all.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
			if mapped, ok := r.Client.Map[address]; ok {
				address = mapped
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	}
	if files := r.Client.TLS; files != nil {
		pem, _ := os.ReadFile(files.CA)
		pair, _ := tls.LoadX509KeyPair(files.Cert, files.Key)
		all.TLSConfig = &tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{pair}}
		all.TLSConfig.RootCAs.AppendCertsFromPEM(pem)
	}
	return redis.NewUniversalClient(&all)
}

func (r *request) hook(which string) func(fairlock.Event) {
	return func(event fairlock.Event) {
		if r.Hooks == "fail" {
			panic(errBody)
		}
		say(object{"event": "hook", "locks": r.ID, "hook": which, "with": event})
	}
}

// body does what is asked for inside of a block, until it is to leave.
func (r *request) body(ctx context.Context, held *fairlock.Held) error {
	r.held = held
	say(object{"event": "inside", "id": r.ID, "token": held.Token(), "owner": held.Owner()})
	for inner := range r.inside {
		inner.answer(ctx)
		if inner.Op == "leave" {
			return map[bool]error{true: errBody}[inner.Fail]
		}
	}
	return nil
}

func (r *request) operate(ctx context.Context) (_ any, err error) {
	made, held := find(r.Locks), find(r.Held).held
	switch r.Op {
	case "new":
		options := optionsOf[fairlock.Option](r.Options)
		if r.Hooks != "" {
			hooks := fairlock.Hooks{OnWait: r.hook("wait"), OnAcquired: r.hook("acquired"), OnLost: r.hook("lost"), OnReleased: r.hook("released")}
			options = append(options, hooks)
		}
		r.user = r.connect()
		r.locks = fairlock.New(r.user, options...)
	case "acquire", "abandon":
		acquire := made.locks.Acquire
		if r.Try {
			acquire = made.locks.TryAcquire
		}
		if r.held, err = acquire(ctx, r.Name, optionsOf[fairlock.LockOption](r.Options)...); err == nil {
			return object{"token": r.held.Token(), "owner": r.held.Owner()}, nil
		}
		if r.Try && errors.Is(err, fairlock.ErrNotInTime) {
			err = nil
		}
	case "block":
		err = made.locks.Run(ctx, r.Name, r.body, optionsOf[fairlock.LockOption](r.Options)...)
	case "leave":
	case "renew":
		err = held.Renew(ctx, r.Lease)
		return object{"lease": held.Lease()}, err
	case "release":
		err = held.Release()
	case "lost":
		select {
		case <-held.Context().Done():
		case <-time.After(r.Wait):
		}
		loss := new(fairlock.Error)
		_ = errors.As(held.Lost(), &loss)
		return object{"cause": loss.Cause}, nil
	case "cancel":
		find(r.Call).cancel()
	case "info":
		return made.locks.Info(ctx, r.Name)
	case "native":
		if native, isKnown := made.locks.Native(); isKnown {
			return object{"native": native}, nil
		}
	case "close":
		err = made.locks.Close()
		if made.user != nil {
			_ = made.user.Ping(ctx).Err() // Its server may be down.
			err = errors.Join(err, made.user.Close())
		}
	default:
		err = errUnknown
	}
	return object{}, err
}

func failure(err error) object {
	failed, ours := object{"type": reflect.TypeOf(err).String(), "text": err.Error()}, new(fairlock.Error)
	for at := len(kinds) - 1; at >= 0; at-- {
		if errors.Is(err, kinds[at]) {
			failed["type"] = kinds[at].Error()
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
		ctx, cancel := context.WithCancel(context.Background())
		r.cancel, r.inside = cancel, make(chan *request, 9)
		requests.Store(r.ID, r)
		if r.Block != 0 {
			find(r.Block).inside <- r
		} else {
			go r.answer(ctx)
		}
	}
}
