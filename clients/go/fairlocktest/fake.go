// Package fairlocktest has a fake for the tests of programs that use locks; it needs no server.
//
//	fake := fairlocktest.New()
//	program(fake.Locks)          // a *fairlock.Locks
//	fake.Break("orders")
//
// It is fairlock itself, with a server in this process in place of Redis: queue, wait, errors and hooks are the
// same. Leases do not end by themselves: Expire ends them.
package fairlocktest

import (
	fairlock "fairlock.example/clients/go"
	"fairlock.example/clients/go/internal/wire"
)

// Fake is a *fairlock.Locks that needs no server. Two of them share no locks.
type Fake struct {
	*fairlock.Locks
	server *server
	lose   func(tokens []int64, cause string)
}

// New makes a fake; the options are those of fairlock.New.
func New(options ...fairlock.Option) *Fake {
	made := &server{locks: map[string]*lock{}}
	fake := wire.NewFake(func() wire.Line { return &line{server: made, closed: make(chan struct{})} }, options)
	return &Fake{Locks: fake.Locks.(*fairlock.Locks), server: made, lose: fake.Lose}
}

// Expire ends the leases of all that hold the lock.
func (f *Fake) Expire(name string) { f.lose(f.server.free(name), string(fairlock.CauseLease)) }

// Break frees the lock, as FAIRLOCK.BREAK does.
func (f *Fake) Break(name string) { f.lose(f.server.free(name), string(fairlock.CauseNotHeld)) }

// Holders lists the owners that hold the lock.
func (f *Fake) Holders(name string) []string {
	holding, _ := f.server.owners(name)
	return holding
}

// Waiting lists the owners that wait for the lock, first in, first out.
func (f *Fake) Waiting(name string) []string {
	_, waiting := f.server.owners(name)
	return waiting
}
