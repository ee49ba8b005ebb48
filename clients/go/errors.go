package fairlock

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// What an *Error can be, for errors.Is.
var (
	// ErrNotInTime says that the lock did not become available within the wait.
	ErrNotInTime = errors.New("fairlock: not in time")
	// ErrNotReplicated says that no replica confirmed the acquisition within the wait; it is ErrNotInTime, too.
	ErrNotReplicated = errors.New("fairlock: not replicated in time")
	// ErrLockLost says that the holder has lost the lock; see Error.Cause.
	ErrLockLost = errors.New("fairlock: lock lost")
	// ErrTakenOver says that the same owner asks elsewhere, and has the place in the queue now.
	ErrTakenOver = errors.New("fairlock: taken over")
	// ErrQueueFull says that the lock has as many waiters as the server allows (fairlock.max-waiters).
	ErrQueueFull = errors.New("fairlock: queue full")
	// ErrNotALock says that the key holds a hash that is not a lock.
	ErrNotALock = errors.New("fairlock: not a lock")
	// ErrWrongType says that one of the lock's keys holds something else.
	ErrWrongType = errors.New("fairlock: wrong type")
	// ErrCrossSlot says that in a cluster the braces in the name would put the lock's keys in different slots.
	ErrCrossSlot = errors.New("fairlock: cross slot")
	// ErrNoModule says that the server does not have the fairlock module.
	ErrNoModule = errors.New("fairlock: no module")
	// ErrRefused is any other refusal of the server: NOPERM, OOM, ERR, ...
	ErrRefused = errors.New("fairlock: refused")
	// ErrUnavailable says that for RetryTimeout the server could not be reached, or refused temporarily.
	ErrUnavailable = errors.New("fairlock: unavailable")
	// ErrClosed says that Locks was closed.
	ErrClosed = errors.New("fairlock: closed")
)

// Cause is why a lock was lost.
type Cause string

// The causes of ErrLockLost.
const (
	CauseLease      Cause = "lease"      // the lease is over, and no renewal has succeeded
	CauseNotHeld    Cause = "notheld"    // the server says that its owner does not hold it
	CauseConnection Cause = "connection" // the connection of a session has ended
	CauseClosed     Cause = "closed"     // Locks was closed
)

// Error is the type of all errors of this package except *ArgumentError; errors.Is tells them apart by the Err
// variables.
type Error struct {
	// Code is the first word of the server's error, if it was one.
	Code string
	// Cause is why the lock was lost (ErrLockLost).
	Cause Cause

	kind      error
	text      string
	reason    error
	mayBeDone bool // by an earlier try, whose reply was lost
}

func (e *Error) Error() string { return e.text }

// Is says whether it is of the kind of target.
func (e *Error) Is(target error) bool {
	return target == e.kind || target == ErrNotInTime && e.kind == ErrNotReplicated
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.reason }

// ArgumentError says that an option is out of range, or another argument is wrong; nothing was sent.
type ArgumentError struct {
	// Option is its name, as in the package; "client" and "name" are those of New and of a lock.
	Option string
	// Text is the message.
	Text string
}

func (e *ArgumentError) Error() string { return "fairlock: " + e.Option + " " + e.Text }

func failed(kind error, reason error, format string, values ...any) *Error {
	return &Error{kind: kind, reason: reason, text: "fairlock: " + fmt.Sprintf(format, values...)}
}

func lost(name, address string, cause Cause) *Error {
	loss := failed(ErrLockLost, nil, "%s: the lock was lost (%s): %s", name, cause, address)
	loss.Cause = cause
	if cause == CauseNotHeld {
		loss.Code = "NOTHELD"
	}
	return loss
}

// addressed is an error with the server's address.
func addressed(address string, err error) error {
	if address == "" || strings.Contains(err.Error(), address) {
		return err
	}
	return fmt.Errorf("%s: %w", address, err)
}

const help = "(unknown command 'FAIRLOCK.ACQUIRE'). " +
	`Load it: "loadmodule /path/to/libfairlock.so" in its redis.conf, or MODULE LOAD. See docs/operations.md at https://fairlock.example`

const permissions = "what a user needs is in SECURITY.md at https://fairlock.example"

var kinds = map[string]error{
	"TAKENOVER": ErrTakenOver, "QUEUEFULL": ErrQueueFull, "NOTALOCK": ErrNotALock,
	"WRONGTYPE": ErrWrongType, "CROSSSLOT": ErrCrossSlot,
}

// Refusals that pass: the same owner asks again, and still has its place.
var passing = map[string]bool{
	"CLUSTERDOWN": true, "TRYAGAIN": true, "LOADING": true, "READONLY": true, "MASTERDOWN": true, "NOREPLICAS": true,
	"UNBLOCKED": true, "MOVED": true, "ASK": true,
}

// replied is the error that a server replied with, or nil.
func replied(err error) redis.Error {
	var reply redis.Error
	errors.As(err, &reply)
	return reply
}

// codeOf is the first word of a reply, and "" for a failed connection.
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

// isPassing reports whether trying again a little later may help.
func isPassing(err error) bool {
	code := codeOf(err)
	return code == "" || passing[code]
}

// isUnknown says that the server does not know the command; the second text is Upstash's.
func isUnknown(err error) bool {
	if codeOf(err) != "ERR" {
		return false
	}
	text := strings.ToUpper(replied(err).Error())
	return strings.Contains(text, "UNKNOWN COMMAND") || strings.Contains(text, "COMMAND IS NOT AVAILABLE")
}

// isDenied says that the user may not run a command of the module.
func isDenied(err error) bool {
	return codeOf(err) == "NOPERM" && strings.Contains(strings.ToUpper(replied(err).Error()), "'FAIRLOCK.")
}

// isOutOfReach says that the module's commands cannot be used.
func isOutOfReach(err error) bool { return isUnknown(err) || isDenied(err) }

// refusal is the error of this package for one of the server. If the module is not required, an option needs it.
func (l *Locks) refusal(err error, name, address, option string) *Error {
	code, text := codeOf(err), replied(err).Error()
	if isUnknown(err) && strings.Contains(strings.ToUpper(text), "FAIRLOCK.") {
		what := "the server does not have the fairlock module "
		if option != "" && !l.options.isRequired {
			what = option + " needs the fairlock module, which the server does not have "
		}
		return &Error{Code: code, kind: ErrNoModule, reason: err, text: address + ": " + what + help}
	}
	kind, ok := kinds[code]
	if !ok {
		kind = ErrRefused
	}
	refused := failed(kind, err, "%s: %v%s", name, addressed(address, err), hint(code, text))
	refused.Code = code
	return refused
}

func hint(code, text string) string {
	text = strings.ToLower(text)
	switch {
	case code == "NOAUTH":
		return " (give the client a password)"
	case code == "NOPERM" && (strings.Contains(text, "'role'") || strings.Contains(text, "'wait'")):
		return " (allow ROLE and WAIT, which confirm that replicas have the lock, or say SyncTimeout(0);" +
			" sync_timeout in the documentation; " + permissions + ")"
	case code == "NOPERM":
		return " (" + permissions + ")"
	}
	return ""
}
