package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// bench is everything that a run needs.
type bench struct {
	*plan
	target  *target
	lockers []*locker // this library first
	serial  int       // of the keys that were used only once
	began   int64     // sets the keys of one run apart from those of another

	ending context.Context // can be cancelled, and is by end
	end    context.CancelFunc
}

// open connects everybody to the server at addr, or to one of its own if addr is empty.
func open(addr string, p *plan) (*bench, error) {
	t, err := openTarget(addr)
	if err != nil {
		return nil, err
	}
	lockers, err := openLockers(t.addr)
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	b := &bench{plan: p, target: t, lockers: lockers, began: time.Now().Unix()}
	b.ending, b.end = context.WithCancel(context.Background())
	return b, nil
}

// close closes all connections, and the server if it is ours.
func (b *bench) close() error {
	b.end()
	return errors.Join(closeLockers(b.lockers), b.target.close())
}

// freshKey returns a key that nobody has used before.
func (b *bench) freshKey() string {
	b.serial++
	return fmt.Sprintf("redislock-bench:%d:%d", b.began, b.serial)
}

// groups returns all that can be run.
func (b *bench) groups() []*group {
	return []*group{b.serialGroup(), b.parallelGroup(), b.keysGroup(), b.contendedGroup(), b.keptGroup()}
}

// serialCell returns the cell in which each who locks single keys takes and releases the lock on one, in one goroutine.
func (b *bench) serialCell(ctx context.Context, name, title string) cell {
	return b.sliced(ctx, name, title, b.singles(), keySets(1, 1), b.serialRounds, b.serialSlice)
}

// pairCell returns the cell in which each of lockers takes and releases, in a goroutine for each set, the lock on it.
func (b *bench) pairCell(ctx context.Context, name, title string, lockers []*locker, sets [][]string) cell {
	return b.sliced(ctx, name, title, lockers, sets, b.rounds, b.slice)
}

func (b *bench) sliced(
	ctx context.Context, name, title string, lockers []*locker, sets [][]string, rounds int, slice time.Duration,
) cell {
	c := cell{
		name: name, title: title, rounds: rounds,
		columns: []metric{pairRate, median, tail, allocs, allocated, sent, executed, serverCPU},
		drawn:   []metric{pairRate},
	}
	for _, l := range lockers {
		c.contestants = append(c.contestants, contestant{
			name: l.name,
			// The context is part of what is measured, so it is not that of the run.
			round: func(context.Context) (figures, error) { return b.pairs(ctx, l, sets, slice) },
		})
	}
	return c
}

func (b *bench) serialGroup() *group {
	endless := context.Background()
	return &group{
		name: "serial", title: "One goroutine, one key",
		about: "A goroutine obtains the lock on one key and releases it, over and over. With a ctx that can be cancelled " +
			"this library returns the moment it is, which go-redis by itself does not; that has its price.",
		cells: []cell{
			b.serialCell(endless, "ctx=background", "ctx is context.Background()"),
			b.serialCell(b.ending, "ctx=cancel", "ctx can be cancelled"),
		},
	}
}

func (b *bench) parallelGroup() *group {
	g := &group{
		name: "parallel", title: "Many goroutines, a key each",
		about: "Each goroutine obtains the lock on a key of its own and releases it, over and over.",
	}
	for _, n := range b.goroutines {
		name := fmt.Sprintf("goroutines=%d", n)
		title := whole(float64(n)) + " goroutines"
		g.cells = append(g.cells, b.pairCell(context.Background(), name, title, b.singles(), keySets(n, 1)))
	}
	return g
}

func (b *bench) keysGroup() *group {
	g := &group{
		name: "keys", title: "Several keys, all or none",
		about: "A goroutine obtains one lock on several keys and releases it. The bare scripts are the least that can do " +
			"so. The other libraries lock one key, so all they can do is to lock the keys in turn, which is not all or " +
			fmt.Sprintf("none; they are left out above %d keys.", mostInTurn),
	}
	for _, n := range b.keys {
		var lockers []*locker
		for _, l := range b.lockers {
			switch l.name {
			case thisLibrary:
			case bareScripts:
				if n > mostBare {
					continue
				}
			case rawGoRedis, rawRueidis:
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
		g.cells = append(g.cells, b.pairCell(context.Background(), name, title, lockers, keySets(1, n)))
	}
	return g
}

// singles returns those who lock single keys.
func (b *bench) singles() []*locker {
	var singles []*locker
	for _, l := range b.lockers {
		if l.name != bareScripts {
			singles = append(singles, l)
		}
	}
	return singles
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
