// A process of the failover experiment: callers that take locks and say so, one line of JSON for each event.
//
//	scripts/clients/go run clients/testing/failover/worker.go
//
// The environment says where and what: FAILOVER_SENTINELS and FAILOVER_MASTER, or FAILOVER_NODES of a cluster,
// FAILOVER_SOURCE (the address that connections come from), FAILOVER_LOCKS (name[:limit],...), FAILOVER_WORKERS,
// FAILOVER_LEASE_MS, FAILOVER_MIN_REPLICAS, FAILOVER_SYNC_MS, and FAILOVER_HOLD_MS and FAILOVER_IDLE_MS (from-to). It ends
// with its standard input.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"math/rand"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	fairlock "fairlock.example/clients/go"
	"github.com/redis/go-redis/v9"
)

type event map[string]any

var (
	output = json.NewEncoder(os.Stdout)
	mutex  sync.Mutex
)

func say(what string, details event) {
	mutex.Lock()
	defer mutex.Unlock()
	details["event"] = what
	if err := output.Encode(details); err != nil {
		os.Exit(0)
	}
}

func now() float64 { return float64(time.Now().UnixMicro()) / 1e6 }

func main() {
	options := []fairlock.Option{
		fairlock.Wait(2 * time.Second), fairlock.Lease(time.Duration(number("FAILOVER_LEASE_MS")) * time.Millisecond),
	}
	if os.Getenv("FAILOVER_MIN_REPLICAS") != "" {
		options = append(options, fairlock.MinReplicas(number("FAILOVER_MIN_REPLICAS")))
	}
	if os.Getenv("FAILOVER_SYNC_MS") != "" {
		options = append(options, fairlock.SyncTimeout(time.Duration(number("FAILOVER_SYNC_MS"))*time.Millisecond))
	}
	locks := locksOf(options)
	for _, each := range strings.Split(os.Getenv("FAILOVER_LOCKS"), ",") {
		name, limit, isLimited := strings.Cut(each, ":")
		holders := 1
		if isLimited {
			holders, _ = strconv.Atoi(limit)
		}
		for caller := 0; caller < number("FAILOVER_WORKERS"); caller++ {
			go call(locks, name, holders)
		}
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func locksOf(options []fairlock.Option) *fairlock.Locks {
	dialer := net.Dialer{}
	if source := net.ParseIP(os.Getenv("FAILOVER_SOURCE")); source != nil {
		dialer.LocalAddr = &net.TCPAddr{IP: source}
	}
	if nodes := os.Getenv("FAILOVER_NODES"); nodes != "" {
		addresses := strings.Split(nodes, ",")
		return fairlock.New(redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses, Dialer: dialer.DialContext}), options...)
	}
	return fairlock.NewFailover(&redis.FailoverOptions{
		MasterName: os.Getenv("FAILOVER_MASTER"), SentinelAddrs: strings.Split(os.Getenv("FAILOVER_SENTINELS"), ","),
		Dialer: dialer.DialContext,
	}, options...)
}

func number(variable string) int {
	value, err := strconv.Atoi(os.Getenv(variable))
	if err != nil {
		log.Fatalf("%s: %v", variable, err)
	}
	return value
}

// between is a time from the range in a variable, such as 50-150.
func between(variable, usual string) time.Duration {
	from, to, _ := strings.Cut(os.Getenv(variable), "-")
	if to == "" {
		from, to, _ = strings.Cut(usual, "-")
	}
	low, _ := strconv.Atoi(from)
	high, _ := strconv.Atoi(to)
	return time.Duration(low)*time.Millisecond + time.Duration(rand.Int63n(int64(high-low)*int64(time.Millisecond)+1))
}

func call(locks *fairlock.Locks, name string, limit int) {
	var options []fairlock.LockOption
	if limit > 1 {
		options = append(options, fairlock.Limit(limit))
	}
	for {
		held, err := locks.Acquire(context.Background(), name, options...)
		switch {
		case err == nil:
			say("begin", event{"lock": name, "limit": limit, "owner": held.Owner(), "token": held.Token(), "at": now()})
			hold(held)
			time.Sleep(between("FAILOVER_IDLE_MS", "0-0"))
		case !errors.Is(err, fairlock.ErrNotInTime):
			say("error", event{"lock": name, "text": err.Error(), "at": now()})
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func hold(held *fairlock.Held) {
	how := "release"
	select {
	case <-held.Context().Done():
		how = "lost:" + string(causeOf(held.Lost()))
	case <-time.After(between("FAILOVER_HOLD_MS", "50-150")):
	}
	say("end", event{"lock": held.Name(), "token": held.Token(), "at": now(), "how": how})
	err := held.Release()
	switch {
	case err == nil || how != "release":
	case errors.Is(err, fairlock.ErrLockLost):
		say("late", event{"lock": held.Name(), "token": held.Token(), "at": now(), "cause": causeOf(err)})
	default:
		say("error", event{"lock": held.Name(), "text": "release: " + err.Error(), "at": now()})
	}
}

func causeOf(err error) fairlock.Cause {
	var lost *fairlock.Error
	errors.As(err, &lost)
	return lost.Cause
}
