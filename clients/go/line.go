package fairlock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"fairlock.example/clients/go/internal/wire"
)

const keepAlivePeriod = 15 * time.Second

// line is a connection of ours: a client of go-redis that has just this one, and never makes another.
type line struct {
	client *redis.Client
	socket *socket
}

// socket knows when it is closed, by whomever.
type socket struct {
	net.Conn
	isClosed atomic.Bool
}

func (s *socket) Close() error {
	s.isClosed.Store(true)
	return s.Conn.Close()
}

var errEnded = errors.New("the connection has ended")

// dial opens a connection; it returns when ctx is done, even if the dialer does not.
func dial(ctx context.Context, options redis.Options, address string, longest time.Duration) (*line, error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	type dialled struct {
		connection net.Conn
		err        error
	}
	result := make(chan dialled, 1)
	go func() {
		connection, err := options.Dialer(ctx, options.Network, address)
		result <- dialled{connection, err}
	}()
	select {
	case made := <-result:
		if made.err != nil {
			return nil, made.err
		}
		return newLine(made.connection, options, longest), nil
	case <-ctx.Done():
		go func() {
			if late := <-result; late.err == nil {
				late.connection.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

func newLine(connection net.Conn, options redis.Options, longest time.Duration) *line {
	keepAlive(connection)
	made := &line{socket: &socket{Conn: connection}}
	var isTaken atomic.Bool
	options.Dialer = func(context.Context, string, string) (net.Conn, error) {
		if isTaken.Swap(true) || made.socket.isClosed.Load() {
			return nil, errEnded
		}
		return made.socket, nil
	}
	options.Protocol, options.MaxRetries, options.Limiter = 2, -1, nil
	options.PoolSize, options.MinIdleConns, options.MaxIdleConns, options.MaxActiveConns = 1, 0, 0, 0
	options.ConnMaxIdleTime, options.ConnMaxLifetime = -1, 0
	options.ReadBufferSize, options.WriteBufferSize = 4096, 4096
	// Contexts say how long a command may take.
	options.ContextTimeoutEnabled, options.ReadTimeout, options.WriteTimeout = true, -1, longest
	made.client = redis.NewClient(&options)
	return made
}

// keepAlive is how a server that is gone is noticed while nothing is sent.
func keepAlive(connection net.Conn) {
	if secure, ok := connection.(*tls.Conn); ok {
		connection = secure.NetConn()
	}
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetKeepAlive(true)
		_ = tcp.SetKeepAlivePeriod(keepAlivePeriod)
	}
}

func (l *line) Call(ctx context.Context, longest time.Duration, commands ...wire.Command) []wire.Reply {
	if l.IsClosed() {
		return wire.Failed(len(commands), errEnded)
	}
	limited, cancel := ctx, func() {}
	if longest > 0 {
		limited, cancel = context.WithTimeout(ctx, longest)
	}
	defer cancel()
	// go-redis does not end a read when its context is cancelled.
	stop := context.AfterFunc(limited, func() { l.socket.Close() })
	replies := l.exchange(limited, commands)
	if stop() {
		return replies
	}
	l.socket.Close()
	for number := range replies {
		if each := &replies[number]; ctx.Err() == nil && each.Err != nil && replied(each.Err) == nil {
			each.Err = fmt.Errorf("no answer for %v", longest)
		}
	}
	return replies
}

func (l *line) exchange(ctx context.Context, commands []wire.Command) []wire.Reply {
	pipe := l.client.Pipeline()
	for _, words := range commands {
		pipe.Do(ctx, words...)
	}
	sent, err := pipe.Exec(ctx)
	replies, isTold := wire.Failed(len(commands), err), false
	for number, each := range sent {
		value, failure := each.(*redis.Cmd).Result()
		isTold = isTold || failure != nil
		if errors.Is(failure, redis.Nil) {
			value, failure = nil, nil
		}
		replies[number] = wire.Reply{Value: value, Err: failure}
	}
	if err != nil && !isTold { // The connection was refused before any of them.
		return wire.Failed(len(commands), err)
	}
	return replies
}

func (l *line) Watch(longest time.Duration) error {
	if err := l.socket.SetReadDeadline(time.Now().Add(longest)); err != nil {
		return err
	}
	_, err := l.socket.Read(make([]byte, 1))
	var timeout net.Error
	switch {
	case err == nil:
		return errors.New("an answer to nothing")
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil
	}
	return err
}

func (l *line) Close() {
	l.socket.Close()
	l.client.Close()
}

func (l *line) IsClosed() bool { return l.socket.isClosed.Load() }
