package main

import (
	"errors"
	"slices"
	"time"
)

// outcome is the results of the contenders of one process, or of all.
type outcome struct {
	Won   []float64 // the locks that each contender got in time
	Late  float64   // locks that were granted after the time was over
	Waits []float64 // in ms, of all locks, late ones too
	Stuck float64   // contenders that did not get the last lock for which they waited
}

// add adds the contenders of another process.
func (o *outcome) add(other outcome) {
	o.Won = append(o.Won, other.Won...)
	o.Late += other.Late
	o.Waits = append(o.Waits, other.Waits...)
	o.Stuck += other.Stuck
}

// figures returns the figures of the contenders after the time d, and of the server meanwhile.
func (o *outcome) figures(d time.Duration, server serverStats, sends []string) (figures, error) {
	locks := 0.0
	for _, won := range o.Won {
		locks += won
	}
	if locks == 0 {
		return nil, errors.New("nobody got a lock")
	}
	slices.Sort(o.Waits)
	f := figures{
		lockRate.head:    locks / d.Seconds(),
		fairness.head:    jain(o.Won),
		medianWait.head:  quantile(o.Waits, 0.5),
		longestWait.head: o.Waits[len(o.Waits)-1],
		tailWait.head:    quantile(o.Waits, 0.999),
		stuck.head:       o.Stuck,
	}
	// In a fair line, each contender waits for as many locks as there are contenders.
	share := millis(d) / locks * float64(len(o.Won))
	f[tailShare.head] = f[tailWait.head] / share
	server.perLock(f, sends, locks+o.Late)
	return f, nil
}
