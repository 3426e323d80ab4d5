package main

import (
	"math"
	"testing"
	"time"
)

func TestOutcomeFigures(t *testing.T) {
	o := outcome{Won: []float64{3}, Late: 1, Waits: []float64{1, 9, 2, 3}}
	o.add(outcome{Won: []float64{3}, Late: 1, Waits: []float64{5, 4, 6, 8}, Stuck: 1})
	f, err := o.figures(2*time.Second, serverStats{calls: map[string]float64{"evalsha": 16, "get": 16, "del": 4}, cpu: 0.008}, scripts)
	if err != nil {
		t.Fatal(err)
	}
	for head, want := range map[string]float64{
		lockRate.head: 3, fairness.head: 1, medianWait.head: 4.5, longestWait.head: 9, stuck.head: 1,
		tailWait.head: 8.993, tailShare.head: 8.993 * 3 / 2000, // the fair share of 2 contenders at 3 locks/s is 2/3 s
		sent.head: 2, executed.head: 4.5, freed.head: 0.5, serverCPU.head: 1000,
	} {
		if math.Abs(f[head]-want) > 1e-9 {
			t.Errorf("%s = %v, want %v", head, f[head], want)
		}
	}
}

func TestOutcomeWithoutLocks(t *testing.T) {
	o := outcome{Won: []float64{0}, Stuck: 1, Waits: []float64{7000}}
	if _, err := o.figures(time.Second, serverStats{}, nil); err == nil {
		t.Error("no error, although nobody got a lock")
	}
}
