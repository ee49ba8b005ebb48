// Porcupine judges histories of tests/chaos: whether one order of all steps explains what the clients were told.
//
//	CHAOS_HISTORY=/tmp/histories make chaos CHAOS_SECONDS=60
//	go run ./tests/porcupine /tmp/histories/*.jsonl
//
// For each lock it says Ok, Illegal (with a picture), or Unknown after a minute. rules.go is the model, broken.txt
// breaks each rule. Wrong histories are accepted where leases may have ended 300 ms early or late (plus stalls and
// steps of the clock), a request without an answer may yet be carried out, or a kill may have lost data.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
)

// A line of a history, as `tests/chaos/written.rs` writes it.
type line struct {
	Call, Way, Answer, Fault, Key string
	Client                        *int
	Lock                          int
	From, To                      int64
	Lease, Token, Seconds         int64
	Session, Once, Resumed        bool
	Limit                         uint64
	Got                           json.RawMessage
	LostSince                     *int64 `json:"lost_since"`
	Holders                       []int
}

// How each client asks for a lock, and whether ever by SESSION; and all faults.
type trial struct {
	asks   map[int]line
	faults []*line
}

// A call with its answer, a fault or a sight, and what is known besides.
type step struct {
	*line
	*trial
	rule    rule
	client  int   // -1: all.
	got     int64 // The token of a grant, or the holds that a release leaves.
	since   int64 // Kill: from when on the server may have forgotten what it gave.
	floor   int64 // Grant: a token that was certainly given before. Kill: the greatest that the server still knows of,
	floorOf int   // and whose.
}

// What the program exits with, unless all is well.
const undecided, refused = 3, 4

func main() {
	worst := 0
	for _, path := range os.Args[1:] {
		lines, last := read(path), 0
		for _, l := range lines {
			last = max(last, l.Lock)
		}
		for lock := 0; lock <= last; lock++ {
			worst = max(worst, judge(path, lines, lock))
		}
	}
	os.Exit(worst)
}

// It says nothing of holders, but a session may end with it.
var harmless = regexp.MustCompile(`^(cancel|close)|"(READONLY|LOADING|MASTERDOWN|NOREPLICAS|OOM|MISCONF|BUSY)`)

func read(path string) (lines []*line) {
	file, err := os.Open(path)
	for decoder := json.NewDecoder(file); err == nil; {
		l := &line{}
		if err = decoder.Decode(l); harmless.MatchString(l.Call + string(l.Got)) {
			l.Lock = -1
		}
		if l.Call+l.Fault == "" && l.Holders == nil {
			l.Fault = "stall"
		}
		lines = append(lines, l)
	}
	if err != io.EOF {
		panic(fmt.Sprint(path, ": ", err))
	}
	return lines[:len(lines)-1]
}

// Prints what Porcupine says of one lock, and draws it where that is refused.
func judge(path string, lines []*line, lock int) int {
	model := porcupine.Model{
		Init: func() any { return &state{anyone: lines[0].Resumed, owners: map[int]owner{}, ghosts: map[int]ghost{}} },
		Step: func(before, input, _ any) (bool, any) {
			e, after := input.(*step), *before.(*state)
			after.owners, after.ghosts = maps.Clone(after.owners), maps.Clone(after.ghosts)
			return e.rule(e, &after), &after
		},
		Equal:             reflect.DeepEqual,
		DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", *input.(*step).line) },
		DescribeState:     func(of any) string { return fmt.Sprintf("%+v", *of.(*state)) },
	}
	steps := stepsOf(lines, lock)
	result, info := porcupine.CheckOperationsVerbose(model, steps, time.Minute)
	fmt.Printf("%s lock %d: %d steps %s\n", path, lock, len(steps), result)
	if result == porcupine.Illegal {
		picture := fmt.Sprintf("%s.lock%d.html", path, lock)
		fmt.Println("  its picture:", picture, porcupine.VisualizePath(model, info, picture))
	}
	return map[porcupine.CheckResult]int{porcupine.Unknown: undecided, porcupine.Illegal: refused}[result]
}

// What happened to a lock. Whatever says nothing about its holders is left out.
func stepsOf(lines []*line, lock int) (operations []porcupine.Operation) {
	t := &trial{asks: map[int]line{}}
	for _, l := range lines[1:] {
		if l.Call == "acquire" && l.Lock == lock {
			asks := *l
			asks.Session = l.Session || t.asks[*l.Client].Session
			t.asks[*l.Client] = asks
		} else if l.Fault != "" {
			t.faults = append(t.faults, l)
		}
	}
	var steps []*step
	wasSet := false
	for _, l := range lines[1:] {
		s := &step{line: l, trial: t, client: -1, since: unknown}
		if s.got, _ = strconv.ParseInt(string(l.Got), 10, 64); l.Client != nil {
			s.client = *l.Client
		}
		// Of a lock that is free only the time is kept.
		if wasSet = wasSet || l.Fault == "clock_step"; wasSet {
			s.since = 0
		} else if l.LostSince != nil {
			s.since = *l.LostSince
		}
		end := l.To
		if s.rule = s.ruleAt(lock); s.rule == nil {
			continue
		}
		if l.isLoss() {
			// It makes more possible and nothing certain: taken at once, for else there are too many orders to try.
			end = l.From
		}
		steps = append(steps, s)
		operations = append(operations, porcupine.Operation{ClientId: s.client + 1, Input: s, Call: l.From, Return: end})
	}
	boundTokens(steps)
	return operations
}

// Tokens grow, so that the order of acquisitions is known where their tokens are. Without that a lock with many waiters
// has too many orders to try. Left out are tokens whose acquisition need not be the call that tells them.
func boundTokens(steps []*step) {
	var kills, grants []*step
	told := map[int64]bool{}
	// Whether a kill may have taken a token away that was given in between.
	isForgotten := func(from, to int64) bool {
		return slices.ContainsFunc(kills, func(kill *step) bool { return kill.since <= to && from <= kill.To })
	}
	for _, s := range steps {
		if s.Fault == "kill" && s.since < unknown {
			for _, g := range grants {
				if g.got > s.floor && g.To < s.since && !isForgotten(g.To, g.To) {
					s.floor, s.floorOf = g.got, g.client
				}
			}
			kills = append(kills, s)
		} else if s.Answer == "granted" && s.got != 0 && s.isAlone() && !told[s.got] {
			told[s.got] = true
			grants = append(grants, s)
		}
	}
	slices.SortFunc(grants, func(a, b *step) int { return cmp.Compare(a.got, b.got) })
	for i, g := range grants[min(1, len(grants)):] {
		if last := grants[i]; !isForgotten(min(last.From, g.From), max(last.To, g.To)) {
			g.floor = last.got
		}
	}
}
