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
	releaseWait  = time.Second           // how long a Release waits whose ctx had already ended
	releaseLeast = 20 * time.Millisecond // the least of that, even after Until: enough for an answer
)

// Free sends the release, or joins one that is under way. It began now, when the keys counted until then, and they last for
// no longer than longest, as far as is known; 0 if nothing is. If keys were lost, free returns which and how as well.
func (k *Claim) Free(ctx context.Context, now, until time.Time, longest time.Duration) (life.Loss, error) {
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
		if !returned { // a hook has panicked, and the keys may still exist: send once more, in the background
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

// releaseCall returns a release to be sent while the ttl lasts, and for at least a moment. It takes over what is in
// doubt from an earlier release that failed.
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

// AttachedTTL is for how long a release of an attached lock, whose ttl is not known, is resent.
const AttachedTTL = time.Minute

// pursuit is a release that goes on after its caller has returned, in rounds, until the keys are freed or no longer exist,
// whatever its caller waited for. A round is what one Release sends, with its usual resends. So a Release that joins the
// pursuit returns with the end of a round, as if it had sent that round itself, and no two requests are under way at once.
type pursuit struct {
	end     time.Time     // by then, the keys have expired
	sooner  chan struct{} // has room for one; begins the next round
	planned chan struct{} // closed once it is known whether another round follows the first
	sent    bool          // Claim.release was sent, and is not only planned; Claim.mu protects it
}

// join brings the next round of a pursued release forward. It returns the last release, or nil if there is none to
// join, and whether it was sent before this call.
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

// pursue begins a pursuit whose first round is under way, or has failed. The keys last for no longer than longest, which may
// be more than the validity: after a loss of others, or after a refresh that has failed.
func (k *Claim) pursue(c *transport.Call, longest time.Duration) {
	p := &pursuit{end: c.GiveUp, sooner: make(chan struct{}, 1), planned: make(chan struct{}), sent: true}
	if longest == 0 {
		longest = AttachedTTL
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
		k.Place.Cleanups.TellDropped(x) // only now: a Tracer may call Release again, which waits for planned
	}
}

// endPursuit notes that no rounds follow.
func (k *Claim) endPursuit(p *pursuit) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pursuit == p { // otherwise two releases were abandoned at the same time, and the other is still pursued
		k.pursuit = nil
	}
}

// sendRounds does the work of pursue in the goroutine of the cleanup. While rounds follow, Claim.release is the one
// under way or, between two rounds, the next one, so a Release that joins can wait for its end.
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
		c.Finish() // only now, so that those who wait for it find the next round planned
	}
	if c.Err == nil {
		k.undoLate(c.Ctx)
	}
	return c.Err
}

// planRound returns the round that follows one that has ended and how long to wait before it, or nil if none follows.
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
	k.release, p.sent = next, false
	return next, wait
}

// isPursued reports whether rounds follow one that has ended.
func (k *Claim) isPursued(p *pursuit) bool {
	if p == nil {
		return false
	}
	<-p.planned
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pursuit != nil
}

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
	k.undoLate(c.Ctx)
	loss, err := k.Place.ReadLoss(k.Keys.Names, c.Reply, fault.ErrLockNotHeld)
	switch {
	case err == fault.ErrLockNotHeld && c.Doubtful && c.First.Before(until):
		return life.Loss{}, nil // an earlier sending of ours freed them
	case errors.Is(err, fault.ErrLockNotHeld):
		return lossOf(loss), err
	case err != nil:
		return life.Loss{}, fault.Failed("release", k.Keys.Names, err)
	}
	return life.Loss{}, nil
}

// undoLate releases, in the background, what the unanswered sendings of the obtain acquire after the release.
func (k *Claim) undoLate(ctx context.Context) {
	k.mu.Lock()
	u := k.unanswered
	k.unanswered = nil
	k.mu.Unlock()
	if u == nil {
		return
	}
	if u.custom {
		rest := &Attempt{Place: k.Place, Waiter: u.waiter}
		rest.Keys, rest.Token, rest.Custom, rest.TTL = k.Keys, k.Token, true, k.Obtained
		rest.Withdraw(ctx, u.tries, nil)
		return
	}
	again := k.Place.ReleaseCall(ctx, k.Token, k.Keys)
	if u.waiter.HasPlace() {
		u.waiter.Leave(again)
	}
	k.Place.Cleanups.Sweep(undo.New(again, undo.Resent, k.Keys.Names, k.Obtained), undo.SweepAgain, u.tries...)
}
