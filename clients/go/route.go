package fairlock

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

const slotCount = 16384

// route knows where the connections for a lock go: to the one server, to the master that Sentinels name, or to a node
// of a cluster.
type route struct {
	server, guide redis.Options // what a connection to one is made with
	masterName    string        // at Sentinels
	isCluster     bool

	mutex   sync.Mutex
	guides  []string // know the masters: Sentinels, or all nodes of the cluster; the next to be asked first
	known   masters
	isStale bool // the known masters
}

// masters is the answer of a guide.
type masters struct {
	bySlot     map[int]string    // addresses; outside a cluster there is only slot 0
	shards     map[string]string // by address: all that a master and its replicas have in common
	replicated map[string]bool   // shards with a replica, also one that is down, or that was there before
	nodes      []string
}

func newRoute(client redis.UniversalClient) (*route, error) {
	found := "nil"
	switch client := client.(type) {
	case nil:
	case *redis.Client:
		if client != nil {
			return serverRoute(client.Options())
		}
	case *redis.ClusterClient:
		if client != nil {
			return clusterRoute(*client.Options())
		}
	default:
		found = fmt.Sprintf("%T", client)
	}
	return &route{}, wrongClient("is %s: a *redis.Client or a *redis.ClusterClient is wanted", found)
}

func serverRoute(options *redis.Options) (*route, error) {
	if options.Addr == "FailoverClient" { // As go-redis calls it.
		return &route{}, wrongClient("is one of NewFailoverClient, which keeps its Sentinels to itself:" +
			" give its options to fairlock.NewFailover")
	}
	known := masters{bySlot: map[int]string{0: options.Addr}}
	if options.Network == "unix" {
		return &route{server: *options, known: known}, nil
	}
	return &route{server: *options, known: known}, checkAddresses(options.Addr)
}

// failoverRoute has go-redis interpret the options, and finds the master itself.
func failoverRoute(given *redis.FailoverOptions) (*route, error) {
	if given == nil || given.MasterName == "" || len(given.SentinelAddrs) == 0 {
		return &route{}, wrongClient("needs the MasterName and the SentinelAddrs of FailoverOptions")
	}
	options := *given
	options.MinIdleConns, options.RouteByLatency, options.RouteRandomly = 0, false, false
	client := redis.NewFailoverClient(&options)
	defer client.Close()
	server := *client.Options()
	if server.Dialer = given.Dialer; server.Dialer == nil {
		server.Dialer = redis.NewDialer(&server)
	}
	guide := server
	guide.Username, guide.Password, guide.DB = given.SentinelUsername, given.SentinelPassword, 0
	guide.CredentialsProvider, guide.CredentialsProviderContext, guide.StreamingCredentialsProvider = nil, nil, nil
	return &route{
		server: server, guide: guide, masterName: given.MasterName, guides: append([]string(nil), given.SentinelAddrs...),
	}, checkAddresses(given.SentinelAddrs...)
}

// clusterRoute has the options with which a cluster client connects to a node. go-redis makes them for a node only, so
// one is named to a client that is never connected.
func clusterRoute(cluster redis.ClusterOptions) (*route, error) {
	if len(cluster.Addrs) == 0 {
		return &route{}, wrongClient("has no address of a node")
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
		return &route{}, err
	}
	options := *one.Options()
	return &route{
		server: options, guide: options, isCluster: true, guides: append([]string(nil), cluster.Addrs...),
	}, checkAddresses(cluster.Addrs...)
}

func wrongClient(format string, values ...any) error {
	return &ArgumentError{"client", fmt.Sprintf(format, values...)}
}

func checkAddresses(addresses ...string) error {
	for _, each := range addresses {
		if _, port, err := net.SplitHostPort(each); err != nil || port == "" {
			return wrongClient("has the address %q: host:port is wanted", each)
		}
	}
	return nil
}

// isGuided reports whether masters can change.
func (r *route) isGuided() bool { return r.isCluster || r.masterName != "" }

// node is the node for a lock, if it is known; stale knowledge is only a guess.
func (r *route) node(name string) (address string, isSure bool) {
	number := 0
	if r.isCluster {
		number = slot(name)
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	address, ok := r.known.bySlot[number]
	return address, ok && !r.isStale
}

// isReplicated reports whether a master has replicas, or had.
func (r *route) isReplicated(address string) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.known.replicated[r.known.shards[address]]
}

// isMaster reports whether the Sentinels named it in their last answer.
func (r *route) isMaster(address string) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.known.bySlot[0] == address
}

func (r *route) isKnown() bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return len(r.known.bySlot) > 0 && !r.isStale
}

// doubt marks the known masters as stale, and selects the next guide.
func (r *route) doubt() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.isStale = r.isGuided()
	if len(r.guides) > 1 {
		r.guides = append(r.guides[1:len(r.guides):len(r.guides)], r.guides[0])
	}
}

func (r *route) toAsk() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return append([]string(nil), r.guides...)
}

// learn takes a guide's answer, and returns the addresses of former masters.
func (r *route) learn(guide string, now masters) (gone []string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	are := map[string]bool{}
	for _, address := range now.bySlot {
		are[address] = true
	}
	for _, address := range r.known.bySlot {
		if !are[address] {
			are[address] = true // But once.
			gone = append(gone, address)
		}
	}
	for shard := range r.known.replicated {
		now.replicated[shard] = true
	}
	// Nodes that are not named may be back later.
	order := []string{guide}
	for _, each := range append(r.guides, now.nodes...) {
		if !contains(order, each) {
			order = append(order, each)
		}
	}
	r.known, r.guides, r.isStale = now, order, false
	return gone
}

func contains(all []string, one string) bool {
	for _, each := range all {
		if each == one {
			return true
		}
	}
	return false
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
		if r.known.bySlot != nil {
			r.known.bySlot[number] = address
		}
	}
	return address
}

// join makes an address; a node that does not know its own host has the one it was asked at.
func join(host, port, asked string) string {
	if host == "" {
		host, _, _ = net.SplitHostPort(asked)
	}
	return net.JoinHostPort(host, port)
}

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
