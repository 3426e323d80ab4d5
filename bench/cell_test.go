package main

import (
	"context"
	"errors"
	"testing"
)

// counting returns a contestant that notes its turns, and has a rate of its own.
func counting(name string, rate float64, turns *[]string) contestant {
	return contestant{name: name, round: func(context.Context) (figures, error) {
		*turns = append(*turns, name)
		return figures{pairRate.head: rate}, nil
	}}
}

func TestCellRunsTheContestantsInTurns(t *testing.T) {
	var turns []string
	c := cell{
		rounds: 4, columns: []metric{pairRate},
		contestants: []contestant{counting("a", 10, &turns), counting("b", 5, &turns), counting("c", 0, &turns)},
	}
	measured, err := c.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for round := range 4 {
		seen := map[string]bool{}
		for _, name := range turns[3*round : 3*round+3] {
			seen[name] = true
		}
		if len(seen) != 3 {
			t.Errorf("round %d: %v", round, turns[3*round:3*round+3])
		}
	}
	if got := measured.ratio(pairRate, 1); got.median != 2 {
		t.Errorf("ratio(b) = %v, want 2", got)
	}
	if got := measured.ratio(pairRate, 2); got != (spread{}) {
		t.Errorf("ratio(c) = %v, want none", got)
	}
}

func TestCellEndsWithAnError(t *testing.T) {
	broken := errors.New("broken")
	g := group{name: "g", cells: []cell{
		{name: "skipped", rounds: 1, contestants: []contestant{{round: func(context.Context) (figures, error) {
			return nil, errors.New("was run")
		}}}},
		{name: "x", rounds: 1, contestants: []contestant{{name: "a", round: func(context.Context) (figures, error) {
			return nil, broken
		}}}},
	}}
	selected, err := newSelection("/x$", "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = g.run(t.Context(), &selected)
	if !errors.Is(err, broken) || err.Error() != "g/x: a: broken" {
		t.Errorf("error %v", err)
	}
}

func TestCellEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := cell{rounds: 1, contestants: []contestant{{}}}
	if _, err := c.run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
