package tree_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/tree"
)

// TestCircles compares Build with the definition of what is stuck, on small random lines: there is a circle if and only if
// something is stuck, and each circle leads round.
func TestCircles(t *testing.T) {
	circles := 0
	for seed := range uint64(20_000) {
		statuses := random(rand.New(rand.NewPCG(seed, 1)))
		found := tree.Build(statuses)
		if stuck := stuckIn(statuses); (len(found.Circles) > 0) != (len(stuck) > 0) {
			t.Fatalf("seed %d: %d circles, and these are stuck: %v\n%+v", seed, len(found.Circles), stuck, statuses)
		}
		for _, c := range found.Circles {
			circles++
			check(t, seed, c)
		}
	}
	if circles < 1000 {
		t.Errorf("only %d circles", circles)
	}
}

// check reports a circle that does not lead round.
func check(t *testing.T, seed uint64, c *tree.Circle) {
	t.Helper()
	for i, s := range c.Steps {
		next := c.Steps[(i+1)%len(c.Steps)].Place.Waiter
		if s.Lock == nil {
			ahead := s.Place.Key.Places[:s.Place.Index]
			if !slices.ContainsFunc(ahead, func(p *tree.Place) bool { return p.Waiter == next }) {
				t.Errorf("seed %d: %s is not ahead", seed, next.Token)
			}
			continue
		}
		if !slices.Contains(next.Locks, s.Lock) {
			t.Errorf("seed %d: the caller of %s does not hold %s", seed, next.Token, s.Lock.Token)
		}
		if !slices.ContainsFunc(s.Place.Key.Holders, func(h *tree.Hold) bool { return h.Lock == s.Lock }) {
			t.Errorf("seed %d: %s does not hold %s", seed, s.Lock.Token, s.Place.Key.Key)
		}
	}
}

// random returns up to four keys, which up to four locks hold, and up to six waiters in their lines, in one order.
func random(r *rand.Rand) (all []redislock.Status) {
	for i := range 1 + r.IntN(4) {
		s := redislock.Status{Key: fmt.Sprint("key", i), TTL: time.Minute}
		switch r.IntN(3) {
		case 0:
			s.Token = fmt.Sprint("T", r.IntN(4))
		case 1:
			for j := range 4 {
				if r.IntN(2) == 0 {
					s.Holders = append(s.Holders, redislock.Holder{Token: fmt.Sprint("T", j), Limit: r.IntN(4)})
				}
			}
			s.HolderCount = len(s.Holders)
		}
		all = append(all, s)
	}
	for i := range 1 + r.IntN(6) {
		w := redislock.Waiter{Token: fmt.Sprint("W", i)}
		for j := range 4 {
			if r.IntN(3) == 0 {
				w.Holds = append(w.Holds, redislock.Holding{Token: fmt.Sprint("T", j)})
			}
		}
		for j := range all {
			if r.IntN(2) == 0 {
				w.Limit = r.IntN(3)
				all[j].Line = append(all[j].Line, w)
				all[j].Waiters++
			}
		}
	}
	return all
}

// stuckIn returns the tokens of the waiters that are stuck, by the definition: all that cannot be served if those who are not
// stuck have gone.
func stuckIn(statuses []redislock.Status) map[string]bool {
	stuck, holds := map[string]bool{}, map[string][]string{} // by the token of a waiter; its caller's locks
	for _, s := range statuses {
		for _, w := range s.Line {
			stuck[w.Token], holds[w.Token] = true, nil
			for _, held := range w.Holds {
				holds[w.Token] = append(holds[w.Token], held.Token)
			}
		}
	}
	isHeldUp := func(lock string) bool {
		for waiter := range stuck {
			if slices.Contains(holds[waiter], lock) {
				return true
			}
		}
		return false
	}
	isBlocked := func(s redislock.Status, i int) bool {
		limit, count := s.Line[i].Limit, 1
		for _, ahead := range s.Line[:i] {
			if stuck[ahead.Token] {
				count++
				if ahead.Limit != limit {
					return true
				}
			}
		}
		holders := s.Holders
		if s.HolderCount == 0 && s.Token != "" {
			holders = []redislock.Holder{{Token: s.Token, Limit: 1}}
		}
		for _, h := range holders {
			if isHeldUp(h.Token) {
				count++
				if limit == 0 || h.Limit > 0 && h.Limit < limit {
					limit = h.Limit
				}
			}
		}
		return limit > 0 && count > limit
	}
	for {
		var free []string
		for waiter := range stuck {
			if !slices.ContainsFunc(statuses, func(s redislock.Status) bool {
				i := slices.IndexFunc(s.Line, func(w redislock.Waiter) bool { return w.Token == waiter })
				return i >= 0 && isBlocked(s, i)
			}) {
				free = append(free, waiter)
			}
		}
		if len(free) == 0 {
			return stuck
		}
		for _, waiter := range free {
			delete(stuck, waiter)
		}
	}
}
