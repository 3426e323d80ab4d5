package tree_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/internal/tree"
)

// BenchmarkBuild builds trees of 50,000 waiters, as many as the command line tool looks at.
func BenchmarkBuild(b *testing.B) {
	const many = 50_000
	line := func(limit int, holds ...string) (line []redislock.Waiter) {
		for i := range many {
			w := redislock.Waiter{Token: fmt.Sprint("W", i), Limit: limit}
			for _, token := range holds {
				w.Holds = append(w.Holds, redislock.Holding{Token: token})
			}
			line = append(line, w)
		}
		return line
	}
	permits := func(count, limit int) redislock.Status {
		s := redislock.Status{Key: "p", TTL: time.Minute, HolderCount: count}
		for i := range count {
			s.Holders = append(s.Holders, redislock.Holder{Token: fmt.Sprint("T", i), Limit: limit})
		}
		return s
	}
	// stuck is a key whose holder waits for itself.
	stuck := func(tokens int) (all []redislock.Status) {
		for i := range tokens {
			token := fmt.Sprint("T", i)
			all = append(all, redislock.Status{Key: token, Token: token, TTL: time.Minute, Waiters: 1, Line: []redislock.Waiter{
				{Token: "self" + token, Limit: 1, Holds: []redislock.Holding{{Token: token}}},
			}})
		}
		return all
	}
	for name, statuses := range map[string]func() []redislock.Status{
		"one line": func() []redislock.Status { return []redislock.Status{{Key: "a", Token: "T0", Line: line(1)}} },
		"one line, stuck": func() []redislock.Status {
			return append(stuck(1), redislock.Status{Key: "a", Token: "T0", Line: line(1)})
		},
		"permits, stuck": func() []redislock.Status {
			p := permits(100, 100)
			p.Line = line(100)
			return append(stuck(100), p)
		},
		"readers, stuck": func() []redislock.Status {
			return append(stuck(1), redislock.Status{Key: "a", Token: "T0", Line: line(0)})
		},
		"all waiters of one caller": func() []redislock.Status {
			return []redislock.Status{{Key: "a", Token: "T0", Line: line(1, "T0")}}
		},
		"chain": func() (all []redislock.Status) {
			for i := range many {
				all = append(all, redislock.Status{Key: fmt.Sprint(i), Token: fmt.Sprint("T", i), Line: []redislock.Waiter{
					{Token: fmt.Sprint("W", i), Limit: 1, Holds: []redislock.Holding{{Token: fmt.Sprint("T", i+1)}}},
				}})
			}
			return all
		},
		"circle": func() (all []redislock.Status) {
			for i := range many {
				all = append(all, redislock.Status{Key: fmt.Sprint(i), Token: fmt.Sprint("T", i), Line: []redislock.Waiter{
					{Token: fmt.Sprint("W", i), Limit: 1, Holds: []redislock.Holding{{Token: fmt.Sprint("T", (i+1)%many)}}},
				}})
			}
			return all
		},
	} {
		b.Run(name, func(b *testing.B) {
			found := statuses()
			b.ReportAllocs()
			for b.Loop() {
				tree.Build(found)
			}
		})
	}
}
