package spec

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/testing/memnet"
)

// ConnectionCount counts the connections of a client.
type ConnectionCount struct {
	All, open, Most atomic.Int32
}

// CountConnections returns a client of the server, with a pool of 4 connections, and the count of all that it opens.
func (on *Redis) CountConnections() (*redis.Client, *ConnectionCount) {
	count := &ConnectionCount{}
	return Connect(&redis.Options{Addr: on.Addr, DB: on.Client.Options().DB, PoolSize: 4, Dialer: count.dial}), count
}

func (d *ConnectionCount) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := Dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	d.All.Add(1)
	open := d.open.Add(1)
	for most := d.Most.Load(); open > most && !d.Most.CompareAndSwap(most, open); most = d.Most.Load() {
	}
	return &countedConn{Conn: conn, closed: sync.OnceFunc(func() { d.open.Add(-1) })}, nil
}

// Dial connects to a server of either kind.
func Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if memnet.Has(addr) {
		return memnet.Dial(ctx, network, addr)
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// Subscriptions returns the channels on which waiters get messages.
func Subscriptions(ctx context.Context, client *redis.Client) []string {
	return client.PubSubChannels(ctx, Inboxes+"*").Val()
}
