package main

import "slices"

// The server of a random history.

type held struct {
	token, holds int64
	limit        int
	// By the server's clock.
	end int64
	// How many of the holds end with the connection: when the server hears of that; 0: not yet.
	bound, cut int64
	lease      int64
}

// The server does what is due.
func (w *world) serve() {
	for c, o := range w.owners {
		if o.cut != 0 && o.cut <= w.now {
			w.unbind(c)
		} else if o.bound == 0 && o.end <= w.now+w.ahead {
			delete(w.owners, c)
		}
	}
	w.onWay = slices.DeleteFunc(w.onWay, func(r *request) bool {
		if r.at == w.now {
			w.carryOut(r)
		}
		return r.at <= w.now
	})
	w.waiting = slices.DeleteFunc(w.waiting, func(r *request) bool {
		if !w.acquire(r) && r.until > w.now {
			return false
		}
		r.answered = w.soon(4)
		return true
	})
}

func (w *world) carryOut(r *request) {
	c := *r.line.Client
	was, isHolder := w.owners[c]
	r.answered = w.soon(4)
	isHolder = isHolder && (r.line.Token == 0 || r.line.Token == was.token)
	switch {
	case r.line.Call == "acquire":
		w.waiting = slices.DeleteFunc(w.waiting, func(other *request) bool { return *other.line.Client == c })
		if !w.acquire(r) && r.line.Way == "blocked" {
			r.answered = 0
			w.waiting = append(w.waiting, r)
		}
		if r.line.Way == "transaction" && r.reply.Answer == "granted" {
			w.release(c)
		}
	case !isHolder && w.clients[c].script && len(w.owners) == 0:
		// Redisson's script replies 0 for a lock that is free.
		r.reply.Answer = "left"
	case !isHolder:
		r.reply.Answer = "not held"
	case r.line.Call == "renew":
		was.end = w.now + w.ahead + r.line.Lease/ms
		w.owners[c] = was
		r.reply.Answer = "done"
	default:
		r.reply.Answer, r.reply.Holds = "left", w.release(c)
		if w.clients[c].script && r.reply.Holds > 0 {
			r.reply.Holds = 1
		}
	}
}

func (w *world) release(c int) int64 {
	o := w.owners[c]
	o.bound = max(0, o.bound-1)
	return w.leave(c, o, 1)
}

// The server has heard that the connection is gone.
func (w *world) unbind(c int) {
	o := w.owners[c]
	bound := o.bound
	o.bound, o.cut = 0, 0
	w.leave(c, o, bound)
}

func (w *world) leave(c int, o held, holds int64) int64 {
	o.holds -= holds
	w.owners[c] = o
	if o.holds == 0 {
		delete(w.owners, c)
	}
	return o.holds
}

// Whether the lock is granted.
func (w *world) acquire(r *request) bool {
	c := *r.line.Client
	if w.owners[c].cut != 0 && !r.line.Once {
		w.unbind(c)
	}
	o, isHolder := w.owners[c]
	r.reply.Answer = "not now"
	limit := w.clients[c].limit
	for _, other := range w.owners {
		limit = tighter(limit, other.limit)
	}
	switch {
	case isHolder && !r.line.Once:
		o.holds++
	case !isHolder && limit != 0 && len(w.owners) >= limit:
		return false
	case !isHolder && w.clients[c].script:
		o = held{holds: 1, limit: 1}
	case !isHolder:
		w.last = max(w.last+1, w.time())
		o = held{token: w.last, holds: 1, limit: w.clients[c].limit}
	}
	if r.line.Session || o.bound == 0 {
		o.lease = r.line.Lease / ms
	}
	o.end = w.now + w.ahead + r.line.Lease/ms
	switch {
	case r.line.Session && r.line.Once:
		o.bound, o.cut = o.holds, 0
	case r.line.Session:
		o.bound++
	}
	w.owners[c] = o
	r.reply.Answer, r.reply.Got = "granted", o.token
	return true
}

// By the server's clock, microseconds.
func (w *world) time() int64 { return 1_000_000_000 + (w.now+w.ahead)*ms }
