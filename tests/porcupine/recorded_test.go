package main

import (
	"os"
	"testing"
)

// One lock of a real run, without what the rules do not read; a copy for each test to spoil.
func recorded(t *testing.T) []*line {
	t.Helper()
	file, err := os.Open("testdata/recorded.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	history, err := read(file)
	if err != nil {
		t.Fatal(err)
	}
	return history.lines
}

func TestARecordedHistoryIsTaken(t *testing.T) {
	lines := recorded(t)
	verdict := judge(lines, locksOf(lines)[0], longEnough)
	if verdict.code != accepted || len(verdict.steps) < 100 {
		t.Error(verdict)
	}
}

// What makes a recorded history wrong, by changing it at a line; false if it is no line for that. In some places the
// history becomes another right one: a token where an answer was lost, a holder whose lease may have ended.
var mutations = map[string]func(lines []*line, at int) bool{
	"two acquisitions have each other's tokens": func(lines []*line, at int) bool {
		next := nextGrant(lines, at)
		if !isGrant(lines[at]) || next == nil || *next.Client == *lines[at].Client {
			return false
		}
		lines[at].Got, next.Got = next.Got, lines[at].Got
		return true
	},
	"a token is lower by a second": func(lines []*line, at int) bool {
		isGrant := isGrant(lines[at])
		lines[at].Got -= 1_000_000
		return isGrant
	},
	"a token is given twice": func(lines []*line, at int) bool {
		next := nextGrant(lines, at)
		if !isGrant(lines[at]) || next == nil || *next.Client == *lines[at].Client {
			return false
		}
		next.Got = lines[at].Got
		return true
	},
	"a holder is told that it is none": func(lines []*line, at int) bool {
		line := lines[at]
		isLast := line.Answer == "left" && line.Holds == 0
		line.Answer = "not held"
		return isLast
	},
	"a release leaves a hold more": func(lines []*line, at int) bool {
		lines[at].Holds++
		return lines[at].Answer == "left"
	},
	"a release never was": func(lines []*line, at int) bool {
		isLast := lines[at].Answer == "left" && lines[at].Holds == 0
		lines[at].Call, lines[at].Answer = "cancel", "done"
		return isLast && nextGrant(lines, at) != nil
	},
	"the keys name one more": func(lines []*line, at int) bool {
		line := lines[at]
		line.Holders = append(line.Holders, 99)
		return line.Sight != ""
	},
}

func isGrant(line *line) bool { return line.Got != 0 && line.Way != "transaction" }

func nextGrant(lines []*line, at int) *line {
	for _, line := range lines[at+1:] {
		if isGrant(line) {
			return line
		}
	}
	return nil
}

func TestARecordedHistoryThatWasSpoiltIsRefused(t *testing.T) {
	length := len(recorded(t))
	for name, spoil := range mutations {
		t.Run(name, func(t *testing.T) {
			tried, found := 0, 0
			for at := 0; at < length; at++ {
				lines := recorded(t)
				if !spoil(lines, at) {
					continue
				}
				tried++
				if verdict := judge(lines, locksOf(lines)[0], longEnough); verdict.code == refused {
					found++
				} else {
					t.Log(lines[at].number, verdict)
				}
			}
			t.Logf("%d of %d", found, tried)
			if tried < 10 || found*10 < tried*9 {
				t.Errorf("%d of %d were refused", found, tried)
			}
		})
	}
}
