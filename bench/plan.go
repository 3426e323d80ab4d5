package main

import "time"

// ttl is the ttl of every lock except the kept ones.
const ttl = 10 * time.Second

// plan says how much is measured.
type plan struct {
	// The cells without contention. Those of few goroutines and one key have many short slices: most of the time they wait for
	// the system to wake a thread, and the time of that varies.
	few, many  turns
	goroutines []int
	keys       []int

	quorums          []int // numbers of servers
	quorumGoroutines []int // also across slots
	slotsContenders  []int

	contendRounds int
	contenders    []int
	processes     int // of the contenders
	contending    time.Duration
	hold          time.Duration

	guardGoroutines []int
	guardCalls      int // of each kind, in a round

	keptRounds int
	kept       int // locks
	keptTTL    time.Duration
	keeping    time.Duration
}

// turns says how the contestants of a cell take turns.
type turns struct {
	rounds int
	slice  time.Duration // for which a contestant runs in a round
	warmUp time.Duration // for which it runs before that, unmeasured
}

// mostFew is the most goroutines that count as few.
const mostFew = 16

// turns returns how the contestants take turns in a cell with so many goroutines, and a key for each.
func (p *plan) turns(goroutines int) turns {
	if goroutines <= mostFew {
		return p.few
	}
	return p.many
}

// mostInTurn is the most keys of the cells in which libraries that lock one key at a time run.
const mostInTurn = 64

// mostBare is the most keys that the bare scripts can unpack, rounded down to a number of the plan. Those of bsm/redislock
// can unpack as many.
const mostBare = 512

// fullPlan takes about eight minutes.
func fullPlan() plan {
	return plan{
		few:        turns{rounds: 50, slice: 40 * time.Millisecond, warmUp: 10 * time.Millisecond},
		many:       turns{rounds: 10, slice: 200 * time.Millisecond, warmUp: 20 * time.Millisecond},
		goroutines: []int{1, 2, 4, 8, 16, 64, 256, 1024},
		keys:       []int{2, 8, 64, 512, 4096},
		quorums:    []int{3, 5}, quorumGoroutines: []int{1, 16}, slotsContenders: []int{16},
		contendRounds: 3, contenders: []int{8, 64}, processes: 4, contending: 2 * time.Second, hold: time.Millisecond,
		guardGoroutines: []int{1, 16, 256}, guardCalls: 500,
		keptRounds: 2, kept: 10_000, keptTTL: 2 * time.Second, keeping: 6 * time.Second,
	}
}

// shortPlan takes a few seconds. It runs all of the code that fullPlan runs.
func shortPlan() plan {
	return plan{
		few:        turns{rounds: 2, slice: 15 * time.Millisecond, warmUp: 5 * time.Millisecond},
		many:       turns{rounds: 2, slice: 15 * time.Millisecond, warmUp: 5 * time.Millisecond},
		goroutines: []int{1, 64},
		keys:       []int{2, 4096},
		quorums:    []int{3}, quorumGoroutines: []int{1}, slotsContenders: []int{16},
		contendRounds: 1, contenders: []int{8}, processes: 4, contending: 150 * time.Millisecond, hold: time.Millisecond,
		guardGoroutines: []int{1, 16}, guardCalls: 20,
		keptRounds: 1, kept: 200, keptTTL: 600 * time.Millisecond, keeping: time.Second,
	}
}
