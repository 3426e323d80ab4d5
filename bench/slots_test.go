package main

import (
	"slices"
	"testing"

	"github.com/redislock/redislock/internal/testing/redistest"
)

func TestSpreadKeysAreOnDifferentMasters(t *testing.T) {
	third := func(key string) int { return redistest.SlotOf(key) * 3 / 16384 }
	for _, prefix := range []string{"a", "b", "c"} {
		keys := spreadKeys(prefix)
		if len(keys) != 3 || third(keys[0]) != 0 || third(keys[1]) != 1 || third(keys[2]) != 2 {
			t.Errorf("%q", keys)
		}
	}
}

func TestOverlappingSetsHaveAKeyInCommonTwoByTwo(t *testing.T) {
	sets := (&bench{}).overlapping()
	for i, one := range sets {
		for _, other := range sets[:i] {
			if !slices.ContainsFunc(one, func(key string) bool { return slices.Contains(other, key) }) {
				t.Errorf("%q and %q", one, other)
			}
		}
	}
}
