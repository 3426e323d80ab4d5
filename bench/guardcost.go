package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/keyname"
)

// The guard of the cells with one. Its times cost nothing while it is open.
const (
	guardMaxTTL  = 30 * time.Second
	guardDeposed = 3 * time.Second
)

// The contestants of the guard cells.
const (
	withGuard    = thisLibrary + ", with a guard"
	withoutGuard = thisLibrary + ", without"
)

var (
	scriptTime  = metric{head: "script µs", format: digits, spread: true, ratio: true}
	obtainTime  = metric{head: "obtain µs", format: digits, spread: true, ratio: true}
	refreshTime = metric{head: "refresh µs", format: digits, spread: true, ratio: true}
	releaseTime = metric{head: "release µs", format: digits, spread: true, ratio: true}

	// comparedRenewal is perRenewal with a ratio.
	comparedRenewal = metric{head: perRenewal.head, format: digits, spread: true, ratio: true}
)

func (b *bench) guardGroup() *group {
	g := &group{
		name: "guard", title: "What a guard costs",
		about: "The same work of this library with WithGuard and without, on one server whose guard is open. A ratio above 1 is " +
			"what the guard adds, except for pairs/s. Script µs is for how long the scripts of a pair run, and obtain, refresh " +
			"and release µs for how long the script of one call does, as the server counts it. Calls made at the same time " +
			"share a script, and then also its check.",
	}
	for _, n := range b.guardGoroutines {
		g.cells = append(g.cells, b.guardPairCell(n))
	}
	g.cells = append(g.cells, b.guardCallCell(), b.guardKeptCell())
	return g
}

// guardPairCell returns the cell in which goroutines take and release locks on a key each.
func (b *bench) guardPairCell(goroutines int) cell {
	title := whole(float64(goroutines)) + " goroutines"
	if goroutines == 1 {
		title = "1 goroutine"
	}
	c := newPairCell(fmt.Sprintf("goroutines=%d", goroutines), title, b.few)
	c.columns = []metric{pairRate, wall, median, tail, clientCPU, allocs, sent, serverCPU, scriptTime}
	c.drawn = []metric{pairRate, scriptTime}
	c.open = func() ([]contestant, func() error, error) {
		on, err := openServers(1)
		if err != nil {
			return nil, nil, err
		}
		lockers, err := openAll(on.addrs(), openGuardLocker, openUnguardedLocker)
		if err = errors.Join(err, on[0].openGuard(context.Background())); err != nil {
			return nil, nil, errors.Join(err, on.close())
		}
		end := func() error { return errors.Join(closeLockers(lockers), on.close()) }
		return pairContestants(on, lockers, background, keySets(goroutines, 1), b.few), end, nil
	}
	return c
}

func openGuardLocker(addrs []string) (*locker, error) {
	l := newRedislockLocker(newGuardedClient, addrs, nil)
	l.name = withGuard
	return l, nil
}

func openUnguardedLocker(addrs []string) (*locker, error) {
	l := newRedislockLocker(newOneClient, addrs, nil)
	l.name = withoutGuard
	return l, nil
}

// newGuardedClient connects to one server, with a guard.
func newGuardedClient(addrs []string) (*redislock.Client, func() error) {
	client := newGoRedis(addrs[0])
	locks := redislock.New(client, redislock.WithGuard(guardMaxTTL, guardDeposed))
	return locks, closeRedislock(locks, client)
}

// guardContestants returns this library with a guard and without on the server t, as contestants that do round.
func guardContestants(
	t *target, round func(ctx context.Context, t *target, connect connectRedislock) (figures, error),
) []contestant {
	return []contestant{
		{name: withGuard, round: func(ctx context.Context) (figures, error) { return round(ctx, t, newGuardedClient) }},
		{name: withoutGuard, round: func(ctx context.Context) (figures, error) { return round(ctx, t, newOneClient) }},
	}
}

// guardCallCell returns the cell in which one goroutine obtains locks, refreshes each, and releases each.
func (b *bench) guardCallCell() cell {
	c := cell{
		name: "calls", title: whole(float64(b.guardCalls)) + " calls one after the other, of each kind", rounds: b.few.rounds,
		columns: []metric{obtainTime, refreshTime, releaseTime},
		drawn:   []metric{obtainTime, refreshTime, releaseTime},
	}
	c.open = func() ([]contestant, func() error, error) {
		on, err := openServers(1)
		if err != nil {
			return nil, nil, err
		}
		return guardContestants(on[0], b.calls), on.close, nil
	}
	return c
}

// guardKeptCell returns the cell in which a process keeps many locks.
func (b *bench) guardKeptCell() cell {
	c := cell{
		name: fmt.Sprintf("locks=%d", b.kept), title: whole(float64(b.kept)) + " kept locks", rounds: b.keptRounds,
		columns: []metric{serverLoad, comparedRenewal, renewalRate, perRead, heapPerLock, lost},
		drawn:   []metric{serverLoad},
	}
	c.open = func() ([]contestant, func() error, error) {
		on, err := openServers(1)
		if err != nil {
			return nil, nil, err
		}
		round := func(ctx context.Context, t *target, connect connectRedislock) (figures, error) {
			if err := t.openGuard(ctx); err != nil {
				return nil, err
			}
			return b.keep(ctx, t, redislockKeeper(connect))
		}
		return guardContestants(on[0], round), on.close, nil
	}
	return c
}

// calls obtains locks, refreshes each and releases each. It returns how long the server took for a call of each kind.
func (b *bench) calls(ctx context.Context, t *target, connect connectRedislock) (_ figures, err error) {
	if err := t.openGuard(ctx); err != nil {
		return nil, err
	}
	locks, end := connect([]string{t.addr})
	defer func() { err = errors.Join(err, end()) }()
	warmUp, err := locks.Obtain(ctx, b.freshKey(), ttl, nil) // loads the scripts
	if err != nil {
		return nil, err
	}
	if err := errors.Join(warmUp.Refresh(ctx, ttl, nil), warmUp.Release(ctx)); err != nil {
		return nil, err
	}
	held := make([]*redislock.Lock, b.guardCalls)
	f := figures{}
	for _, kind := range []struct {
		metric metric
		call   func(i int) error
	}{
		{obtainTime, func(i int) (err error) {
			held[i], err = locks.Obtain(ctx, b.freshKey(), ttl, nil)
			return err
		}},
		{refreshTime, func(i int) error { return held[i].Refresh(ctx, ttl, nil) }},
		{releaseTime, func(i int) error { return held[i].Release(ctx) }},
	} {
		before, err := t.stats(ctx)
		if err != nil {
			return nil, err
		}
		for i := range held {
			if err := kind.call(i); err != nil {
				return nil, err
			}
		}
		after, err := t.stats(ctx)
		if err != nil {
			return nil, err
		}
		added := after.since(before)
		f[kind.metric.head] = added.scripts / added.sent(scripts)
	}
	return f, nil
}

// openGuard opens the guard of the server, which would otherwise be closed at its first use. It writes the marker that
// internal/script/marker.lua describes.
func (t *target) openGuard(ctx context.Context) error {
	info, err := t.client.Info(ctx, "replication").Result()
	if err != nil {
		return fmt.Errorf("open the guard: %w", err)
	}
	id := regexp.MustCompile(`master_replid:(\w+)`).FindStringSubmatch(info)
	if id == nil {
		return errors.New("open the guard: the server has no master_replid")
	}
	marker := fmt.Sprintf("%s %d %d", id[1], (guardMaxTTL + guardDeposed).Milliseconds(), guardDeposed.Milliseconds())
	return t.client.Set(ctx, keyname.GuardMarker, marker, 0).Err()
}
