// Porcupine judges histories of tests/chaos: whether one order of all steps explains what the clients were told.
//
//	go run ./tests/porcupine [-timeout 1m] HISTORY...
//
// README.md has the format of a history, and the rules.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

// What the program exits with; `go run` itself exits with 1 instead, and prints it.
const (
	accepted = iota
	refused
	undecided
	unreadable
)

func main() {
	timeout := flag.Duration("timeout", time.Minute, "how long to try for each lock")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "porcupine: which histories?")
		os.Exit(unreadable)
	}
	worst := accepted
	for _, path := range flag.Args() {
		code, err := judgeFile(path, *timeout)
		if err != nil {
			fmt.Printf("%s: %v\n", path, err)
		}
		worst = worse(worst, code)
	}
	os.Exit(worst)
}

// A refusal is worse than everything that could not be judged.
func worse(a, b int) int {
	if a == refused || b == refused {
		return refused
	}
	return max(a, b)
}

func judgeFile(path string, timeout time.Duration) (int, error) {
	file, err := os.Open(path)
	if err != nil {
		return unreadable, err
	}
	defer file.Close()
	history, err := read(file)
	if err != nil {
		return unreadable, err
	}
	title := history.title
	fmt.Printf("%s: %s, %s, seed %d, commit %s\n", path, title.Server, title.Suite, title.Seed, title.Commit)
	worst := accepted
	for _, lock := range locksOf(history.lines) {
		verdict := judge(history.lines, lock, timeout)
		fmt.Println("  " + verdict.String())
		worst = worse(worst, verdict.code)
		if verdict.code == refused {
			if err := verdict.draw(fmt.Sprintf("%s.lock%d.html", path, lock)); err != nil {
				return worst, err
			}
		}
	}
	return worst, nil
}
