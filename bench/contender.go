package main

import (
	"context"
	"errors"
	"slices"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"

	"github.com/redislock/redislock"
)

// contender is a contestant of the cells in which many callers want one key.
type contender struct {
	name     string
	settings string
	sends    []string // the commands that it sends; scripts run others as well
	// open connects. The end of the process, which is a worker, closes the connections.
	open func(addrs []string) (obtainFunc, error)
}

// obtainFunc waits until it has the lock on all keys, and returns a function that releases the lock.
type obtainFunc func(ctx context.Context, keys []string) (release func() error, err error)

// inTurn returns a function that obtains locks on single keys one after another, in alphabetical order.
func inTurn(obtain func(ctx context.Context, key string) (release func() error, err error)) obtainFunc {
	return func(ctx context.Context, keys []string) (func() error, error) {
		var releases []func() error
		releaseAll := func() error {
			var errs []error
			for _, release := range releases {
				errs = append(errs, release())
			}
			return errors.Join(errs...)
		}
		for _, key := range slices.Sorted(slices.Values(keys)) {
			release, err := obtain(ctx, key)
			if err != nil {
				return nil, errors.Join(err, releaseAll())
			}
			releases = append(releases, release)
		}
		return releaseAll, nil
	}
}

// topology says on which servers the contenders of a cell run.
type topology string

const (
	oneServer topology = "one server"
	quorum    topology = "quorum"
	cluster   topology = "cluster"
)

// pollEach is the pace of contenders that poll regularly. It is the time of a hold. Faster polling only costs more.
const pollEach = time.Millisecond

// contenders returns the contenders on a topology, this library with Queue first. All that poll do so at one pace, and again
// at the pace that their documentation recommends or has as its default.
func (t topology) contenders() []contender {
	switch t {
	case quorum:
		return []contender{
			redislockContender(thisLibrary+", Queue", "NewQuorum, Options.Queue", newQuorumClient, &redislock.Options{Queue: true}),
			redislockContender(thisLibrary+", linear 1 ms", "NewQuorum, LinearBackoff(1 ms)", newQuorumClient,
				&redislock.Options{RetryStrategy: redislock.LinearBackoff(pollEach)}),
			redsyncContender("redsync, 1 ms", "a pool for each server, WithRetryDelay(1 ms), WithTries(100,000)", redsyncPools,
				redsync.WithRetryDelay(pollEach), redsync.WithTries(100_000)),
			redsyncContender("redsync, default delay", "a pool for each server, its delay of 50 to 250 ms, WithTries(100,000)",
				redsyncPools, redsync.WithTries(100_000)),
			rueidislockContender(),
		}
	case cluster:
		return []contender{
			redislockContender(thisLibrary+", Queue", "Options.AcrossSlots and Queue", newClusterClient,
				&redislock.Options{AcrossSlots: true, Queue: true}),
			redislockContender(thisLibrary+", linear 1 ms", "Options.AcrossSlots, LinearBackoff(1 ms)", newClusterClient,
				&redislock.Options{AcrossSlots: true, RetryStrategy: redislock.LinearBackoff(pollEach)}),
			redsyncContender("redsync, 1 ms", "a pool of a ClusterClient, WithRetryDelay(1 ms), WithTries(100,000), key after key",
				redsyncClusterPool, redsync.WithRetryDelay(pollEach), redsync.WithTries(100_000)),
			redsyncContender("redsync, default delay",
				"a pool of a ClusterClient, its delay of 50 to 250 ms, WithTries(100,000), key after key",
				redsyncClusterPool, redsync.WithTries(100_000)),
		}
	}
	return []contender{
		redislockContender(thisLibrary+", Queue", "Options.Queue", newOneClient, &redislock.Options{Queue: true}),
		redislockContender(overRueidis+", Queue", "redislockrueidis, Options.Queue", newRueidisClient,
			&redislock.Options{Queue: true}),
		redislockContender(thisLibrary+", linear 1 ms", "LinearBackoff(1 ms)", newOneClient,
			&redislock.Options{RetryStrategy: redislock.LinearBackoff(pollEach)}),
		bsmContender("bsm/redislock, linear 1 ms", "LinearBackoff(1 ms)",
			func() bsm.RetryStrategy { return bsm.LinearBackoff(pollEach) }),
		bsmContender("bsm/redislock, exponential", "ExponentialBackoff(16 ms, 100 ms): 16 ms is the least it recommends",
			func() bsm.RetryStrategy { return bsm.ExponentialBackoff(16*time.Millisecond, 100*time.Millisecond) }),
		redsyncContender("redsync, 1 ms", "one pool, WithRetryDelay(1 ms), WithTries(100,000)", redsyncPools,
			redsync.WithRetryDelay(pollEach), redsync.WithTries(100_000)),
		redsyncContender("redsync, default delay", "one pool, its delay of 50 to 250 ms, WithTries(100,000)",
			redsyncPools, redsync.WithTries(100_000)),
		rueidislockContender(),
		bareHandOffContender(),
	}
}
