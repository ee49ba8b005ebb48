package main

import (
	"slices"
	"sort"
	"strings"

	"github.com/anishathalye/porcupine"
)

// A step of one lock: a call with its answer, a fault or a sight, and what is known besides.
type step struct {
	*line
	rule  rule
	clock *clock
	// The client that calls, or that the fault hits.
	client int
	// How that client asks for this lock, and how all do.
	habit
	habits map[int]habit
	// Acquire: a token that was certainly given before. Kill: one that the server certainly still knows of, and its
	// client.
	floor   int64
	floorOf int
	// A session may have ended before its client was told of it.
	cut bool
	// Kill: what was given lately can be forgotten.
	forgets bool
	// Sight: how many holders those that are seen tolerate; 0: any number.
	most int
}

// How a client asks for a lock.
type habit struct {
	limit   int
	session bool
	// By Redisson's script.
	script bool
}

// Locks that were asked for.
func locksOf(lines []*line) []int {
	var locks []int
	known := map[int]bool{}
	for _, line := range lines {
		if line.Call != "" && !known[line.Lock] {
			known[line.Lock] = true
			locks = append(locks, line.Lock)
		}
	}
	sort.Ints(locks)
	return locks
}

// What happened to a lock. Whatever says nothing about its holders is left out.
func stepsOf(lines []*line, lock int, clock *clock) []*step {
	habits := habitsOf(lines, lock)
	var steps []*step
	mayHold := map[int]bool{}
	for _, line := range lines {
		step := &step{line: line, clock: clock, habits: habits, rule: ruleOf(line, lock)}
		if line.Client != nil {
			step.client = *line.Client
			step.habit = habits[step.client]
		}
		for _, holder := range line.Holders {
			step.most = tighter(step.most, habits[holder].limit)
		}
		if step.rule == nil || line.Lock != lock && step.isOnlyLoss() && !habits[step.client].session {
			continue
		}
		if line.Answer == "not now" && !mayHold[step.client] {
			continue
		}
		if line.Call != "" && line.Lock == lock {
			mayHold[step.client] = line.mayLeaveHold()
		}
		steps = append(steps, step)
	}
	boundTokens(steps, clock)
	markCut(steps)
	return steps
}

func markCut(steps []*step) {
	for _, fault := range steps {
		for _, step := range steps {
			if step.Session && (fault.Fault == "failover" || fault.cutsOff(step.Client)) {
				step.cut = step.cut || fault.From <= step.To && step.From <= fault.To
			}
		}
	}
}

func habitsOf(lines []*line, lock int) map[int]habit {
	habits := map[int]habit{}
	for _, line := range lines {
		if line.Call == "acquire" && line.Lock == lock {
			session := line.Session || habits[*line.Client].session
			habits[*line.Client] = habit{line.Limit, session, line.Way == "script"}
		}
	}
	return habits
}

// The lower of two limits; 0 is none.
func tighter(a, b int) int {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// It concerns a lock only if its client's session is lost with it.
func (l *line) isOnlyLoss() bool {
	return l.Call != "" || l.Fault == "client kill" || l.Fault == "half open"
}

// Whether the client may hold the lock after this call.
func (l *line) mayLeaveHold() bool {
	return !(l.Answer == "not now" || l.Answer == "not held" || l.Answer == "left" && l.Holds == 0)
}

// Errors that say that nothing was done.
func (l *line) isHarmless() bool {
	for _, code := range []string{"READONLY", "LOADING", "MASTERDOWN", "NOREPLICAS", "OOM", "MISCONF", "BUSY"} {
		if strings.HasPrefix(l.Error, code) {
			return true
		}
	}
	return false
}

// What can be said of tokens before any order of the steps is tried.
func boundTokens(steps []*step, clock *clock) {
	var kills []*step
	for _, step := range steps {
		if step.Fault == "kill" {
			step.forgets = step.LostSince != nil || clock.wasSet(step.From)
			if step.forgets {
				kills = append(kills, step)
			}
		}
	}
	for i, kill := range kills {
		for _, step := range steps {
			if step.Got > kill.floor && step.To < kill.since(clock) && !isForgotten(step, kills[:i], clock) {
				kill.floor, kill.floorOf = step.Got, step.client
			}
		}
	}
	boundGrants(steps, kills)
}

// From when on the server may have forgotten what it gave.
func (s *step) since(clock *clock) int64 {
	if clock.wasSet(s.From) {
		return 0
	}
	return *s.LostSince
}

func isForgotten(grant *step, kills []*step, clock *clock) bool {
	for _, kill := range kills {
		if kill.since(clock) <= grant.To && grant.To <= kill.To {
			return true
		}
	}
	return false
}

// Tokens grow, so that the order of acquisitions is known where their tokens are: without that a lock with many
// waiters has too many orders to try. Left out are tokens whose acquisition need not be the call that tells them.
func boundGrants(steps []*step, kills []*step) {
	told := map[int64]bool{}
	lost := map[int]bool{}
	given := map[int][]int64{}
	for _, step := range steps {
		lost[step.client] = lost[step.client] || step.Call == "acquire" && isLoss(step.line)
		epoch := epoch(step, kills)
		isNew := step.Got != 0 && !told[step.Got] && (step.limit == 1 || !lost[step.client] && epoch == 0)
		if told[step.Got] = true; isNew && epoch >= 0 {
			given[epoch] = append(given[epoch], step.Got)
		}
	}
	for _, tokens := range given {
		slices.Sort(tokens)
	}
	for _, step := range steps {
		tokens := given[epoch(step, kills)]
		if before, _ := slices.BinarySearch(tokens, step.Got); step.Got != 0 && before > 0 {
			step.floor = tokens[before-1]
		}
	}
}

// How many times the server had forgotten tokens before; -1 where that is not certain.
func epoch(grant *step, kills []*step) int {
	over, begun := 0, 0
	for _, kill := range kills {
		if kill.To < grant.From {
			over++
		}
		if kill.From <= grant.To {
			begun++
		}
	}
	if over != begun {
		return -1
	}
	return over
}

// It makes nothing certain: from its begin on more is possible. Taken at once, for there are too many orders to try
// else, and none of them allows more.
func (l *line) isDoubt() bool {
	return isLoss(l) || l.cutsOff(l.Client) || l.Fault == "failover"
}

// Whether it is a fault that ends the sessions of one client.
func (l *line) cutsOff(client *int) bool {
	return (l.Fault == "client kill" || l.Fault == "half open") && *l.Client == *client
}

// The connection is gone with this call, or may be.
func isLoss(line *line) bool {
	return line.Call == "close" || line.Answer == "lost" || line.Answer == "never" || line.Answer == "refused"
}

func operations(steps []*step) []porcupine.Operation {
	var operations []porcupine.Operation
	for _, step := range steps {
		end := step.To
		if step.isDoubt() {
			end = step.From
		}
		operations = append(operations, porcupine.Operation{
			ClientId: step.row(), Input: step, Call: step.From, Return: end,
		})
	}
	return operations
}

// Faults and sights have rows of their own in the picture, the first two.
func (s *step) row() int {
	switch {
	case s.Sight != "":
		return 0
	case s.Fault != "":
		return 1
	default:
		return s.client + 2
	}
}
