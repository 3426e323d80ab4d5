package main

import (
	"fmt"
	"regexp"
	"strings"
)

// selection says which part of all cells is run. An empty pattern matches everything.
type selection struct {
	only    *regexp.Regexp // matches the cells, as "group/cell"
	against *regexp.Regexp // matches the contestants; this library always takes part
}

func newSelection(only, against string) (s selection, err error) {
	if s.only, err = regexp.Compile(only); err != nil {
		return selection{}, fmt.Errorf("--only: %w", err)
	}
	if s.against, err = regexp.Compile(against); err != nil {
		return selection{}, fmt.Errorf("--against: %w", err)
	}
	return s, nil
}

// everything reports whether no pattern leaves anything out.
func (s *selection) everything() bool { return s.only.String() == "" && s.against.String() == "" }

// cell reports whether a cell is run, given its name with that of its group.
func (s *selection) cell(name string) bool { return s.only.MatchString(name) }

// contestants returns the contestants that take part.
func (s *selection) contestants(all []contestant) []contestant {
	var chosen []contestant
	for _, c := range all {
		if strings.HasPrefix(c.name, thisLibrary) || s.against.MatchString(c.name) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}
