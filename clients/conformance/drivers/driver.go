// The driver of the Go package: README.md beside has the lines. Each operation runs in a goroutine of its own. One that panics by a
// type assertion was given what the package's types do not have.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	fairlock "fairlock.example/clients/go"
	"github.com/redis/go-redis/v9"
)

type object = map[string]any

// A request, with the fields of all operations.
type request struct {
	ID, Locks, Held, Block, Call int
	Op, Hooks                    string
	Name                         any
	Options, Inner               object
	Try, Fail                    bool
	Lease, Wait                  float64
	Client                       struct {
		Kind, User, Password string
		At                   []string
		Timeout              float64
		TLS                  *struct{ CA, Cert, Key string }
		Map                  map[string]string
	}
}

// A Locks with its user's client.
type made struct {
	*fairlock.Locks
	user redis.UniversalClient
}

var (
	errBody, errUnknown       = errors.New("the body's own"), errors.New("an unknown operation")
	writing                   sync.Mutex
	locks, holds, ends, calls sync.Map // by the id of their request
)

func find[T any](in *sync.Map, id int) T { found, _ := in.Load(id); return found.(T) }

// orNull is what JSON has for none.
func orNull[T comparable](value T) any {
	return map[bool]any{true: value}[value != *new(T)]
}

func say(line object) {
	writing.Lock()
	defer writing.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(line)
}

func seconds(number any) time.Duration { // What is too long becomes the longest.
	return time.Duration(math.Max(math.MinInt64, math.Min(number.(float64)*1e9, math.MaxInt64-1023)))
}

func whole(number any) int {
	if number.(float64) != math.Trunc(number.(float64)) {
		return any("").(int)
	}
	return int(number.(float64))
}

type option = fairlock.Option

var known = map[string]func(any) option{
	"wait":            func(v any) option { return fairlock.Wait(seconds(v)) },
	"lease":           func(v any) option { return fairlock.Lease(seconds(v)) },
	"patience":        func(v any) option { return fairlock.Patience(seconds(v)) },
	"sync_timeout":    func(v any) option { return fairlock.SyncTimeout(seconds(v)) },
	"retry_timeout":   func(v any) option { return fairlock.RetryTimeout(seconds(v)) },
	"command_timeout": func(v any) option { return fairlock.CommandTimeout(seconds(v)) },
	"release_timeout": func(v any) option { return fairlock.ReleaseTimeout(seconds(v)) },
	"limit":           func(v any) option { return fairlock.Limit(whole(v)) },
	"min_replicas":    func(v any) option { return fairlock.MinReplicas(whole(v)) },
	"owner":           func(v any) option { return fairlock.Owner(v.(string)) },
	"renew":           func(v any) option { return flag(!v.(bool), fairlock.NoRenewal()) },
	"session":         func(v any) option { return flag(v.(bool), fairlock.Session()) },
	"reentrant":       func(v any) option { return flag(v.(bool), fairlock.Reentrant()) },
	"shared":          func(v any) option { return flag(v.(bool), fairlock.Shared()) },
	"module":          func(v any) option { return flag(v.(string) == "required", fairlock.RequireModule()) },
}

func flag(isSet bool, its option) option { return map[bool]option{true: its}[isSet] }

// optionsOf are those of New (T is Option) or of one lock (LockOption). Null is the default of some.
func optionsOf[T option](given object) (options []T) {
	for name, value := range given {
		if value == nil && strings.Contains("wait owner limit min_replicas", name) {
			continue
		}
		make, ok := known[name]
		if !ok {
			_ = any(name).(option) // It does not compile.
		}
		if made := make(value); made != nil {
			options = append(options, made.(T))
		}
	}
	return options
}

func clientOf(r request) redis.UniversalClient {
	given := r.Client
	all := redis.UniversalOptions{Addrs: given.At, Username: given.User, Password: given.Password,
		ReadTimeout: seconds(given.Timeout), IsClusterMode: given.Kind == "cluster"}
	switch given.Kind {
	case "nothing":
		return nil
	case "text":
		return any("").(redis.UniversalClient) // It does not compile.
	case "sentinel":
		all.MasterName = "locks"
	}
	if given.Map != nil {
		all.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
			if to, ok := given.Map[address]; ok {
				address = to
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	}
	if files := given.TLS; files != nil {
		pem, _ := os.ReadFile(files.CA)
		pair, _ := tls.LoadX509KeyPair(files.Cert, files.Key)
		all.TLSConfig = &tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{pair}}
		all.TLSConfig.RootCAs.AppendCertsFromPEM(pem)
	}
	return redis.NewUniversalClient(&all)
}

func hooks(r request) fairlock.Hooks {
	hook := func(which string) func(fairlock.Event) {
		return func(e fairlock.Event) {
			if r.Hooks == "fail" {
				panic(errBody)
			}
			say(object{"event": "hook", "locks": r.ID, "hook": which, "name": e.Name, "owner": e.Owner, "token": e.Token,
				"waited": e.Waited.Seconds(), "held": e.Held.Seconds(), "cause": e.Cause})
		}
	}
	return fairlock.Hooks{OnWait: hook("wait"), OnAcquired: hook("acquired"), OnLost: hook("lost"), OnReleased: hook("released")}
}

// block acquires once more inside, if it shall, and stays until it is told to leave.
func (r request) block(ctx context.Context, held *fairlock.Held) error {
	end, event := make(chan error, 1), object{"event": "inside", "id": r.ID, "token": held.Token(), "owner": held.Owner()}
	holds.Store(r.ID, held)
	ends.Store(r.ID, end)
	if r.Inner != nil {
		inner, err := find[made](&locks, r.Locks).Acquire(ctx, r.Name.(string), optionsOf[fairlock.LockOption](r.Inner)...)
		if err != nil {
			return err
		}
		event["inner"] = inner.Token()
		_ = inner.Release()
	}
	say(event)
	return <-end
}

func operate(ctx context.Context, r request) (object, error) {
	l, _ := locks.Load(r.Locks)
	h, _ := holds.Load(r.Held)
	its, _ := l.(made)
	held, _ := h.(*fairlock.Held)
	switch r.Op {
	case "new":
		options := optionsOf[option](r.Options)
		if r.Hooks != "" {
			options = append(options, hooks(r))
		}
		user := clientOf(r)
		its = made{fairlock.New(user, options...), user}
		locks.Store(r.ID, its)
		// New returns no error: the first acquisition has it. Without a name nothing is sent.
		if _, err := its.Acquire(ctx, ""); !strings.Contains(err.Error(), "name") {
			return nil, err
		}
	case "acquire", "abandon":
		acquire := its.Acquire
		if r.Try {
			acquire = its.TryAcquire
		}
		held, err := acquire(ctx, r.Name.(string), optionsOf[fairlock.LockOption](r.Options)...)
		if err != nil {
			return nil, map[bool]error{false: err}[r.Try && errors.Is(err, fairlock.ErrNotInTime)]
		}
		holds.Store(r.ID, held)
		return object{"token": held.Token(), "owner": held.Owner()}, nil
	case "block":
		return nil, its.Run(ctx, r.Name.(string), r.block, optionsOf[fairlock.LockOption](r.Options)...)
	case "leave":
		find[chan error](&ends, r.Block) <- map[bool]error{true: errBody}[r.Fail]
	case "renew":
		err := held.Renew(ctx, seconds(r.Lease))
		return object{"lease": held.Lease().Seconds()}, err
	case "release":
		return nil, held.Release()
	case "lost":
		select {
		case <-held.Context().Done():
		case <-time.After(seconds(r.Wait)):
		}
		loss := new(fairlock.Error)
		_ = errors.As(held.Lost(), &loss)
		return object{"cause": orNull(loss.Cause)}, nil
	case "cancel":
		find[context.CancelFunc](&calls, r.Call)()
	case "info":
		info, err := its.Info(ctx, r.Name.(string))
		return object{"owner": orNull(info.Owner), "holds": info.Holds, "lease": orNull(max(info.Lease.Seconds(), 0)), "token": orNull(info.Token),
			"session": info.Session, "waiting": info.Waiting, "holders": info.Holders, "limit": orNull(info.Limit)}, err
	case "native":
		native, isKnown := its.Native()
		return object{"native": map[bool]any{true: native}[isKnown]}, nil
	case "close":
		err := its.Close()
		if its.user != nil {
			_ = its.user.Ping(ctx).Err() // Its server may be down.
			err = errors.Join(err, its.user.Close())
		}
		return nil, err
	default:
		return nil, errUnknown
	}
	return nil, nil
}

// In the order in which they are looked for: what is not replicated is not in time, either; and the work's own error comes first.
var kinds, errs = strings.Fields("Body NotReplicated NotInTime LockLost QueueFull NotALock WrongType CrossSlot NoModule Refused Argument Unavailable Closed Cancelled"),
	[]error{errBody, fairlock.ErrNotReplicated, fairlock.ErrNotInTime, fairlock.ErrLockLost, fairlock.ErrQueueFull, fairlock.ErrNotALock, fairlock.ErrWrongType,
		fairlock.ErrCrossSlot, fairlock.ErrNoModule, fairlock.ErrRefused, fairlock.ErrArgument, fairlock.ErrUnavailable, fairlock.ErrClosed, context.Canceled}

func failure(err error) object {
	failed := object{"type": fmt.Sprintf("%T", err), "text": err.Error()}
	if at := slices.IndexFunc(errs, func(kind error) bool { return errors.Is(err, kind) }); at >= 0 {
		failed["type"] = kinds[at]
	}
	var ours *fairlock.Error
	if errors.As(err, &ours) {
		failed["code"], failed["cause"] = orNull(ours.Code), orNull(ours.Cause)
		if below := errors.Unwrap(ours); below != nil {
			failed["because"] = below.Error()
		}
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		failed["also"] = []string{joined.Unwrap()[1].Error()}
	}
	return failed
}

func answer(r request) {
	ctx, cancel := context.WithCancel(context.Background())
	calls.Store(r.ID, cancel)
	line := object{"id": r.ID}
	defer func() {
		if failed := recover(); failed != nil {
			line["na"] = "the package's types: " + failed.(*runtime.TypeAssertionError).Error()
		}
		say(line)
	}()
	ok, err := operate(ctx, r)
	switch {
	case err == errUnknown:
		line["unknown"] = r.Op
	case err != nil:
		line["failed"] = failure(err)
	default:
		line["ok"] = ok
	}
	if r.Op == "abandon" {
		cancel()
	}
}

func main() {
	lines := json.NewDecoder(os.Stdin)
	for {
		var r request
		if lines.Decode(&r) != nil {
			return
		}
		go answer(r)
	}
}
