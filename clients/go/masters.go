package fairlock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"fairlock.example/clients/go/internal/wire"
)

const guideTime = time.Second // for an answer of one, before the next is asked

// address is the node for a lock; a guide is asked where that is not known for sure.
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
	return "", wire.ReplyError("CLUSTERDOWN no node has the slot")
}

// look asks for the masters, unless that was begun since. Connections to those that are none any more are closed.
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
		// A refusal says more than a connection that failed.
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

func (l *Locks) askGuide(ctx context.Context, address string, commands ...wire.Command) ([]wire.Reply, error) {
	c, err := l.take(ctx, place{guide, address})
	if err != nil {
		return nil, err
	}
	defer l.give(c)
	replies := c.send(ctx, min(guideTime, l.options.commandTimeout), commands...)
	for _, each := range replies {
		if each.Err != nil {
			return nil, each.Err
		}
	}
	return replies, nil
}

// askSentinel learns the master, and whether it has replicas, also such as are down.
func (l *Locks) askSentinel(ctx context.Context, address string) (masters, error) {
	name := l.route.masterName
	replies, err := l.askGuide(ctx, address,
		wire.Command{"SENTINEL", "GET-MASTER-ADDR-BY-NAME", name}, wire.Command{"SENTINEL", "MASTER", name})
	if err != nil {
		return masters{}, err
	}
	pair := texts(replies[0].Value)
	if len(pair) != 2 {
		return masters{}, fmt.Errorf("it knows no master %q", name)
	}
	master, details := join(pair[0], pair[1], address), texts(replies[1].Value)
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

// askNode learns who has the slots, by CLUSTER SLOTS: [first, last, [host, port, id, ...] of the master, of a replica,
// ...] for each range; and who has replicas, by CLUSTER NODES, since SLOTS may leave out those that are down.
func (l *Locks) askNode(ctx context.Context, address string) (masters, error) {
	replies, err := l.askGuide(ctx, address, wire.Command{"CLUSTER", "SLOTS"}, wire.Command{"CLUSTER", "NODES"})
	if err != nil {
		return masters{}, err
	}
	now := masters{bySlot: map[int]string{}, shards: map[string]string{}, replicated: map[string]bool{}}
	ranges, _ := replies[0].Value.([]any)
	for _, each := range ranges {
		if parts, _ := each.([]any); len(parts) > 2 {
			now.addRange(parts, address)
		}
	}
	list, _ := replies[1].Value.(string)
	for _, line := range strings.Split(list, "\n") {
		// id address flags master ...: a replica takes over with what its master had.
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

// replicas is how many are connected to a server that is a master, by what it says to ROLE.
func replicas(role any) (int, error) {
	parts, _ := role.([]any)
	if len(parts) < 3 || parts[0] != "master" {
		return 0, wire.ReplyError("READONLY the server is no master")
	}
	connected, _ := parts[2].([]any)
	return len(connected), nil
}

// confirm says whether as many replicas as are wanted have what was written before ROLE was answered, on this
// connection or another.
//
// ROLE is asked after the write: WAIT covers what was written before the last command of its connection, which a grant
// to a blocked client is not until another command has been run.
func (l *Locks) confirm(ctx context.Context, c *conn, o *options, role []wire.Reply) (bool, error) {
	needed, wanted, err := l.wanted(c.place.address, o, role)
	if err != nil || wanted == 0 {
		return err == nil, err
	}
	reply, err := c.call(ctx, o.syncTimeout+l.options.commandTimeout, "WAIT", wanted, ms(o.syncTimeout))
	confirmed, _ := reply.(int64)
	return int(confirmed) >= needed, err
}

// wanted are the replicas that are asked, and needed those that have to answer.
func (l *Locks) wanted(address string, o *options, role []wire.Reply) (needed, wanted int, err error) {
	if len(role) == 0 { // SyncTimeout(0)
		return 0, 0, nil
	}
	if role[0].Err != nil {
		return 0, 0, role[0].Err
	}
	connected, err := replicas(role[0].Value)
	needed = o.minReplicas
	if needed == unset && l.route.isReplicated(address) {
		needed = 1
	}
	wanted = max(needed, connected, 0)
	return max(needed, min(connected, 1)), wanted, err
}

// renewOn is RENEW, and whether replicas have confirmed it.
func (l *Locks) renewOn(
	ctx context.Context, c *conn, name, owner string, lease time.Duration, o *options,
) (bool, error) {
	replies := c.send(ctx, l.options.commandTimeout,
		o.andRole(wire.Command{"FAIRLOCK.RENEW", name, owner, "LEASE", ms(lease)})...)
	if replies[0].Err != nil {
		return false, replies[0].Err
	}
	return l.confirm(ctx, c, o, replies[1:])
}
