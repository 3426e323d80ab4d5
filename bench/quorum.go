package main

import (
	"errors"
	"fmt"
	"time"
)

// quorumAbout says what a quorum is for the contestants.
const quorumAbout = "The servers are independent of each other, and a lock needs a majority of them. redsync has a pool " +
	"for each. rueidislock has no locks on several servers: it keeps as many keys for a lock as there are servers, on one of " +
	"them, and needs a majority of these. So its figures show what that costs, and it does not promise what a quorum does."

func (b *bench) quorumGroup() *group {
	g := &group{
		name: "quorum", title: "A quorum of servers, and a key for each goroutine",
		about:  "Each goroutine obtains the lock on a key of its own and releases it, over and over. " + quorumAbout,
		summed: []metric{wall, clientCPU},
	}
	for _, n := range b.quorums {
		for _, goroutines := range b.quorumGoroutines {
			t := b.turns(goroutines)
			title := fmt.Sprintf("%d servers, %d goroutines", n, goroutines)
			if goroutines == 1 {
				title = fmt.Sprintf("%d servers, 1 goroutine", n)
			}
			c := newPairCell(fmt.Sprintf("servers=%d/goroutines=%d", n, goroutines), title, t)
			c.open = func() ([]contestant, func() error, error) {
				on, err := openServers(n)
				if err != nil {
					return nil, nil, err
				}
				lockers, err := openAll(on.addrs(), openRedislockQuorum, openRedsync, openRueidislock, openRawQuorum)
				if err != nil {
					return nil, nil, errors.Join(err, on.close())
				}
				end := func() error { return errors.Join(closeLockers(lockers), on.close()) }
				return pairContestants(on, lockers, background, keySets(goroutines, 1), t), end, nil
			}
			g.cells = append(g.cells, c)
		}
	}
	return g
}

func (b *bench) quorumContendedGroup() *group {
	g := &group{
		name: "quorum-contended", title: "Many want one key on a quorum of servers",
		about: b.contendingAbout("Where contenders come back at once, and poll, most locks go to the contender that has just "+
			"had the lock: it asks again while all others sleep. If contenders rest for a random time first, that happens "+
			"less. A fair share is the contenders times the mean time from lock to lock. Keys freed are those that are "+
			"deleted for a lock, on all servers together: where they are more than the servers, tries without a majority "+
			"acquired the others. ") + quorumAbout,
	}
	for _, n := range b.quorums {
		for _, contenders := range b.contenders {
			for _, rests := range []bool{false, true} {
				g.cells = append(g.cells, b.quorumContendedCell(n, contenders, rests))
			}
		}
	}
	return g
}

// quorumContendedCell returns the cell of so many contenders. If rests is set, each contender rests after a lock, for a
// little less than the others need for a lock each. So there are always waiters, and few of them have just had the lock.
func (b *bench) quorumContendedCell(n, contenders int, rests bool) cell {
	c := b.contendedCell(fmt.Sprintf("servers=%d/contenders=%d", n, contenders), contenders)
	c.title = fmt.Sprintf("%d servers, %s", n, c.title)
	c.columns = severalColumns
	j := job{On: quorum}
	if rests {
		j.Rest = time.Duration(contenders) * b.hold * 3 / 4
		c.name += "/rest"
		c.title += fmt.Sprintf(" that rest for %v on average", j.Rest)
	}
	c.open = func() ([]contestant, func() error, error) {
		on, err := openServers(n)
		if err != nil {
			return nil, nil, err
		}
		return b.contestants(on, contenders, j, b.oneKey), on.close, nil
	}
	return c
}

// severalColumns are the columns of the cells in which contenders want locks on several servers.
var severalColumns = []metric{
	lockRate, fairness, medianWait, tailWait, tailShare, sent, executed, freed, serverCPU, stuck,
}
