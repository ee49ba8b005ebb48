package fairlock

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const keepAlivePeriod = 15 * time.Second

// request is a command's words, and answer its reply: nil for a null.
type request []any

type answer struct {
	value any
	err   error
}

// allFailed is the answer to each of some commands that did not get one.
func allFailed(count int, err error) []answer {
	replies := make([]answer, count)
	for each := range replies {
		replies[each].err = err
	}
	return replies
}

// replyError is a refusal, as go-redis has them.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError makes it a redis.Error.
func (e replyError) RedisError() {}

// line is a connection of this package: a client of go-redis that has only this one, and never opens another.
type line struct {
	client *redis.Client
	socket *socket
	said   *bufio.Reader // by the server to one that listens: go-redis must not read that
}

// socket knows when it is closed, by either side.
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
	made.said = bufio.NewReaderSize(made.socket, 512)
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

// keepAlive notices a server that is gone while nothing is sent.
func keepAlive(connection net.Conn) {
	if secure, ok := connection.(*tls.Conn); ok {
		connection = secure.NetConn()
	}
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetKeepAlive(true)
		_ = tcp.SetKeepAlivePeriod(keepAlivePeriod)
	}
}

// exchange sends commands at once and returns their answers. It ends when ctx is done or longest is over (0: never), and
// the connection ends with it then.
func (l *line) exchange(ctx context.Context, longest time.Duration, commands ...request) []answer {
	if l.isClosed() {
		return allFailed(len(commands), errEnded)
	}
	limited, cancel := ctx, func() {}
	if longest > 0 {
		limited, cancel = context.WithTimeout(ctx, longest)
	}
	defer cancel()
	// go-redis does not end a read when its context is cancelled.
	stop := context.AfterFunc(limited, func() { l.socket.Close() })
	replies := l.pipe(limited, commands)
	if stop() {
		return replies
	}
	l.socket.Close()
	for number := range replies {
		if each := &replies[number]; ctx.Err() == nil && each.err != nil && replied(each.err) == nil {
			each.err = fmt.Errorf("no answer for %v", longest)
		}
	}
	return replies
}

func (l *line) pipe(ctx context.Context, commands []request) []answer {
	pipe := l.client.Pipeline()
	for _, words := range commands {
		pipe.Do(ctx, words...)
	}
	sent, err := pipe.Exec(ctx)
	replies, isTold := allFailed(len(commands), err), false
	for number, each := range sent {
		value, failure := each.(*redis.Cmd).Result()
		isTold = isTold || failure != nil
		if errors.Is(failure, redis.Nil) {
			value, failure = nil, nil
		}
		replies[number] = answer{value, failure}
	}
	if err != nil && !isTold { // The connection was refused before any of them.
		return allFailed(len(commands), err)
	}
	return replies
}

// watch returns nil when longest is over, and an error as soon as the connection ends.
func (l *line) watch(longest time.Duration) error {
	if err := l.socket.SetReadDeadline(time.Now().Add(longest)); err != nil {
		return err
	}
	_, err := l.socket.Read(make([]byte, 1))
	switch {
	case err == nil:
		return errors.New("an answer to nothing")
	case isTimeout(err):
		return nil
	}
	return err
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// close also ends requests of other goroutines on it.
func (l *line) close() {
	l.socket.Close()
	l.client.Close()
}

func (l *line) isClosed() bool { return l.socket.isClosed.Load() }
