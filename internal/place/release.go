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
func (k *Claim) Free(ctx context.Context, now, until time.Time, longest time.Duration) (life.Loss, error) {
	k.endRevivals()
	wait := ctx
	if ctx.Err() != nil {
		patience := max(releaseLeast, min(releaseWait, until.Sub(now)))
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
	}
	// Join an earlier release that is under way in the background: of two releases at a time, neither could know which one
	// freed the keys. If the round that is under way fails, its error may be out of date. Then wait for the next round.
	var c *transport.Call
	for joined := 0; ; joined++ {
		var p *pursuit
		var before bool
		if c, p, before = k.join(); c == nil {
			break
		}
		if !c.Wait(wait) {
			return life.Loss{}, fault.Failed("release", k.Keys.Names, fault.Ended(ctx))
		}
		if c.Err == nil {
			return k.endRelease(c, until, longest)
		}
		if !k.isPursued(p) {
			break
		}
		if joined > 0 || !before {
			return life.Loss{}, fault.Failed("release", k.Keys.Names, fault.WithHint(k.Keys.Names, c.Err))
		}
	}
	c = k.releaseCall(ctx, now, until, c)
	returned := false
	defer func() {
		if !returned { // a hook has panicked, and the keys may still exist: send the release again, in the background
			next := k.releaseCall(ctx, now, until, c)
			next.Plan()
			go func() { // ends with the call
				defer next.Finish()
				k.Place.Redis.Send(next)
			}()
			k.pursue(next, longest)
		}
	}()
	answered := k.Place.Redis.Do(wait, c)
	returned = true
	if !answered {
		k.pursue(c, longest)
		return life.Loss{}, fault.Failed("release", k.Keys.Names, fault.Ended(ctx))
	}
	return k.endRelease(c, until, longest)
}

// releaseCall returns a release that is resent until the time until, and for at least a second. An earlier release may have
// failed. What is in doubt of that is also in doubt of the new one.
func (k *Claim) releaseCall(ctx context.Context, now, until time.Time, earlier *transport.Call) *transport.Call {
	c := k.Place.ReleaseCall(ctx, k.Token, k.Keys)
	if k.FenceKey != "" { // for the fencing token of the next in line
		script.AndFence(c, k.FenceKey)
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
func (k *Claim) join() (c *transport.Call, p *pursuit, before bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p = k.pursuit; p != nil {
		select {
		case p.sooner <- struct{}{}:
		default:
		}
		before = p.sent
	}
	return k.release, p, before
}

// pursue begins a pursuit. Its first round is under way, or has failed. The keys last for no longer than longest, which may
// be more than the validity: after a loss of some keys, or after a refresh that has failed.
func (k *Claim) pursue(c *transport.Call, longest time.Duration) {
	if longest == 0 {
		longest = AttachedTTL
	}
	p := &pursuit{
		end: c.GiveUp, longest: longest, sent: true,
		sooner: make(chan struct{}, 1), planned: make(chan struct{}), ended: make(chan struct{}),
	}
	if end := time.Now().Add(longest); end.After(p.end) {
		p.end = end
	}
	k.mu.Lock()
	k.release, k.pursuit = c, p
	k.mu.Unlock()
	x := undo.New(c, undo.Release, k.Keys.Names, time.Until(p.end))
	k.Place.Cleanups.Note(x.Work, c)
	if !k.Place.Cleanups.Start(x, func() error { return k.sendRounds(x, c, p) }) {
		k.Place.Cleanups.Outlast(x)
		k.endPursuit(p)
		close(p.planned)
		k.Place.Cleanups.ReportDropped(x) // only now: its receiver may call Release again, which waits for planned
	}
}

// endPursuit notes that no round follows.
func (k *Claim) endPursuit(p *pursuit) {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(p.ended)
	if k.pursuit == p { // otherwise two releases were abandoned at the same time, and the other pursuit goes on
		k.pursuit = nil
	}
}

// sendRounds does the work of pursue in the goroutine of the cleanup. While rounds follow, Claim.release is the round of the
// last pursuit that is under way or, between two rounds, the next one. So a Release that joins can wait for its end.
func (k *Claim) sendRounds(x *undo.Cleanup, c *transport.Call, p *pursuit) error {
	c.Wait(context.Background())
	next, wait := k.planRound(c, p, 0)
	close(p.planned)
	closed := k.Place.set.Closed
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
		k.mu.Lock()
		p.sent = true
		k.mu.Unlock()
		c = next
		c.Hurry = x.Hurry
		k.Place.Cleanups.Note(x.Work, c)
		k.Place.Redis.Send(c)
		next, wait = k.planRound(c, p, round)
		c.Finish() // only now, so that callers who wait for this round find the next one planned
	}
	if c.Err == nil {
		k.undoLate(c.Ctx, p.longest)
	}
	return c.Err
}

// planRound returns the round that follows c, which has ended, and how long to wait before it; nil if none follows.
func (k *Claim) planRound(c *transport.Call, p *pursuit, round int) (next *transport.Call, wait time.Duration) {
	now := time.Now()
	wait = k.Place.Redis.ResendWait(round)
	if c.Err == nil || transport.IsFinal(c.Err) || now.Add(wait).After(p.end) {
		k.endPursuit(p)
		return nil, 0
	}
	next = k.releaseCall(c.Ctx, now, p.end, c)
	next.GiveUp = p.end
	next.Plan()
	k.mu.Lock()
	defer k.mu.Unlock()
	if p.sent = false; k.pursuit == p {
		k.release = next
	}
	return next, wait
}

// isPursued reports whether a round follows the one that has ended.
func (k *Claim) isPursued(p *pursuit) bool {
	if p == nil {
		return false
	}
	<-p.planned
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pursuit != nil
}

// awaitPursuit waits until the pursuit that is under way has ended.
func (k *Claim) awaitPursuit() {
	k.mu.Lock()
	c, p := k.release, k.pursuit
	k.mu.Unlock()
	if c != nil { // it goes on without a pursuit if there was no room for one
		c.Wait(context.Background())
	}
	if p != nil {
		<-p.ended
	}
}

// noteRelease notes the last release, or nil if that was answered.
func (k *Claim) noteRelease(unanswered *transport.Call) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.release = unanswered
}

// endRelease applies the result of a release that has ended.
func (k *Claim) endRelease(c *transport.Call, until time.Time, longest time.Duration) (life.Loss, error) {
	if c.Err != nil {
		if transport.IsFinal(c.Err) {
			k.noteRelease(c)
		} else {
			k.pursue(c, longest)
		}
		return life.Loss{}, fault.Failed("release", k.Keys.Names, fault.WithHint(k.Keys.Names, c.Err))
	}
	k.noteRelease(nil)
	k.undoLate(c.Ctx, longest)
	loss, err := k.Place.ReadLoss(k.Keys.Names, c.Reply, fault.ErrLockNotHeld)
	switch {
	case err == fault.ErrLockNotHeld && c.Doubtful && c.First.Before(until):
		return life.Loss{}, nil // an earlier sending of this release freed them
	case errors.Is(err, fault.ErrLockNotHeld):
		return lossOf(loss), err
	case err != nil:
		return life.Loss{}, fault.Failed("release", k.Keys.Names, err)
	}
	return life.Loss{}, nil
}

// undoLate releases, in the background, what unanswered sendings of the obtain, and refreshes under a guard, may acquire
// after the release. The keys last for no longer than longest then; 0 if only the obtain says for how long.
func (k *Claim) undoLate(ctx context.Context, longest time.Duration) {
	k.undoRevivals(ctx)
	k.mu.Lock()
	var u *Attempt
	if s := k.strays; s != nil && s.obtain != nil {
		u, s.obtain = s.obtain, nil
	}
	k.mu.Unlock()
	if u == nil {
		return
	}
	if u.Custom {
		u.Withdraw(ctx)
		return
	}
	again := k.Place.ReleaseCall(ctx, k.Token, k.Keys)
	if u.Waiter.HasPlace() {
		u.Waiter.Leave(again)
	}
	x := undo.New(again, undo.Resent, k.Keys.Names, max(k.Obtained, longest))
	k.Place.Cleanups.Sweep(x, undo.SweepAgain, u.abandoned...)
}
