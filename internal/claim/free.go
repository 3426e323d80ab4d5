package claim

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

const (
	freeWait  = time.Second           // how long Free waits if its ctx had ended before
	freeLeast = 20 * time.Millisecond // the least time for that, even after the validity: enough for an answer
)

// Terms say how to free a claim.
type Terms struct {
	Why   Why           // if the freeing goes on in the background
	Until time.Time     // the end of the validity before
	Held  time.Time     // until when the keys were known to be there; zero if they were not
	Lasts time.Duration // for how long the keys last at most; 0 if that is not known
}

// Found is what the freeing has found.
type Found struct {
	script.Loss

	Unknown  bool // an unanswered release may have freed the keys, or they were lost before it
	Doubtful bool // another release may still be executed
}

// Free frees the keys, in the goroutine of the caller until ctx ends, and then in the background. If ctx has ended
// before, it waits for up to a second, or until the validity ends.
//
// All calls share one freeing. A call that comes before a release was answered waits for the next round, and returns what
// that finds. A later one returns at once what was found.
func (c *Claim) Free(ctx context.Context, t Terms) (Found, error) {
	now, wait := time.Now(), ctx
	if ctx.Err() != nil {
		patience := max(freeLeast, min(freeWait, t.Until.Sub(now)))
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
	}
	for last := 0; ; {
		call, changed, err := c.enter(ctx, &last)
		switch {
		case err != nil:
			return Found{}, err
		case call != nil:
			if call.GiveUp = now.Add(freeWait); call.GiveUp.Before(t.Until) {
				call.GiveUp = t.Until
			}
			if err := c.free(ctx, wait, call, t); err != nil {
				return Found{}, err
			}
		case changed == nil:
			return c.tell(t.Held)
		default:
			select {
			case <-changed:
			case <-wait.Done():
				if !fault.IsClosed(changed) {
					return Found{}, fault.Failed("release", c.Keys.Names, fault.Ended(ctx))
				}
			}
		}
	}
}

// enter begins the freeing, and returns its first release, or joins it, and returns what is closed when something happens
// to it. If it is known what was found, or that the round has failed with which the call ends, enter returns neither. The
// number of that round is in *last: 0 before the call takes part. A call that joins while a round is under way ends with the
// next one; while the claim rests, it brings that forward.
func (c *Claim) enter(ctx context.Context, last *int) (call *transport.Call, changed <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	phase := c.state.phase
	told := phase == freed || c.more != nil && c.more.told
	switch {
	case told && (phase != givenUp || *last > 0): // otherwise what was taken since was not freed
		return nil, nil, nil
	case *last > 0 && c.coming() > *last:
		return nil, nil, c.more.err
	case phase == live || phase == givenUp:
		*last = c.coming()
		c.noteStrays() // once more with a custom token, a release could free what another Client has obtained since
		c.happens(event{kind: free})
		return c.release(ctx), nil, nil
	}
	if *last == 0 {
		if *last = c.coming(); c.state.phase == sending {
			*last++
		}
	}
	c.announce()
	changed = c.more.changed
	if c.state.phase == resting {
		c.happens(event{kind: hurry})
	}
	return nil, changed, nil
}

// tell returns what was found of keys that were known to be there until held.
//
// A release that finds nothing may have come after an unanswered one that has freed the keys. It counts as such if the keys
// were known to be there when that one was sent, or an ask is known to have taken keys since the freeing began. All calls
// are told what the first one is.
func (c *Claim) tell(held time.Time) (Found, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.more
	switch {
	case m == nil: // the first release was answered in time and has lost nothing
		return Found{}, nil
	case m.found.err != nil:
		return Found{}, m.found.err
	}
	m.know(held)
	m.said = true
	f := Found{Loss: m.found.Loss, Doubtful: !m.found.doubt.IsZero()}
	switch {
	case !f.Doubtful || !f.IsWhole():
	case m.found.knew:
		f.Loss = m.lost
	case !m.gone.IsZero() && m.found.doubt.After(m.gone): // all were lost before any release that may have freed them
	case m.found.doubt.Before(m.held):
		f.Loss = m.lost
	default:
		f.Unknown = true
	}
	return f, nil
}

// Lose notes keys that a reply to another request has found lost. The others were known to be there until held. If all are
// lost, a release that was sent before the reply came may have freed them.
func (c *Claim) Lose(lost script.Loss, held time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.known()
	m.know(held)
	switch {
	case m.said: // the first call was told already
	case !lost.IsWhole() || c.state.phase == live:
		m.lost = lost
	case m.gone.IsZero():
		m.gone = time.Now()
	}
}

// Know notes that the keys are known to be there until held: a refresh was confirmed since the freeing began.
func (c *Claim) Know(held time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known().know(held)
}

// know is Know for callers that hold Claim.mu. What some call was told stays.
func (m *more) know(held time.Time) {
	if !m.said && held.After(m.held) {
		m.held = held
	}
}

// coming returns the number of the round that is under way, or comes next: how many have failed before it, and one. The
// caller holds c.mu.
func (c *Claim) coming() int {
	if c.more == nil {
		return 1
	}
	return c.more.rounds + 1
}

// free sends the first release. Unless that is the end, the freeing goes on in the background.
func (c *Claim) free(ctx, wait context.Context, call *transport.Call, t Terms) error {
	panicked, r := true, &round{last: call}
	defer func() {
		if panicked { // a hook, and the keys may still exist
			if r.last.Err = cmp.Or(r.last.Err, fault.ErrPanicked); len(r.lost) > 0 {
				r.last.First = r.lost[0].First // nobody sorts them out
			}
			_ = c.finish(r, t)
			c.on(hurry)
		}
	}()
	finished := c.send(wait, r)
	if panicked = false; !finished {
		c.background(r, t).begin(sending, r)
		return fault.Failed("release", c.Keys.Names, fault.Ended(ctx))
	}
	return c.finish(r, t)
}

// finish applies the result of the first release.
func (c *Claim) finish(r *round, t Terms) error {
	next, err := c.conclude(r.last, true)
	if err == nil && t.Why == Release {
		t.Why = Resent
	}
	if !next.isOver() {
		f := c.background(r, t)
		f.err = err
		f.begin(next, nil)
	}
	return err
}

// background returns the freeing that goes on after the first release, or with it.
func (c *Claim) background(first *round, t Terms) *freeing {
	return &freeing{
		Claim: c, ctx: first.last.Ctx, why: t.Why, about: c.Keys.Names, lasts: t.Lasts, ends: t.Until,
	}
}

// release returns the next release. The call has the values of ctx, and does not end with ctx. The caller holds c.mu.
func (c *Claim) release(ctx context.Context) *transport.Call {
	call, m, leaver := c.Ledger.Release(ctx, c.Token, c.Keys), c.more, ""
	told := m != nil && m.told
	if m != nil {
		leaver = m.line.Entry
	}
	switch {
	case told && c.Origin == Custom && !m.whole: // the other keys may be of an earlier hold, or of a later one
		script.Limit(call, c.Keys.Only(m.taken))
	case !told && c.FenceKey != "":
		script.AndFence(call, c.FenceKey, leaver)
	case leaver != "":
		script.AndLeave(call, leaver)
	}
	if m != nil {
		m.sent, m.knew = len(m.taken), m.took
	}
	if m != nil && !m.doubt.IsZero() { // what is in doubt of an earlier one is also in doubt of this one
		call.First, call.Doubtful = m.doubt, true
	}
	return call
}

// round is one release, with those before it whose connections had died.
type round struct {
	last *transport.Call
	lost []*transport.Call // may still be executed until they have finished
}

// send sends a release until ctx ends, and reports whether that has finished. If the connection of a call has died, send
// goes on with another one at once. It does not do so with a token that another claim may have had or may get: the release
// could free what that claim takes.
func (c *Claim) send(ctx context.Context, r *round) (finished bool) {
	switch {
	case isIdle(r.last):
		return true
	case c.Origin != Random:
		return c.Ledger.Link.Do(ctx, r.last)
	}
	_, finished = c.Ledger.Link.DoAnew(ctx, r.last, func(left, next *transport.Call) {
		r.lost, r.last = append(r.lost, left), next
		next.First = time.Time{} // each call says since when it is in doubt itself
		c.Ledger.outlast(left, c.Keys.Names)
	})
	return finished && c.sortOut(ctx, r)
}

// sortOut makes r.last the call that says what was freed. Unless the last call has freed all keys, one that was lost may
// have done so. sortOut waits up to freeWait for these. It returns false if ctx ends first.
func (c *Claim) sortOut(ctx context.Context, r *round) (finished bool) {
	last := r.last
	if len(r.lost) == 0 || last.Err == nil && script.Lacked(last) == 0 {
		return true
	}
	wait, cancel := context.WithTimeout(ctx, freeWait)
	defer cancel()
	says, doubtful, first := last, last.Doubtful, last.First
	for _, left := range slices.Backward(r.lost) {
		answered := left.Wait(wait)
		switch {
		case !answered && ctx.Err() != nil:
			return false
		case answered && left.Err == nil && script.Lacked(left) < len(c.Keys.Names):
			says = left
		case !answered || left.Doubtful:
			doubtful, first = true, left.First
		}
	}
	last.Copied, last.Doubtful, last.First = false, doubtful, first // what has become of the lost ones decides
	r.last = says
	return true
}

// isIdle reports whether a release has nothing to do. Then it is not sent: it counts as answered.
func isIdle(call *transport.Call) bool {
	if len(call.Keys)+len(call.Spare) > 0 {
		return false
	}
	call.Reply = int64(0)
	return true
}

// conclude applies the result of a release that has ended, and returns the phase that follows. Unless others may follow, the
// freeing ends with it.
//
// While asks are under way, or if one has taken keys since the release was sent, a release that finds nothing decides
// nothing: the lock's obtain may be one of them.
func (c *Claim) conclude(call *transport.Call, othersFollow bool) (next phase, err error) {
	var found finding
	how := answered
	if err = call.Err; err == nil {
		found.Loss, err = script.ReadLoss(c.Keys.Names, call.Reply)
	}
	if err != nil {
		if how = failed; call.Err == nil || transport.IsFinal(err) {
			how = refused
		}
		if names := c.Keys.Names; len(names) > 0 { // without names, only an event reports it
			err = fault.Failed("release", names, fault.WithHint(names, err))
		}
	}
	if call.Doubtful || call.Copied {
		found.doubt = call.First
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next = c.happens(event{kind: how})
	decides := !found.IsWhole() || next != waiting && next != sending // otherwise the next round does
	if !next.isOver() {
		c.announce() // before others know what was found
	}
	if how != answered {
		m := c.known()
		m.rounds, m.err, m.doubt = m.rounds+1, err, found.doubt
	} else if m := c.more; m != nil || next != freed || !found.isNothing() {
		m = c.known()
		m.taken, m.sent, m.doubt = m.taken[m.sent:], 0, time.Time{}
		if !decides {
			m.doubt = found.doubt // it stays in doubt until a round decides
		}
		if found.knew = m.knew; !m.told {
			m.told, m.found = decides, found
		}
	}
	if !next.isOver() && !othersFollow {
		next = c.giveUp(crowded)
	}
	return next, err
}

// giveUp ends the freeing for a reason other than an answer, and returns the phase that follows. The caller holds c.mu.
func (c *Claim) giveUp(why kind) phase {
	m, before := c.known(), c.state.phase
	next := c.happens(event{kind: why})
	switch {
	case m.told:
	case before == waiting: // what the last release has found decides after all
		m.told = true
	case next == waiting: // the keys have expired, and nobody relies on what the asks under way take
		m.told = true
		if m.found.Loss = (script.Loss{Keys: c.Keys.Names, Total: len(c.Keys.Names)}); !m.doubt.IsZero() {
			m.found.err = m.err // an unanswered release may have freed them before
		}
	}
	return next
}
