package fairlock

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"log"
	"strings"
	"time"
)

// The folder lua is a copy of clients/lua, which a module of Go cannot reach from here.
//
//go:embed lua/*.lua
var sources embed.FS

// script is a command of the module for a server that does not have it.
type script struct{ digest, text string }

var scripts = map[any]script{
	"FAIRLOCK.ACQUIRE": source("acquire"), "FAIRLOCK.RELEASE": source("release"),
	"FAIRLOCK.RENEW": source("renew"), "FAIRLOCK.CANCEL": source("cancel"),
}

func source(name string) script {
	text, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // It would not have compiled.
	}
	digest := sha1.Sum(text)
	return script{hex.EncodeToString(digest[:]), string(text)}
}

// key is one of a lock besides its own, with Redisson's names: prefix:{name}, or prefix:name if the name has braces.
func key(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

func queueOf(name string) string { return key("redisson_lock_queue", name) }

// channelOf is the channel of an owner's wake-ups.
func channelOf(name, owner string) string { return key("redisson_lock__channel", name) + ":" + owner }

// asScript turns a command of the module into EVALSHA or EVAL of its script.
func asScript(verb string, command request) request {
	which, name := scripts[command[0]], command[1].(string)
	code := which.digest
	if verb == "EVAL" {
		code = which.text
	}
	words := request{verb, code, 4, name, queueOf(name), key("redisson_lock_timeout", name), key("fairlock_token", name)}
	return append(words, command[2:]...)
}

// hasScript reports whether a script can do what a command asks for: none blocks in the server, or has sessions and
// shared locks.
func hasScript(command request) bool {
	if _, ok := scripts[command[0]]; !ok {
		return false
	}
	canWait := command[0] != "FAIRLOCK.ACQUIRE"
	for _, word := range command[3:] {
		switch word {
		case "SESSION", "SHARED":
			return false
		case "ENQUEUE", "NOWAIT":
			canWait = true
		}
	}
	return canWait
}

// send sends commands at once. The first may be one of the module: to a server without the module its script is sent.
// Each connection begins with the commands, and returns to them once another one has found the module.
func (c *conn) send(ctx context.Context, longest time.Duration, commands ...request) (replies []answer) {
	if !hasScript(commands[0]) || !c.lacksModule() {
		replies = c.pass(ctx, longest, commands)
		if c.learn(commands[0], replies[0].err); !hasScript(commands[0]) || !c.lacksModule() {
			return replies
		}
	}
	for _, verb := range []string{"EVALSHA", "EVAL"} {
		replies = c.pass(ctx, longest, append([]request{asScript(verb, commands[0])}, commands[1:]...))
		if codeOf(replies[0].err) != "NOSCRIPT" {
			break
		}
	}
	return replies
}

func (c *conn) lacksModule() bool {
	c.locks.mutex.Lock()
	defer c.locks.mutex.Unlock()
	return c.knowsNone && c.locks.without[c.place.address]
}

// learn takes the server's answer to a command.
func (c *conn) learn(command request, err error) {
	word, _ := command[0].(string)
	if !strings.HasPrefix(word, "FAIRLOCK.") || err != nil && replied(err) == nil {
		return
	}
	if word == "FAIRLOCK.INFO" && isDenied(err) { // A user may lack it alone.
		return
	}
	isWithout, l := isOutOfReach(err), c.locks
	l.mutex.Lock()
	isNews := isWithout && !l.options.isRequired && !l.hasWarned
	l.native, l.isKnown, l.hasWarned = !isWithout, true, l.hasWarned || isNews
	if !l.options.isRequired {
		c.knowsNone, l.without[c.place.address] = isWithout, isWithout
	}
	l.mutex.Unlock()
	if isNews {
		why, cure := "the server does not have the fairlock module", "Load it"
		if isDenied(err) {
			why, cure = "the user may not run the commands of the fairlock module", "Allow them"
		}
		log.Printf("%s: %s: locks are taken by scripts. %s for hand-off, sessions and shared locks, "+
			"or set module to \"required\" to refuse (RequireModule)", c.place.address, why, cure)
	}
}

// Native reports whether locks are taken by the server's module, or by scripts; known is false before the server's
// first answer.
func (l *Locks) Native() (native, known bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.native, l.isKnown
}
