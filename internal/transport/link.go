package transport

import (
	"context"
	"sync/atomic"
)

// Link is the way of one user to a Redis that it shares with others. It knows whether its calls may share round trips with
// those of the others. It is safe for concurrent use.
//
// A hook of the Redis client may rewrite the keys of a command, for example to put the name of a tenant before each. A
// shared round trip does not carry the values of each ctx, and on a Cluster and a Ring it bypasses the client's own hooks.
// So the same key would get another name there. Calls that go by themselves show whether there is such a hook. No call of
// a Link shares before one of its calls was answered: a hook may have been added since other Links were made.
type Link struct {
	*Redis

	separate bool        // every call goes by itself
	answered atomic.Bool // a call that went by itself was answered
}

// Link returns a new Link. If separate is true, every call goes by itself through the Redis client.
func (r *Redis) Link(separate bool) *Link { return &Link{Redis: r, separate: separate} }

// Do does what Redis.Do does. It decides whether the call may share.
func (l *Link) Do(ctx context.Context, c *Call) bool {
	c.Alone = l.separate || !l.answered.Load()
	if !l.Redis.Do(ctx, c) {
		return false
	}
	if c.Alone && c.IsAnswered() && !l.answered.Load() {
		l.answered.Store(true)
	}
	return true
}

// Separates reports whether every call has to go by itself, through the caller's client, because the user wants that, or
// because a hook rewrites keys.
func (l *Link) Separates() bool { return l.separate || l.rewritten.Load() }
