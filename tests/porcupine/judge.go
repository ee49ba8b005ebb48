package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// The lock as Porcupine sees it.
var model = porcupine.Model{
	Init: func() any { return &state{} },
	Step: func(before, input, _ any) (bool, any) {
		after, why := input.(*step).take(before.(*state))
		return why == "", after
	},
	Equal:             func(a, b any) bool { return a.(*state).equal(b.(*state)) },
	DescribeOperation: func(input, _ any) string { return input.(*step).String() },
	DescribeState:     func(of any) string { return of.(*state).String() },
}

// The state after a step, or why it cannot be taken.
func (e *step) take(before *state) (*state, string) {
	after := before.clone()
	after.now = max(after.now, e.From)
	why := e.rule(e, after)
	return after, why
}

// What Porcupine says of one lock.
type verdict struct {
	lock  int
	code  int
	steps []*step
	took  time.Duration
	info  porcupine.LinearizationInfo
}

func judge(lines []*line, lock int, timeout time.Duration) verdict {
	steps := stepsOf(lines, lock, clockOf(lines))
	began := time.Now()
	result, info := porcupine.CheckOperationsVerbose(model, operations(steps), timeout)
	v := verdict{lock: lock, steps: steps, took: time.Since(began), info: info}
	switch result {
	case porcupine.Ok:
		v.code = accepted
	case porcupine.Unknown:
		v.code = undecided
	case porcupine.Illegal:
		v.code = refused
	}
	return v
}

func (v verdict) String() string {
	said := map[int]string{accepted: "accepted", undecided: "UNDECIDED, the time was up", refused: "REFUSED"}[v.code]
	text := fmt.Sprintf("lock %d: %s; %d steps, %v", v.lock, said, len(v.steps), v.took.Round(time.Millisecond))
	if v.code != accepted {
		text += "\n" + v.whereStuck()
	}
	return text
}

// The longest order of steps that is possible, and why none that has to be next is.
func (v verdict) whereStuck() string {
	var longest []porcupine.Operation
	for _, some := range v.info.PartialLinearizationsOperations()[0] {
		if len(some) > len(longest) {
			longest = some
		}
	}
	taken := map[*step]bool{}
	state := &state{}
	for _, operation := range longest {
		step := operation.Input.(*step)
		taken[step] = true
		state, _ = step.take(state)
	}
	text := []string{"    after " + state.String()}
	first := v.firstLeft(taken)
	for _, step := range v.steps {
		if !taken[step] && first != nil && step.From <= first.To {
			_, why := step.take(state)
			text = append(text, fmt.Sprintf("    line %d cannot follow: %s: %s", step.number, step, why))
		}
	}
	return strings.Join(text, "\n")
}

// The step that ends first of all that are left.
func (v verdict) firstLeft(taken map[*step]bool) *step {
	var first *step
	for _, step := range v.steps {
		if !taken[step] && (first == nil || step.To < first.To) {
			first = step
		}
	}
	return first
}

// Porcupine's picture.
func (v verdict) draw(path string) error {
	if err := porcupine.VisualizePath(model, v.info, path); err != nil {
		return err
	}
	fmt.Printf("  the picture is in %s\n", path)
	return nil
}

func (e *step) String() string {
	switch {
	case e.Sight != "":
		return fmt.Sprintf("seen: %v", e.Holders)
	case e.Fault != "":
		return e.Fault
	}
	text := fmt.Sprintf("c%d %s %s", e.client, e.Call, e.Answer)
	if e.Got != 0 {
		text += fmt.Sprintf(" %d", e.Got)
	}
	if e.Answer == "left" {
		text += fmt.Sprintf(" %d", e.Holds)
	}
	return text
}
