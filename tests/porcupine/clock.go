package main

import (
	"slices"
	"sort"
)

// Longest that a server takes to read a request, to carry it out and to note the time for it, microseconds. Time in
// which the machine or the server stood still comes on top.
const slack = 300_000

// What makes a lease end earlier or later than the steady clock of the history says.
type clock struct {
	// Times in which server or clients stood still, by their begin.
	still []span
	// Steps of the server's clock, and by how much it was set ahead.
	steps []span
	ahead []int64
	// The longest of `still`.
	longest int64
}

type span struct{ from, to int64 }

func clockOf(lines []*line) *clock {
	clock := &clock{}
	for _, line := range lines {
		switch line.Fault {
		case "pause", "stall":
			clock.still = append(clock.still, span{line.From, line.To})
			clock.longest = max(clock.longest, line.To-line.From)
		case "clock step":
			clock.steps = append(clock.steps, span{line.From, line.To})
			clock.ahead = append(clock.ahead, line.Seconds*1_000_000)
		}
	}
	sort.Slice(clock.still, func(a, b int) bool { return clock.still[a].from < clock.still[b].from })
	return clock
}

// By how much earlier than expected a lease can have ended that ran at some time in between.
func (c *clock) early(from, to int64) int64 {
	return slack + c.stood(from-slack, to) + c.set(from, to, 1)
}

// By how much later.
func (c *clock) late(from, to int64) int64 {
	return slack + c.stood(from-slack, to) + c.set(from, to, -1)
}

func (c *clock) stood(from, to int64) int64 {
	sum := int64(0)
	first := sort.Search(len(c.still), func(i int) bool { return c.still[i].from >= from-c.longest })
	for _, still := range c.still[first:] {
		if still.from > to {
			break
		}
		sum += max(0, min(still.to, to)-max(still.from, from))
	}
	return sum
}

// Whether the server's clock was ever set before.
func (c *clock) wasSet(before int64) bool {
	return slices.ContainsFunc(c.steps, func(step span) bool { return step.from < before })
}

// The sum of all steps in one direction.
func (c *clock) set(from, to, direction int64) int64 {
	sum := int64(0)
	for i, step := range c.steps {
		if step.from <= to && from <= step.to {
			sum += max(0, direction*c.ahead[i])
		}
	}
	return sum
}
