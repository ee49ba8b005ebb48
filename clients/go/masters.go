package fairlock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const guideTime = time.Second // for an answer of one, before the next is asked

// address is the node for a lock; a guide is asked if it is not known for sure.
func (l *Locks) address(ctx context.Context, name string) (string, error) {
	if address, isSure := l.route.node(name); isSure || !l.route.isGuided() {
		return address, nil
	}
	if err := l.look(ctx, time.Now()); err != nil {
		return "", err
	}
	if address, ok := l.route.node(name); ok {
		return address, nil
	}
	return "", replyError("CLUSTERDOWN no node has the slot")
}

// look asks for the masters, unless that was begun since. Connections to former masters are closed.
func (l *Locks) look(ctx context.Context, since time.Time) error {
	leave, err := l.enter(ctx, place{kind: guide})
	if err != nil {
		return err
	}
	defer leave()
	if l.looked.After(since) && l.route.isKnown() {
		return nil
	}
	begun := time.Now()
	for _, each := range l.route.toAsk() {
		now, failure := l.ask(ctx, each)
		if failure == nil {
			l.looked = begun
			for _, gone := range l.route.learn(each, now) {
				l.abandon(gone)
			}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// A refusal tells more than a failed connection.
		if err == nil || replied(failure) != nil {
			err = addressed(each, failure)
		}
	}
	l.route.doubt()
	return err
}

func (l *Locks) ask(ctx context.Context, guide string) (masters, error) {
	if l.route.isCluster {
		return l.askNode(ctx, guide)
	}
	return l.askSentinel(ctx, guide)
}

func (l *Locks) askGuide(ctx context.Context, address string, commands ...request) ([]answer, error) {
	c, err := l.take(ctx, place{guide, address})
	if err != nil {
		return nil, err
	}
	defer l.give(c)
	replies := c.send(ctx, min(guideTime, l.options.commandTimeout), commands...)
	for _, each := range replies {
		if each.err != nil {
			return nil, each.err
		}
	}
	return replies, nil
}

// askSentinel learns the master, and whether it has replicas, including those that are down.
func (l *Locks) askSentinel(ctx context.Context, address string) (masters, error) {
	name := l.route.masterName
	replies, err := l.askGuide(ctx, address,
		request{"SENTINEL", "GET-MASTER-ADDR-BY-NAME", name}, request{"SENTINEL", "MASTER", name})
	if err != nil {
		return masters{}, err
	}
	pair := texts(replies[0].value)
	if len(pair) != 2 {
		return masters{}, fmt.Errorf("it knows no master %q", name)
	}
	master, details := join(pair[0], pair[1], address), texts(replies[1].value)
	now := masters{
		bySlot: map[int]string{0: master}, shards: map[string]string{master: name}, replicated: map[string]bool{},
	}
	for at := 0; at+1 < len(details); at += 2 {
		if details[at] == "num-slaves" && details[at+1] != "0" {
			now.replicated[name] = true
		}
	}
	return now, nil
}

// askNode learns which node has the slots, by CLUSTER SLOTS: [first, last, [host, port, id, ...] of the master, of a
// replica, ...] for each range; and which have replicas, by CLUSTER NODES, since SLOTS may leave out those that are
// down.
func (l *Locks) askNode(ctx context.Context, address string) (masters, error) {
	replies, err := l.askGuide(ctx, address, request{"CLUSTER", "SLOTS"}, request{"CLUSTER", "NODES"})
	if err != nil {
		return masters{}, err
	}
	now := masters{bySlot: map[int]string{}, shards: map[string]string{}, replicated: map[string]bool{}}
	ranges, _ := replies[0].value.([]any)
	for _, each := range ranges {
		if parts, _ := each.([]any); len(parts) > 2 {
			now.addRange(parts, address)
		}
	}
	list, _ := replies[1].value.(string)
	for _, line := range strings.Split(list, "\n") {
		// id address flags master ...: a replica that takes over has its master's data.
		if words := strings.Fields(line); len(words) > 3 && strings.Contains(words[2], "slave") {
			now.replicated[words[0]], now.replicated[words[3]] = true, true
		}
	}
	return now, nil
}

func (m *masters) addRange(parts []any, asked string) {
	for number, part := range parts[2:] {
		node, _ := part.([]any)
		if len(node) < 3 {
			continue
		}
		host, _ := node[0].(string)
		port, _ := node[1].(int64)
		address := join(host, strconv.FormatInt(port, 10), asked)
		m.nodes = append(m.nodes, address)
		m.shards[address], _ = node[2].(string)
		if number > 0 {
			continue
		}
		first, _ := parts[0].(int64)
		last, _ := parts[1].(int64)
		for slot := first; slot <= last; slot++ {
			m.bySlot[int(slot)] = address
		}
	}
}

func texts(reply any) (all []string) {
	each, _ := reply.([]any)
	for _, one := range each {
		text, _ := one.(string)
		all = append(all, text)
	}
	return all
}

// replicas is how many are connected to a master, by its reply to ROLE.
func replicas(role any) (int, error) {
	parts, _ := role.([]any)
	if len(parts) < 3 || parts[0] != "master" {
		return 0, replyError("READONLY the server is no master")
	}
	connected, _ := parts[2].([]any)
	return len(connected), nil
}

// confirm reports whether enough replicas have the changes that were made on this connection, or granted to it while it
// was blocked: WAIT covers nothing else.
func (l *Locks) confirm(ctx context.Context, c *conn, o *options, role []answer) (bool, error) {
	needed, wanted, err := l.wanted(c.place.address, o, role)
	if err != nil || wanted == 0 {
		return err == nil, err
	}
	reply, err := c.call(ctx, o.syncTimeout+l.options.commandTimeout, "WAIT", wanted, ms(o.syncTimeout))
	confirmed, _ := reply.(int64)
	return int(confirmed) >= needed, err
}

// wanted are the replicas that are asked, and needed those that have to answer.
func (l *Locks) wanted(address string, o *options, role []answer) (needed, wanted int, err error) {
	if len(role) == 0 { // SyncTimeout(0)
		return 0, 0, nil
	}
	connected, err := l.connected(role[0])
	if err != nil {
		return 0, 0, err
	}
	needed = o.minReplicas
	if needed == unset && l.route.isReplicated(address) {
		needed = 1
	}
	wanted = max(needed, connected, 0)
	return max(needed, min(connected, 1)), wanted, nil
}

// connected is how many replicas are connected to a master, by its answer to ROLE. A service that does not know that has its
// own ways; masters under Sentinels do know it.
func (l *Locks) connected(role answer) (int, error) {
	if isUnknown(role.err) && l.route.masterName == "" {
		return 0, nil
	}
	if role.err != nil {
		return 0, role.err
	}
	return replicas(role.value)
}

// renewOn is RENEW, and whether replicas have confirmed it.
func (l *Locks) renewOn(
	ctx context.Context, c *conn, name, owner string, lease time.Duration, o *options,
) (bool, error) {
	replies := c.send(ctx, l.options.commandTimeout,
		o.andRole(request{"FAIRLOCK.RENEW", name, owner, "LEASE", ms(lease)})...)
	if replies[0].err != nil {
		return false, replies[0].err
	}
	return l.confirm(ctx, c, o, replies[1:])
}
