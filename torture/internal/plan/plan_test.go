package plan_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/redislock/redislock/torture/internal/plan"
)

var topologies = []string{"one", "memory", "sentinel", "cluster", "quorum", "memory+guard", "sentinel+guard", "quorum+guard"}

const length, pause = 40 * time.Second, 400 * time.Millisecond

func TestASeedRepeatsAPlan(t *testing.T) {
	menu := plan.Menu("one")
	a, b := plan.New(7, menu, length, pause), plan.New(7, menu, length, pause)
	if !reflect.DeepEqual(a, b) {
		t.Error("the same seed made two plans")
	}
	if c := plan.New(8, menu, length, pause); reflect.DeepEqual(a, c) {
		t.Error("two seeds made the same plan")
	}
}

func TestEveryFaultOfAMenuIsPlanned(t *testing.T) {
	for _, topology := range topologies {
		menu := plan.Menu(topology)
		var all []plan.Fault
		for seed := range uint64(40) {
			all = append(all, plan.New(seed, menu, length, pause)...)
		}
		if got, want := plan.Kinds(all), plan.Kinds(menu); !slices.Equal(got, want) {
			t.Errorf("%s: planned %v of %v", topology, got, want)
		}
	}
	if plan.Menu("ring") != nil {
		t.Error("a topology that does not exist has faults")
	}
}

func TestFaultsStayInTheRoundOverlapAndLeaveAQuietQuarter(t *testing.T) {
	overlapping := 0
	for seed := range uint64(20) {
		var end time.Duration
		last := time.Duration(0)
		for _, f := range plan.New(seed, plan.Menu("one"), length, pause) {
			if f.At < last || f.At+f.For > length || f.Times < 1 || f.Delay <= 0 {
				t.Errorf("seed %d: %+v", seed, f)
			}
			if f.At >= length/2 && f.At < length*3/4 {
				t.Errorf("seed %d: %s begins at %v", seed, f.Kind, f.At)
			}
			if f.At < end {
				overlapping++
			}
			last, end = f.At, max(end, f.At+f.For)
		}
	}
	if overlapping < 100 {
		t.Errorf("only %d faults overlap others", overlapping)
	}
}
