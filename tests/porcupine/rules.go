package main

import (
	"maps"
	"math"
	"slices"
)

// All that is known of a lock between two steps: what it certainly is, and what it may be. So one state stands for all
// states that the lock can be in, and a step is refused only if none of them allows it.
type state struct {
	// The next step is not before.
	now int64
	// The greatest token that was given, and who may still hold the lock by it.
	floor   int64
	floorOf int
	// Every client may hold the lock: there is a history before this one, or the server has lost writes.
	anyone bool
	owners map[int]owner
	ghosts map[int]ghost
}

// A client that holds the lock, or may hold it.
type owner struct {
	// It holds the lock unless its lease can have ended.
	certain bool
	// 0: none, or not known.
	token, holds int64
	// A lease of this length runs since then at the earliest; by then it has ended.
	from, lease, until int64
	// The server renews the lease as long as the connection is open.
	session bool
}

// A request for the lock without an answer. If it blocks, it may be carried out until the server is killed; else it was
// before the client's next request, or never is.
type ghost struct {
	waits, blocked, session bool
	from                    int64
}

const unknown = math.MaxInt64

// Longest that a server takes to read a request, to carry it out and to note the time for it, microseconds.
const slack = 300_000

// Longest that a reply is on its way besides.
const underWay = 1_200_000

// The rule for a step: it changes the state, and says whether the step is possible. None if nothing is said of holders.
func (e *step) ruleAt(lock int) func(*step, *state) bool {
	told := map[string]func(*step, *state) bool{
		"granted": (*step).granted, "done": (*step).granted, "left": (*step).released,
		"not_now": (*step).denied, "not_held": (*step).denied,
		"lost": (*step).unanswered, "never": (*step).unanswered, "refused": (*step).unanswered,
	}[e.Answer]
	switch isHere := e.Lock == lock; {
	case e.Fault == "kill":
		return (*step).killed
	case e.Fault == "flush_all", isHere && e.Fault == "delete" && e.Key == "lock", isHere && e.Fault == "break":
		return (*step).freed
	case isHere && e.Holders != nil:
		return (*step).seen
	case isHere && told != nil:
		return told
	case e.isLoss() && (e.client < 0 || e.asks[e.client].Session):
		return (*step).disconnected
	}
	return nil
}

// Whether connections are gone with it, or may be: a client's, or all.
func (l *line) isLoss() bool {
	return slices.Contains([]string{"lost", "never", "refused", "client_kill", "half_open", "failover"}, l.Answer+l.Fault) ||
		l.Call == "close"
}

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
	// A session may have ended before its client was told of it.
	isCut := e.Session && slices.ContainsFunc(e.faults, func(f *line) bool {
		return f.isLoss() && (f.Client == nil || *f.Client == e.client) && f.From <= e.To && e.From <= f.To
	})
	is := owner{certain: !isCut && !s.ghosts[e.client].waits, token: token, holds: 1, session: e.Session}
	sent := e.To - e.Unread - e.drift(e.From, e.To, 1) - underWay
	is.from, is.lease, is.until = coarse(max(s.now, sent)), e.Lease, e.To+e.Lease
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
	if e.put(s, is); e.Way == "transaction" {
		// The same transaction has released one hold.
		if s.owners[e.client] = is.doubted(); !held && is.holds != 0 {
			delete(s.owners, e.client)
		}
	}
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
	isScript, isUnknown := e.asks[e.client].Way == "script", s.isDoubtful(e.client)
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

// The server was killed and started again.
func (e *step) killed(s *state) bool {
	e.disconnected(s)
	for client, g := range s.ghosts {
		if g.from < e.From {
			s.exorcise(client)
		}
	}
	if e.since < unknown {
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
		limit := e.asks[client].Limit
		isHolder := held && !(limit == 1 && e.isOver(is, s)) || s.isDoubtful(client)
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
	was, held := s.owners[e.client]
	if g := s.ghosts[e.client]; g.waits && !g.blocked {
		if s.exorcise(e.client); held && e.certainly(was) {
			s.owners[e.client] = was
		}
	}
	if is, held := s.owners[e.client]; held && !e.isOver(is, s) {
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
		return client != e.client && (e.isAlone() || e.asks[client].Limit == 1)
	})
}

// Whether others that certainly hold the lock leave no room for the client.
func (e *step) isCrowded(s *state) bool {
	holders, limit := uint64(1), e.asks[e.client].Limit
	for client, o := range s.owners {
		if client != e.client && e.certainly(o) {
			holders, limit = holders+1, min(limit, e.asks[client].Limit)
		}
	}
	return holders > limit
}

func (e *step) isAlone() bool { return e.asks[e.client].Limit == 1 }

// By how much a lease that ran in between can have ended earlier (1) or later (-1) than the steady clock says.
func (t *trial) drift(from, to, direction int64) int64 {
	sum := int64(slack)
	for _, f := range t.faults {
		switch isBetween := f.From <= to && from-slack <= f.To; {
		case isBetween && f.Fault == "clock_step":
			sum += max(0, direction*f.Seconds*1_000_000)
		case isBetween && (f.Fault == "" || f.Fault == "pause"):
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
func (e *step) isOver(o owner, s *state) bool {
	return o.until != unknown && s.now > o.until+e.drift(o.from, e.To, -1)
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

// Times are compared for being equal, so that orders of steps that make no difference are not tried over and over.
func coarse(time int64) int64 { return time - time%100_000 }
