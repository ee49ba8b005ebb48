package main

import "fmt"

// What a step does to a state that is its own to change. It says why it is impossible, or nothing.
type rule func(*step, *state) string

// The rule for a line; none if it says nothing about the holders of the lock.
func ruleOf(line *line, lock int) rule {
	if line.Call != "" {
		if line.Lock != lock {
			return ruleOfElsewhere(line)
		}
		return ruleOfCall(line)
	}
	switch isHere := line.Lock == lock; {
	case line.Fault == "kill":
		return (*step).killed
	case line.Fault == "failover":
		return (*step).failedOver
	case line.Fault == "client kill" || line.Fault == "half open":
		return (*step).disconnected
	case line.Fault == "flushall", isHere && line.Fault == "delete" && line.Key == "lock":
		return (*step).freed
	case isHere && line.Fault == "break" && line.Client == nil:
		return (*step).freed
	case isHere && line.Fault == "break":
		return (*step).freedOfOne
	case isHere && line.Sight != "":
		return (*step).seen
	default:
		return nil
	}
}

// A call on another lock.
func ruleOfElsewhere(line *line) rule {
	if isLoss(line) {
		return (*step).disconnected
	}
	return nil
}

func ruleOfCall(line *line) rule {
	isTold := map[string]rule{
		"granted":  (*step).granted,
		"not now":  (*step).denied,
		"left":     (*step).released,
		"done":     (*step).renewed,
		"not held": (*step).notHeld,
	}[line.Answer]
	switch {
	case line.Call == "cancel":
		return ruleOfElsewhere(line)
	case line.Call == "close", line.Answer == "refused" && line.isHarmless():
		return (*step).disconnected
	case isTold != nil:
		return isTold
	case line.Call == "acquire":
		return (*step).lostAcquire
	case line.Call == "release":
		return (*step).lostRelease
	default:
		return (*step).lostRenew
	}
}

// The lock was granted to a client that asked for it.
func (e *step) granted(s *state) string {
	was, held, why := e.entitled(s)
	if why != "" {
		return why
	}
	is := owner{
		client: e.client, limit: e.limit, certain: !e.cut && !s.haunted(e.client), token: e.Got, holds: 1,
		from: coarse(s.now), lease: e.Lease, until: e.To + e.Lease, session: e.Session, script: e.script,
	}
	if held {
		is = is.after(was, e.Once)
		// With ONCE alone it adds no hold to those that end with another connection.
		is.certain = is.certain && (!was.session || e.Session || !e.Once || e.certainly(was))
	}
	if s.haunted(e.client) || !held && s.anyone {
		is.holds = 0
	}
	if is.session {
		is.until = unknown
	}
	s.put(is)
	e.exclude(s)
	if e.Way == "transaction" {
		e.releasedAtOnce(s, held)
	}
	return ""
}

// The hold of a client that had one, or may have had one.
func (o owner) after(was owner, once bool) owner {
	switch {
	case was.holds == 0:
		o.holds = 0
	case once:
		o.holds = was.holds
	default:
		o.holds = was.holds + 1
	}
	if was.session && !o.session {
		o.session, o.lease = true, min(o.lease, was.lease)
	}
	return o
}

// The same transaction has released one hold.
func (e *step) releasedAtOnce(s *state, held bool) {
	if is, _ := s.owner(e.client); held || is.holds == 0 {
		s.put(is.doubted())
	} else {
		s.remove(e.client)
	}
}

// Whether there is room for the client, and by the right token. The hold that the client has, or may have, already.
func (e *step) entitled(s *state) (was owner, held bool, why string) {
	was, held = e.holder(s)
	if why = e.tooMany(s); why != "" {
		return
	}
	isSame := held && was.token == e.Got
	mayBeOther := s.anyone || s.haunted(e.client) || held && (was.token == 0 || e.Got == 0)
	switch {
	case isSame && e.Got != 0:
	case s.floor < e.floor:
		// Even if an earlier request brought it.
		why = fmt.Sprintf("token %d was not given yet", e.floor)
	case held && e.certainly(was):
		if was.token != 0 && !isSame {
			why = fmt.Sprintf("c%d holds the lock by token %d", e.client, was.token)
		}
	case mayBeOther:
		// The only holder of a lock has the greatest token.
		mayBeGreatest := s.floorOf == e.client && (s.anyone || was.mayBeGreatest)
		if e.Got != 0 && e.limit == 1 && (e.Got < s.floor || e.Got == s.floor && !mayBeGreatest) {
			why = fmt.Sprintf("token %d was given before", s.floor)
		}
		was.token, was.holds = 0, 0
	default:
		held = false
		if e.Got != 0 && e.Got <= s.floor {
			why = fmt.Sprintf("token %d was given before", s.floor)
		}
	}
	if e.Got > s.floor {
		s.floor, s.floorOf = e.Got, e.client
	}
	return
}

// Others that certainly hold the lock leave no room for the client.
func (e *step) tooMany(s *state) string {
	holders, limit, last := 1, e.limit, 0
	for _, o := range s.owners {
		if o.client != e.client && e.certainly(o) {
			holders, limit, last = holders+1, tighter(limit, o.limit), o.client
		}
	}
	if limit != 0 && holders > limit {
		return fmt.Sprintf("the lock is held by %d at most, and by c%d among others", limit, last)
	}
	return ""
}

// The client holds the lock, so clients that do not tolerate it do not hold it.
func (e *step) exclude(s *state) {
	s.anyone = s.anyone && e.limit != 1
	s.drop(func(o owner) bool { return o.client != e.client && (e.limit == 1 || o.limit == 1) })
}

// The client, which asked for the lock, does not have it.
func (e *step) denied(s *state) string {
	if was, held := e.holder(s); held && e.certainly(was) {
		return fmt.Sprintf("c%d holds the lock", e.client)
	}
	s.remove(e.client)
	return ""
}

// A hold was given up.
func (e *step) released(s *state) string {
	was, held := e.holder(s)
	isUnknown := s.anyone || s.haunted(e.client)
	if why := e.tooMany(s); why != "" {
		return why
	}
	switch {
	case !isUnknown && e.script && e.Holds == 0 && !(held && e.certainly(was)):
		// Redisson's script replies 0 for a lock that is free.
		return e.freed(s)
	case !held && !isUnknown:
		return fmt.Sprintf("c%d does not hold the lock", e.client)
	case !isUnknown && e.Token != 0 && was.token != 0 && e.Token != was.token:
		return fmt.Sprintf("c%d holds the lock by token %d", e.client, was.token)
	case !isUnknown && was.holds != 0 && !was.leaves(e.Holds):
		return fmt.Sprintf("c%d has %d holds", e.client, was.holds)
	case e.Holds == 0:
		s.remove(e.client)
		return ""
	case !held:
		was = owner{client: e.client, limit: e.limit, mayBeGreatest: s.anyone}
	}
	// Scripts renew the lease then.
	was.until, was.holds = unknown, e.Holds
	if was.script {
		was.holds = 0
	}
	s.put(was)
	e.exclude(s)
	return ""
}

// Whether a release leaves this many holds. Scripts tell only whether any is left.
func (o owner) leaves(holds int64) bool {
	if o.script {
		return (o.holds > 1) == (holds > 0)
	}
	return holds == o.holds-1
}

func (e *step) renewed(s *state) string {
	was, held := e.holder(s)
	if why := e.tooMany(s); why != "" {
		return why
	}
	if !held && !s.anyone && !s.haunted(e.client) {
		return fmt.Sprintf("c%d does not hold the lock", e.client)
	}
	is := owner{
		client: e.client, limit: e.limit, certain: !s.haunted(e.client), token: was.token, holds: was.holds,
		from: coarse(s.now), lease: e.Lease, until: e.To + e.Lease, session: was.session, script: e.script,
		mayBeGreatest: was.mayBeGreatest || s.anyone,
	}
	if is.session {
		is.lease, is.until = min(e.Lease, was.lease), unknown
		is.certain = is.certain && e.certainly(was)
	}
	s.put(is)
	e.exclude(s)
	return ""
}

// The client was told that it does not hold the lock, or not by this token.
func (e *step) notHeld(s *state) string {
	was, held := e.holder(s)
	isOther := e.Token != 0 && e.Token != was.token
	if held && e.certainly(was) && !(isOther && e.Call == "release") {
		return fmt.Sprintf("c%d holds the lock", e.client)
	}
	if !isOther {
		s.remove(e.client)
	}
	return ""
}

// A request for the lock had no answer: it may be carried out yet.
func (e *step) lostAcquire(s *state) string {
	if is, held := s.owner(e.client); held {
		is.lease, is.holds, is.until = min(is.lease, e.Lease), 0, unknown
		// By SESSION ONCE all of its holds end with the connection.
		is.certain = is.certain && !(e.Session && e.Once)
		s.put(is)
	}
	e.disconnected(s)
	s.haunt(ghost{e.client, e.limit, e.Way == "blocked" && e.Answer != "refused", e.Session, e.From})
	return ""
}

func (e *step) lostRelease(s *state) string {
	if is, held := s.owner(e.client); held {
		s.put(is.doubted())
	}
	return ""
}

func (e *step) lostRenew(s *state) string {
	if is, held := s.owner(e.client); held {
		is.lease, is.until = min(is.lease, e.Lease), unknown
		s.put(is)
	}
	return e.disconnected(s)
}

// What the client holds, or may hold, at this step.
func (e *step) holder(s *state) (owner, bool) {
	is, held := s.owner(e.client)
	isCertain := held && e.certainly(is)
	if s.exorcise(func(g ghost) bool { return g.client == e.client && !g.blocked }) {
		if isCertain {
			s.put(is)
		}
		is, held = s.owner(e.client)
	}
	if held && e.isOver(is, s) {
		s.remove(e.client)
		return owner{}, false
	}
	return is, held
}

// Whether it holds the lock, and its lease cannot have ended.
func (e *step) certainly(o owner) bool {
	early := e.clock.early(o.from, e.To)
	if o.session {
		// The server renews it each time that a third has passed.
		return o.certain && early < o.lease/3
	}
	return o.certain && e.To < o.from+o.lease-early
}

// Whether its lease has certainly ended.
func (e *step) isOver(o owner, s *state) bool {
	return o.until != unknown && s.now > o.until+e.clock.late(o.from, e.To)
}

// Times are compared for being equal, so that orders of steps that make no difference are not tried over and over.
func coarse(time int64) int64 { return time - time%100_000 }
