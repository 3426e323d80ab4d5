package majority

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/redislock/redislock/internal/testing/race"
)

// Callers in competition, on servers and through a network that fail at random, hold what doc.go promises.
// REDISLOCK_TEST_RUNS is how many schedules there are. REDISLOCK_TEST_SEED repeats one. REDISLOCK_TEST_OFF names rules
// that have a control, as in 2b,6a. They are switched off: then the test fails, and says how many schedules have broken
// which promise.
func TestSchedules(t *testing.T) {
	t.Parallel()
	runs, from := 300, rand.Uint64N(1<<48)
	if race.Enabled { // slow, and nothing runs in parallel
		runs = 40
	}
	if n, err := strconv.Atoi(os.Getenv("REDISLOCK_TEST_RUNS")); err == nil {
		runs = n
	}
	if seed, err := strconv.ParseUint(os.Getenv("REDISLOCK_TEST_SEED"), 10, 64); err == nil {
		from, runs = seed, 1
	}
	names, off := os.Getenv("REDISLOCK_TEST_OFF"), rule(0)
	rules := named(t, names)
	for _, r := range rules {
		off |= r.off
		if r.old != "" && os.Getenv(edited) == "" {
			output, err := rebuilt(t, rules, names, "^TestSchedules$")
			if err != nil {
				t.Error(err)
			}
			t.Log(output)
			return
		}
	}
	var seen [counts]int
	broken := map[promise]int{}
	for i := range uint64(runs) {
		w := schedule(from+i, off)
		for k, n := range w.seen {
			seen[k] += n
		}
		if w.problem != "" {
			if broken[w.promise]++; broken[w.promise] <= 3 {
				t.Errorf("seed %d, %s", from+i, w.problem)
			}
		}
	}
	for p, n := range broken {
		t.Errorf("%d of %d schedules have broken a promise: %s", n, runs, p)
	}
	t.Logf("%d schedules with %d grants, %d mends, %d revivals and %d attached handles; "+
		"servers have forgotten %d times, an operator has deleted %d locks, %d mends have overtaken others, "+
		"and %d Refreshes were undone", runs, seen[grants], seen[mends], seen[revivals], seen[attached], seen[forgets],
		seen[deletions], seen[overtakings], seen[undos])
	for k, n := range seen {
		if runs >= 300 && n < runs/50 {
			t.Errorf("too little is tested: number %d of %v", k, seen)
		}
	}
}

// named returns what rules have that names, between commas.
func named(t *testing.T, names string) (rules []without) {
	for name := range strings.FieldsFuncSeq(names, func(r rune) bool { return r == ',' }) {
		found := false
		for _, c := range controls {
			if c.rule == name {
				rules, found = append(rules, c.without), true
			}
		}
		if !found {
			t.Fatalf("no control is named %q", name)
		}
	}
	return rules
}
