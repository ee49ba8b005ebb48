package fairlock_test

// Rows 20 to 23.

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	fairlock "fairlock.example/clients/go"
)

func TestR20TheServerRenewsASession(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	held := acquire(t, locks, name, fairlock.Session(), fairlock.Lease(3*time.Second))
	expect(t, view.info(name)["session"] == int64(1), "a session")
	time.Sleep(7 * time.Second)
	expect(t, view.info(name)["token"] == held.Token() && held.Lost() == nil, "held: %v", held.Lost())
	release(t, held)
	expect(t, view.isFree(name), "free")
}

func TestR21ASessionEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	s := start(t, "one")
	locks, view, name := locksAt(t, s, "a"), look(t, s, "a"), newName(t)
	held := acquire(t, locks, name, fairlock.Session(), fairlock.Lease(time.Minute), fairlock.SyncTimeout(0))
	var session string
	for _, each := range view.clients() {
		if strings.HasPrefix(field(each, "cmd"), "fairlock.acquire") {
			session = field(each, "id")
		}
	}
	waiting := begin(locks, name)
	view.waits(name, 1)
	start := time.Now()
	view.run("CLIENT", "KILL", "ID", session)
	wantLost(t, held, fairlock.CauseConnection)
	second := waiting.get(t)
	expect(t, time.Since(start) < atOnce, "at once")
	release(t, second)
	want(t, held.Release(), fairlock.ErrLockLost)
}

func TestR22ASessionThatIsBrokenIsLost(t *testing.T) {
	t.Parallel()
	locks, view, name := one(t)
	held := acquire(t, locks, name, fairlock.Session(), fairlock.Lease(3*time.Second))
	view.run("FAIRLOCK.BREAK", name)
	start := time.Now()
	wantLost(t, held, fairlock.CauseNotHeld)
	expect(t, time.Since(start) < 3*time.Second, "before the lease would be over")
}

func TestR23ASessionWaitsAndIsReleasedAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t, "one")
	locks, view, name := locksAt(t, s, "a"), look(t, s, "a"), newName(t)
	options := []fairlock.LockOption{fairlock.Session(), fairlock.Lease(time.Minute)}
	first := acquire(t, locks, name)
	cancelled, cancel := context.WithCancel(ctx)
	waiting := beginWith(cancelled, locks, name, options...)
	view.waits(name, 1)
	cancel()
	expect(t, waiting.error(t) == context.Canceled, "the context's: %v", waiting.err)
	expect(t, len(view.queue(name)) == 0, "no queue")
	waiting = begin(locks, name, options...)
	view.waits(name, 1)
	release(t, first)
	held := waiting.get(t)
	expect(t, view.info(name)["session"] == int64(1), "a session")
	before := len(view.clients())
	release(t, held)
	expect(t, view.isFree(name), "free")
	until(t, "its connection is closed", func() bool { return len(view.clients()) == before-1 })
}

// A check that is not answered: the server, or the way to it, is gone.
func TestASessionWhoseServerIsSilent(t *testing.T) {
	t.Parallel()
	s, locks, _, name := own(t)
	held := acquire(t, locks, name, fairlock.Session(), fairlock.Lease(3*time.Second))
	s.tell(t, "freeze")
	start := time.Now()
	wantLost(t, held, fairlock.CauseLease)
	expect(t, time.Since(start) < 3*time.Second+atOnce, "no later than the lease")
	s.tell(t, "thaw")
}

// A read that has timed out must leave a connection with TLS as it was.
func TestASessionIsWatchedOverTLS(t *testing.T) {
	t.Parallel()
	_, view, name := one(t)
	locks := locksOf(t, redis.NewClient(&redis.Options{
		Addr: throughTLS(t, commonOne.get(t).address("a")), TLSConfig: &tls.Config{InsecureSkipVerify: true},
	}))
	held := acquire(t, locks, name, fairlock.Session(), fairlock.Lease(3*time.Second))
	time.Sleep(5 * time.Second)
	expect(t, view.info(name)["token"] == held.Token() && held.Lost() == nil, "held: %v", held.Lost())
	view.run("FAIRLOCK.BREAK", name)
	wantLost(t, held, fairlock.CauseNotHeld)
}

// throughTLS is the address of a proxy that takes TLS off.
func throughTLS(t *testing.T, server string) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect(t, err == nil, "%v", err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	expect(t, err == nil, "%v", err)
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}}}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	expect(t, err == nil, "%v", err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			pass := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				to.Close()
				from.Close()
			}
			go pass(client, upstream)
			go pass(upstream, client)
		}
	}()
	return listener.Addr().String()
}
