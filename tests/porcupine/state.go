package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// All that is known of a lock between two steps: what it certainly is, and what it may be. So one state stands for all
// states that the lock can be in, and a step is refused only if none of them allows it.
type state struct {
	// The next step is not before.
	now int64
	// The greatest token that was given, and to whom.
	floor   int64
	floorOf int
	// A server that has lost writes: every client may hold the lock.
	anyone bool
	// By client.
	owners []owner
	// Requests for the lock that had no answer and may still be carried out, by client.
	ghosts []ghost
}

// A client that holds the lock, or may hold it.
type owner struct {
	client int
	limit  int
	// It holds the lock unless its lease can have ended.
	certain bool
	// 0: none, or not known.
	token int64
	// A token that is not known may be the greatest that was given.
	mayBeGreatest bool
	// 0: not known.
	holds int64
	// A lease of this length runs since then at the earliest.
	from, lease int64
	// By then it has ended.
	until int64
	// The server renews the lease as long as the connection is open.
	session bool
	// Redisson's script: it has no token, and tells only whether a hold is left.
	script bool
}

// A request for the lock without an answer.
type ghost struct {
	client int
	limit  int
	// It may be carried out at any time. Others are carried out before the client's next request, or never.
	blocked bool
	// What it brings ends with a connection that is gone.
	session bool
	// When it was sent.
	from int64
}

const unknown = math.MaxInt64

func (s *state) owner(client int) (owner, bool) {
	i, found := s.find(client)
	if !found {
		return owner{}, false
	}
	return s.owners[i], true
}

func (s *state) find(client int) (int, bool) {
	return slices.BinarySearchFunc(s.owners, client, func(o owner, client int) int { return o.client - client })
}

// A copy that can be changed.
func (s *state) clone() *state {
	clone := *s
	clone.owners = slices.Clone(s.owners)
	return &clone
}

func (s *state) put(o owner) {
	i, found := s.find(o.client)
	if !found {
		s.owners = slices.Insert(s.owners, i, o)
	}
	s.owners[i] = o
}

func (s *state) drop(gone func(owner) bool) { s.owners = slices.DeleteFunc(s.owners, gone) }

func (s *state) remove(client int) { s.drop(func(o owner) bool { return o.client == client }) }

// It may have gone, or come anew.
func (o owner) doubted() owner {
	o.certain, o.holds, o.until = false, 0, unknown
	return o
}

// Whether its token may be the greatest that was given.
func (o owner) hasGreatest(s *state) bool {
	return o.mayBeGreatest || o.token != 0 && o.token == s.floor
}

func (s *state) haunted(client int) bool {
	return slices.ContainsFunc(s.ghosts, func(g ghost) bool { return g.client == client })
}

// Of one client and kind, one stands for all.
func (s *state) haunt(new ghost) {
	s.ghosts = slices.Clone(s.ghosts)
	i, found := slices.BinarySearchFunc(s.ghosts, new, compareGhosts)
	if !found {
		s.ghosts = slices.Insert(s.ghosts, i, new)
	}
	s.ghosts[i].from = max(s.ghosts[i].from, new.from)
	s.ghosts[i].session = s.ghosts[i].session || new.session
}

func compareGhosts(a, b ghost) int {
	if a.client != b.client {
		return a.client - b.client
	}
	if a.blocked == b.blocked {
		return 0
	}
	if a.blocked {
		return 1
	}
	return -1
}

// Requests that cannot be carried out any more: they were before, or never will be. Whether there were any.
func (s *state) exorcise(over func(ghost) bool) bool {
	var remain []ghost
	for _, g := range s.ghosts {
		if over(g) {
			was, _ := s.owner(g.client)
			s.put(owner{
				client: g.client, limit: g.limit, until: unknown,
				session: was.session || g.session, mayBeGreatest: was.hasGreatest(s),
			})
		} else {
			remain = append(remain, g)
		}
	}
	changed := len(remain) != len(s.ghosts)
	s.ghosts = remain
	return changed
}

func (s *state) equal(other *state) bool {
	return s.now == other.now && s.floor == other.floor && s.floorOf == other.floorOf && s.anyone == other.anyone &&
		slices.Equal(s.owners, other.owners) && slices.Equal(s.ghosts, other.ghosts)
}

// For the picture.
func (s *state) String() string {
	var holders []string
	for _, o := range s.owners {
		doubt := ""
		if !o.certain {
			doubt = "?"
		}
		holders = append(holders, fmt.Sprintf("c%d%s holds %d token %d", o.client, doubt, o.holds, o.token))
	}
	for _, g := range s.ghosts {
		holders = append(holders, fmt.Sprintf("c%d may come", g.client))
	}
	if s.anyone {
		holders = append(holders, "anybody may hold it")
	}
	if len(holders) == 0 {
		holders = []string{"free"}
	}
	return fmt.Sprintf("%s; greatest token %d", strings.Join(holders, ", "), s.floor)
}
