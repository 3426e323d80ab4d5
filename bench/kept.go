package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// keeper is a contestant of the cell that keeps many locks alive.
type keeper struct {
	// redisKey returns the key that the lock of that name has in Redis.
	redisKey func(name string) string
	// keep obtains a lock and keeps it alive. It returns a context that ends when the lock is lost, and a function that
	// releases the lock.
	keep  func(ctx context.Context, name string) (held context.Context, release func() error, err error)
	close func() error
}

func (b *bench) keptGroup() *group {
	c := cell{
		name: fmt.Sprintf("locks=%d", b.kept), title: whole(float64(b.kept)) + " kept locks", rounds: b.keptRounds,
		columns: []metric{serverLoad, renewalRate, perRead, perRenewal, heapPerLock, stack, goroutines, lost},
		drawn:   []metric{serverLoad, heapPerLock},
	}
	for _, who := range []struct {
		name string
		open func(addr string, ttl time.Duration) (*keeper, error)
	}{
		{thisLibrary, redislockKeeper(newOneClient)},
		{overRueidis, redislockKeeper(newRueidisClient)},
		{"rueidislock", openRueidislockKeeper},
	} {
		c.contestants = append(c.contestants, contestant{
			name:  who.name,
			round: func(ctx context.Context) (figures, error) { return b.keep(ctx, b.target, who.open) },
		})
	}
	return &group{
		name: "kept", title: "Locks that are kept alive",
		about: fmt.Sprintf("One process keeps locks with a ttl of %v alive for %v. This library renews when a third of the "+
			"validity has passed, rueidislock after half of it (its default); the others leave renewals to the caller. "+
			"Renewals/read is how many renewals the server got from one read of a connection, of 16 KiB at most. Lost "+
			"are locks whose context has ended or whose key is gone. Here less is better.", b.keptTTL, b.keeping),
		cells: []cell{c},
	}
}

// keep keeps locks alive on a server for some time, with its own client, and returns what that costs.
func (b *bench) keep(
	ctx context.Context, t *target, open func(addr string, ttl time.Duration) (*keeper, error),
) (_ figures, err error) {
	k, err := open(t.addr, b.keptTTL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	s := newKeptSet(k, b.freshKey(), b.kept)
	// Open connections and load scripts before the measurement.
	warmUp := newKeptSet(k, b.freshKey(), keptGoroutines)
	if err := warmUp.obtain(); err != nil {
		return nil, err
	}
	if err := warmUp.releaseAll(); err != nil {
		return nil, err
	}
	clients, routines := memory(), runtime.NumGoroutine()
	if err := s.obtain(); err != nil {
		return nil, err
	}
	locks := float64(b.kept)
	withLocks := memory()
	f := figures{
		heapPerLock.head: (withLocks.heap - clients.heap) / locks,
		stack.head:       (withLocks.stack - clients.stack) / locks,
		goroutines.head:  float64(runtime.NumGoroutine()-routines) / locks,
	}
	before, err := t.stats(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	time.Sleep(b.keeping)
	after, err := t.stats(ctx)
	if err != nil {
		return nil, err
	}
	seconds, server := time.Since(began).Seconds(), after.since(before)
	renewals := server.sent(scripts)
	f[serverLoad.head] = 100 * server.cpu / seconds
	f[renewalRate.head] = renewals / seconds
	f[perRead.head] = renewals / max(server.reads, 1)
	f[perRenewal.head] = server.cpu * 1e6 / max(renewals, 1)
	if f[lost.head], err = s.lost(ctx, t); err != nil {
		return nil, err
	}
	return f, s.releaseAll()
}

// usage is the memory in use after a collection, in bytes.
type usage struct{ heap, stack float64 }

func memory() usage {
	runtime.GC()
	runtime.GC() // the first collection may leave memory that finalizers and pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{heap: float64(m.HeapAlloc), stack: float64(m.StackInuse)}
}
