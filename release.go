package redislock

import (
	"cmp"
	"context"
	_ "embed" // for the script
	"time"
)

//go:embed release.lua
var releaseSource string

var releaseScript = newScript("release", withLine(releaseSource))

const (
	releaseWait  = time.Second           // how long a Release waits that was called with a ctx already ended
	releaseLeast = 20 * time.Millisecond // the same if Until has passed too: enough to hear what became of the lock
)

// Release frees every key of the lock that its token still holds, also when others are lost. From its call on the lock
// counts as given up: [Lock.Until] has passed, and Refresh refuses.
//
// Release blocks until Redis answers or ctx ends. It is cleanup: called with a ctx that has ended already, it is sent all
// the same, and the answer awaited for a second at most and not past Until. If ctx ends, Release returns and the sending
// goes on in the background until the ttl is over. It returns:
//   - nil if all keys were freed, by this call or by one that was sent before Until and not answered;
//   - [ErrLockNotHeld] if no key was the lock's any more, and for a nil lock;
//   - a [*LostError] if some were not; the others are free now;
//   - [ErrInvalid] for a nil ctx;
//   - an error that wraps ctx.Err() if ctx ended first, and whatever Redis reported otherwise. It may be called again.
func (l *Lock) Release(ctx context.Context) error {
	switch {
	case !l.exists():
		return ErrLockNotHeld
	case ctx == nil:
		return errNilContext
	}
	now := time.Now()
	until, c := l.beginRelease(now)
	wait := ctx
	if ctx.Err() != nil {
		patience := max(releaseLeast, min(releaseWait, until.Sub(now)))
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
	}
	// An earlier release may be under way in the background. It is joined: two at a time could not tell which of them
	// freed the keys.
	if c == nil || c.await(wait) && c.err != nil {
		c = l.newRelease(ctx, now, until, c)
		if !l.client.node.do(wait, c) {
			l.client.persist(c)
		}
	}
	if !c.await(wait) {
		l.noteRelease(c)
		return failed("release", l.keys, ended(ctx))
	}
	return l.endRelease(c, until)
}

// beginRelease gives the lock up, and ends the contexts for which it was kept. It returns the end of its validity as it
// was before, and the last release if that was not answered.
func (l *Lock) beginRelease(now time.Time) (until time.Time, unanswered *call) {
	l.mu.Lock()
	ending := l.kept
	l.kept = nil
	if len(ending) > 0 && passed(l.until) {
		l.ended = l.whyEnded() // the contexts of a lock that lapsed before tell so, and not that it was released
	}
	if l.released.IsZero() {
		l.released = now
		l.ended = cmp.Or(l.ended, errReleased)
	}
	until, unanswered = l.until, l.release
	cause := l.ended
	l.mu.Unlock()
	l.endAll(ending, cause)
	return until, unanswered
}

// newRelease returns a release that is worth sending while the ttl lasts, and for a moment at least. It takes over what
// is in doubt from an earlier one that failed.
func (l *Lock) newRelease(ctx context.Context, now, until time.Time, earlier *call) *call {
	c := newRelease(ctx, l.token, l.keys, l.boxed)
	if l.fenceKey != "" { // for the fencing token of the next in line
		c.fence = l.fenceKey
		c.args = append(c.args, "", "1")
	}
	c.giveUp = now.Add(releaseWait)
	if c.giveUp.Before(until) {
		c.giveUp = until
	}
	if earlier != nil {
		c.first, c.doubtful = earlier.first, earlier.doubtful
	}
	return c
}

func (l *Lock) noteRelease(unanswered *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release = unanswered
}

// endRelease draws the conclusions from a release that has ended.
func (l *Lock) endRelease(c *call, until time.Time) error {
	if c.err != nil {
		l.noteRelease(c)
		return failed("release", l.keys, explain(l.keys, c.err))
	}
	l.noteRelease(nil)
	if l.zombie {
		again := newRelease(c.ctx, l.token, l.keys, l.boxed)
		if l.entry != "" {
			again.args = append(again.args, l.entry)
		}
		l.client.sweep(again, l.obtained, sweepAgain)
	}
	err := loss(l.keys, c.reply, ErrLockNotHeld)
	if err == ErrLockNotHeld && c.doubtful && c.first.Before(until) {
		return nil // it was an earlier sending of ours that freed them
	}
	return err
}
