package main

import (
	"fmt"
	"slices"
)

// Rules for what is no call: faults and sights.

// The connection of a client is lost, and what it held as a session ends now or later.
func (e *step) disconnected(s *state) string {
	if is, held := s.owner(e.client); held && is.session {
		s.put(is.doubted())
	}
	return ""
}

// All connections are lost.
func (e *step) failedOver(s *state) string {
	for i, o := range s.owners {
		if o.session {
			s.owners[i] = o.doubted()
		}
	}
	return ""
}

// The server was killed and started again.
func (e *step) killed(s *state) string {
	e.failedOver(s)
	s.exorcise(func(g ghost) bool { return g.from < e.From })
	if e.forgets && e.floor < s.floor {
		s.floor, s.floorOf = e.floor, e.floorOf
	}
	if e.LostSince != nil {
		s.owners, s.anyone = nil, true
	}
	return ""
}

func (e *step) freed(s *state) string {
	s.owners, s.anyone = nil, false
	return ""
}

func (e *step) freedOfOne(s *state) string {
	s.remove(e.client)
	return ""
}

// The holders at an instant, as the keys have them. One that shares the lock can be among them for a while after its
// lease has ended.
func (e *step) seen(s *state) string {
	if e.most != 0 && len(e.Holders) > e.most {
		return fmt.Sprintf("one of them tolerates %d", e.most)
	}
	for _, client := range e.Holders {
		is, held := s.owner(client)
		held = held && !(is.limit == 1 && e.isOver(is, s))
		if !held && !s.anyone && !s.haunted(client) {
			return fmt.Sprintf("c%d does not hold the lock", client)
		}
	}
	for _, o := range s.owners {
		if e.certainly(o) && !slices.Contains(e.Holders, o.client) {
			return fmt.Sprintf("c%d holds the lock", o.client)
		}
	}
	if s.anyone {
		e.pinDown(s)
	}
	s.drop(func(o owner) bool { return !slices.Contains(e.Holders, o.client) })
	return ""
}

// Anyone may be a holder: these may, and no others.
func (e *step) pinDown(s *state) {
	s.anyone = false
	for _, client := range e.Holders {
		if _, held := s.owner(client); !held {
			s.put(owner{client: client, limit: e.habits[client].limit, until: unknown, mayBeGreatest: true})
		}
	}
}
