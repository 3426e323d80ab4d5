package redislock

import (
	"context"
	"slices"
	"time"
)

// cleanup is a release that goes on in the background: of what an abandoned obtain may have taken, or of a lock whose
// Release was not answered in time.
type cleanup struct {
	release *call
	keys    []string      // all that may be released; none for a waiter that leaves
	sending bool          // the release may be on the wire; protected by Client.mu
	done    chan struct{} // closed when nothing is sent any more
}

const (
	// maxCleanups bounds the cleanups of one Client that release keys; each costs a goroutine or two. What finds no room
	// is left to the ttl of its keys. A waiter that leaves its lines has just freed a goroutine, and is done within 3 s.
	maxCleanups = 1000

	// sweepAgain is the time after which a sweep that found nothing looks once more: a request may have been on its way
	// although its connection was given up.
	sweepAgain = time.Second

	// closeGrace is how long Close waits for the cleanups that are under way.
	closeGrace = time.Second
)

// inBackground runs job, which sees the release through, in a goroutine of its own, and reports whether there was room
// for it. The goroutine ends with the job. A job ends soon after the giveUp of its release.
func (c *Client) inBackground(x *cleanup, job func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.cleanups) >= maxCleanups && len(x.keys) > 0 {
		return false
	}
	if c.cleanups == nil {
		c.cleanups = make(map[*cleanup]struct{})
	}
	c.cleanups[x] = struct{}{}
	x.done = make(chan struct{})
	go func() {
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.cleanups, x)
			close(x.done)
		}()
		job()
	}()
	return true
}

// newRelease returns a call, yet to be sent, that releases the keys and wakes who is first in their lines. It outlives
// ctx.
func newRelease(ctx context.Context, token string, keys []string, boxed []any) *call {
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	c := &call{script: releaseScript, keys: keys, boxed: boxed, token: token, ctx: ctx}
	c.simple = len(keys) == 1 && len(boxed) == 2
	c.arguments(len(keys))
	return c
}

// persist lets a release that is on the wire go on until its giveUp.
func (c *Client) persist(release *call) {
	x := &cleanup{release: release, keys: release.keys, sending: true}
	release.persistent.Store(c.inBackground(x, func() { <-release.done }))
}

// sweep sends the release of keys of which none may be held by the token any more, for as long as one of them can last:
// once after the delay, and once more a little later unless that deleted something.
func (c *Client) sweep(release *call, ttl, delay time.Duration) {
	x := &cleanup{release: release, keys: release.keys}
	c.inBackground(x, func() {
		if delay > 0 {
			c.pause(delay)
		}
		c.sweepNow(x, ttl)
	})
}

// sweepNow is sweep in the goroutine of the cleanup.
func (c *Client) sweepNow(x *cleanup, ttl time.Duration) {
	if c.sendCleanup(x, ttl) == 0 && !x.release.dropped.Load() {
		c.pause(sweepAgain)
		c.sendCleanup(x, ttl)
	}
}

// pause waits for d; on a closed Client it is now or never.
func (c *Client) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.closed:
	}
}

// sendCleanup sends the release, unless that was superseded, again and again for up to ttl. It returns how many keys
// that deleted.
func (c *Client) sendCleanup(x *cleanup, ttl time.Duration) (deleted int) {
	c.mu.Lock()
	x.sending = !x.release.dropped.Load()
	c.mu.Unlock()
	if !x.sending {
		return 0
	}
	x.release.giveUp = time.Now().Add(ttl)
	x.release.persistent.Store(true)
	c.node.send(x.release, nil)
	c.mu.Lock()
	x.sending = false
	c.mu.Unlock()
	if x.release.err != nil {
		return 0
	}
	lost, _ := x.release.reply.([]any)
	return len(x.release.keys) - len(lost)
}

// supersede ends the cleanups that could delete what an obtain with a token of the caller's own is about to take: the
// token may be that of an obtain or a lock that was given up. It waits for those that are on the wire, but not past the
// end of ctx. Other processes with the same token are not seen.
func (c *Client) supersede(ctx context.Context, token string, keys []string) error {
	var onTheWire []chan struct{}
	c.mu.Lock()
	for x := range c.cleanups {
		if x.release.token == token && slices.ContainsFunc(x.keys, func(key string) bool { return slices.Contains(keys, key) }) {
			x.release.dropped.Store(true)
			if x.sending {
				onTheWire = append(onTheWire, x.done)
			}
		}
	}
	c.mu.Unlock()
	for _, done := range onTheWire {
		select {
		case <-done:
		case <-ctx.Done():
			return notObtained(ended(ctx))
		}
	}
	return nil
}

// Close ends every wait for a lock, and every context of KeepAlive and Do, with [ErrClosed], and makes Obtain,
// ObtainMulti, Do, Attach, Inspect and Line return it from now on. Locks that are held stay held, without being renewed, and
// their TTL, Refresh and Release go on working. Close waits up to a second for those in line to give up their places, and
// for the releases that are still under way in the background, so call it before closing the Redis client. It always
// returns nil, and may be called again.
func (c *Client) Close() error {
	if c == nil || c.closed == nil {
		return nil
	}
	c.mu.Lock()
	if !c.isClosed {
		c.isClosed = true
		close(c.closed)
	}
	c.mu.Unlock()
	c.keeper.close()
	c.inbox.close()
	for enough := time.Now().Add(closeGrace); c.busy() && time.Now().Before(enough); {
		time.Sleep(time.Millisecond)
	}
	return nil
}

// busy reports whether there are cleanups under way, or waiters, who end with one.
func (c *Client) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.cleanups) > 0 || c.inbox.waiting() > 0
}
