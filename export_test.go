package redislock

import (
	"os"
	"time"

	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/transport"
	"github.com/redislock/redislock/internal/undo"
)

// AlwaysTogether makes the specs run over pipelines, whether there are other calls or not: REDISLOCK_TEST_TOGETHER=1.
var AlwaysTogether = os.Getenv("REDISLOCK_TEST_TOGETHER") == "1"

func init() { transport.AlwaysTogether = AlwaysTogether }

// StopRenewing does what the end of the last context of KeepAlive does once it has found that it is the last one.
func (l *Lock) StopRenewing() { l.bearer().StopRenewing() }

// CertainAt returns for how long a key at a place of a lock at several places certainly lasts, if it lasts for left now:
// refreshes that were not answered there may still be executed.
func (l *Lock) CertainAt(place int, left time.Duration) time.Duration {
	return l.several.CertainAt(place, left)
}

// FillCleanups leaves a Client on one Redis no room for another cleanup, until the returned function is called.
func FillCleanups(c *Client) (free func()) { return TakeCleanups(c, undo.MaxRunning) }

// TakeCleanups takes the room for n cleanups of a Client on one Redis, until the returned function is called.
func TakeCleanups(c *Client, n int64) (free func()) {
	c.one.Cleanups.Running.Add(n)
	return func() { c.one.Cleanups.Running.Add(-n) }
}

// Registered returns for how many Redis clients Clients share something.
func Registered() int { return place.CountShared() }
