package redislock

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/transport"
)

const (
	releaseWait  = time.Second           // how long a Release waits whose ctx had already ended
	releaseLeast = 20 * time.Millisecond // the least of that, even after Until: enough for an answer
)

// Release frees every key that the lock's token still holds, even if others are lost. From the call on, the lock counts
// as given up: [Lock.Until] has passed, and Refresh refuses.
//
// Release blocks until Redis answers or ctx ends. It is cleanup, so it sends the request even if ctx has already ended.
// It then waits for the answer for at most a second, and no longer than Until, but at least 20 ms.
//
// If ctx ends, or the error is one that may pass, Release returns it and keeps trying in the background until the ttl is
// over, or for a minute if the lock is attached and its ttl is not known. A further Release meanwhile joins these tries. It
// returns when one of them is answered, or when as many of them have failed as a first call would send. Errors of the
// network may pass, and so may answers that mean "not now", as during a failover.
//
// Release returns:
//   - nil if all keys were freed, by this call or by an unanswered one that was sent before Until;
//   - [ErrLockNotHeld] if the lock held no key any more, and for a nil lock;
//   - a [*LostError] if the lock had lost some keys; the others are free now;
//   - an error that wraps [ErrInvalid] for a nil ctx;
//   - an error that wraps ctx.Err() if ctx ended first, and any other error of Redis or the network, wrapped. Release may
//     then be called again.
func (l *Lock) Release(ctx context.Context) error {
	switch {
	case !l.exists():
		return ErrLockNotHeld
	case ctx == nil:
		return errNilContext
	}
	now := time.Now()
	until, lapsed := l.beginRelease(now)
	err := errPanicked // unless sendRelease returns
	defer func() {
		if lapsed != nil {
			tell(ctx, l.client.tracer.Lost, *lapsed)
		}
		l.tellReleased(ctx, now, err)
	}()
	if h := l.parts(); h != nil {
		err = h.release(ctx)
	} else {
		err = l.sendRelease(ctx, now, until)
	}
	return err
}

// sendRelease sends the release, or joins one that is under way.
func (l *Lock) sendRelease(ctx context.Context, now, until time.Time) error {
	wait := ctx
	if ctx.Err() != nil {
		patience := max(releaseLeast, min(releaseWait, until.Sub(now)))
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
	}
	// Join an earlier release that is under way in the background: two at a time could not tell which of them freed the
	// keys. If the round that is already under way fails, its error may be out of date, so wait for the next round.
	var c *transport.Call
	for joined := 0; ; joined++ {
		var p *pursuit
		var before bool
		if c, p, before = l.join(); c == nil {
			break
		}
		if !c.Wait(wait) {
			return failed("release", l.keys, ended(ctx))
		}
		if c.Err == nil {
			return l.endRelease(c, until)
		}
		if !l.isPursued(p) {
			break
		}
		if joined > 0 || !before {
			return failed("release", l.keys, withHint(l.keys, c.Err))
		}
	}
	c = l.newRelease(ctx, now, until, c)
	returned := false
	defer func() {
		if !returned { // a hook has panicked, and the keys may still exist: send once more, in the background
			next := l.newRelease(ctx, now, until, c)
			next.Plan()
			go func() { // ends with the call
				defer next.Finish()
				l.client.redis.Send(next)
			}()
			l.pursue(next)
		}
	}()
	answered := l.client.redis.Do(wait, c)
	returned = true
	if !answered {
		l.pursue(c)
		return failed("release", l.keys, ended(ctx))
	}
	return l.endRelease(c, until)
}

// beginRelease gives the lock up and ends its kept contexts. It returns the end of the validity before that, and what to
// tell a Tracer if the lock had lapsed.
func (l *Lock) beginRelease(now time.Time) (until time.Time, lapsed *Lost) {
	l.mu.Lock()
	ending := l.kept
	l.kept = nil
	if len(ending) > 0 && lease.Passed(l.validUntil()) {
		if l.ended == nil {
			lapsed = l.noteLapse()
		}
		l.ended = l.whyEnded() // if the lock lapsed before, its contexts say that, and not that it was released
	}
	if l.releasedAgain = !l.released.IsZero(); !l.releasedAgain {
		l.released = now
		l.ended = cmp.Or(l.ended, errReleased)
	}
	until = l.validUntil()
	cause := l.ended
	l.mu.Unlock()
	l.endAll(ending, cause)
	return until, lapsed
}

// newRelease returns a release to be sent while the ttl lasts, and for at least a moment. It takes over what is in
// doubt from an earlier release that failed.
func (l *Lock) newRelease(ctx context.Context, now, until time.Time, earlier *transport.Call) *transport.Call {
	n := len(l.keys)
	c := newRelease(ctx, l.token, l.boxed[:n:n], l.boxed[n:])
	if l.fenceKey != "" { // for the fencing token of the next in line
		c.Keys, c.Simple = append(c.Keys, l.fenceKey), false
		c.Args = append(c.Args, "", "1")
	}
	c.GiveUp = now.Add(releaseWait)
	if c.GiveUp.Before(until) {
		c.GiveUp = until
	}
	if earlier != nil {
		c.First, c.Doubtful = earlier.First, earlier.Doubtful
	}
	return c
}

// pursuit is a release that goes on after its caller has returned, in rounds, until the keys are freed or no longer exist,
// whatever its caller waited for. A round is what one Release sends, with its usual resends. So a Release that joins the
// pursuit returns with the end of a round, as if it had sent that round itself, and no two requests are under way at once.
type pursuit struct {
	end     time.Time     // by then, the keys have expired
	sooner  chan struct{} // has room for one; begins the next round
	planned chan struct{} // closed once it is known whether another round follows the first
	sent    bool          // Lock.release was sent, and is not only planned; protected by Lock.mu
}

// join brings the next round of a pursued release forward. It returns the last release, or nil if there is none to
// join, and whether it was sent before this call.
func (l *Lock) join() (c *transport.Call, p *pursuit, before bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p = l.pursuit; p != nil {
		select {
		case p.sooner <- struct{}{}:
		default:
		}
		before = p.sent
	}
	return l.release, p, before
}

// pursue begins a pursuit whose first round is under way, or has failed.
func (l *Lock) pursue(c *transport.Call) {
	p := &pursuit{end: c.GiveUp, sooner: make(chan struct{}, 1), planned: make(chan struct{}), sent: true}
	l.mu.Lock()
	// The keys may outlast the validity: after a loss of others, or after a refresh that has failed.
	longest := l.lease.Longest()
	if longest == 0 {
		longest = attachedTTL
	}
	if end := time.Now().Add(longest); end.After(p.end) {
		p.end = end
	}
	l.release, l.pursuit = c, p
	l.mu.Unlock()
	x := newCleanup(c, WhyRelease, l.keys, time.Until(p.end))
	x.sending, x.after = true, l.aftermath()
	if !l.client.startCleanup(x, func() error { return l.sendRounds(x, c, p) }) {
		l.endPursuit(p)
		close(p.planned)
		l.client.tellDropped(x) // only now: a Tracer may call Release again, which waits for planned
	}
}

// aftermath collects the cleanups of a hold at one of several places; nil for any other lock.
func (l *Lock) aftermath() *aftermath {
	if l.number == 0 {
		return nil
	}
	return &l.holds.after
}

// endPursuit notes that no rounds follow.
func (l *Lock) endPursuit(p *pursuit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pursuit == p { // otherwise two releases were abandoned at the same time, and the other is still pursued
		l.pursuit = nil
	}
}

// sendRounds does the work of pursue in the goroutine of the cleanup. While rounds follow, Lock.release is the one
// under way or, between two rounds, the next one, so a Release that joins can wait for its end.
func (l *Lock) sendRounds(x *cleanup, c *transport.Call, p *pursuit) error {
	c.Wait(context.Background())
	l.client.noteIdle(x)
	next, wait := l.planRound(c, p, 0)
	close(p.planned)
	closed := l.client.closed
	for round := 1; next != nil; round++ {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-p.sooner:
		case <-x.stop:
		case <-closed: // Close waits for this, but not for long
			closed = nil
		}
		timer.Stop()
		l.mu.Lock()
		p.sent = true
		l.mu.Unlock()
		c = next
		l.client.sendRound(x, c)
		next, wait = l.planRound(c, p, round)
		c.Finish() // only now, so that those who wait for it find the next round planned
	}
	if c.Err == nil {
		l.undoLate(c.Ctx, x)
	}
	return c.Err
}

// planRound returns the round that follows one that has ended and how long to wait before it, or nil if none follows.
func (l *Lock) planRound(c *transport.Call, p *pursuit, round int) (next *transport.Call, wait time.Duration) {
	now := time.Now()
	wait = l.client.redis.ResendWait(round)
	if c.Err == nil || c.IsDropped() || transport.IsFinal(c.Err) || now.Add(wait).After(p.end) {
		l.endPursuit(p)
		return nil, 0
	}
	next = l.newRelease(c.Ctx, now, p.end, c)
	next.GiveUp = p.end
	next.Plan()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release, p.sent = next, false
	return next, wait
}

// isPursued reports whether rounds follow one that has ended.
func (l *Lock) isPursued(p *pursuit) bool {
	if p == nil {
		return false
	}
	<-p.planned
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pursuit != nil
}

func (l *Lock) noteRelease(unanswered *transport.Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release = unanswered
}

// endRelease applies the result of a release that has ended.
func (l *Lock) endRelease(c *transport.Call, until time.Time) error {
	if c.Err != nil {
		if transport.IsFinal(c.Err) {
			l.noteRelease(c)
		} else {
			l.pursue(c)
		}
		return failed("release", l.keys, withHint(l.keys, c.Err))
	}
	l.noteRelease(nil)
	l.undoLate(c.Ctx, nil)
	err := readLoss(l.keys, c.Reply, ErrLockNotHeld)
	if err == ErrLockNotHeld && c.Doubtful && c.First.Before(until) {
		return nil // an earlier sending of ours freed them
	}
	switch {
	case errors.Is(err, ErrLockNotHeld):
		if !l.wasReleasedAgain() { // else the other Release may have freed them, or reports the loss
			lost, cause := readLostKeys(l.keys, c.Reply)
			l.tellLost(c.Ctx, lost, cause, err)
		}
	case err != nil:
		return failed("release", l.keys, err)
	}
	return err
}

// wasReleasedAgain reports whether Release was called more than once.
func (l *Lock) wasReleasedAgain() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.releasedAgain
}

// undoLate releases, in the background, what the unanswered sendings of the obtain acquire after the release. after is
// the cleanup that has released the lock, if there is one: if an obtain has superseded that cleanup, it may have
// acquired the keys again.
func (l *Lock) undoLate(ctx context.Context, after *cleanup) {
	l.mu.Lock()
	u := l.unanswered
	l.unanswered = nil
	l.mu.Unlock()
	if u == nil {
		return
	}
	if u.custom {
		o := &obtaining{
			client: l.client, keys: l.keys, boxed: l.boxed, ttl: l.obtained, custom: true, token: l.token,
			waiter: u.waiter, abandoned: u.tries, superseded: u.superseded, after: l.aftermath(), follows: after,
		}
		o.withdraw(ctx)
		return
	}
	again := newRelease(ctx, l.token, l.boxed[:len(l.keys)], l.boxed[len(l.keys):])
	if u.waiter.hasPlace() {
		andLeave(again, u.waiter.entry)
	}
	x := newCleanup(again, WhyResent, l.keys, l.obtained)
	x.after, x.follows = l.aftermath(), after
	l.client.sweep(x, sweepAgain, u.tries...)
}
