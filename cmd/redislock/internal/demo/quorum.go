package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

// quorumDemo is the story of a lock on three servers in memory, of which one dies and forgets.
type quorumDemo struct {
	*narrator

	servers []*mortal
	locks   *redislock.Client
	lock    *redislock.Lock
}

// mortal is a server in memory that can be dead for a while.
type mortal struct {
	name   string
	redis  *miniredis.Miniredis
	client *redis.Client

	mu    sync.Mutex // protects what follows
	dead  bool
	conns []net.Conn
}

func newMortal(name string) *mortal {
	m := &mortal{name: name, redis: miniredis.NewMiniRedis()}
	m.redis.ClockTTL(true)
	m.client = redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:0", DialerRetries: 1, // nobody dials it; see inMemory
		Dialer: func(context.Context, string, string) (net.Conn, error) { return m.dial() },
	})
	return m
}

func (m *mortal) dial() (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return nil, errors.New(m.name + " is dead")
	}
	conn, err := m.redis.Dial()
	if err == nil {
		m.conns = append(m.conns, conn)
	}
	return conn, err
}

// die ends all connections, and refuses new ones.
func (m *mortal) die() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
	for _, conn := range m.conns {
		_ = conn.Close()
	}
	m.conns = nil
}

// rise makes it serve again, without its data.
func (m *mortal) rise() {
	m.redis.FlushAll()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = false
}

// run plays the story.
func (d *quorumDemo) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, demoLimit, errSlow)
	defer cancel()
	var clients []redislock.RedisClient
	defer func() {
		for _, m := range d.servers {
			_ = m.client.Close()
			m.redis.Close()
		}
	}()
	for i := range 3 {
		m := newMortal(fmt.Sprintf("server %d", i+1))
		d.servers, clients = append(d.servers, m), append(clients, m.client)
	}
	d.locks = redislock.NewQuorum(clients)
	defer func() { _ = d.locks.Close() }()
	d.title("redislock demo --quorum", "Two workers share resources on three servers in memory, of which two must agree.")
	for _, scene := range []func(context.Context) error{d.onThree, d.oneDies, d.itForgot, d.noMajority} {
		err := scene(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		}
		if err := pause(ctx, beat); err != nil {
			return err
		}
	}
	return nil
}

func (d *quorumDemo) onThree(ctx context.Context) (err error) {
	d.scene("One lock on three servers", "All of them are asked at once, and a majority decides.")
	if d.lock, err = d.locks.ObtainMulti(ctx, []string{order, stock}, ttl, &redislock.Options{Metadata: checkout}); err != nil {
		return err
	}
	d.gets(checkout, "locked order:7 and stock:42, for %s", seconds(ttl))
	return d.show(ctx, 3)
}

func (d *quorumDemo) oneDies(ctx context.Context) error {
	d.scene("A server dies", "Two of three still agree, so nothing is lost and nothing waits.")
	d.servers[1].die()
	d.says("server 2", "dies")
	if err := d.lock.Refresh(ctx, ttl, nil); err != nil {
		return unexpected("with two of three servers a lock could not be refreshed: %v", err)
	}
	d.gets(checkout, "refreshed its lock on the other two")
	_, err := d.locks.Obtain(ctx, stock, ttl, &redislock.Options{Metadata: restock})
	if !errors.Is(err, redislock.ErrNotObtained) {
		return unexpected("restock asked for stock:42, which checkout holds; the error is: %v", err)
	}
	d.fails(restock, "refused: stock:42 is taken (%v)", err)
	return d.show(ctx, 2)
}

func (d *quorumDemo) itForgot(ctx context.Context) error {
	d.scene("It comes back, and has forgotten everything",
		"A refresh acquires the keys there again, before another server may fail.")
	d.servers[1].rise()
	d.says("server 2", "is back, without a single key")
	// The Client asks a server that was dead once a second at most, so the first refresh may not reach it yet.
	for held := 0; held < 3; {
		if err := d.lock.Refresh(ctx, ttl, nil); err != nil {
			return unexpected("a lock was lost although two servers have it: %v", err)
		}
		if err := pause(ctx, beat/2); err != nil {
			return err
		}
		held = d.count()
	}
	d.gets(checkout, "refreshed its lock, and has it on all three again")
	return d.show(ctx, 3)
}

func (d *quorumDemo) noMajority(ctx context.Context) error {
	d.scene("No majority, no lock", "One server alone grants nothing: another could grant the same to somebody else.")
	if err := d.lock.Release(ctx); err != nil {
		return err
	}
	d.gets(checkout, "released its lock")
	for d.count() > 0 { // Release returns when a majority is free
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	d.servers[1].die()
	d.servers[2].die()
	d.says("server 2", "dies")
	d.says("server 3", "dies")
	lock, err := d.locks.Obtain(ctx, stock, ttl, &redislock.Options{Metadata: restock})
	if lock != nil || err == nil || errors.Is(err, redislock.ErrNotObtained) {
		return unexpected("one of three servers has decided about a lock; the error is: %v", err)
	}
	d.fails(restock, "gets no lock, and learns that nobody can tell who has it:")
	d.printf("\n   %v\n", err)
	for d.count() > 0 {
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	d.printf("\nWhat server 1 had granted was given back: no key is left behind.\n")
	return nil
}

// count returns how many servers hold stock:42 as far as anybody could find out.
func (d *quorumDemo) count() int {
	held := 0
	for _, m := range d.servers {
		if m.holds() != "" {
			held++
		}
	}
	return held
}

// holds returns what stock:42 holds on a server that is not dead.
func (m *mortal) holds() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return ""
	}
	value, _ := m.redis.Get(stock)
	return value
}

// show prints what each server holds, and checks that at least so many hold the lock.
func (d *quorumDemo) show(ctx context.Context, least int) error {
	for d.count() < least { // the answers that nobody waited for
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	t := &term.Table{Columns: []term.Column{{Name: "SERVER"}, {Name: "KEY"}, {Name: "HOLDS"}}}
	for _, m := range d.servers {
		colour, text := term.Cyan, m.holds()
		m.mu.Lock()
		if m.dead {
			colour, text = term.Faint, "(dead)"
		}
		m.mu.Unlock()
		t.Rows = append(t.Rows, []term.Cell{{Text: m.name}, {Text: stock}, {Text: text, Colour: colour}})
	}
	d.printf("\n")
	d.table(t)
	return nil
}
