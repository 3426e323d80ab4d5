package main

import (
	"slices"
	"testing"
)

// namesOf returns the names of contestants.
func namesOf(contestants []contestant) []string {
	var names []string
	for _, c := range contestants {
		names = append(names, c.name)
	}
	return names
}

func TestSelection(t *testing.T) {
	all := []contestant{{name: thisLibrary}, {name: thisLibrary + ", Queue"}, {name: "bsm/redislock"}, {name: "redsync"}}
	for _, c := range []struct {
		only, against string
		everything    bool
		cell          bool // parallel/goroutines=2 is run
		names         []string
	}{
		{"", "", true, true, namesOf(all)},
		{"^parallel/", "", false, true, namesOf(all)},
		{"goroutines=(16|256)$", "bsm", false, false, namesOf(all[:3])},
		{"", "redsync|raw", false, true, []string{all[0].name, all[1].name, "redsync"}},
		{"", "nobody", false, true, namesOf(all[:2])},
	} {
		s, err := newSelection(c.only, c.against)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.everything(); got != c.everything {
			t.Errorf("%q, %q: everything is %v", c.only, c.against, got)
		}
		if got := s.cell("parallel/goroutines=2"); got != c.cell {
			t.Errorf("%q: the cell is run: %v", c.only, got)
		}
		if got := namesOf(s.contestants(all)); !slices.Equal(got, c.names) {
			t.Errorf("%q: contestants %q, want %q", c.against, got, c.names)
		}
	}
}

func TestSelectionOfNoRegexp(t *testing.T) {
	for _, patterns := range [][2]string{{"(", ""}, {"", "("}} {
		if _, err := newSelection(patterns[0], patterns[1]); err == nil {
			t.Errorf("no error for %q", patterns)
		}
	}
}
