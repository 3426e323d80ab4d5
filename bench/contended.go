package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

func (b *bench) contendedGroup() *group {
	g := &group{
		name: "contended", title: "Many want one key",
		about: fmt.Sprintf("Contenders in %d processes each obtain the lock on the one key, hold it for %v and release it, "+
			"over and over, for %v. Jain's index is 1 where all get the same number of locks. Who waits at the end is "+
			"waited for: that is in the waits, and in what a lock costs, but not in the locks a second. Stuck are those "+
			"who had no lock %v later.", b.processes, b.hold, b.contending, drain),
	}
	for _, n := range b.contenders {
		c := cell{
			name: fmt.Sprintf("contenders=%d", n), title: whole(float64(n)) + " contenders", rounds: b.contendRounds,
			columns: []metric{lockRate, fairness, medianWait, longestWait, sent, executed, serverCPU, stuck},
			drawn:   []metric{lockRate, fairness},
		}
		for _, who := range contenders() {
			c.contestants = append(c.contestants, contestant{
				name:  who.name,
				round: func(ctx context.Context) (figures, error) { return b.contend(ctx, who, n) },
			})
		}
		g.cells = append(g.cells, c)
	}
	return g
}

// contend lets n contenders in several processes contend for a fresh key.
func (b *bench) contend(ctx context.Context, who contender, n int) (_ figures, err error) {
	processes := min(b.processes, n)
	j := job{Contender: who.name, Addr: b.target.addr, Key: b.freshKey(), Hold: b.hold, Duration: b.contending}
	var workers []*worker
	defer func() {
		for _, w := range workers {
			err = errors.Join(err, w.close())
		}
	}()
	for i := range processes {
		j.Contenders = (n + i) / processes // they add up to n
		w, err := startWorker(ctx, j)
		if err != nil {
			return nil, err
		}
		workers = append(workers, w)
	}
	for _, w := range workers {
		if err := w.ready(); err != nil {
			return nil, err
		}
	}
	before, err := b.target.stats(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now().Add(20 * time.Millisecond) // until then all have heard of it
	for _, w := range workers {
		if err := w.start(start); err != nil {
			return nil, err
		}
	}
	var all outcome
	for _, w := range workers {
		o, err := w.outcome()
		if err != nil {
			return nil, err
		}
		all.add(o)
	}
	after, err := b.target.stats(ctx)
	if err != nil {
		return nil, err
	}
	return all.figures(b.contending, after.since(before), who.sends)
}
