package fairlock

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// What an *Error can be, for errors.Is.
var (
	ErrNotInTime     = errors.New("not in time")            // the lock did not become available within Wait
	ErrNotReplicated = errors.New("not replicated in time") // too few replicas confirmed it; it is ErrNotInTime, too
	ErrLockLost      = errors.New("lock lost")              // before its release; see Error.Cause
	ErrQueueFull     = errors.New("queue full")             // as many waiters as fairlock.max-waiters
	ErrNotALock      = errors.New("not a lock")             // the key holds a hash that is no lock
	ErrWrongType     = errors.New("wrong type")             // one of the lock's keys holds something else
	ErrCrossSlot     = errors.New("cross slot")             // in a cluster, braces in the name put the keys in different slots
	ErrNoModule      = errors.New("no module")              // the server does not have the fairlock module
	ErrRefused       = errors.New("refused")                // any other refusal of the server: NOPERM, OOM, ERR, ...
	ErrUnavailable   = errors.New("unavailable")            // for RetryTimeout not reached, or refused for the moment
	ErrClosed        = errors.New("closed")                 // Locks was closed, or its client
	ErrArgument      = errors.New("wrong argument")         // an option is out of range, for example; nothing was sent
)

// Cause is why a lock was lost.
type Cause string

// The causes of ErrLockLost.
const (
	CauseLease   Cause = "lease"   // the lease is over, and no renewal has succeeded
	CauseNotHeld Cause = "notheld" // the server says that its owner does not hold it
	CauseClosed  Cause = "closed"  // Locks was closed
)

// Error is the type of all errors of this package; errors.Is tells them apart by the Err variables.
type Error struct {
	Code  string // the first word of the server's error, if it was one
	Cause Cause  // why the lock was lost (ErrLockLost)

	kind   error
	text   string
	reason error
}

func (e *Error) Error() string { return "fairlock: " + e.text }

// Is says whether it is of the kind of target.
func (e *Error) Is(target error) bool {
	return target == e.kind || target == ErrNotInTime && e.kind == ErrNotReplicated
}

// Unwrap returns the first failure, of the client or of the server.
func (e *Error) Unwrap() error { return e.reason }

func failed(kind, reason error, format string, values ...any) *Error {
	return &Error{kind: kind, reason: reason, Code: codeOf(reason), text: fmt.Sprintf(format, values...)}
}

// replied is the error that a server replied with, or nil.
func replied(err error) (reply redis.Error) {
	errors.As(err, &reply)
	return reply
}

// codeOf is the first word of a server's error, and "" for a failed connection.
func codeOf(err error) string {
	reply := replied(err)
	if reply == nil {
		return ""
	}
	word, _, _ := strings.Cut(reply.Error(), " ")
	if word == "" || strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return "ERR"
	}
	return word
}

// isPassing says that asking again a little later may help.
func isPassing(err error) bool {
	switch codeOf(err) {
	case "":
		return !errors.Is(err, redis.ErrClosed)
	case "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "NOREPLICAS", "UNBLOCKED", "BUSY":
		return true
	}
	return redis.HasErrorPrefix(err, "max number of clients")
}

// isUnknown says that the server does not know the command; the second text is Upstash's.
func isUnknown(err error) bool {
	return redis.HasErrorPrefix(err, "unknown command") || redis.HasErrorPrefix(err, "Command is not available")
}

// isDenied says that the user may not run a command of the module.
func isDenied(err error) bool {
	return codeOf(err) == "NOPERM" && strings.Contains(strings.ToUpper(err.Error()), "'FAIRLOCK.")
}

var kinds = map[string]error{
	"QUEUEFULL": ErrQueueFull, "NOTALOCK": ErrNotALock, "WRONGTYPE": ErrWrongType, "CROSSSLOT": ErrCrossSlot, "": ErrClosed,
}

// refusal is the caller's error for one that does not pass.
func refusal(err error, name, address string, o *options) *Error {
	kind, hint, text := kinds[codeOf(err)], "", strings.ToLower(err.Error())
	const page = "what a user needs is in SECURITY.md at https://fairlock.example)"
	switch code := codeOf(err); {
	case isUnknown(err) && strings.Contains(text, "fairlock."):
		what := "the server does not have the fairlock module"
		if option := o.needsModule(); option != "" {
			what = option + " needs the fairlock module, which the server does not have"
		}
		return failed(ErrNoModule, err, "%s: %s: %v. Load it: \"loadmodule /path/to/libfairlock.so\" in its redis.conf, or MODULE LOAD. "+
			"See docs/operations.md at https://fairlock.example", address, what, err)
	case code == "NOAUTH":
		hint = " (give the client a password)"
	case code == "NOPERM" && (strings.Contains(text, "'role'") || strings.Contains(text, "'wait'")):
		hint = " (allow ROLE and WAIT, which confirm that replicas have the lock, or say SyncTimeout(0); " + page
	case code == "NOPERM":
		hint = " (" + page
	}
	if kind == nil {
		kind = ErrRefused
	}
	return failed(kind, err, "%s: %s: %v%s", name, address, err, hint)
}
