package demo

import (
	"context"
	"errors"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/marker"
	"github.com/redislock/redislock/internal/testing/incarnation"
)

// guardDemo tells twice what happens when a server forgets a lock that somebody keeps.
type guardDemo struct {
	*narrator

	server *forgetful
	locks  *redislock.Client
	kept   *redislock.Lock
	held   context.Context // ends when kept is lost
	end    func()

	restored chan struct{} // a renewal has put kept back
}

const server = "server"

// forgetful is a server in memory whose data does not survive a restart.
type forgetful struct {
	*miniredis.Miniredis

	identity *incarnation.Server
}

func (f *forgetful) restart() {
	f.FlushAll()
	f.identity.Begin()
}

func (d *guardDemo) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, demoLimit, errSlow)
	defer cancel()
	d.title("redislock demo --guard", "A server in memory restarts without its data, while checkout keeps a lock.")
	err := d.tell(ctx, nil, d.withoutGuard)
	if err == nil {
		err = d.tell(ctx, redislock.WithGuard(shortTTL, 0), d.withGuard)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// tell plays a scene on a new server.
func (d *guardDemo) tell(ctx context.Context, guard redislock.ClientOption, scene func(context.Context)) error {
	redis, client, end := inMemory()
	defer end()
	if err := client.Ping(ctx).Err(); err != nil { // the first connection starts the server
		return err
	}
	d.server = &forgetful{redis, incarnation.Of(redis)}
	if guard != nil { // a new database would begin with a pause
		m, err := marker.Read(ctx, client)
		if err == nil {
			err = marker.SetOpen(ctx, client, m, marker.Lengths{Grace: shortTTL})
		}
		if err != nil {
			return err
		}
	}
	d.restored = make(chan struct{}, 10)
	restored := func(context.Context, redislock.Restored) { d.restored <- struct{}{} }
	d.locks = redislock.New(client, guard, redislock.WithTracer(&redislock.Tracer{Restored: restored}))
	defer func() { _ = d.locks.Close() }()
	return play(ctx, func(ctx context.Context) {
		scene(ctx)
		d.end()
	})
}

// forget lets checkout keep a lock, and the server forget it.
func (d *guardDemo) forget(ctx context.Context) {
	var err error
	d.kept, err = d.locks.Obtain(ctx, stock, shortTTL, &redislock.Options{Metadata: checkout})
	must(err)
	d.held, d.end = d.kept.KeepAlive(ctx)
	d.gets(checkout, "locked stock:42 for %s, and keeps it", seconds(shortTTL))
	pause(ctx, shortTTL/6) // the next renewal is due soon, and not at once
	d.server.restart()
	d.says(server, "restarts, and has forgotten everything")
}

func (d *guardDemo) withoutGuard(ctx context.Context) {
	d.scene("Without a guard", "The server grants what it has forgotten, while the first holder relies on its lock.")
	d.forget(ctx)
	second, err := d.locks.Obtain(ctx, stock, shortTTL, &redislock.Options{Metadata: restock})
	must(err)
	check(d.held.Err() == nil && time.Now().Before(d.kept.Until()), "checkout has lost its lock already")
	d.fails(restock, "locked stock:42 as well: two workers hold one lock")
	<-d.held.Done() // ctx ends it as well
	if ctx.Err() != nil {
		must(context.Cause(ctx))
	}
	d.fails(checkout, "learns by its next renewal that its lock is lost")
	must(second.Release(ctx))
}

func (d *guardDemo) withGuard(ctx context.Context) {
	d.scene("With a guard", "The server notices, and grants nothing until every lock that it can have forgotten has ended.")
	d.forget(ctx)
	began := time.Now()
	for _, later := range []time.Duration{0, 2 * shortTTL / 3, 2 * shortTTL / 3} {
		pause(ctx, later)
		var refused *redislock.RefusedError
		_, err := d.locks.Obtain(ctx, stock, shortTTL, &redislock.Options{Metadata: restock, Explain: true})
		check(errors.As(err, &refused), "restock asked for stock:42, which checkout keeps; the error is: %v", err)
		if refused.Closed > 0 {
			d.fails(restock, "refused: the guard is closed for another %.1f s", refused.Closed.Seconds())
			if later == 0 {
				select {
				case <-d.restored:
					d.gets(checkout, "put its lock back, by its next renewal")
				case <-ctx.Done():
					must(context.Cause(ctx))
				}
			}
		} else {
			d.fails(restock, "refused: the guard is open again, and %s holds stock:42", refused.Metadata)
		}
	}
	check(d.held.Err() == nil && time.Since(began) > shortTTL, "checkout has lost its lock: %v", context.Cause(d.held))
	d.gets(checkout, "has held its lock all the time, and releases it")
	must(d.kept.Release(ctx))
	lock, err := d.locks.Obtain(ctx, stock, shortTTL, &redislock.Options{Metadata: restock})
	must(err)
	d.gets(restock, "locked stock:42")
	must(lock.Release(ctx))
}
