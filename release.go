package redislock

import (
	"cmp"
	"context"
	_ "embed" // for the script
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed release.lua
var releaseSource string

var releaseScript = newScript("release", releaseSource)

const (
	releaseWait  = time.Second           // how long a Release waits that was called with a ctx already ended
	releaseLeast = 20 * time.Millisecond // the same if Until has passed too: enough to hear what became of the lock
)

// Release frees every key of the lock that its token still holds, also when others are lost. From its call on the lock
// counts as given up: [Lock.Until] has passed, and Refresh refuses.
//
// Release blocks until Redis answers or ctx ends. It is cleanup: called with a ctx that has ended already, it is sent all
// the same, and the answer awaited for a second at most and not past Until. If ctx ends, Release returns and the sending
// goes on in the background until the ttl is over. A Release that is called meanwhile joins that, and returns when what a
// first call would have sent has been answered or has failed. It returns:
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
	until, c, sooner := l.beginRelease(now)
	wait := ctx
	if ctx.Err() != nil {
		patience := max(releaseLeast, min(releaseWait, until.Sub(now)))
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
	}
	// An earlier release may be under way in the background. It is joined: two at a time could not tell which of them
	// freed the keys.
	if c != nil {
		select {
		case sooner <- struct{}{}: // its next round begins now
		default:
		}
		switch {
		case !c.await(wait):
			return failed("release", l.keys, ended(ctx))
		case c.err == nil:
			return l.endRelease(c, until)
		case l.isPursued():
			return failed("release", l.keys, explain(l.keys, c.err))
		}
	}
	c = l.newRelease(ctx, now, until, c)
	if !l.client.node.do(wait, c) {
		l.pursue(c)
		return failed("release", l.keys, ended(ctx))
	}
	return l.endRelease(c, until)
}

// beginRelease gives the lock up, and ends the contexts for which it was kept. It returns the end of its validity as it
// was before, and the last release if that was not answered, with what begins its next round if it is pursued.
func (l *Lock) beginRelease(now time.Time) (until time.Time, unanswered *call, sooner chan<- struct{}) {
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
	until, unanswered, sooner = l.until, l.release, l.sooner
	cause := l.ended
	l.mu.Unlock()
	l.endAll(ending, cause)
	return until, unanswered, sooner
}

// newRelease returns a release that is worth sending while the ttl lasts, and for a moment at least. It takes over what
// is in doubt from an earlier one that failed.
func (l *Lock) newRelease(ctx context.Context, now, until time.Time, earlier *call) *call {
	c := newRelease(ctx, l.token, l.keys, l.boxed)
	c.giveUp = now.Add(releaseWait)
	if c.giveUp.Before(until) {
		c.giveUp = until
	}
	if earlier != nil {
		c.first, c.doubtful = earlier.first, earlier.doubtful
	}
	return c
}

// pursue goes on with a release whose caller has left, in rounds, until the keys are freed or its giveUp has come. A round
// is what one Release sends, with its usual resends. So a Release that joins it returns with the end of a round, as if it
// had sent that itself, while all that is sent still follows one another.
func (l *Lock) pursue(c *call) {
	sooner := make(chan struct{}, 1)
	l.mu.Lock()
	l.release, l.sooner = c, sooner
	l.mu.Unlock()
	x := &cleanup{release: c, keys: l.keys, sending: true}
	if !l.client.inBackground(x, func() { l.sendRounds(x, c, sooner) }) {
		l.mu.Lock()
		l.sooner = nil
		l.mu.Unlock()
	}
}

// sendRounds is pursue in the goroutine of the cleanup. The first round is under way. While there are rounds to come,
// Lock.release is the one under way or, between two, the next; so whoever joins can wait for its end.
func (l *Lock) sendRounds(x *cleanup, c *call, sooner chan struct{}) {
	<-c.done
	l.client.rest(x)
	for round := 0; ; round++ {
		next, wait := l.planRound(c, round, sooner)
		if round > 0 {
			close(c.done) // not before, so that those who wait for it find the next one planned
		}
		if next == nil {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-sooner:
			timer.Stop()
		}
		c = next
		l.client.sendRound(x, c)
	}
}

// planRound returns the round that follows one that has ended, and when to send it; nil if there is to be none.
func (l *Lock) planRound(c *call, round int, sooner chan struct{}) (next *call, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	wait = resendWait(l.client.node.resends + round)
	if c.err == nil || c.dropped.Load() || isRedisError(c.err) && !isPassing(c.err) ||
		errors.Is(c.err, redis.ErrClosed) || now.Add(wait).After(c.giveUp) {
		if l.sooner == sooner { // else two calls were given up at the same time, and the other one is pursued yet
			l.sooner = nil
		}
		return nil, 0
	}
	next = l.newRelease(c.ctx, now, c.giveUp, c)
	next.giveUp = c.giveUp
	next.done = make(chan struct{})
	l.release = next
	return next, wait
}

// isPursued reports whether there are rounds to come.
func (l *Lock) isPursued() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sooner != nil
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
		l.client.sweep(newRelease(c.ctx, l.token, l.keys, l.boxed), l.obtained, sweepAgain)
	}
	err := loss(l.keys, c.reply, ErrLockNotHeld)
	if err == ErrLockNotHeld && c.doubtful && c.first.Before(until) {
		return nil // it was an earlier sending of ours that freed them
	}
	return err
}
