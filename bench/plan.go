package main

import "time"

// ttl is the ttl of every lock but the kept ones.
const ttl = 10 * time.Second

// plan says how much is measured.
type plan struct {
	rounds int           // of the cells in which nobody contends
	slice  time.Duration // for which a contestant runs in a round
	warmUp time.Duration // for which it runs before that, unmeasured

	// The cells of one goroutine have short slices, many of them: they wait for the system to wake who is to go on most
	// of the time, and how long that takes changes all the while.
	serialRounds int
	serialSlice  time.Duration

	goroutines []int
	keys       []int

	contendRounds int
	contenders    []int
	processes     int // that the contenders are spread over
	contending    time.Duration
	hold          time.Duration

	keptRounds int
	kept       int // locks
	keptTTL    time.Duration
	keeping    time.Duration
}

// mostInTurn is the most keys for which those who lock one key at a time are run.
const mostInTurn = 64

// mostBare is the most keys that the bare scripts can unpack, rounded down to one of the plan's.
const mostBare = 512

// fullPlan takes under five minutes.
func fullPlan() plan {
	return plan{
		rounds: 12, slice: 200 * time.Millisecond, warmUp: 20 * time.Millisecond,
		serialRounds: 80, serialSlice: 40 * time.Millisecond,
		goroutines:    []int{16, 256, 1024},
		keys:          []int{2, 8, 64, 512, 4096},
		contendRounds: 3, contenders: []int{8, 64}, processes: 4, contending: 2 * time.Second, hold: time.Millisecond,
		keptRounds: 2, kept: 10_000, keptTTL: 2 * time.Second, keeping: 6 * time.Second,
	}
}

// shortPlan takes a few seconds. It reaches all of the code that fullPlan does.
func shortPlan() plan {
	return plan{
		rounds: 2, slice: 15 * time.Millisecond, warmUp: 5 * time.Millisecond,
		serialRounds: 2, serialSlice: 15 * time.Millisecond,
		goroutines:    []int{16},
		keys:          []int{2, 4096},
		contendRounds: 1, contenders: []int{8}, processes: 4, contending: 150 * time.Millisecond, hold: time.Millisecond,
		keptRounds: 1, kept: 200, keptTTL: 600 * time.Millisecond, keeping: time.Second,
	}
}
