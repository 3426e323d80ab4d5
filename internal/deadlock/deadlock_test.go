package deadlock_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/redislock/redislock/internal/deadlock"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/testing/bubble"
)

// In random worlds, a caller that finds a circle would wait for ever, with all its members, and came last of them; whenever
// somebody would wait for ever, somebody finds a circle; and when those have given up, nobody waits for ever.
func TestRandomWorlds(t *testing.T) {
	const worlds = 3000
	kinds := [][]int{{1}, {0, 1}, {1, 2}, {0, 1, 1, 2, 3}}
	circles, longest := 0, 0
	for seed := range uint64(worlds) {
		bubble.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 53))
			w := newWorld(random, 2+random.IntN(6), 2+random.IntN(7))
			for range 10 + random.IntN(40) {
				w.step(kinds[seed%uint64(len(kinds))])
			}
			for round := 0; ; round++ {
				var found *caller
				for _, c := range w.waiting() {
					circle := search(t, w, c)
					if circle == nil {
						continue
					}
					circles, longest = circles+1, max(longest, len(circle))
					check(t, w, c, circle, seed)
					found = c
				}
				if found == nil {
					break
				}
				w.giveUp(found)
			}
			if all := w.waiting(); slices.ContainsFunc(all, w.isStuck) {
				t.Errorf("seed %d: some of %d wait for ever, and nobody finds a circle", seed, len(all))
			}
		})
	}
	t.Logf("%d circles, the longest of %d", circles, longest)
	if circles < worlds/10 || longest < 4 {
		t.Error("these worlds show too little")
	}
}

// A caller that finds a circle was in one at some moment, although others obtain, release and give up between any two readings.
func TestRestlessWorlds(t *testing.T) {
	const worlds = 1000
	circles, searches := 0, 0
	for seed := range uint64(worlds) {
		bubble.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 54))
			w := newWorld(random, 2+random.IntN(6), 3+random.IntN(7))
			limits := [][]int{{1}, {0, 1}, {1, 2}}[seed%3]
			for range 200 {
				w.step(limits)
				all := w.waiting()
				if len(all) == 0 {
					continue
				}
				c := all[random.IntN(len(all))]
				if random.IntN(2) == 0 {
					w.giveUp(c)
					continue
				}
				wasStuck := w.isStuck(c)
				restless := func(ctx context.Context, keys []string, g script.Glance) (found []script.Held, err error) {
					for _, key := range keys {
						for range random.IntN(3) {
							if all := w.waiting(); random.IntN(3) == 0 {
								if other := all[random.IntN(len(all))]; other != c {
									w.giveUp(other)
								}
							} else {
								w.step(limits)
							}
							if !c.waits() { // its caller does not search any more
								return nil, context.Canceled
							}
							wasStuck = wasStuck || w.isStuck(c)
						}
						held, _ := w.look(ctx, []string{key}, g)
						found = append(found, held...)
					}
					return found, nil
				}
				searches++
				circle, _ := deadlock.Search(context.Background(), restless, c.searcher(), c.ticket)
				if circle != nil {
					circles++
					if !wasStuck && !w.isStuck(c) {
						t.Errorf("seed %d: a circle of %d that was never there: %+v", seed, len(circle), circle)
					}
				}
			}
		})
	}
	t.Logf("%d circles in %d searches", circles, searches)
	if circles < worlds/10 {
		t.Error("these worlds show too little")
	}
}

func search(t *testing.T, w *world, c *caller) []deadlock.Arrow {
	circle, err := deadlock.Search(context.Background(), w.look, c.searcher(), c.ticket)
	if err != nil {
		t.Error(err)
	}
	return circle
}

// check looks at the circle that a caller has found.
func check(t *testing.T, w *world, c *caller, circle []deadlock.Arrow, seed uint64) {
	if len(c.locks) == 0 {
		t.Errorf("seed %d: one that holds nothing has found a circle", seed)
	}
	if !w.isStuck(c) {
		t.Errorf("seed %d: one that could go on has found a circle of %d: %+v", seed, len(circle), circle)
	}
	last := circle[len(circle)-1]
	if last.Holder == "" {
		t.Errorf("seed %d: the last member waits behind the one that came last", seed)
	}
	for _, arrow := range circle {
		if arrow.Holder == "" {
			continue
		}
		for _, h := range w.held[arrow.Key] {
			if h.Token == arrow.Holder && (!w.isStuck(h.by) || h.by.ticket > c.ticket) {
				t.Errorf("seed %d: a member could go on, or came later", seed)
			}
		}
	}
}
