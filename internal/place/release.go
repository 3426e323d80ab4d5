package place

import (
	"context"
	"errors"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
	"github.com/redislock/redislock/internal/undo"
)

const (
	releaseWait  = time.Second           // how long a Release waits if its ctx had ended before
	releaseLeast = 20 * time.Millisecond // the least time for that, even after Until: enough for an answer
)

// Free sends the release, or joins one that is under way. It began now. until is the end of the validity before it. The keys
// last for no longer than longest, as far as is known; 0 if that is not known. If keys were lost, Free also returns which
// ones and how.
func (c *Claim) Free(ctx context.Context, now, until time.Time, longest time.Duration) (life.Loss, error) {
	c.endRevivals()
	wait := ctx
	if ctx.Err() != nil {
		patience := max(releaseLeast, min(releaseWait, until.Sub(now)))
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
	}
	// Join an earlier release that is under way in the background: of two releases at a time, neither could know which one
	// freed the keys. If the round that is under way fails, its error may be out of date. Then wait for the next round.
	var call *transport.Call
	for joined := 0; ; joined++ {
		var p *pursuit
		var before bool
		if call, p, before = c.join(); call == nil {
			break
		}
		if !call.Wait(wait) {
			return life.Loss{}, fault.Failed("release", c.Keys.Names, fault.Ended(ctx))
		}
		if call.Err == nil {
			return c.endRelease(call, until, longest)
		}
		if !c.isPursued(p) {
			break
		}
		if joined > 0 || !before {
			return life.Loss{}, fault.Failed("release", c.Keys.Names, fault.WithHint(c.Keys.Names, call.Err))
		}
	}
	call = c.releaseCall(ctx, now, until, call)
	sent, returned := call, false
	defer func() {
		if !returned { // a hook has panicked, and the keys may still exist: send the release again, in the background
			next := c.releaseCall(ctx, now, until, sent)
			next.Plan()
			go func() { // ends with the call
				defer next.Finish()
				c.Place.Redis.Send(next)
			}()
			c.pursue(next, longest)
		}
	}()
	call, answered := c.send(wait, call, func(next *transport.Call) { sent = next })
	returned = true
	if !answered {
		c.pursue(call, longest)
		return life.Loss{}, fault.Failed("release", c.Keys.Names, fault.Ended(ctx))
	}
	return c.endRelease(call, until, longest)
}

// send sends a release until ctx ends. It returns the call that says what was freed, and whether that has finished. If
// the connection of a call has died, send goes on with another one at once, and first calls anew with that. It does not
// do so with a token that another claim may have had or may get: the release could free what that claim acquires.
func (c *Claim) send(
	ctx context.Context, call *transport.Call, anew func(*transport.Call),
) (last *transport.Call, answered bool) {
	if !c.Random {
		return call, c.Place.Redis.Do(ctx, call)
	}
	var lost []*transport.Call
	doubtful := call.Doubtful
	last, answered = c.Place.Redis.DoAnew(ctx, call, func(left, next *transport.Call) {
		lost, next.Doubtful = append(lost, left), true
		anew(next)
		c.Place.Cleanups.Outlast(undo.New(left, undo.Release, c.Keys.Names, 0))
	})
	if answered && len(lost) > 0 && last.Err == nil && script.Deleted(last) < len(c.Keys.Names) {
		last = freedBy(ctx, last, lost, doubtful)
	}
	return last, answered
}

// freedBy returns the one of several releases that has freed the keys. last has found them gone, and those that were
// lost may have freed them before. freedBy waits for these for a moment. If none of them is in doubt then, last is not
// either, unless it was sent more than once, or doubtful says that an earlier release is.
func freedBy(ctx context.Context, last *transport.Call, lost []*transport.Call, doubtful bool) *transport.Call {
	wait, cancel := context.WithTimeout(ctx, releaseWait)
	defer cancel()
	doubtful = doubtful || last.Resends > lost[len(lost)-1].Resends+1
	for _, call := range lost {
		switch {
		case !call.Wait(wait) || call.Err != nil:
			doubtful = true
		case script.Deleted(call) > 0:
			return call
		}
	}
	last.Doubtful = doubtful
	return last
}

// releaseCall returns a release that is resent until the time until, and for at least a second. An earlier release may have
// failed. What is in doubt of that is also in doubt of the new one.
func (c *Claim) releaseCall(ctx context.Context, now, until time.Time, earlier *transport.Call) *transport.Call {
	call := c.Place.ReleaseCall(ctx, c.Token, c.Keys)
	if c.FenceKey != "" { // for the fencing token of the next in line
		script.AndFence(call, c.FenceKey)
	}
	call.GiveUp = now.Add(releaseWait)
	if call.GiveUp.Before(until) {
		call.GiveUp = until
	}
	if earlier != nil {
		call.First, call.Doubtful = earlier.First, earlier.Doubtful
	}
	return call
}

// AttachedTTL is for how long the library resends a release of an attached lock if its ttl is not known.
const AttachedTTL = time.Minute

// pursuit is a release that goes on, in rounds, after its caller has returned. It ends when the keys are freed or no longer
// exist. A round is what one Release sends, with its usual resends. A Release that joins the pursuit returns with the end of
// a round, as if it had sent that round itself.
type pursuit struct {
	end     time.Time     // the keys have expired by then
	sooner  chan struct{} // has room for one; a value begins the next round
	planned chan struct{} // closed once it is known whether another round follows the first
	ended   chan struct{} // closed when no round follows
	longest time.Duration // for how long the keys last at most
	sent    bool          // Claim.release was sent: it is not only planned. Claim.mu protects this field
}

// join brings the next round of a pursuit forward. It returns the release to join (nil for none), its pursuit, and whether
// the release was sent before this call.
func (c *Claim) join() (call *transport.Call, p *pursuit, before bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p = c.pursuit; p != nil {
		select {
		case p.sooner <- struct{}{}:
		default:
		}
		before = p.sent
	}
	return c.release, p, before
}

// pursue begins a pursuit. Its first round is under way, or has failed. The keys last for no longer than longest, which may
// be more than the validity: after a loss of some keys, or after a refresh that has failed.
func (c *Claim) pursue(call *transport.Call, longest time.Duration) {
	if longest == 0 {
		longest = AttachedTTL
	}
	p := &pursuit{
		end: call.GiveUp, longest: longest, sent: true,
		sooner: make(chan struct{}, 1), planned: make(chan struct{}), ended: make(chan struct{}),
	}
	if end := time.Now().Add(longest); end.After(p.end) {
		p.end = end
	}
	c.mu.Lock()
	c.release, c.pursuit = call, p
	c.mu.Unlock()
	x := undo.New(call, undo.Release, c.Keys.Names, time.Until(p.end))
	c.Place.Cleanups.Note(x.Work, call)
	if !c.Place.Cleanups.Start(x, func() error { return c.sendRounds(x, call, p) }) {
		c.Place.Cleanups.Outlast(x)
		c.endPursuit(p)
		close(p.planned)
		c.Place.Cleanups.ReportDropped(x) // only now: its receiver may call Release again, which waits for planned
	}
}

// endPursuit notes that no round follows.
func (c *Claim) endPursuit(p *pursuit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(p.ended)
	if c.pursuit == p { // otherwise two releases were abandoned at the same time, and the other pursuit goes on
		c.pursuit = nil
	}
}

// sendRounds does the work of pursue in the goroutine of the cleanup. While rounds follow, Claim.release is the round of the
// last pursuit that is under way or, between two rounds, the next one. So a Release that joins can wait for its end.
func (c *Claim) sendRounds(x *undo.Cleanup, call *transport.Call, p *pursuit) error {
	call.Wait(context.Background())
	next, wait := c.planRound(call, p, 0)
	close(p.planned)
	closed := c.Place.set.Closed
	for round := 1; next != nil; round++ {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-p.sooner:
		case <-x.Hurry:
		case <-closed: // Close waits for this, but not for long
			closed = nil
		}
		timer.Stop()
		c.mu.Lock()
		p.sent = true
		c.mu.Unlock()
		call = next
		call.Hurry = x.Hurry
		c.Place.Cleanups.Note(x.Work, call)
		c.Place.Redis.Send(call)
		next, wait = c.planRound(call, p, round)
		call.Finish() // only now, so that callers who wait for this round find the next one planned
	}
	if call.Err == nil {
		c.undoLate(call.Ctx, p.longest)
	}
	return call.Err
}

// planRound returns the round that follows call, which has ended, and how long to wait before it; nil if none follows.
func (c *Claim) planRound(call *transport.Call, p *pursuit, round int) (next *transport.Call, wait time.Duration) {
	now := time.Now()
	wait = c.Place.Redis.ResendWait(round)
	if call.Err == nil || transport.IsFinal(call.Err) || now.Add(wait).After(p.end) {
		c.endPursuit(p)
		return nil, 0
	}
	next = c.releaseCall(call.Ctx, now, p.end, call)
	next.GiveUp = p.end
	next.Plan()
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.sent = false; c.pursuit == p {
		c.release = next
	}
	return next, wait
}

// isPursued reports whether a round follows the one that has ended.
func (c *Claim) isPursued(p *pursuit) bool {
	if p == nil {
		return false
	}
	<-p.planned
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pursuit != nil
}

// awaitPursuit waits until the pursuit that is under way has ended.
func (c *Claim) awaitPursuit() {
	c.mu.Lock()
	call, p := c.release, c.pursuit
	c.mu.Unlock()
	if call != nil { // it goes on without a pursuit if there was no room for one
		call.Wait(context.Background())
	}
	if p != nil {
		<-p.ended
	}
}

// noteRelease notes the last release, or nil if that was answered.
func (c *Claim) noteRelease(unanswered *transport.Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release = unanswered
}

// endRelease applies the result of a release that has ended.
func (c *Claim) endRelease(call *transport.Call, until time.Time, longest time.Duration) (life.Loss, error) {
	if call.Err != nil {
		if transport.IsFinal(call.Err) {
			c.noteRelease(call)
		} else {
			c.pursue(call, longest)
		}
		return life.Loss{}, fault.Failed("release", c.Keys.Names, fault.WithHint(c.Keys.Names, call.Err))
	}
	c.noteRelease(nil)
	c.undoLate(call.Ctx, longest)
	loss, err := c.Place.ReadLoss(c.Keys.Names, call.Reply, fault.ErrLockNotHeld)
	switch {
	case err == fault.ErrLockNotHeld && call.Doubtful && call.First.Before(until):
		return life.Loss{}, nil // an earlier sending of this release freed them
	case errors.Is(err, fault.ErrLockNotHeld):
		return lossOf(loss), err
	case err != nil:
		return life.Loss{}, fault.Failed("release", c.Keys.Names, err)
	}
	return life.Loss{}, nil
}

// undoLate releases, in the background, what unanswered sendings of the obtain, and refreshes under a guard, may acquire
// after the release. The keys last for no longer than longest then; 0 if only the obtain says for how long.
func (c *Claim) undoLate(ctx context.Context, longest time.Duration) {
	c.undoRevivals(ctx)
	c.mu.Lock()
	var u *Attempt
	if s := c.strays; s != nil && s.obtain != nil {
		u, s.obtain = s.obtain, nil
	}
	c.mu.Unlock()
	if u == nil {
		return
	}
	if u.Custom {
		u.Withdraw(ctx)
		return
	}
	again := c.Place.ReleaseCall(ctx, c.Token, c.Keys)
	if u.Waiter.HasPosition() {
		u.Waiter.Leave(again)
	}
	x := undo.New(again, undo.Resent, c.Keys.Names, max(c.Obtained, longest))
	c.Place.Cleanups.Sweep(x, undo.SweepAgain, u.abandoned...)
}
