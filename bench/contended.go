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
		about: b.contendingAbout(fmt.Sprintf("Stuck are the contenders without a lock %v after the end.", drain)),
	}
	for _, n := range b.contenders {
		c := b.contendedCell(fmt.Sprintf("contenders=%d", n), n)
		c.columns = []metric{lockRate, fairness, medianWait, longestWait, sent, executed, serverCPU, stuck}
		c.contestants = b.contestants(servers{b.target}, n, job{On: oneServer}, b.oneKey)
		g.cells = append(g.cells, c)
	}
	return g
}

// contendingAbout describes the work of the contenders, and appends more.
func (b *bench) contendingAbout(more string) string {
	return fmt.Sprintf("Contenders in %d processes each obtain the lock on the one key, hold it for %v and release it, "+
		"over and over, for %v. Jain's index is 1 if all get the same number of locks. The run also waits for the "+
		"contenders that still wait at the end. Their locks count for the waits and for the cost of a lock, but not for "+
		"locks/s. %s",
		b.processes, b.hold, b.contending, more)
}

// contendedCell returns a cell for n contenders, without its contestants and its columns.
func (b *bench) contendedCell(name string, n int) cell {
	return cell{
		name: name, title: whole(float64(n)) + " contenders", rounds: b.contendRounds, drawn: []metric{lockRate, fairness},
	}
}

// contestants returns the contenders of j's topology as contestants of a cell with n of each, for fresh sets of keys.
func (b *bench) contestants(on servers, n int, j job, sets func() [][]string) []contestant {
	var contestants []contestant
	for _, who := range j.On.contenders() {
		contestants = append(contestants, contestant{
			name: who.name,
			round: func(ctx context.Context) (figures, error) {
				mine := j
				mine.Contender, mine.Sets = who.name, sets()
				return b.contend(ctx, on, who.sends, n, mine)
			},
		})
	}
	return contestants
}

// oneKey returns one set of one fresh key.
func (b *bench) oneKey() [][]string { return [][]string{{b.freshKey()}} }

// contend lets n contenders in several processes contend.
func (b *bench) contend(ctx context.Context, on servers, sends []string, n int, j job) (_ figures, err error) {
	processes := min(b.processes, n)
	j.Addrs, j.Hold, j.Duration = on.addrs(), b.hold, b.contending
	var workers []*worker
	defer func() {
		for _, w := range workers {
			err = errors.Join(err, w.close())
		}
	}()
	for i := range processes {
		j.First += j.Contenders
		j.Contenders = (n + i) / processes // the sum is n
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
	before, err := on.stats(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now().Add(20 * time.Millisecond) // so that all workers know it by then
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
	after, err := on.stats(ctx)
	if err != nil {
		return nil, err
	}
	return all.figures(b.contending, after.since(before), sends)
}
