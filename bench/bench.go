package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// bench is everything that a run needs.
type bench struct {
	*plan
	target  *target
	lockers []*locker // this library first
	serial  int       // the number of the last fresh key
	began   int64     // tells the keys of one run from those of another
}

// open connects all lockers to the server at addr, or to a new server if addr is empty.
func open(addr string, p *plan) (*bench, error) {
	t, err := openTarget(addr)
	if err != nil {
		return nil, err
	}
	lockers, err := openLockers(t.addr)
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return &bench{plan: p, target: t, lockers: lockers, began: time.Now().Unix()}, nil
}

// close closes all connections, and the server if it is ours.
func (b *bench) close() error {
	return errors.Join(closeLockers(b.lockers), b.target.close())
}

// freshKey returns a key that nobody has used before.
func (b *bench) freshKey() string {
	b.serial++
	return fmt.Sprintf("redislock-bench:%d:%d", b.began, b.serial)
}

// groups returns all groups of cells.
func (b *bench) groups() []*group {
	return []*group{
		b.parallelGroup(), b.cancellableGroup(), b.keysGroup(), b.contendedGroup(), b.quorumGroup(), b.quorumContendedGroup(),
		b.slotsGroup(), b.slotsContendedGroup(), b.keptGroup(), b.guardGroup(),
	}
}

// pairCell returns the cell in which each of lockers takes and releases, in a goroutine for each set, the lock on it.
func (b *bench) pairCell(name, title string, lockers []*locker, newCtx newContext, sets [][]string, t turns) cell {
	c := newPairCell(name, title, t)
	c.contestants = pairContestants(servers{b.target}, lockers, newCtx, sets, t)
	return c
}

// newPairCell returns a cell for pairs of an obtain and a release, without its contestants.
func newPairCell(name, title string, t turns) cell {
	return cell{
		name: name, title: title, rounds: t.rounds,
		columns: []metric{pairRate, median, tail, clientCPU, allocs, allocated, sent, executed, serverCPU},
		drawn:   []metric{pairRate},
	}
}

// pairContestants returns lockers as contestants of such a cell, on those servers.
func pairContestants(on servers, lockers []*locker, newCtx newContext, sets [][]string, t turns) []contestant {
	var contestants []contestant
	for _, l := range lockers {
		contestants = append(contestants, contestant{
			name:  l.name,
			round: func(context.Context) (figures, error) { return on.pairs(newCtx, l, sets, t) },
		})
	}
	return contestants
}

func (b *bench) parallelGroup() *group {
	return &group{
		name: "parallel", title: "Goroutines with a key each, and context.Background()",
		about:  "Each goroutine obtains the lock on a key of its own and releases it, over and over.",
		cells:  b.goroutineCells(background, b.without(bareScripts, bsmBeside)),
		across: "goroutines",
		summed: []metric{wall, clientCPU},
	}
}

func (b *bench) cancellableGroup() *group {
	return &group{
		name: "cancellable", title: "Goroutines with a key each, and a ctx that can be cancelled",
		about: "The same work, but each goroutine has a ctx of its own, from context.WithCancel. This library returns the " +
			"moment its ctx is cancelled, which go-redis by itself does not, and that has a cost. " + bsmBeside + ", shows the " +
			"least that it costs with go-redis.",
		cells:  b.goroutineCells(cancellable, b.without(bareScripts)),
		summed: []metric{wall, clientCPU},
	}
}

// goroutineCells returns the cells in which goroutines take and release locks on single keys through each of lockers, each
// goroutine with a ctx of its own.
func (b *bench) goroutineCells(newCtx newContext, lockers []*locker) []cell {
	var cells []cell
	for _, n := range b.goroutines {
		title := whole(float64(n)) + " goroutines"
		if n == 1 {
			title = "1 goroutine"
		}
		c := b.pairCell(fmt.Sprintf("goroutines=%d", n), title, lockers, newCtx, keySets(n, 1), b.turns(n))
		c.x = float64(n)
		cells = append(cells, c)
	}
	return cells
}

func (b *bench) keysGroup() *group {
	g := &group{
		name: "keys", title: "Several keys, all or none",
		about: "A goroutine obtains one lock on several keys and releases it. The bare scripts are the least that can do " +
			fmt.Sprintf("so; they and bsm/redislock are left out above %d keys. The other libraries lock one key, so they can "+
				"only lock the keys in turn, which is not all or none; they are left out above %d keys.", mostBare, mostInTurn),
	}
	for _, n := range b.keys {
		var lockers []*locker
		for _, l := range b.lockers {
			switch l.name {
			case thisLibrary, overRueidis:
			case bareScripts, bsmRedislock:
				if n > mostBare {
					continue
				}
			case rawGoRedis, rawRueidis, bsmBeside:
				continue
			default:
				if n > mostInTurn {
					continue
				}
			}
			lockers = append(lockers, l)
		}
		name := fmt.Sprintf("keys=%d", n)
		title := whole(float64(n)) + " keys"
		g.cells = append(g.cells, b.pairCell(name, title, lockers, background, keySets(1, n), b.many))
	}
	return g
}

// without returns all lockers but those with one of the names.
func (b *bench) without(names ...string) []*locker {
	return slices.DeleteFunc(slices.Clone(b.lockers), func(l *locker) bool { return slices.Contains(names, l.name) })
}

// keySets returns n sets of size keys.
func keySets(n, size int) [][]string {
	sets := make([][]string, n)
	for i := range sets {
		for j := range size {
			sets[i] = append(sets[i], fmt.Sprintf("redislock-bench:%d:%d", i, j))
		}
	}
	return sets
}
