package main

import (
	"testing"
	"time"
)

// A short notation for histories of one lock; times are milliseconds, and every call takes one.

const ms = 1000

const longEnough = time.Minute

func call(client int, at int64, name, answer string) *line {
	return &line{Call: name, Client: &client, From: at * ms, To: (at + 1) * ms, Answer: answer}
}

// ACQUIRE without SHARED, for four seconds.
func ask(client int, at int64, answer string) *line {
	line := call(client, at, "acquire", answer)
	line.Way, line.Lease, line.Limit = "trying", 4000*ms, 1
	return line
}

func grant(client int, at, token int64) *line {
	line := ask(client, at, "granted")
	line.Got = token
	return line
}

// A blocking ACQUIRE that is answered later.
func wait(client int, from, to, token int64) *line {
	line := grant(client, from, token)
	line.Way, line.To = "blocked", to*ms
	return line
}

func shared(line *line, limit int) *line {
	line.Limit = limit
	return line
}

func lease(line *line, length int64) *line {
	line.Lease = length * ms
	return line
}

func session(line *line) *line {
	line.Session = true
	return line
}

func once(line *line) *line {
	line.Once = true
	return line
}

func way(line *line, way string) *line {
	line.Way = way
	return line
}

// An acquisition of the first client by Redisson's script.
func script(at int64) *line { return way(ask(1, at, "granted"), "script") }

// RELEASE that leaves so many holds.
func release(client int, at, left int64) *line {
	line := call(client, at, "release", "left")
	line.Holds = left
	return line
}

func byToken(line *line, token int64) *line {
	line.Token = token
	return line
}

func notHeld(client int, at int64) *line { return call(client, at, "release", "not held") }

func renew(client int, at int64, answer string) *line {
	return lease(call(client, at, "renew", answer), 4000)
}

func fault(name string, from, to int64) *line {
	return &line{Fault: name, From: from * ms, To: to * ms}
}

func hits(client int, line *line) *line {
	line.Client = &client
	return line
}

func setClock(seconds, at int64) *line {
	line := fault("clock step", at, at+1)
	line.Seconds = seconds
	return line
}

func deletes(key string, at int64) *line {
	line := fault("delete", at, at+1)
	line.Key = key
	return line
}

// Everything since then may be lost.
func losing(line *line, since int64) *line {
	since *= ms
	line.LostSince = &since
	return line
}

func sight(at int64, holders ...int) *line {
	return &line{Sight: "keys", From: at * ms, To: at*ms + 1, Holders: holders}
}

// Each rule of the model: histories that break it and in nothing else differ from those that it takes.
var rules = []struct {
	rule         string
	wrong, right []*line
}{
	{
		"one exclusive holder",
		[]*line{grant(1, 10, 5), grant(2, 20, 6), release(1, 30, 0)},
		[]*line{grant(1, 10, 5), release(1, 30, 0), wait(2, 20, 40, 6)},
	}, {
		"one exclusive holder: a client is told before the last one begins to release",
		[]*line{grant(1, 10, 5), wait(2, 12, 19, 6), release(1, 20, 0)},
		[]*line{grant(1, 10, 5), wait(2, 12, 20, 6), release(1, 20, 0)},
	}, {
		"one exclusive holder, until its lease may have ended",
		[]*line{grant(1, 10, 5), grant(2, 3600, 6)},
		[]*line{grant(1, 10, 5), grant(2, 3900, 6)},
	}, {
		"a renewed lease runs from then on",
		[]*line{grant(1, 10, 5), renew(1, 2000, "done"), grant(2, 3900, 6)},
		[]*line{grant(1, 10, 5), renew(1, 2000, "done"), grant(2, 5900, 6)},
	}, {
		"a lease ends early by as much as the clock was set ahead",
		[]*line{grant(1, 10, 5), setClock(-3, 100), grant(2, 1000, 6)},
		[]*line{grant(1, 10, 5), setClock(3, 100), grant(2, 1000, 6)},
	}, {
		"a lease ends early by as much as the server stood still",
		[]*line{grant(1, 10, 5), fault("pause", 200, 300), grant(2, 3500, 6)},
		[]*line{grant(1, 10, 5), fault("pause", 200, 800), grant(2, 3500, 6)},
	}, {
		"a lease that has ended is over",
		[]*line{lease(grant(1, 10, 5), 400), release(1, 800, 0)},
		[]*line{lease(grant(1, 10, 5), 400), release(1, 600, 0)},
	}, {
		"a lease that has ended is not renewed",
		[]*line{lease(grant(1, 10, 5), 400), renew(1, 800, "done")},
		[]*line{lease(grant(1, 10, 5), 400), renew(1, 800, "not held")},
	}, {
		"a lease that has ended is over, unless the clock was set back",
		[]*line{lease(grant(1, 10, 5), 400), setClock(3, 100), release(1, 800, 0)},
		[]*line{lease(grant(1, 10, 5), 400), setClock(-3, 100), release(1, 800, 0)},
	}, {
		"a session is held beyond its lease",
		[]*line{session(grant(1, 10, 5)), grant(2, 9000, 6)},
		[]*line{session(grant(1, 10, 5)), hits(1, fault("client kill", 100, 101)), grant(2, 9000, 6)},
	}, {
		"a session is released after its lease",
		[]*line{lease(grant(1, 10, 5), 400), release(1, 1000, 0)},
		[]*line{session(lease(grant(1, 10, 5), 400)), release(1, 1000, 0)},
	}, {
		"a session ends with its own connection",
		[]*line{session(grant(1, 10, 5)), hits(2, fault("half open", 100, 300)), grant(2, 200, 6)},
		[]*line{session(grant(1, 10, 5)), hits(1, fault("half open", 100, 300)), grant(2, 200, 6)},
	}, {
		"a session ends with its connection; other holds do not",
		[]*line{grant(1, 10, 5), call(1, 20, "close", "done"), grant(2, 200, 6)},
		[]*line{session(grant(1, 10, 5)), call(1, 20, "close", "done"), grant(2, 200, 6)},
	}, {
		"a hold that a lost request with SESSION ONCE made a session ends with the connection; with SESSION only one more does",
		[]*line{grant(1, 10, 5), session(ask(1, 20, "lost")), grant(2, 200, 6)},
		[]*line{grant(1, 10, 5), session(once(ask(1, 20, "lost"))), grant(2, 200, 6)},
	}, {
		"what a lost request with SESSION brought ends with the connection, though its lease is renewed",
		[]*line{ask(1, 10, "lost"), renew(1, 20, "done"), grant(2, 200, 6)},
		[]*line{session(ask(1, 10, "lost")), renew(1, 20, "done"), grant(2, 200, 6)},
	}, {
		"the client that asks again by SESSION takes over the hold of a lost connection",
		[]*line{session(ask(1, 10, "lost")), session(once(grant(1, 20, 5))), grant(2, 200, 6)},
		[]*line{session(ask(1, 10, "lost")), once(grant(1, 20, 5)), grant(2, 200, 6)},
	}, {
		"no more holders than each tolerates",
		[]*line{shared(grant(1, 10, 5), 2), shared(grant(2, 20, 6), 0), shared(grant(3, 30, 7), 0)},
		[]*line{shared(grant(1, 10, 5), 3), shared(grant(2, 20, 6), 0), shared(grant(3, 30, 7), 0)},
	}, {
		"no shared holder beside an exclusive one",
		[]*line{grant(1, 10, 5), shared(grant(2, 20, 6), 0)},
		[]*line{grant(1, 10, 5), release(1, 15, 0), shared(grant(2, 20, 6), 0)},
	}, {
		"no exclusive holder beside a shared one",
		[]*line{shared(grant(1, 10, 5), 0), shared(grant(2, 20, 6), 0), release(1, 25, 0), grant(3, 30, 7)},
		[]*line{shared(grant(1, 10, 5), 0), shared(grant(2, 20, 6), 0), release(1, 25, 0), release(2, 26, 0), grant(3, 30, 7)},
	}, {
		"tokens grow",
		[]*line{grant(1, 10, 5), release(1, 20, 0), grant(2, 30, 4)},
		[]*line{grant(1, 10, 5), release(1, 20, 0), grant(2, 30, 6)},
	}, {
		"a token is not given twice",
		[]*line{grant(1, 10, 5), release(1, 20, 0), grant(2, 30, 5)},
		[]*line{grant(1, 10, 5), release(1, 20, 0), grant(2, 30, 6)},
	}, {
		"a token is not given twice, not even to the same client",
		[]*line{grant(1, 10, 5), release(1, 20, 0), grant(1, 30, 5)},
		[]*line{grant(1, 10, 5), once(grant(1, 30, 5)), release(1, 40, 0)},
	}, {
		"tokens grow, also that of a hold that a request without an answer brought",
		[]*line{grant(2, 10, 7), release(2, 15, 0), ask(1, 20, "lost"), renew(1, 30, "done"), grant(1, 40, 6)},
		[]*line{grant(2, 10, 7), release(2, 15, 0), ask(1, 20, "lost"), renew(1, 30, "done"), grant(1, 40, 8)},
	}, {
		"tokens of shared holders grow",
		[]*line{shared(grant(1, 10, 5), 0), shared(grant(2, 20, 4), 0)},
		[]*line{shared(grant(1, 10, 5), 0), shared(grant(2, 20, 6), 0)},
	}, {
		"the holder that asks again has the same token",
		[]*line{grant(1, 10, 5), grant(1, 20, 6)},
		[]*line{grant(1, 10, 5), grant(1, 20, 5)},
	}, {
		"the holder that asks again gets it",
		[]*line{grant(1, 10, 5), ask(1, 20, "not now"), release(1, 30, 0)},
		[]*line{grant(1, 10, 5), release(1, 15, 0), ask(1, 20, "not now")},
	}, {
		"each hold is counted",
		[]*line{grant(1, 10, 5), grant(1, 20, 5), release(1, 30, 0)},
		[]*line{grant(1, 10, 5), grant(1, 20, 5), release(1, 30, 1), release(1, 40, 0)},
	}, {
		"ONCE adds no hold",
		[]*line{grant(1, 10, 5), once(grant(1, 20, 5)), release(1, 30, 1)},
		[]*line{grant(1, 10, 5), once(grant(1, 20, 5)), release(1, 30, 0)},
	}, {
		"the holder is not told that it is none",
		[]*line{grant(1, 10, 5), notHeld(1, 20)},
		[]*line{grant(1, 10, 5), release(1, 20, 0), notHeld(1, 30)},
	}, {
		"only the holder releases",
		[]*line{grant(1, 10, 5), release(2, 20, 0)},
		[]*line{grant(1, 10, 5), notHeld(2, 20)},
	}, {
		"a lock is released only once",
		[]*line{grant(1, 10, 5), release(1, 20, 0), release(1, 30, 0)},
		[]*line{grant(1, 10, 5), release(1, 20, 0), notHeld(1, 30)},
	}, {
		"RELEASE by another token releases nothing",
		[]*line{grant(1, 10, 5), byToken(release(1, 20, 0), 4)},
		[]*line{grant(1, 10, 5), byToken(notHeld(1, 20), 4), byToken(release(1, 30, 0), 5)},
	}, {
		"only the holder renews",
		[]*line{grant(1, 10, 5), renew(2, 20, "done")},
		[]*line{grant(1, 10, 5), renew(2, 20, "not held"), renew(1, 30, "done")},
	}, {
		"Redisson's script releases a lock that is free, and no other's",
		[]*line{grant(2, 10, 5), way(ask(1, 15, "not now"), "script"), release(1, 20, 0)},
		[]*line{grant(2, 10, 5), way(ask(1, 15, "not now"), "script"), release(2, 17, 0), release(1, 20, 0)},
	}, {
		"Redisson's script releases one hold, and the lock if its lease may have ended",
		[]*line{script(10), script(20), release(1, 30, 0)},
		[]*line{script(10), lease(script(20), 400), release(1, 300, 0)},
	}, {
		"Redisson's script has no token, and holds alone",
		[]*line{way(ask(1, 10, "granted"), "script"), way(ask(3, 20, "granted"), "script")},
		[]*line{way(ask(1, 10, "granted"), "script"), release(1, 15, 0), way(ask(3, 20, "granted"), "script")},
	}, {
		"a transaction has the lock for an instant",
		[]*line{grant(1, 10, 5), way(grant(2, 20, 6), "transaction")},
		[]*line{way(grant(2, 20, 6), "transaction"), grant(1, 30, 7)},
	}, {
		"FLUSHALL frees the lock",
		[]*line{grant(1, 10, 5), fault("flushall", 20, 21), release(1, 30, 0)},
		[]*line{grant(1, 10, 5), fault("flushall", 20, 21), notHeld(1, 30)},
	}, {
		"BREAK frees the lock",
		[]*line{grant(1, 10, 5), fault("break", 20, 21), release(1, 30, 0)},
		[]*line{grant(1, 10, 5), fault("break", 20, 21), grant(2, 25, 6), notHeld(1, 30)},
	}, {
		"BREAK of one holder leaves the others",
		[]*line{shared(grant(1, 10, 5), 0), shared(grant(2, 12, 6), 0), hits(1, fault("break", 20, 21)), notHeld(2, 30)},
		[]*line{shared(grant(1, 10, 5), 0), shared(grant(2, 12, 6), 0), hits(1, fault("break", 20, 21)), notHeld(1, 30), release(2, 30, 0)},
	}, {
		"DEL frees the lock, and of its other keys does not",
		[]*line{grant(1, 10, 5), deletes("shared", 20), notHeld(1, 30)},
		[]*line{grant(1, 10, 5), deletes("lock", 20), notHeld(1, 30)},
	}, {
		"a kill that keeps the data keeps the holder",
		[]*line{grant(1, 10, 5), fault("kill", 20, 90), notHeld(1, 100)},
		[]*line{grant(1, 10, 5), fault("kill", 20, 90), release(1, 100, 0)},
	}, {
		"a kill that keeps the data keeps the greatest token",
		[]*line{grant(1, 10, 5), release(1, 15, 0), fault("kill", 20, 90), grant(2, 100, 4)},
		[]*line{grant(1, 10, 5), release(1, 15, 0), fault("kill", 20, 90), grant(2, 100, 6)},
	}, {
		"a kill that loses data may bring an old holder back, and has no room for two",
		[]*line{grant(1, 10, 5), release(1, 15, 0), losing(fault("kill", 20, 90), 0), grant(2, 100, 6), release(1, 110, 0)},
		[]*line{grant(1, 10, 5), release(1, 15, 0), losing(fault("kill", 20, 90), 0), release(1, 100, 0), grant(2, 110, 6)},
	}, {
		"a kill loses no token from before it loses anything",
		[]*line{grant(1, 10, 5), release(1, 15, 0), losing(fault("kill", 20, 90), 18), release(1, 95, 0), grant(2, 100, 4)},
		[]*line{grant(1, 10, 5), release(1, 15, 0), losing(fault("kill", 20, 90), 8), release(1, 95, 0), grant(2, 100, 4)},
	}, {
		"a kill that loses data may bring the last holder back by its token, as long as the keys name it",
		[]*line{grant(1, 10, 5), release(1, 15, 0), losing(fault("kill", 20, 90), 12), sight(95), grant(1, 100, 5)},
		[]*line{grant(1, 10, 5), release(1, 15, 0), losing(fault("kill", 20, 90), 12), sight(95, 1), grant(1, 100, 5)},
	}, {
		"a kill that loses data may bring the last holder back by its token, and no other",
		[]*line{grant(1, 10, 5), release(1, 15, 0), losing(fault("kill", 20, 90), 12), sight(95, 2), grant(2, 100, 5)},
		[]*line{grant(1, 10, 5), release(1, 15, 0), losing(fault("kill", 20, 90), 12), sight(95, 2), grant(2, 100, 6)},
	}, {
		"a kill that loses data may bring the last holder back, which renews its lease",
		[]*line{grant(1, 10, 5), release(1, 15, 0), losing(fault("kill", 20, 90), 12), renew(1, 95, "done"), grant(1, 3900, 4)},
		[]*line{grant(1, 10, 5), release(1, 15, 0), losing(fault("kill", 20, 90), 12), renew(1, 95, "done"), grant(1, 3900, 5)},
	}, {
		"a kill that loses data may bring back a hold of several",
		[]*line{grant(1, 10, 5), grant(1, 12, 5), losing(fault("kill", 20, 90), 14), release(1, 95, 1), grant(1, 100, 4)},
		[]*line{grant(1, 10, 5), grant(1, 12, 5), losing(fault("kill", 20, 90), 14), release(1, 95, 1), grant(1, 100, 5)},
	}, {
		"a holder whose lease may have ended, and that asks without an answer, may hold the lock by its token",
		[]*line{lease(grant(1, 10, 5), 400), release(1, 15, 0), ask(1, 200, "lost"), grant(1, 220, 5)},
		[]*line{lease(grant(1, 10, 5), 400), ask(1, 200, "lost"), grant(1, 220, 5)},
	}, {
		"a holder whose lease may have ended, and that asks without an answer, may hold the lock by its token after a kill",
		[]*line{lease(grant(1, 10, 5), 400), release(1, 15, 0), ask(1, 200, "lost"), fault("kill", 210, 280), grant(1, 290, 5)},
		[]*line{lease(grant(1, 10, 5), 400), ask(1, 200, "lost"), fault("kill", 210, 280), grant(1, 290, 5)},
	}, {
		"a failover keeps the holder, but for sessions",
		[]*line{grant(1, 10, 5), fault("failover", 20, 90), notHeld(1, 100)},
		[]*line{session(grant(1, 10, 5)), fault("failover", 20, 90), notHeld(1, 100)},
	}, {
		"a failover keeps the greatest token",
		[]*line{grant(1, 10, 5), release(1, 15, 0), fault("failover", 20, 90), grant(2, 100, 4)},
		[]*line{grant(1, 10, 5), release(1, 15, 0), fault("failover", 20, 90), grant(2, 100, 6)},
	}, {
		"a request without an answer may have been carried out, or may be yet",
		[]*line{ask(1, 10, "not now"), release(1, 20, 0)},
		[]*line{ask(1, 10, "lost"), release(1, 20, 0)},
	}, {
		"an error says that nothing was done",
		[]*line{grant(1, 10, 5), failed(1, 20, "READONLY no"), notHeld(1, 30)},
		[]*line{grant(1, 10, 5), call(1, 20, "release", "lost"), notHeld(1, 30)},
	}, {
		"one without an answer that does not wait is over with the client's next",
		[]*line{ask(1, 10, "lost"), notHeld(1, 20), release(1, 30, 0)},
		[]*line{way(ask(1, 10, "lost"), "blocked"), notHeld(1, 20), release(1, 30, 0)},
	}, {
		"one without an answer is over when the server is killed",
		[]*line{way(ask(1, 10, "lost"), "blocked"), fault("kill", 20, 25), notHeld(1, 30), release(1, 40, 0)},
		[]*line{fault("kill", 20, 25), way(ask(1, 28, "lost"), "blocked"), notHeld(1, 30), release(1, 40, 0)},
	}, {
		"the keys name the holder",
		[]*line{grant(1, 10, 5), sight(20), release(1, 30, 0)},
		[]*line{grant(1, 10, 5), sight(20, 1), release(1, 30, 0), sight(40)},
	}, {
		"the keys name no other",
		[]*line{grant(1, 10, 5), release(1, 15, 0), ask(2, 18, "not now"), sight(20, 2)},
		[]*line{grant(1, 10, 5), release(1, 15, 0), ask(2, 18, "lost"), sight(20, 2)},
	}, {
		"the keys never name more than one of them tolerates",
		[]*line{shared(ask(1, 10, "lost"), 2), shared(ask(2, 10, "lost"), 0), shared(ask(3, 10, "lost"), 0), sight(20, 1, 2, 3)},
		[]*line{shared(ask(1, 10, "lost"), 3), shared(ask(2, 10, "lost"), 0), shared(ask(3, 10, "lost"), 0), sight(20, 1, 2, 3)},
	},
}

// A release that is refused with an error.
func failed(client int, at int64, message string) *line {
	line := call(client, at, "release", "refused")
	line.Error = message
	return line
}

func TestEachRuleRefusesWhatBreaksItAndTakesTheRest(t *testing.T) {
	for _, rule := range rules {
		t.Run(rule.rule, func(t *testing.T) {
			expect(t, rule.wrong, refused)
			expect(t, rule.right, accepted)
		})
	}
}

func expect(t *testing.T, lines []*line, code int) {
	t.Helper()
	if verdict := judge(lines, 0, longEnough); verdict.code != code {
		t.Errorf("expected %d: %s", code, verdict)
	}
}

// Each has asked before without an answer, so that its token may be older than its answer.
func TestManyThatShareTheLockAreDecided(t *testing.T) {
	const many = 12
	var lines []*line
	share := func(client int, told, token int64) {
		lost := way(shared(ask(client, 1, "lost"), 0), "blocked")
		lines = append(lines, lost, shared(wait(client, 5, told, token), 0), release(client, told+10, 0))
	}
	for i := many; i > 0; i-- {
		share(many+i, 300, int64(many+1+i))
		share(i, 100, int64(i))
	}
	lines = append(lines, wait(0, 5, 200, many+1), release(0, 210, 0))
	if verdict := judge(lines, 0, 10*time.Second); verdict.code != accepted {
		t.Error(verdict)
	}
}
