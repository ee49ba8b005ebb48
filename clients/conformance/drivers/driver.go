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
	"io"
	"math"
	"net"
	"os"
	"runtime"
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
	Lease                        *float64
	Wait                         float64
	Client                       struct {
		Kind, Source, User, Password string
		At                           []string
		Timeout                      float64
		TLS                          *struct{ CA, Cert, Key string }
		Map                          map[string]string
	}
}

// A Locks with its user's client; a lock that is held, in a block that ends with an error or with nil.
type made struct {
	*fairlock.Locks
	user  redis.UniversalClient
	lease any
}
type hold struct {
	*fairlock.Held
	lease float64
	end   chan error
}

var (
	errBody, errUnknown = errors.New("the body's own"), errors.New("an unknown operation")
	writing             sync.Mutex
	locks, holds, calls sync.Map // by the id of their request
)

func find[T any](in *sync.Map, id int) T {
	found, _ := in.Load(id)
	return found.(T)
}

// orNull is what JSON has for none.
func orNull[T comparable](value T) any {
	var none T
	if value == none {
		return nil
	}
	return value
}

func say(line object) {
	text, _ := json.Marshal(line)
	writing.Lock()
	defer writing.Unlock()
	fmt.Println(string(text))
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

var known = map[string]func(any) fairlock.Option{
	"wait":            func(v any) fairlock.Option { return fairlock.Wait(seconds(v)) },
	"lease":           func(v any) fairlock.Option { return fairlock.Lease(seconds(v)) },
	"patience":        func(v any) fairlock.Option { return fairlock.Patience(seconds(v)) },
	"sync_timeout":    func(v any) fairlock.Option { return fairlock.SyncTimeout(seconds(v)) },
	"retry_timeout":   func(v any) fairlock.Option { return fairlock.RetryTimeout(seconds(v)) },
	"command_timeout": func(v any) fairlock.Option { return fairlock.CommandTimeout(seconds(v)) },
	"release_timeout": func(v any) fairlock.Option { return fairlock.ReleaseTimeout(seconds(v)) },
	"limit":           func(v any) fairlock.Option { return fairlock.Limit(whole(v)) },
	"min_replicas":    func(v any) fairlock.Option { return fairlock.MinReplicas(whole(v)) },
	"owner":           func(v any) fairlock.Option { return fairlock.Owner(v.(string)) },
	"renew":           func(v any) fairlock.Option { return flag(!v.(bool), fairlock.NoRenewal()) },
	"session":         func(v any) fairlock.Option { return flag(v.(bool), fairlock.Session()) },
	"reentrant":       func(v any) fairlock.Option { return flag(v.(bool), fairlock.Reentrant()) },
	"shared":          func(v any) fairlock.Option { return flag(v.(bool), fairlock.Shared()) },
	"module":          func(v any) fairlock.Option { return flag(v.(string) == "required", fairlock.RequireModule()) },
}

func flag(isSet bool, option fairlock.Option) fairlock.Option {
	if isSet {
		return option
	}
	return nil
}

func optionsOf[T fairlock.Option](given object) (options []T) {
	for name, value := range given {
		option, ok := known[name]
		if !ok {
			_ = any(name).(fairlock.Option) // It does not compile.
		}
		if value == nil && (name == "wait" || name == "owner" || name == "limit" || name == "min_replicas") {
			continue // That is the default.
		}
		if made := option(value); made != nil {
			options = append(options, made.(T))
		}
	}
	return options
}

func makeLocks(r request) made {
	options, given := optionsOf[fairlock.Option](r.Options), r.Client
	if r.Hooks != "" {
		options = append(options, hooks(r))
	}
	all := redis.UniversalOptions{Addrs: given.At, Username: given.User, Password: given.Password,
		ReadTimeout: seconds(given.Timeout), MasterName: "locks"}
	if given.Source != "" {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(given.Source)}}
		all.Dialer = dialer.DialContext
	}
	if files := given.TLS; files != nil {
		pem, _ := os.ReadFile(files.CA)
		pair, _ := tls.LoadX509KeyPair(files.Cert, files.Key)
		all.TLSConfig = &tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{pair}}
		all.TLSConfig.RootCAs.AppendCertsFromPEM(pem)
	}
	var user redis.UniversalClient
	switch given.Kind {
	case "one":
		user = redis.NewClient(all.Simple())
	case "sentinel":
		return made{fairlock.NewFailover(all.Failover(), options...), redis.NewFailoverClient(all.Failover()), r.Options["lease"]}
	case "cluster":
		cluster := all.Cluster()
		if given.Map != nil {
			cluster.NewClient = func(o *redis.Options) *redis.Client {
				if to, ok := given.Map[o.Addr]; ok {
					o.Addr = to
				}
				return redis.NewClient(o)
			}
		}
		user = redis.NewClusterClient(cluster)
	case "text":
		return any("").(made) // It does not compile.
	}
	return made{fairlock.New(user, options...), user, r.Options["lease"]}
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

func (r request) acquired(held *fairlock.Held) hold {
	lease := 30.0
	for _, given := range []any{find[made](&locks, r.Locks).lease, r.Options["lease"]} {
		if length, ok := given.(float64); ok {
			lease = length
		}
	}
	h := hold{held, lease, make(chan error, 1)}
	holds.Store(r.ID, h)
	return h
}

// block acquires once more inside, if it shall, and stays until it is told to leave.
func (r request) block(ctx context.Context, held *fairlock.Held) error {
	h, event := r.acquired(held), object{"event": "inside", "id": r.ID, "token": held.Token(), "owner": held.Owner()}
	if r.Inner != nil {
		again := func(_ context.Context, inner *fairlock.Held) error {
			event["inner"] = inner.Token()
			return nil
		}
		if err := find[made](&locks, r.Locks).Run(ctx, r.Name.(string), again, optionsOf[fairlock.LockOption](r.Inner)...); err != nil {
			return err
		}
	}
	say(event)
	return <-h.end
}

func operate(ctx context.Context, r request) (object, error) {
	switch r.Op {
	case "new":
		made := makeLocks(r)
		locks.Store(r.ID, made)
		// New returns no error: the first acquisition has it. Without a name nothing is sent.
		var wrong *fairlock.ArgumentError
		if _, err := made.Acquire(ctx, ""); errors.As(err, &wrong) && wrong.Option != "name" {
			return nil, err
		}
	case "acquire", "abandon":
		acquire := find[made](&locks, r.Locks).Acquire
		if r.Try {
			acquire = find[made](&locks, r.Locks).TryAcquire
		}
		held, err := acquire(ctx, r.Name.(string), optionsOf[fairlock.LockOption](r.Options)...)
		if r.Try && errors.Is(err, fairlock.ErrNotInTime) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		r.acquired(held)
		return object{"token": held.Token(), "owner": held.Owner()}, nil
	case "block":
		return nil, find[made](&locks, r.Locks).Run(ctx, r.Name.(string), r.block, optionsOf[fairlock.LockOption](r.Options)...)
	case "leave":
		var err error
		if r.Fail {
			err = errBody
		}
		find[hold](&holds, r.Block).end <- err
	case "renew":
		h := find[hold](&holds, r.Held)
		if r.Lease == nil {
			return object{"lease": h.lease}, h.Renew(ctx, 0)
		}
		h.lease = *r.Lease
		holds.Store(r.Held, h)
		return object{"lease": h.lease}, h.Renew(ctx, seconds(h.lease))
	case "release":
		return nil, find[hold](&holds, r.Held).Release()
	case "lost":
		h := find[hold](&holds, r.Held)
		select {
		case <-h.Context().Done():
		case <-time.After(seconds(r.Wait)):
		}
		var loss *fairlock.Error
		if errors.As(h.Lost(), &loss) {
			return object{"cause": loss.Cause}, nil
		}
		return object{"cause": nil}, nil
	case "cancel":
		find[context.CancelFunc](&calls, r.Call)()
	case "info":
		info, err := find[made](&locks, r.Locks).Info(ctx, r.Name.(string))
		return object{"owner": orNull(info.Owner), "holds": info.Holds, "lease": orNull(max(info.Lease.Seconds(), 0)), "token": orNull(info.Token),
			"session": info.Session, "waiting": info.Waiting, "holders": info.Holders, "limit": orNull(info.Limit)}, err
	case "native":
		if native, isKnown := find[made](&locks, r.Locks).Native(); isKnown {
			return object{"native": native}, nil
		}
		return object{"native": nil}, nil
	case "close":
		m := find[made](&locks, r.Locks)
		err := m.Close()
		if m.user != nil {
			_ = m.user.Ping(ctx).Err() // Its server may be down.
			err = errors.Join(err, m.user.Close())
		}
		return nil, err
	default:
		return nil, errUnknown
	}
	return nil, nil
}

// By name, in the order in which they are looked for: what is not replicated is not in time, either; and the work's own error comes first.
var kinds = []struct {
	name string
	err  error
}{
	{"Body", errBody}, {"NotReplicated", fairlock.ErrNotReplicated}, {"NotInTime", fairlock.ErrNotInTime}, {"LockLost", fairlock.ErrLockLost},
	{"TakenOver", fairlock.ErrTakenOver}, {"QueueFull", fairlock.ErrQueueFull}, {"NotALock", fairlock.ErrNotALock},
	{"WrongType", fairlock.ErrWrongType}, {"CrossSlot", fairlock.ErrCrossSlot}, {"NoModule", fairlock.ErrNoModule},
	{"Refused", fairlock.ErrRefused}, {"Unavailable", fairlock.ErrUnavailable}, {"Closed", fairlock.ErrClosed}, {"Cancelled", context.Canceled},
}

func failure(err error) object {
	failed := object{"type": fmt.Sprintf("%T", err), "code": nil, "text": err.Error(), "cause": nil, "because": nil, "also": []string{}}
	var argument *fairlock.ArgumentError
	if errors.As(err, &argument) {
		failed["type"] = "Argument"
	}
	for _, kind := range kinds {
		if errors.Is(err, kind.err) {
			failed["type"] = kind.name
			break
		}
	}
	var ours *fairlock.Error
	if errors.As(err, &ours) {
		failed["code"], failed["cause"] = orNull(ours.Code), orNull(ours.Cause)
		if below := errors.Unwrap(ours); below != nil {
			failed["because"] = below.Error()
		}
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, each := range joined.Unwrap()[1:] {
			failed["also"] = append(failed["also"].([]string), each.Error())
		}
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
	case ok == nil:
		line["ok"] = object{}
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
		if err := lines.Decode(&r); err == io.EOF {
			return
		} else if err != nil {
			panic(err)
		}
		go answer(r)
	}
}
