package redislock

import (
	"context"
	"errors"
	"time"

	"github.com/redislock/redislock/internal/transport"
)

const (
	releaseWait  = time.Second           // how long a Release waits whose ctx had already ended
	releaseLeast = 20 * time.Millisecond // the least of that, even after Until: enough for an answer
)

// free sends the release, or joins one that is under way.
func (h *hold) free(ctx context.Context, now, until time.Time) error {
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
		if c, p, before = h.join(); c == nil {
			break
		}
		if !c.Wait(wait) {
			return failed("release", h.keys, ended(ctx))
		}
		if c.Err == nil {
			return h.endRelease(c, until)
		}
		if !h.isPursued(p) {
			break
		}
		if joined > 0 || !before {
			return failed("release", h.keys, withHint(h.keys, c.Err))
		}
	}
	c = h.releaseCall(ctx, now, until, c)
	returned := false
	defer func() {
		if !returned { // a hook has panicked, and the keys may still exist: send once more, in the background
			next := h.releaseCall(ctx, now, until, c)
			next.Plan()
			go func() { // ends with the call
				defer next.Finish()
				h.place.redis.Send(next)
			}()
			h.pursue(next)
		}
	}()
	answered := h.place.redis.Do(wait, c)
	returned = true
	if !answered {
		h.pursue(c)
		return failed("release", h.keys, ended(ctx))
	}
	return h.endRelease(c, until)
}

// releaseCall returns a release to be sent while the ttl lasts, and for at least a moment. It takes over what is in
// doubt from an earlier release that failed.
func (h *hold) releaseCall(ctx context.Context, now, until time.Time, earlier *transport.Call) *transport.Call {
	n := len(h.keys)
	c := newRelease(ctx, h.token, h.boxed[:n:n], h.boxed[n:])
	if h.fenceKey != "" { // for the fencing token of the next in line
		c.Keys, c.Simple = append(c.Keys, h.fenceKey), false
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
	sent    bool          // hold.release was sent, and is not only planned; protected by life.mu
}

// join brings the next round of a pursued release forward. It returns the last release, or nil if there is none to
// join, and whether it was sent before this call.
func (h *hold) join() (c *transport.Call, p *pursuit, before bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p = h.pursuit; p != nil {
		select {
		case p.sooner <- struct{}{}:
		default:
		}
		before = p.sent
	}
	return h.release, p, before
}

// pursue begins a pursuit whose first round is under way, or has failed.
func (h *hold) pursue(c *transport.Call) {
	p := &pursuit{end: c.GiveUp, sooner: make(chan struct{}, 1), planned: make(chan struct{}), sent: true}
	h.mu.Lock()
	// The keys may outlast the validity: after a loss of others, or after a refresh that has failed.
	longest := h.lease.Longest()
	if longest == 0 {
		longest = attachedTTL
	}
	if end := time.Now().Add(longest); end.After(p.end) {
		p.end = end
	}
	h.release, h.pursuit = c, p
	h.mu.Unlock()
	x := newCleanup(c, WhyRelease, h.keys, time.Until(p.end))
	h.place.pendings.send(x.pending, c)
	if !h.place.startCleanup(x, func() error { return h.sendRounds(x, c, p) }) {
		h.place.outlast(x)
		h.endPursuit(p)
		close(p.planned)
		h.place.tellDropped(x) // only now: a Tracer may call Release again, which waits for planned
	}
}

// endPursuit notes that no rounds follow.
func (h *hold) endPursuit(p *pursuit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pursuit == p { // otherwise two releases were abandoned at the same time, and the other is still pursued
		h.pursuit = nil
	}
}

// sendRounds does the work of pursue in the goroutine of the cleanup. While rounds follow, hold.release is the one
// under way or, between two rounds, the next one, so a Release that joins can wait for its end.
func (h *hold) sendRounds(x *cleanup, c *transport.Call, p *pursuit) error {
	c.Wait(context.Background())
	next, wait := h.planRound(c, p, 0)
	close(p.planned)
	closed := h.place.closed
	for round := 1; next != nil; round++ {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-p.sooner:
		case <-x.hurry:
		case <-closed: // Close waits for this, but not for long
			closed = nil
		}
		timer.Stop()
		h.mu.Lock()
		p.sent = true
		h.mu.Unlock()
		c = next
		c.Hurry = x.hurry
		h.place.pendings.send(x.pending, c)
		h.place.redis.Send(c)
		next, wait = h.planRound(c, p, round)
		c.Finish() // only now, so that those who wait for it find the next round planned
	}
	if c.Err == nil {
		h.undoLate(c.Ctx)
	}
	return c.Err
}

// planRound returns the round that follows one that has ended and how long to wait before it, or nil if none follows.
func (h *hold) planRound(c *transport.Call, p *pursuit, round int) (next *transport.Call, wait time.Duration) {
	now := time.Now()
	wait = h.place.redis.ResendWait(round)
	if c.Err == nil || transport.IsFinal(c.Err) || now.Add(wait).After(p.end) {
		h.endPursuit(p)
		return nil, 0
	}
	next = h.releaseCall(c.Ctx, now, p.end, c)
	next.GiveUp = p.end
	next.Plan()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.release, p.sent = next, false
	return next, wait
}

// isPursued reports whether rounds follow one that has ended.
func (h *hold) isPursued(p *pursuit) bool {
	if p == nil {
		return false
	}
	<-p.planned
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pursuit != nil
}

func (h *hold) noteRelease(unanswered *transport.Call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.release = unanswered
}

// endRelease applies the result of a release that has ended.
func (h *hold) endRelease(c *transport.Call, until time.Time) error {
	if c.Err != nil {
		if transport.IsFinal(c.Err) {
			h.noteRelease(c)
		} else {
			h.pursue(c)
		}
		return failed("release", h.keys, withHint(h.keys, c.Err))
	}
	h.noteRelease(nil)
	h.undoLate(c.Ctx)
	err := readLoss(h.keys, c.Reply, ErrLockNotHeld)
	if err == ErrLockNotHeld && c.Doubtful && c.First.Before(until) {
		return nil // an earlier sending of ours freed them
	}
	switch {
	case errors.Is(err, ErrLockNotHeld):
		if !h.wasReleasedAgain() { // else the other Release may have freed them, or reports the loss
			lost, cause := readLostKeys(h.keys, c.Reply)
			tellLost(c.Ctx, h, lost, cause, err)
		}
	case err != nil:
		return failed("release", h.keys, err)
	}
	return err
}

// undoLate releases, in the background, what the unanswered sendings of the obtain acquire after the release.
func (h *hold) undoLate(ctx context.Context) {
	h.mu.Lock()
	u := h.unanswered
	h.unanswered = nil
	h.mu.Unlock()
	if u == nil {
		return
	}
	if u.custom {
		rest := &remains{
			place: h.place, keys: h.keys, boxed: h.boxed, token: h.token, custom: true, ttl: h.obtained, waiter: u.waiter,
		}
		rest.withdraw(ctx, u.tries, nil)
		return
	}
	again := newRelease(ctx, h.token, h.boxed[:len(h.keys)], h.boxed[len(h.keys):])
	if u.waiter.hasPlace() {
		andLeave(again, u.waiter.entry)
	}
	h.place.sweep(newCleanup(again, WhyResent, h.keys, h.obtained), sweepAgain, u.tries...)
}
