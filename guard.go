package redislock

import (
	"time"

	"github.com/redislock/redislock/internal/argument"
	"github.com/redislock/redislock/internal/script"
)

// WithGuard makes locks survive a Redis that forgets: a restart without the latest data, a failover to a replica that lacks
// the last writes, a FLUSHALL. Before a script grants anything, it checks by a marker key beside the locks whether the
// server may have lost its memory. If so, the guard closes: the server grants nothing until every lock that it can have
// forgotten has ended. Meanwhile, holders put their keys back with their next Refresh or renewal. The default is no guard.
//
// maxTTL is the longest ttl of any lock in the database, at least 2 ms and at most 24 h. An Obtain or a Refresh for longer
// returns an error that wraps [ErrInvalid]. deposed is for how long a master may go on granting after a replica has taken
// its place, and 0 without replicas. With Sentinel, set min-replicas-to-write to the number of replicas and
// min-replicas-max-lag to 1, and deposed to 3 s. The guard stays closed for the sum of the two. In the first part of that,
// for deposed, it executes no renewals either.
//
// All programs that lock in a database must use the same WithGuard. A program without it, or one with a shorter maxTTL,
// breaks the promise for all. The guard needs the command INFO (+info in an ACL). It closes also when nothing was lost: at
// the first use of a database, after a restart with all data, and after a failover. The command redislock guard open says
// that nothing was lost. The file docs/guarantees-guard.md says what the guard notices and what it does not, and
// docs/redis.md what it costs.
//
// Under a guard:
//   - While it is closed, an obtain is refused: the error is a [*RefusedError] whose Closed says for how long, also without
//     [Options.Explain]. Waiters in line and strategies wait. No lock is handed over, and [Client.Attach]
//     returns an error that matches ErrNotObtained.
//   - A lock that has lapsed never comes back: a Refresh returns ErrNotObtained, also if the keys are still there.
//   - A [Lock.TTL] is 0 while the keys are forgotten and not back yet. Up to [Lock.Until], the lock is valid all the same.
//   - A Release of keys that were forgotten is no loss while the guard is closed.
//   - On a quorum of servers, each server has a guard of its own. What a closed one answers does not count towards the
//     majority.
//
// A Cluster, a Ring and [Options.AcrossSlots] return an error that wraps ErrInvalid. WithGuard given twice means the last
// one.
func WithGuard(maxTTL, deposed time.Duration) ClientOption {
	return func(set *clientOptions) {
		if set.invalid = argument.Guard(maxTTL, deposed); set.invalid == nil {
			set.guard = script.Guard{MaxTTL: maxTTL, Deposed: deposed}
		}
	}
}
