package main

import (
	"errors"
	"fmt"

	"github.com/redislock/redislock/internal/testing/redistest"
)

// slotsMasters is the number of masters in the Cluster of the slots cells.
const slotsMasters = 3

// openCluster starts a Cluster whose masters share the slots.
func openCluster() (_ servers, end func() error, err error) {
	cluster, err := redistest.StartCluster(slotsMasters, 0)
	if err != nil {
		return nil, nil, err
	}
	var on servers
	for _, addr := range cluster.Addrs() {
		t, err := openTarget(addr)
		if err != nil {
			return nil, nil, errors.Join(err, on.close(), cluster.Close())
		}
		on = append(on, t)
	}
	return on, func() error { return errors.Join(on.close(), cluster.Close()) }, nil
}

// spreadKeys returns a key on each master of a Cluster of three. prefix makes them fresh.
func spreadKeys(prefix string) []string {
	keys := make([]string, slotsMasters)
	for found, i := 0, 0; found < len(keys); i++ {
		key := fmt.Sprintf("%s:%d", prefix, i)
		if at := redistest.SlotOf(key) * slotsMasters / 16384; keys[at] == "" {
			keys[at] = key
			found++
		}
	}
	return keys
}

func (b *bench) slotsGroup() *group {
	g := &group{
		name: "slots", title: "Keys in several slots of a Cluster",
		about: fmt.Sprintf("Each goroutine obtains the lock on %d keys, one on each of %d masters, and releases it. redsync "+
			"locks one key after another, which is not all or none.", slotsMasters, slotsMasters),
		summed: []metric{wall, clientCPU},
	}
	for _, n := range b.quorumGoroutines {
		t := b.turns(n)
		title := fmt.Sprintf("%d goroutines", n)
		if n == 1 {
			title = "1 goroutine"
		}
		c := newPairCell(fmt.Sprintf("goroutines=%d", n), title, t)
		c.open = func() ([]contestant, func() error, error) {
			on, end, err := openCluster()
			if err != nil {
				return nil, nil, err
			}
			lockers, err := openAll(on.addrs(), openRedislockSlots, openRedsyncSlots)
			if err != nil {
				return nil, nil, errors.Join(err, end())
			}
			sets := make([][]string, n)
			for i := range sets {
				sets[i] = spreadKeys(b.freshKey())
			}
			return pairContestants(on, lockers, background, sets, t),
				func() error { return errors.Join(closeLockers(lockers), end()) }, nil
		}
		g.cells = append(g.cells, c)
	}
	return g
}

func (b *bench) slotsContendedGroup() *group {
	g := &group{
		name: "slots-contended", title: "Overlapping sets of keys in several slots",
		about: b.contendingAbout("Here there are three keys a, b and c on three masters, and the contenders want the sets ab, " +
			"bc, ca and cba in turn, so that any two of them share a key and one lock is held at a time. redsync locks the " +
			"keys of a set one after another, in alphabetical order, because otherwise it would never end."),
	}
	for _, n := range b.slotsContenders {
		c := b.contendedCell(fmt.Sprintf("contenders=%d", n), n)
		c.columns = severalColumns
		c.open = func() ([]contestant, func() error, error) {
			on, end, err := openCluster()
			if err != nil {
				return nil, nil, err
			}
			return b.contestants(on, n, job{On: cluster}, b.overlapping), end, nil
		}
		g.cells = append(g.cells, c)
	}
	return g
}

// overlapping returns four sets of three fresh keys, any two of which have a key in common.
func (b *bench) overlapping() [][]string {
	keys := spreadKeys(b.freshKey())
	x, y, z := keys[0], keys[1], keys[2]
	return [][]string{{x, y}, {y, z}, {z, x}, {z, y, x}}
}
