package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/testing/redistest"
)

// target is the redis-server on which all cells run.
type target struct {
	addr   string
	client *redis.Client     // only reads the server's counters
	own    *redistest.Server // nil if the server is the user's
}

// openTarget connects to the server at addr, or starts one if addr is empty.
func openTarget(addr string) (_ *target, err error) {
	t := &target{addr: addr}
	if addr == "" {
		if t.own, err = redistest.Start(); err != nil {
			return nil, err
		}
		t.addr = t.own.Addr()
	}
	t.client = redis.NewClient(&redis.Options{Addr: t.addr})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := t.client.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("no Redis answers: %w", err), t.close())
	}
	return t, nil
}

// servers are the redis-servers of a cell.
type servers []*target

// openServers starts n independent servers.
func openServers(n int) (servers, error) {
	var all servers
	for range n {
		t, err := openTarget("")
		if err != nil {
			return nil, errors.Join(err, all.close())
		}
		all = append(all, t)
	}
	return all, nil
}

// addrs returns the addresses of the servers.
func (s servers) addrs() []string {
	var addrs []string
	for _, t := range s {
		addrs = append(addrs, t.addr)
	}
	return addrs
}

// stats returns the sums of all servers' counters.
func (s servers) stats(ctx context.Context) (serverStats, error) {
	all := serverStats{calls: map[string]float64{}}
	for _, t := range s {
		one, err := t.stats(ctx)
		if err != nil {
			return serverStats{}, err
		}
		all.add(one)
	}
	return all, nil
}

// close closes all servers.
func (s servers) close() error {
	var errs []error
	for _, t := range s {
		errs = append(errs, t.close())
	}
	return errors.Join(errs...)
}

// close ends the connection, and the server if it is ours.
func (t *target) close() error {
	err := t.client.Close()
	if t.own != nil {
		err = errors.Join(err, t.own.Close())
	}
	return err
}
