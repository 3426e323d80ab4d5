package main

import (
	"context"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"

	"github.com/redislock/redislock"
)

// contender is a contestant of the cells in which many want one key.
type contender struct {
	name     string
	settings string
	sends    []string // the commands that it sends; scripts run more of them
	// open connects. What it opens is closed by the end of the process, which is a worker.
	open func(addr string) (obtainFunc, error)
}

// obtainFunc waits until it has the lock on key, and returns what releases it.
type obtainFunc func(ctx context.Context, key string) (release func() error, err error)

// pollEach is the pace of those who poll regularly. It is the time of a hold: who polls faster only costs more.
const pollEach = time.Millisecond

// contenders returns all of them, this library with Queue first. Polling is compared at one pace, beside what the peers'
// documentation recommends or has as its default.
func contenders() []contender {
	return []contender{
		redislockContender(thisLibrary+", Queue", "Options.Queue", &redislock.Options{Queue: true}),
		redislockContender(thisLibrary+", linear 1 ms", "LinearBackoff(1 ms)",
			&redislock.Options{RetryStrategy: redislock.LinearBackoff(pollEach)}),
		bsmContender("bsm/redislock, linear 1 ms", "LinearBackoff(1 ms)",
			func() bsm.RetryStrategy { return bsm.LinearBackoff(pollEach) }),
		bsmContender("bsm/redislock, exponential", "ExponentialBackoff(16 ms, 100 ms): 16 ms is the least it recommends",
			func() bsm.RetryStrategy { return bsm.ExponentialBackoff(16*time.Millisecond, 100*time.Millisecond) }),
		redsyncContender("redsync, 1 ms", "one pool, WithRetryDelay(1 ms), WithTries(100,000)",
			redsync.WithRetryDelay(pollEach), redsync.WithTries(100_000)),
		redsyncContender("redsync, default delay", "one pool, its delay of 50 to 250 ms, WithTries(100,000)",
			redsync.WithTries(100_000)),
		rueidislockContender(),
	}
}
