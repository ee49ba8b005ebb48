package fairlock_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const delay = 300 * time.Millisecond

// lateAsks is a way to the server on which asks that may be queued take their time, and arrive even if the connection
// was closed in between.
type lateAsks struct {
	net.Conn
	sent    sync.WaitGroup
	isAsked chan<- struct{}
}

func (c *lateAsks) Write(data []byte) (int, error) {
	if !bytes.Contains(data, []byte("ENQUEUE")) {
		return c.Conn.Write(data)
	}
	ask := append([]byte(nil), data...)
	c.sent.Add(1)
	time.AfterFunc(delay, func() {
		defer c.sent.Done()
		_, _ = c.Conn.Write(ask)
	})
	c.isAsked <- struct{}{}
	return len(data), nil
}

func (c *lateAsks) Close() error {
	err := c.Conn.SetReadDeadline(time.Now()) // No goroutine reads from it any more.
	go func() {
		c.sent.Wait()
		c.Conn.Close()
	}()
	return err
}

// The place in the queue must not be taken after the caller has left it, on another connection.
func TestR09AnAskThatArrivesLate(t *testing.T) {
	t.Parallel()
	_, view, name := one(t)
	view.run("FAIRLOCK.ACQUIRE", name, "another")
	isAsked := make(chan struct{}, 10)
	locks := locksOf(t, redis.NewClient(&redis.Options{
		Addr: view.Options().Addr,
		Dialer: func(_ context.Context, network, address string) (net.Conn, error) {
			made, err := net.Dial(network, address)
			return &lateAsks{Conn: made, isAsked: isAsked}, err
		},
	}))
	held, err := locks.TryAcquire(ctx, name+":other")
	expect(t, err == nil, "%v", err)
	release(t, held)
	cancelled, cancel := context.WithCancel(ctx)
	waiting := beginWith(cancelled, locks, name)
	<-isAsked
	cancel()
	expect(t, waiting.error(t) == context.Canceled, "the context's: %v", waiting.err)
	time.Sleep(2 * delay)
	expect(t, len(view.queue(name)) == 0, "no queue")
}
