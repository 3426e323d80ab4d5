package deadlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/redislock/redislock/internal/deadlock"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/testing/bubble"
)

// still returns what looks at keys that do not change.
func still(held map[string]script.Held) deadlock.Look {
	return func(_ context.Context, keys []string, _ script.Glance) (all []script.Held, err error) {
		for _, key := range keys {
			all = append(all, held[key])
		}
		return all, nil
	}
}

// waiter returns a waiter for one key whose caller holds another key.
func waiter(ticket int, wants, token string, holds ...string) script.Waiter {
	return script.Waiter{
		Token: fmt.Sprint("of ", ticket), Ticket: int64(ticket), Limit: 1,
		Names: script.Names{Wants: []string{wants}, Holds: []script.Holding{{Token: token, Keys: holds}}},
	}
}

func searcher(wants string, holds ...string) *deadlock.Waiter {
	return &deadlock.Waiter{
		Limits: map[string]int{wants: 1}, Holds: []script.Holding{{Token: "mine", Keys: holds}},
	}
}

const last = 1_000_000 // the ticket of the one that searches

// expect expects that a search finds a circle of that length; 0 for none.
func expect(t *testing.T, length int, look deadlock.Look, w *deadlock.Waiter) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		circle, err := deadlock.Search(context.Background(), look, w, last)
		if err != nil || len(circle) != length {
			t.Errorf("%+v, %v", circle, err)
		}
	})
}

// Two callers may choose the same token for locks on different keys. If one of them waits, the other one goes on.
func TestOwnerOfAKey(t *testing.T) {
	const made = "q83vEjRWeJCrze8SNFZ4kA"
	for token, more := range map[string]bool{"pod-7": false, "pod-8": true, made: false} {
		held := map[string]script.Held{
			"mine": {Token: "mine", Line: []script.Waiter{waiter(1, "mine", token, "one")}},
			"one":  {Token: token}, "two": {Token: token},
		}
		held["mine"].Line[0].Holds[0].More = more
		expect(t, 0, still(held), searcher("two", "mine"))
		expect(t, 2, still(held), searcher("one", "mine"))
	}
	held := map[string]script.Held{
		"mine": {Token: "mine", Line: []script.Waiter{waiter(1, "mine", made, "one")}}, "two": {Token: made},
	}
	held["mine"].Line[0].Holds[0].More = true // a long lock of this library
	expect(t, 2, still(held), searcher("two", "mine"))
}

// Those who hold a shared key come in the order in which their holds end, and each renewal changes that.
func TestOrderOfHolders(t *testing.T) {
	for range 20 {
		look := func(_ context.Context, keys []string, _ script.Glance) ([]script.Held, error) {
			all := make([]script.Held, len(keys))
			for i, key := range keys {
				for r := range 20 {
					if key == "mine" {
						all[i].Token = "mine"
						all[i].Line = append(all[i].Line, waiter(r+1, "mine", fmt.Sprint("reader ", r), "shared"))
					}
				}
				for _, r := range rand.Perm(20) {
					if key == "shared" {
						all[i].Holders = append(all[i].Holders, script.Holder{Token: fmt.Sprint("reader ", r)})
					}
				}
			}
			return all, nil
		}
		expect(t, 2, look, searcher("shared", "mine"))
	}
}

// However many keys a caller holds, a search has room for what it waits for.
func TestManyOwnKeys(t *testing.T) {
	var own []string
	for i := range 200 {
		own = append(own, fmt.Sprint("own ", i))
	}
	expect(t, 2, still(map[string]script.Held{
		own[0]:   {Token: "mine", Line: []script.Waiter{waiter(1, own[0], "theirs", "wanted")}},
		"wanted": {Token: "theirs"},
	}), searcher("wanted", own...))
}

// The arrows of long lines are the square of their waiters. A search must not take so much, and must end with its ctx.
func TestLongLines(t *testing.T) {
	for _, limit := range []int{0, 1, 2, 5} {
		held := map[string]script.Held{}
		var own []string
		for l := range 4 {
			key, h := fmt.Sprint("key ", l), script.Held{Token: fmt.Sprint("holder ", l)}
			if l < 2 {
				h.Token, own = "mine", append(own, key)
			}
			if limit != 1 {
				h.Holders = []script.Holder{{Token: h.Token, Limit: limit}}
			}
			for i := range 1000 {
				other := 2 + i%2
				w := waiter(1+l+4*i, key, fmt.Sprint("holder ", other), fmt.Sprint("key ", other))
				w.Limit = limit
				h.Line = append(h.Line, w)
			}
			held[key] = h
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w := searcher("key 3", own...)
		expect(t, map[int]int{1: 2}[limit], still(held), w)
		runtime.ReadMemStats(&after)
		if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 100 {
			t.Errorf("limit %d: %d MiB", limit, mib)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ends := func(ctx context.Context, keys []string, g script.Glance) ([]script.Held, error) {
			cancel()
			return still(held)(ctx, keys, g)
		}
		if circle, err := deadlock.Search(ctx, ends, w, last); circle != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of ctx: %+v, %v", circle, err)
		}
	}
}
