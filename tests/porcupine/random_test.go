package main

import (
	"cmp"
	"flag"
	"maps"
	"math/rand"
	"slices"
	"testing"
)

// A server that keeps every rule, with clients, connections, kills and clocks as rude as those of chaos. Whatever comes
// of that is right, and has to be accepted. Thousands of worlds: `go test -run Right -args -worlds 5000`.

var worlds = flag.Int64("worlds", 300, "how many random histories are tried")

const (
	clients = 6
	// Milliseconds.
	duration = 3000
	// In which microsecond of a millisecond what happens, after the server has done its part.
	lookedAt, toldAt, askedAt, harmedAt = 300, 500, 600, 700
)

// What a server loses when it is killed.
const (
	nothing = iota
	sinceSnapshot
	sinceLately
	// A replica takes over, and has all.
	failsOver
)

// A request, and what comes of it. Times are milliseconds; 0: not yet.
type request struct {
	line  line
	reply line
	// It arrives, is given up by the server, is answered, its connection breaks.
	at, until, answered, broken int64
}

type client struct {
	limit   int
	session bool
	script  bool
	asked   *request
	// When it does something next, and what it was told of its hold.
	next  int64
	token int64
	// An answer was lost: it asks for the same again.
	again *request
	// Its last request has arrived by then.
	arrived int64
}

type world struct {
	*rand.Rand
	lines []*line
	now   int64
	ahead int64

	owners  map[int]held
	onWay   []*request
	waiting []*request
	last    int64

	clients [clients]client

	keeps  int
	killed int64
	kill   *line
	upAt   int64
	// What the disk has: from when on that is, and what it was at each time since the start.
	saved int64
	disk  map[int64]map[int]held
}

func randomHistory(seed int64) []*line {
	w := &world{Rand: rand.New(rand.NewSource(seed)), owners: map[int]held{}, disk: map[int64]map[int]held{}}
	w.keeps = w.Intn(4)
	for i := range w.clients {
		w.clients[i].limit = []int{1, 1, 1, 0, 2}[w.Intn(5)]
		w.clients[i].script = w.clients[i].limit == 1 && w.oneIn(4)
		w.clients[i].session = w.oneIn(4) && !w.clients[i].script
	}
	for w.now = 1; w.now < duration; w.now++ {
		w.disk[w.now-1] = maps.Clone(w.owners)
		if w.now >= w.upAt {
			w.serve()
			w.look()
		}
		w.tell()
		if w.now >= w.upAt {
			w.act()
			w.harm()
		}
	}
	for _, c := range w.clients {
		if c.asked != nil {
			never := c.asked.line
			never.Answer = "never"
			w.write(never, never.From, duration*ms)
		}
	}
	slices.SortStableFunc(w.lines, func(a, b *line) int { return cmp.Compare(a.To, b.To) })
	for i, line := range w.lines {
		line.number = i + 1
	}
	return w.lines
}

func (w *world) oneIn(n int) bool   { return w.Intn(n) == 0 }
func (w *world) soon(n int64) int64 { return w.now + w.Int63n(n) }

func (w *world) write(of line, from, to int64) {
	of.From, of.To = from, to
	w.lines = append(w.lines, &of)
}

func (w *world) look() {
	if w.oneIn(6) {
		seen := line{Sight: "keys"}
		for c := range w.clients {
			if _, isHolder := w.owners[c]; isHolder {
				seen.Holders = append(seen.Holders, c)
			}
		}
		w.write(seen, w.now*ms+lookedAt, w.now*ms+lookedAt)
	}
}

func (w *world) tell() {
	for i := range w.clients {
		c := &w.clients[i]
		r := c.asked
		if r == nil {
			continue
		}
		answer := r.line
		switch {
		case r.broken != 0 && r.broken <= w.now:
			answer.Answer = "lost"
			if w.oneIn(2) {
				w.onWay = slices.DeleteFunc(w.onWay, func(other *request) bool { return other == r })
			}
			w.cutOff(i)
			c.again = r
			if r.line.Way == "transaction" || r.line.Call == "acquire" && w.oneIn(4) {
				c.again = nil
			}
		case r.answered != 0 && r.answered <= w.now:
			answer.Answer, answer.Got, answer.Holds = r.reply.Answer, r.reply.Got, r.reply.Holds
			if c.token = answer.Got; answer.Way == "transaction" {
				c.token = 0
			} else if answer.Way == "script" && answer.Answer == "granted" {
				c.token = 1
			}
		default:
			continue
		}
		w.write(answer, r.line.From, w.now*ms+toldAt)
		c.asked, c.next = nil, w.soon([]int64{3, 10, 500}[w.Intn(3)])
	}
}

// The server hears soon that a connection is gone.
func (w *world) cutOff(c int) {
	if o, isHolder := w.owners[c]; isHolder && o.bound > 0 {
		o.cut = 1 + w.soon(6)
		w.owners[c] = o
	}
}

func (w *world) act() {
	for i := range w.clients {
		i, c := i, &w.clients[i]
		if c.asked != nil || c.next > w.now {
			continue
		}
		if w.oneIn(30) {
			w.write(line{Call: "close", Client: &i, Answer: "done"}, w.now*ms+askedAt, w.now*ms+askedAt)
			w.cutOff(i)
			c.next, c.token, c.again = w.now+1, 0, nil
			continue
		}
		r := &request{line: w.request(i), at: 1 + max(w.soon(3), c.arrived), until: w.now + duration}
		r.line.From = w.now*ms + askedAt
		if r.line.Way == "blocked" && w.oneIn(4) {
			r.until = w.soon(100)
		}
		if w.oneIn(8) {
			r.broken = 1 + w.soon(8)
		}
		c.asked, c.arrived, c.again = r, r.at, nil
		w.onWay = append(w.onWay, r)
	}
}

func (w *world) request(i int) line {
	c := &w.clients[i]
	asks := line{
		Call: "acquire", Client: &i, Way: []string{"trying", "blocked", "blocked", "transaction"}[w.Intn(4)],
		Lease: []int64{400, 4000}[w.Intn(2)] * ms, Session: c.session, Limit: c.limit, Once: w.oneIn(2),
	}
	if asks.Once = asks.Once && asks.Way != "transaction"; c.script {
		asks.Way, asks.Once = "script", false
	}
	switch {
	case c.again != nil:
		repeated := c.again.line
		repeated.Once = repeated.Call == "acquire" && !c.script
		return repeated
	case c.token == 0 || w.oneIn(4):
		return asks
	case w.oneIn(6) && !c.script:
		return line{Call: "renew", Client: &i, Lease: asks.Lease}
	case w.oneIn(2) && !c.script:
		return line{Call: "release", Client: &i, Token: c.token}
	default:
		return line{Call: "release", Client: &i}
	}
}

func (w *world) harm() {
	at := w.now*ms + harmedAt
	if w.kill != nil {
		if w.now >= w.killed {
			w.die()
		}
		return
	}
	if !w.oneIn(50) {
		return
	}
	one := w.Intn(clients)
	switch w.Intn(8) {
	case 0:
		clear(w.owners)
		w.write(line{Fault: "flushall"}, at, at)
	case 1:
		clear(w.owners)
		w.write(line{Fault: "break"}, at, at)
	case 2:
		delete(w.owners, one)
		w.write(line{Fault: "break", Client: &one}, at, at)
	case 3:
		seconds := w.Int63n(7) - 3
		w.write(line{Fault: "clock step", Seconds: seconds - w.ahead/1000}, at, at)
		w.ahead = seconds * 1000
	case 4:
		w.cutOff(one)
		w.write(line{Fault: "client kill", Client: &one}, at, at)
		if r := w.clients[one].asked; r != nil && r.broken == 0 {
			r.broken = 1 + w.soon(4)
		}
	case 5:
		w.saved = w.now
	default:
		w.kill = &line{Fault: "kill", From: at}
		if w.keeps == failsOver {
			w.kill.Fault = "failover"
		}
		w.killed = w.soon(3)
	}
}

// It was killed just now, and is restarted.
func (w *world) die() {
	for i := range w.clients {
		// An answer that was on its way may arrive.
		if r := w.clients[i].asked; r != nil && r.broken == 0 && (r.answered == 0 || w.oneIn(2)) {
			r.broken = 1 + w.soon(5)
		}
	}
	w.onWay, w.waiting = nil, nil
	if w.keeps == sinceSnapshot || w.keeps == sinceLately {
		restored := min(w.saved, w.now-1)
		if w.keeps == sinceLately {
			restored = max(w.upAt, w.now-1-w.Int63n(50))
		}
		w.owners = maps.Clone(w.disk[restored])
		since := max(0, restored-w.Int63n(5)) * ms
		w.kill.LostSince = &since
	}
	w.upAt = w.now + 20 + w.Int63n(80)
	if w.keeps == failsOver {
		// `fairlock.clock-skew` ahead.
		w.last = max(w.last, w.time()+10_000*ms)
	} else {
		w.last = w.time()
	}
	for c := range w.clients {
		o, isHolder := w.owners[c]
		w.last = max(w.last, o.token)
		if isHolder && o.bound > 0 {
			// Its lease runs on from when it was renewed last.
			o.bound, o.cut, o.end = 0, 0, w.now+w.ahead+o.lease-w.Int63n(o.lease/3)
			w.owners[c] = o
		}
	}
	w.write(*w.kill, w.kill.From, w.upAt*ms+1)
	w.kill = nil
}

func TestRightHistoriesAreNeverRefused(t *testing.T) {
	for seed := int64(0); seed < *worlds; seed++ {
		if verdict := judge(randomHistory(seed), 0, longEnough); verdict.code != accepted {
			t.Fatalf("seed %d: %s", seed, verdict)
		}
	}
}
