package fairlock_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestTheProgramOfTheREADMERuns(t *testing.T) {
	text := read(t, "README.md")
	program := regexp.MustCompile("(?s)```go\n(package main.*?)```").FindStringSubmatch(text)[1]
	promised := regexp.MustCompile(`It prints .*?\n\n((?:    .*\n)+)`).FindStringSubmatch(text)[1]
	// A reader's server has the usual port.
	usual := `"127.0.0.1:6379"`
	expect(t, strings.Contains(program, usual), "it names the server")
	program = strings.Replace(program, usual, `"`+address+`"`, 1)
	output := runProgram(t, program)
	pattern := regexp.QuoteMeta(strings.ReplaceAll(promised, "    ", ""))
	pattern = regexp.MustCompile(`\d{16}`).ReplaceAllString(pattern, `\d{16}`)
	expect(t, regexp.MustCompile("^"+pattern+"$").MatchString(output), "it prints that: %s", output)
}

// The other pieces of Go in the README compile; the last one is a test that scripts/clients/go runs.
func TestThePiecesOfTheREADMECompile(t *testing.T) {
	pieces := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, "README.md"), -1)
	expect(t, len(pieces) == 3, "a program and two pieces")
	program := `package main
import "context"
import "time"
import fairlock "fairlock.example/clients/go"
func work(context.Context, int64) error { return nil }
func pieces(ctx context.Context, locks *fairlock.Locks) {
` + pieces[1][1] + `
_, _ = err, info
_ = time.Minute
}
func main() {}`
	expect(t, runProgram(t, program) == "", "it prints nothing")
	expect(t, strings.Contains(read(t, "testdata/miniredis/service_test.go"), pieces[2][1]), "the README's is the one that runs")
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	expect(t, err == nil, "%v", err)
	return string(text)
}

// runProgram runs it as a module of its own, which requires what this one does.
func runProgram(t *testing.T, program string) string {
	t.Helper()
	folder := t.TempDir()
	here, err := filepath.Abs(".")
	expect(t, err == nil, "%v", err)
	module := strings.Replace(read(t, "go.mod"), "module fairlock.example/clients/go", "module program", 1) +
		"\nrequire fairlock.example/clients/go v0.0.0\nreplace fairlock.example/clients/go => " + here + "\n"
	for name, content := range map[string]string{"main.go": program, "go.mod": module, "go.sum": read(t, "go.sum")} {
		err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600)
		expect(t, err == nil, "%v", err)
	}
	command := exec.Command("go", "run", ".")
	command.Dir = folder
	command.Stderr = os.Stderr
	output, err := command.Output()
	expect(t, err == nil, "it runs: %v", err)
	return string(output)
}
