package fairlocktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"fairlock.example/clients/go/internal/wire"
)

const notHeld = wire.ReplyError("NOTHELD the owner does not hold the lock")

// server is the locks of a server, in this process: the rules of FAIRLOCK.ACQUIRE and the others. Strictly first
// come, first served; leases do not end by themselves.
type server struct {
	mutex  sync.Mutex
	tokens int64
	locks  map[string]*lock
}

type lock struct{ holders, queue []*place }

// place is an owner's, among the holders or in the queue.
type place struct {
	owner string
	token int64
	limit int      // of holders in all; 1 is exclusive, 0 SHARED without a limit
	reply chan any // to who waits, with room for one
}

func (s *server) lock(name string) *lock {
	if s.locks[name] == nil {
		s.locks[name] = &lock{}
	}
	return s.locks[name]
}

// do replies, or returns the place of who waits now.
func (s *server) do(words wire.Command) (reply any, waiting *place) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch words[0] {
	case "ROLE":
		return []any{"master", int64(0), []any{}}, nil
	case "FAIRLOCK.INFO":
		return s.lock(words[1].(string)).info(), nil
	}
	at, owner := s.lock(words[1].(string)), words[2].(string)
	switch words[0] {
	case "FAIRLOCK.ACQUIRE":
		return s.acquire(at, owner, words[3:])
	case "FAIRLOCK.RELEASE":
		return s.release(at, owner, words[3:]), nil
	case "FAIRLOCK.RENEW":
		if find(at.holders, owner) < 0 {
			return notHeld, nil
		}
		return words[4], nil
	case "FAIRLOCK.CANCEL":
		number := find(at.queue, owner)
		if number < 0 {
			return int64(0), nil
		}
		at.queue[number].reply <- nil
		s.remove(at, at.queue[number])
		return int64(1), nil
	}
	return wire.ReplyError(fmt.Sprintf("ERR unknown command '%v'", words[0])), nil
}

func (s *server) acquire(at *lock, owner string, options wire.Command) (any, *place) {
	if number := find(at.holders, owner); number >= 0 {
		return at.holders[number].token, nil
	}
	asked := &place{owner: owner, limit: limit(options), reply: make(chan any, 1)}
	number := find(at.queue, owner)
	switch {
	case len(at.queue) == 0 && at.fits(asked):
		return s.grant(at, asked), nil
	case options[len(options)-1] == "NOWAIT":
		return nil, nil
	case number >= 0:
		at.queue[number].reply <- wire.ReplyError("TAKENOVER the owner asks on another connection")
		at.queue[number] = asked
	default:
		number = len(at.queue)
		at.queue = append(at.queue, asked)
	}
	if contains(options, "ENQUEUE") {
		return []any{int64(number + 1), int64(0)}, nil
	}
	return nil, asked
}

func contains(options wire.Command, word string) bool {
	for _, each := range options {
		if each == word {
			return true
		}
	}
	return false
}

// info is INFO's map; leases have no end here.
func (at *lock) info() any {
	words := []any{"waiting", int64(len(at.queue)), "holders", int64(len(at.holders))}
	if len(at.holders) > 0 {
		first := at.holders[0]
		words = append(words, "owner", first.owner, "holds", int64(1), "lease", int64(-1), "token", first.token,
			"limit", int64(at.limit()))
	}
	return words
}

// limit is how many holders all of them tolerate.
func (at *lock) limit() (least int) {
	for _, each := range at.holders {
		if least == 0 || each.limit > 0 && each.limit < least {
			least = each.limit
		}
	}
	return least
}

func (s *server) grant(at *lock, asked *place) int64 {
	s.tokens++
	asked.token = s.tokens
	at.holders = append(at.holders, asked)
	return asked.token
}

func (s *server) release(at *lock, owner string, options wire.Command) any {
	number := find(at.holders, owner)
	if number < 0 || len(options) == 2 && options[1] != at.holders[number].token {
		return notHeld
	}
	at.holders = append(at.holders[:number:number], at.holders[number+1:]...)
	s.serve(at)
	return int64(0)
}

func (s *server) serve(at *lock) {
	for len(at.queue) > 0 && at.fits(at.queue[0]) {
		next := at.queue[0]
		at.queue = at.queue[1:]
		next.reply <- s.grant(at, next)
	}
}

// leave is for one who waits no more.
func (s *server) leave(name string, waiting *place) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.remove(s.lock(name), waiting)
}

func (s *server) remove(at *lock, waiting *place) {
	for number, each := range at.queue {
		if each == waiting {
			at.queue = append(at.queue[:number:number], at.queue[number+1:]...)
			s.serve(at)
			return
		}
	}
}

// free takes the lock from all that hold it, and returns their tokens.
func (s *server) free(name string) (tokens []int64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	at := s.lock(name)
	for _, holder := range at.holders {
		tokens = append(tokens, holder.token)
	}
	at.holders = nil
	s.serve(at)
	return tokens
}

// owners are those who hold the lock, and those who wait for it, in their order.
func (s *server) owners(name string) (holding, waiting []string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	at := s.lock(name)
	for _, each := range at.holders {
		holding = append(holding, each.owner)
	}
	for _, each := range at.queue {
		waiting = append(waiting, each.owner)
	}
	return holding, waiting
}

func find(places []*place, owner string) int {
	for number, each := range places {
		if each.owner == owner {
			return number
		}
	}
	return -1
}

// fits: every holder tolerates at most its limit of holders in all, itself included.
func (at *lock) fits(asked *place) bool {
	for _, each := range append([]*place{asked}, at.holders...) {
		if each.limit > 0 && len(at.holders)+1 > each.limit {
			return false
		}
	}
	return true
}

func limit(options wire.Command) int {
	if options[0] != "SHARED" {
		return 1
	}
	given, _ := options[1].(int)
	return given
}

var errClosed = errors.New("the connection is closed")

// line is a connection to the server in this process.
type line struct {
	server *server
	once   sync.Once
	closed chan struct{}
}

func (l *line) Call(ctx context.Context, _ time.Duration, commands ...wire.Command) []wire.Reply {
	replies := make([]wire.Reply, len(commands))
	for number, words := range commands {
		replies[number].Value, replies[number].Err = l.call(ctx, words)
	}
	return replies
}

func (l *line) call(ctx context.Context, words wire.Command) (any, error) {
	if l.IsClosed() {
		return nil, errClosed
	}
	reply, waiting := l.server.do(words)
	if waiting != nil {
		var err error
		if reply, err = l.wait(ctx, words, waiting); err != nil {
			return nil, err
		}
	}
	if refused, ok := reply.(wire.ReplyError); ok {
		return nil, refused
	}
	return reply, nil
}

func (l *line) wait(ctx context.Context, words wire.Command, waiting *place) (any, error) {
	var over <-chan time.Time
	if words[len(words)-2] == "WAIT" {
		timer := time.NewTimer(time.Duration(words[len(words)-1].(int64)) * time.Millisecond)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case reply := <-waiting.reply:
		return reply, nil
	case <-over:
		l.server.leave(words[1].(string), waiting)
		select {
		case reply := <-waiting.reply: // It came at the last moment.
			return reply, nil
		default:
			return nil, nil
		}
	case <-ctx.Done():
		l.Close()
		l.server.leave(words[1].(string), waiting)
		return nil, ctx.Err()
	case <-l.closed:
		l.server.leave(words[1].(string), waiting)
		return nil, errClosed
	}
}

func (l *line) Watch(time.Duration) error {
	<-l.closed
	return errClosed
}

func (l *line) Close() { l.once.Do(func() { close(l.closed) }) }

func (l *line) IsClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}
