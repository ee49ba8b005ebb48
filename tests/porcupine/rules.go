package main

import (
	"maps"
	"math"
	"slices"
)

// All that is known of a lock between two steps: what it certainly is, and what it may be. So one state stands for all
// states that the lock can be in, and a step is refused only if none of them allows it.
type state struct {
	floor   int64 // The greatest token that was given,
	floorOf int   // and who may still hold the lock by it.
	anyone  bool  // Every client may hold the lock: there is a history before this one, or the server has lost writes.
	owners  map[int]owner
	ghosts  map[int]ghost
}

// A client that holds the lock, or may hold it.
type owner struct {
	certain            bool  // It holds the lock unless its lease can have ended.
	token, holds       int64 // 0: none, or not known.
	from, lease, until int64 // A lease of this length runs since then at the earliest; by then it has ended.
	session            bool  // The server renews the lease as long as the connection is open.
}

// A request for the lock without an answer. If it blocks, it may be carried out until the server or the connection is
// killed; else it was before the client's next request, or never is.
type ghost struct {
	waits, blocked, session bool
	from                    int64
}

const (
	unknown  = math.MaxInt64
	slack    = 300_000   // Microseconds in which a server reads a request, carries it out and notes the time for it.
	underWay = 1_200_000 // How much longer a reply may be on its way.
)

// A rule changes the state, and says whether the step is possible.
type rule = func(*step, *state) bool

var rules = map[string]rule{
	"granted": (*step).granted, "done": (*step).granted, "left": (*step).released,
	"not_now": (*step).denied, "not_held": (*step).denied,
	"lost": (*step).unanswered, "never": (*step).unanswered, "refused": (*step).unanswered,
	"kill": (*step).killed, "client_kill": (*step).killed, "flush_all": (*step).freed, "delete": (*step).freed, "break": (*step).freed,
	"": (*step).seen,
}

// None if nothing is said of holders.
func (e *step) ruleAt(lock int) rule {
	isHere := e.Lock == lock && (e.Key == "" || e.Key == "lock")
	if rule := rules[e.Answer+e.Fault]; rule != nil && (isHere || slices.Contains(ofAllLocks, e.Fault)) {
		return rule
	}
	if e.isLoss() && (e.client < 0 || e.asks[e.client].Session) {
		return (*step).disconnected
	}
	return nil
}

var (
	ofAllLocks = []string{"kill", "client_kill", "flush_all"}
	losses     = []string{"lost", "never", "refused", "half_open", "failover"}
)

// Whether connections are gone with it, or may be: a client's, or all.
func (l *line) isLoss() bool { return l.Call == "close" || slices.Contains(losses, l.Answer+l.Fault) }

// The client was granted the lock, or has renewed its lease. The only holder of a lock has the greatest token.
func (e *step) granted(s *state) bool {
	was, held := e.holder(s)
	isRenewal, token := e.Call == "renew", e.got
	if isRenewal {
		token = was.token
	}
	isSame := held && token == was.token && (token != 0 || isRenewal)
	isUnknown := s.isDoubtful(e.client) || held && (was.token == 0 || token == 0)
	isOld := token != 0 && token <= s.floor
	mayBeOld := isUnknown && (!e.isAlone() || token == s.floor && s.floorOf == e.client)
	isOther := held && was.token != 0 && e.certainly(was) || isOld && !mayBeOld || isRenewal && !isUnknown
	if e.isCrowded(s) || !isSame && (s.floor < e.floor || isOther) {
		return false
	}
	if token > s.floor {
		s.floor, s.floorOf = token, e.client
	}
	held = isSame || held && isUnknown
	is := owner{certain: !s.ghosts[e.client].waits, token: token, holds: 1, session: e.Session}
	is.from = max(e.From, e.To-e.drift(e.From, e.To, 1)-underWay)
	is.lease, is.until = e.Lease, e.To+e.Lease
	switch isAgain := isSame || e.certainly(was); {
	case s.isDoubtful(e.client) && !isSame || s.ghosts[e.client].waits || held && (!isAgain || was.holds == 0):
		is.holds = 0
	case held && (e.Once || isRenewal):
		is.holds = was.holds
	case held:
		is.holds = was.holds + 1
	}
	if held && was.session && !e.Session {
		// One hold more ends with another connection.
		is.certain = is.certain && (!e.Once && !isRenewal || e.certainly(was))
		is.session, is.lease = true, min(e.Lease, was.lease)
	}
	e.put(s, is)
	return true
}

// The client was told that it does not hold the lock, or not by this token.
func (e *step) denied(s *state) bool {
	was, held := e.holder(s)
	if e.Token != 0 && e.Token != was.token {
		return true
	}
	delete(s.owners, e.client)
	return !held || !e.certainly(was)
}

// A hold was given up. Redisson's script tells only whether any is left, and that none is of a lock that is free.
func (e *step) released(s *state) bool {
	was, held := e.holder(s)
	asks, known := e.asks[e.client]
	isScript, isUnknown := !known || asks.Way == "script", s.isDoubtful(e.client)
	isOther := e.Token != 0 && was.token != 0 && e.Token != was.token
	isRight := was.holds == 0 || e.got == was.holds-1 || isScript && (was.holds > 1) == (e.got > 0)
	isFree := isScript && e.got == 0 && !(held && e.certainly(was))
	if e.isCrowded(s) || !isUnknown && !isFree && (!held || isOther || !isRight) {
		return false
	}
	if e.got > 0 {
		// Scripts renew the lease then.
		if was.holds, was.until = e.got, unknown; isScript {
			was.holds = 0
		}
		e.put(s, was)
		return true
	}
	if delete(s.owners, e.client); isFree && !isUnknown {
		clear(s.owners)
	}
	if s.floorOf == e.client {
		s.floorOf = -1
	}
	return true
}

// What was asked for may have been done, or may be yet. By SESSION ONCE all holds end with the connection.
func (e *step) unanswered(s *state) bool {
	if is, held := s.owners[e.client]; held {
		is.certain = is.certain && e.Call != "release" && !(e.Session && e.Once)
		if is.holds, is.until = 0, unknown; e.Call != "release" {
			is.lease = min(is.lease, e.Lease)
		}
		s.owners[e.client] = is
	}
	if e.Call == "acquire" {
		g := s.ghosts[e.client]
		s.ghosts[e.client] = ghost{true, g.blocked || e.Way == "blocked" && e.Answer != "refused", g.session || e.Session, e.From}
	}
	return e.disconnected(s)
}

// A client's connection is lost, or those of all. What it held as a session ends now or later.
func (e *step) disconnected(s *state) bool {
	for client, o := range s.owners {
		if o.session && (e.client < 0 || e.client == client) {
			s.owners[client] = o.doubted()
		}
	}
	return true
}

// The server was killed and started again; or it has killed a client's connection.
func (e *step) killed(s *state) bool {
	e.disconnected(s)
	for client, g := range s.ghosts {
		if g.from < e.From && (e.client < 0 || e.client == client) {
			s.exorcise(client)
		}
	}
	if e.client < 0 && e.since < unknown {
		s.floor, s.floorOf = e.floor, e.floorOf
	}
	if e.LostSince != nil {
		s.anyone = true
		clear(s.owners)
	}
	return true
}

// By FLUSHALL, DEL or BREAK, which may be of one holder.
func (e *step) freed(s *state) bool {
	s.anyone = s.anyone && e.client >= 0
	maps.DeleteFunc(s.owners, func(client int, _ owner) bool { return e.client < 0 || e.client == client })
	return true
}

// The holders at an instant, by the keys. One that shares the lock can be there for a while after its lease has ended.
func (e *step) seen(s *state) bool {
	isPossible := true
	for _, client := range e.Holders {
		is, held := s.owners[client]
		limit := e.limit(client)
		isHolder := held && !(limit == 1 && e.isOver(is)) || s.isDoubtful(client)
		isPossible = isPossible && isHolder && uint64(len(e.Holders)) <= limit
		if !held && s.anyone {
			s.owners[client] = owner{until: unknown}
		}
	}
	maps.DeleteFunc(s.owners, func(client int, o owner) bool {
		isAbsent := !slices.Contains(e.Holders, client)
		isPossible = isPossible && !(isAbsent && e.certainly(o))
		return isAbsent
	})
	s.anyone = false
	return isPossible
}

// What the client holds, or may hold, at this step.
func (e *step) holder(s *state) (owner, bool) {
	if g := s.ghosts[e.client]; g.waits && !g.blocked {
		s.exorcise(e.client)
	}
	if is, held := s.owners[e.client]; held && !e.isOver(is) {
		return is, true
	}
	delete(s.owners, e.client)
	return owner{}, false
}

// The client holds the lock, so clients that do not tolerate it do not.
func (e *step) put(s *state, is owner) {
	if is.session {
		is.until = unknown
	}
	s.owners[e.client] = is
	s.anyone = s.anyone && !e.isAlone()
	maps.DeleteFunc(s.owners, func(client int, _ owner) bool {
		return client != e.client && (e.isAlone() || e.limit(client) == 1)
	})
}

// Whether others that certainly hold the lock leave no room for the client.
func (e *step) isCrowded(s *state) bool {
	holders, limit := uint64(1), e.limit(e.client)
	for client, o := range s.owners {
		if client != e.client && e.certainly(o) {
			holders, limit = holders+1, min(limit, e.limit(client))
		}
	}
	return holders > limit
}

// How many holders a client tolerates; any number if it has asked in a history before this one only.
func (t *trial) limit(client int) uint64 {
	if asks, known := t.asks[client]; known {
		return asks.Limit
	}
	return math.MaxUint64
}

func (e *step) isAlone() bool { return e.limit(e.client) == 1 }

// By how much a lease that ran in between can have ended earlier (1) or later (-1) than the steady clock says.
func (t *trial) drift(from, to, direction int64) int64 {
	sum := int64(slack)
	for _, f := range t.faults {
		switch isBetween := f.From <= to && from-slack <= f.To; {
		case isBetween && f.Fault == "clock_step":
			sum += max(0, direction*f.Seconds*1_000_000)
		case isBetween && (f.Fault == "stall" || f.Fault == "pause"):
			sum += min(f.To, to) - max(f.From, from-slack)
		}
	}
	return sum
}

// Whether it holds the lock, and its lease cannot have ended. A session's is renewed each time that a third has passed.
func (e *step) certainly(o owner) bool {
	early := e.drift(o.from, e.To, 1)
	return o.certain && (o.session && early < o.lease/3 || !o.session && e.To < o.from+o.lease-early)
}

// Whether its lease has certainly ended.
func (e *step) isOver(o owner) bool {
	return o.until != unknown && e.From > o.until+e.drift(o.from, e.To, -1)
}

// It may have gone, or come anew.
func (o owner) doubted() owner {
	o.certain, o.holds, o.until = false, 0, unknown
	return o
}

func (s *state) isDoubtful(client int) bool { return s.anyone || s.ghosts[client].waits }

// A request that is not carried out any more was before, or never will be.
func (s *state) exorcise(client int) {
	s.owners[client] = owner{until: unknown, session: s.owners[client].session || s.ghosts[client].session}
	delete(s.ghosts, client)
}
