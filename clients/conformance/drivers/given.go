package main

// What the lines give: a client of the library, and options of the package.

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"reflect"

	fairlock "fairlock.example/clients/go"
	"github.com/redis/go-redis/v9"
)

// The options of go-redis, and what becomes options of its.
type client struct {
	redis.UniversalOptions
	Kind string
	TLS  *struct{ Cert, Key string }
	Map  map[string]string
}

func (c *client) connect() redis.UniversalClient {
	c.IsClusterMode = c.Kind == "cluster"
	c.MasterName = map[string]string{"sentinel": "locks"}[c.Kind]
	if c.Map != nil {
		c.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, c.Map[address])
		}
	}
	if c.TLS != nil { // The server's certificate is the library's concern.
		pair, _ := tls.LoadX509KeyPair(c.TLS.Cert, c.TLS.Key)
		c.TLSConfig = &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}
	}
	return redis.NewUniversalClient(&c.UniversalOptions)
}

var makers = map[string]any{
	"wait": fairlock.Wait, "lease": fairlock.Lease, "renew": fairlock.NoRenewal, "session": fairlock.Session, "owner": fairlock.Owner,
	"reentrant": fairlock.Reentrant, "shared": fairlock.Shared, "limit": fairlock.Limit, "min_replicas": fairlock.MinReplicas,
	"sync_timeout": fairlock.SyncTimeout, "patience": fairlock.Patience, "module": fairlock.RequireModule,
	"retry_timeout": fairlock.RetryTimeout, "command_timeout": fairlock.CommandTimeout, "release_timeout": fairlock.ReleaseTimeout,
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
