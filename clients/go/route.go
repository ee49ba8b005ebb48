package fairlock

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"fairlock.example/clients/go/internal/wire"
)

const keepAlivePeriod = 15 * time.Second

// route is where the connections for a lock go: to the one server, to the master that sentinels name, or to a node
// of a cluster. An address is "" where there is but one.
type route struct {
	options   redis.Options // with the client's own dialer, which asks the sentinels where there are any
	isCluster bool
	fake      func() wire.Line

	mutex sync.Mutex
	slots map[int]string
	nodes []string
}

func newRoute(client redis.UniversalClient) (*route, error) {
	switch client := client.(type) {
	case *redis.Client:
		return &route{options: *client.Options()}, nil
	case *redis.ClusterClient:
		options, err := nodeOptions(*client.Options())
		nodes := append([]string(nil), client.Options().Addrs...)
		return &route{options: options, isCluster: true, nodes: nodes, slots: map[int]string{}}, err
	}
	return nil, &ArgumentError{"client", "is neither a *redis.Client nor a *redis.ClusterClient"}
}

// nodeOptions are what a cluster client connects to a node with. go-redis makes them for a node only, so one is named
// to a client that is never connected.
func nodeOptions(cluster redis.ClusterOptions) (redis.Options, error) {
	if len(cluster.Addrs) == 0 {
		return redis.Options{}, &ArgumentError{"client", "has no address of a node"}
	}
	cluster.ReadOnly, cluster.RouteByLatency, cluster.RouteRandomly, cluster.MinIdleConns = false, false, false, 0
	node := redis.ClusterNode{Addr: cluster.Addrs[0]}
	cluster.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: slotCount - 1, Nodes: []redis.ClusterNode{node}}}, nil
	}
	client := redis.NewClusterClient(&cluster)
	defer client.Close()
	one, err := client.MasterForKey(context.Background(), "any")
	if err != nil {
		return redis.Options{}, err
	}
	return *one.Options(), nil
}

// dial opens a connection; it returns when ctx is done, even if the client's own dialer does not.
func (r *route) dial(ctx context.Context, address string, longest time.Duration) (wire.Line, error) {
	if r.fake != nil {
		return r.fake(), nil
	}
	if address == "" {
		address = r.options.Addr
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	type dialled struct {
		connection net.Conn
		err        error
	}
	result := make(chan dialled, 1)
	go func() {
		connection, err := r.options.Dialer(ctx, r.options.Network, address)
		result <- dialled{connection, err}
	}()
	select {
	case made := <-result:
		if made.err != nil {
			return nil, made.err
		}
		return opened(ctx, newLine(made.connection, r.options, longest))
	case <-ctx.Done():
		go func() {
			if late := <-result; late.err == nil {
				late.connection.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// opened sees that the connection has said HELLO and the like: what is sent next may have no limit. The reply to PING
// matters only where it is that of the user's not being let in.
func opened(ctx context.Context, made *line) (wire.Line, error) {
	if _, err := made.Call(ctx, 0, "PING"); err != nil && made.IsClosed() {
		made.Close()
		return nil, err
	}
	return made, nil
}

// node is the node for a lock as far as it is known.
func (r *route) node(name string) (string, bool) {
	if !r.isCluster {
		return "", true
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	address, ok := r.slots[slot(name)]
	return address, ok
}

func (r *route) known() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return append([]string(nil), r.nodes...)
}

func (r *route) forget() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.slots = map[int]string{}
}

// learn takes the reply to CLUSTER SLOTS: [first, last, [host, port, ...] of the master, of a replica, ...] for each
// range. Nodes that are not in it may be back later.
func (r *route) learn(reply any, asked string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.slots = map[int]string{}
	ranges, _ := reply.([]any)
	for _, each := range ranges {
		parts, _ := each.([]any)
		for number, part := range parts {
			node, _ := part.([]any)
			if number < 2 || len(node) < 2 {
				continue
			}
			host, _ := node[0].(string)
			port, _ := node[1].(int64)
			address := join(host, strconv.FormatInt(port, 10), asked)
			r.add(address)
			if number > 2 {
				continue
			}
			first, _ := parts[0].(int64)
			last, _ := parts[1].(int64)
			for slot := first; slot <= last; slot++ {
				r.slots[int(slot)] = address
			}
		}
	}
}

func (r *route) add(address string) {
	for _, known := range r.nodes {
		if known == address {
			return
		}
	}
	r.nodes = append(r.nodes, address)
}

// redirect is the address in "MOVED 3999 host:port" or "ASK ...", "" if there is none; MOVED is for good.
func (r *route) redirect(err error, asked string) string {
	words := strings.Fields(replied(err).Error())
	if !r.isCluster || len(words) < 3 {
		return ""
	}
	number, wrong := strconv.Atoi(words[1])
	colon := strings.LastIndexByte(words[2], ':')
	if wrong != nil || colon < 0 {
		return ""
	}
	address := join(strings.Trim(words[2][:colon], "[]"), words[2][colon+1:], asked)
	if words[0] == "MOVED" {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		r.slots[number] = address
		r.add(address)
	}
	return address
}

// join makes an address; a node that does not know its own host is where it was asked.
func join(host, port, asked string) string {
	if host == "" {
		host, _, _ = net.SplitHostPort(asked)
	}
	return net.JoinHostPort(host, port)
}

func (r *route) describe(address string) string {
	switch {
	case r.fake != nil:
		return "the fake"
	case address != "":
		return address
	case r.options.Addr == "FailoverClient": // as go-redis calls it
		return "the master that the sentinels name"
	}
	return r.options.Addr
}

const slotCount = 16384

// slot is CRC16 (XMODEM) of the name, or of what is in its first braces.
func slot(name string) int {
	if start := strings.IndexByte(name, '{'); start >= 0 {
		if length := strings.IndexByte(name[start+1:], '}'); length > 0 {
			name = name[start+1 : start+1+length]
		}
	}
	var sum uint16
	for at := 0; at < len(name); at++ {
		sum ^= uint16(name[at]) << 8
		for bit := 0; bit < 8; bit++ {
			if sum&0x8000 != 0 {
				sum = sum<<1 ^ 0x1021
			} else {
				sum <<= 1
			}
		}
	}
	return int(sum) % slotCount
}

// line is a connection of ours: a client of go-redis that has just this one, and never makes another.
type line struct {
	client *redis.Client
	socket *socket
}

// socket knows when it is closed, by whomever.
type socket struct {
	net.Conn
	isClosed atomic.Bool
}

func (s *socket) Close() error {
	s.isClosed.Store(true)
	return s.Conn.Close()
}

var errEnded = errors.New("the connection has ended")

func newLine(connection net.Conn, options redis.Options, longest time.Duration) *line {
	keepAlive(connection)
	made := &line{socket: &socket{Conn: connection}}
	var isTaken atomic.Bool
	options.Dialer = func(context.Context, string, string) (net.Conn, error) {
		if isTaken.Swap(true) || made.socket.isClosed.Load() {
			return nil, errEnded
		}
		return made.socket, nil
	}
	options.Protocol, options.MaxRetries, options.Limiter = 2, -1, nil
	options.PoolSize, options.MinIdleConns, options.MaxIdleConns, options.MaxActiveConns = 1, 0, 0, 0
	options.ConnMaxIdleTime, options.ConnMaxLifetime = -1, 0
	options.ReadBufferSize, options.WriteBufferSize = 4096, 4096
	// Contexts say how long a command may take.
	options.ContextTimeoutEnabled, options.ReadTimeout, options.WriteTimeout = true, -1, longest
	made.client = redis.NewClient(&options)
	return made
}

// keepAlive is how a server that is gone is noticed while nothing is sent.
func keepAlive(connection net.Conn) {
	if secure, ok := connection.(*tls.Conn); ok {
		connection = secure.NetConn()
	}
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetKeepAlive(true)
		_ = tcp.SetKeepAlivePeriod(keepAlivePeriod)
	}
}

func (l *line) Call(ctx context.Context, longest time.Duration, words ...any) (any, error) {
	if l.IsClosed() {
		return nil, errEnded
	}
	if longest > 0 {
		limited, cancel := context.WithTimeout(ctx, longest)
		defer cancel()
		defer l.closeWith(ctx)()
		ctx = limited
	} else {
		defer l.closeWith(ctx)()
	}
	reply, err := l.client.Do(ctx, words...).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return reply, err
}

// closeWith ends a read when ctx is cancelled, which go-redis does not, until the function that it returns is called.
func (l *line) closeWith(ctx context.Context) func() {
	if ctx.Done() == nil {
		return func() {}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ctx.Done():
			l.socket.Close()
		case <-stop:
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}

func (l *line) Watch(longest time.Duration) error {
	if err := l.socket.SetReadDeadline(time.Now().Add(longest)); err != nil {
		return err
	}
	_, err := l.socket.Read(make([]byte, 1))
	var timeout net.Error
	switch {
	case err == nil:
		return errors.New("an answer to nothing")
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil
	}
	return err
}

func (l *line) Close() {
	l.socket.Close()
	l.client.Close()
}

func (l *line) IsClosed() bool { return l.socket.isClosed.Load() }
