package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/term"
)

type quorumDemo struct {
	*narrator

	servers []*mortal
	locks   *redislock.Client
	lock    *redislock.Lock
}

// mortal is a server in memory that can be dead for a while: then it answers nothing else.
type mortal struct {
	name  string
	redis *miniredis.Miniredis
	end   func() // of it and of its client
	dead  bool
}

func (d *quorumDemo) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, demoLimit, errSlow)
	defer cancel()
	var clients []redislock.RedisClient
	defer func() {
		for _, m := range d.servers {
			m.end()
		}
	}()
	for i := range 3 {
		server, client, end := inMemory()
		d.servers = append(d.servers, &mortal{name: fmt.Sprintf("server %d", i+1), redis: server, end: end})
		clients = append(clients, client)
	}
	d.locks = redislock.NewQuorum(clients)
	defer func() { _ = d.locks.Close() }()
	d.title("redislock demo --quorum", "Two workers share resources on three servers in memory, of which two must agree.")
	err := play(ctx, d.onThree, d.oneDies, d.itForgot, d.noMajority)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (d *quorumDemo) onThree(ctx context.Context) {
	d.scene("One lock on three servers", "All of them are asked at once, and a majority decides.")
	var err error
	d.lock, err = d.locks.ObtainMulti(ctx, []string{order, stock}, ttl, &redislock.Options{Metadata: checkout})
	must(err)
	d.gets(checkout, "locked order:7 and stock:42, for %s", seconds(ttl))
	d.show(ctx, 3)
}

func (d *quorumDemo) oneDies(ctx context.Context) {
	d.scene("A server dies", "Two of three still agree, so nothing is lost and nothing waits.")
	d.die(1)
	err := d.lock.Refresh(ctx, ttl, nil)
	check(err == nil, "with two of three servers a lock could not be refreshed: %v", err)
	d.gets(checkout, "refreshed its lock on the other two")
	_, err = d.locks.Obtain(ctx, stock, ttl, &redislock.Options{Metadata: restock})
	check(errors.Is(err, redislock.ErrNotObtained), "restock asked for stock:42, which checkout holds; the error is: %v", err)
	d.fails(restock, "refused: stock:42 is taken (%v)", err)
	d.show(ctx, 2)
}

func (d *quorumDemo) itForgot(ctx context.Context) {
	d.scene("It comes back, and has forgotten everything",
		"A refresh acquires the keys there again, before another server may fail.")
	m := d.servers[1]
	m.dead = false
	m.redis.FlushAll()
	m.redis.SetError("")
	d.says(m.name, "is back, without a single key")
	// The Client asks a server that was dead once a second at most, so the first refresh may not reach it yet.
	for d.count() < 3 {
		err := d.lock.Refresh(ctx, ttl, nil)
		check(err == nil, "a lock was lost although two servers have it: %v", err)
		pause(ctx, beat/2)
	}
	d.gets(checkout, "refreshed its lock, and has it on all three again")
	d.show(ctx, 3)
}

func (d *quorumDemo) noMajority(ctx context.Context) {
	d.scene("No majority, no lock", "One server alone grants nothing: another could grant the same to somebody else.")
	must(d.lock.Release(ctx))
	d.gets(checkout, "released its lock")
	free := func() bool { return d.count() == 0 }
	await(ctx, free) // Release returns when a majority is free
	d.die(1)
	d.die(2)
	lock, err := d.locks.Obtain(ctx, stock, ttl, &redislock.Options{Metadata: restock})
	check(lock == nil && err != nil && !errors.Is(err, redislock.ErrNotObtained),
		"one of three servers has decided about a lock; the error is: %v", err)
	d.fails(restock, "gets no lock, and learns that nobody can tell who has it:")
	d.printf("\n   %v\n", err)
	await(ctx, free)
	d.printf("\nWhat server 1 had granted was given back: no key is left behind.\n")
}

func (d *quorumDemo) die(i int) {
	m := d.servers[i]
	m.dead = true
	m.redis.SetError(m.name + " is dead")
	d.says(m.name, "dies")
}

func (d *quorumDemo) count() int {
	held := 0
	for _, m := range d.servers {
		if !m.dead && m.redis.Exists(stock) {
			held++
		}
	}
	return held
}

func await(ctx context.Context, so func() bool) {
	for !so() {
		pause(ctx, time.Millisecond)
	}
}

// show prints what each server holds, once at least so many hold the lock.
func (d *quorumDemo) show(ctx context.Context, least int) {
	await(ctx, func() bool { return d.count() >= least }) // the Client did not wait for the last answers
	t := &term.Table{Columns: []term.Column{{Name: "SERVER"}, {Name: "KEY"}, {Name: "HOLDS"}}}
	for _, m := range d.servers {
		text, _ := m.redis.Get(stock)
		colour := term.Cyan
		if m.dead {
			colour, text = term.Faint, "(dead)"
		}
		t.Rows = append(t.Rows, []term.Cell{{Text: m.name}, {Text: stock}, {Text: text, Colour: colour}})
	}
	d.printf("\n")
	d.table(t)
}
