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

// quorumDemo is the story of a lock on three servers in memory, of which one dies and forgets.
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

func (m *mortal) die() {
	m.dead = true
	m.redis.SetError(m.name + " is dead")
}

// rise makes it serve again, without its data.
func (m *mortal) rise() {
	m.dead = false
	m.redis.FlushAll()
	m.redis.SetError("")
}

// run plays the story.
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
	if err := d.await(ctx, func(held int) bool { return held == 0 }); err != nil { // Release returns when a majority is free
		return err
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
	if err := d.await(ctx, func(held int) bool { return held == 0 }); err != nil {
		return err
	}
	d.printf("\nWhat server 1 had granted was given back: no key is left behind.\n")
	return nil
}

// count returns how many servers hold stock:42 as far as anybody could find out.
func (d *quorumDemo) count() int {
	held := 0
	for _, m := range d.servers {
		if !m.dead && m.redis.Exists(stock) {
			held++
		}
	}
	return held
}

// await waits until so many servers hold stock:42.
func (d *quorumDemo) await(ctx context.Context, enough func(held int) bool) error {
	for !enough(d.count()) {
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// show prints what each server holds, and checks that at least so many hold the lock.
func (d *quorumDemo) show(ctx context.Context, least int) error {
	if err := d.await(ctx, func(held int) bool { return held >= least }); err != nil { // the answers that nobody waited for
		return err
	}
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
	return nil
}
