package claim

import (
	"cmp"
	"context"
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
	Lasts time.Duration // for how long the keys last at most; 0 if that is not known
}

// Found is what the first answered release of a freeing has found.
type Found struct {
	script.Loss

	Doubtful bool // another release may still be executed
	Unseen   bool // no release that was answered has found a key, so only one that was not can have freed them
	Open     bool // something may have taken keys since, and nothing was known to have taken any before
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
			return c.tell(), nil
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

// tell returns what was found.
func (c *Claim) tell() (found Found) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.more; m != nil { // otherwise the first release was answered in time and has lost nothing
		found = m.found
	}
	return found
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
	panicked := true
	defer func() {
		if panicked { // a hook, and the keys may still exist
			call.Err = cmp.Or(call.Err, fault.ErrPanicked)
			_ = c.finish(call, t)
			c.on(hurry)
		}
	}()
	ended := c.send(wait, &call)
	if panicked = false; !ended {
		c.background(call, t).begin(sending, call)
		return fault.Failed("release", c.Keys.Names, fault.Ended(ctx))
	}
	return c.finish(call, t)
}

// finish applies the result of the first release.
func (c *Claim) finish(call *transport.Call, t Terms) error {
	next, err := c.conclude(call, t.Until, true)
	if err == nil && t.Why == Release {
		t.Why = Resent
	}
	if !next.isOver() {
		f := c.background(call, t)
		f.err = err
		f.begin(next, nil)
	}
	return err
}

// background returns the freeing that goes on after the first release, or with it.
func (c *Claim) background(first *transport.Call, t Terms) *freeing {
	return &freeing{
		Claim: c, ctx: first.Ctx, why: t.Why, about: c.Keys.Names, until: t.Until, lasts: t.Lasts, ends: t.Until,
	}
}

// release returns the next release. The call has the values of ctx, and does not end with ctx. The caller holds c.mu.
func (c *Claim) release(ctx context.Context) *transport.Call {
	call, m, leaver := c.Ledger.Release(ctx, c.Token, c.Keys), c.more, ""
	told := m != nil && m.told
	if m != nil {
		leaver = m.line
	}
	switch {
	case told && c.Origin == Custom && !m.whole: // the other keys may be of an earlier hold, or of a later one
		script.Limit(call, m.taken)
	case !told && c.FenceKey != "":
		script.AndFence(call, c.FenceKey, leaver)
	case leaver != "":
		script.AndLeave(call, leaver)
	}
	if m != nil {
		m.sent, m.knew = len(m.taken), m.took
	}
	if m != nil && m.earlier != nil { // what is in doubt of that is also in doubt of this one
		call.First, call.Doubtful = m.earlier.First, isDoubtful(m.earlier)
	}
	return call
}

// send sends a release until ctx ends, and reports whether that has finished. If the connection of a call has died, send
// goes on with another one at once. It does not do so with a token that another claim may have had or may get: the release
// could free what that claim takes. *call becomes the last call or, if that has finished, the one that says what was freed.
func (c *Claim) send(ctx context.Context, call **transport.Call) (finished bool) {
	switch {
	case isIdle(*call):
		return true
	case c.Origin != Random:
		return c.Ledger.Link.Do(ctx, *call)
	}
	var lost []*transport.Call
	_, finished = c.Ledger.Link.DoAnew(ctx, *call, func(left, next *transport.Call) {
		lost = append(lost, left)
		*call = next
		c.Ledger.outlast(left, c.Keys.Names)
	})
	if last := *call; finished && len(lost) > 0 && last.Err == nil && script.Lacked(last) > 0 { // a lost one may have freed it
		wait, cancel := context.WithTimeout(ctx, freeWait)
		defer cancel()
		last.Copied = false // what has become of the lost ones decides
		for _, left := range lost {
			switch {
			case !left.Wait(wait) || left.Err != nil:
				last.Doubtful = true
			case script.Lacked(left) < len(c.Keys.Names):
				*call = left
			default:
				last.Doubtful = last.Doubtful || left.Doubtful
			}
		}
	}
	return finished
}

// isDoubtful reports whether a sending for the purpose of a call may have been executed, or may still be, apart from the one
// that was answered.
func isDoubtful(call *transport.Call) bool { return call.Doubtful || call.Copied }

// isIdle reports whether a release has nothing to do. Then it is not sent: it counts as answered.
func isIdle(call *transport.Call) bool {
	if len(call.Keys)+len(call.Spare) > 0 {
		return false
	}
	call.Reply = int64(0)
	return true
}

// conclude applies the result of a release that has ended, and returns the phase that follows. until is the end of the
// validity before the freeing: a release without an answer that was sent before it may have freed what this one misses.
// Unless others may follow, the freeing ends with it.
//
// While asks are under way, or if one has taken keys since the release was sent, a release that finds nothing decides
// nothing: the lock's obtain may be one of them.
func (c *Claim) conclude(call *transport.Call, until time.Time, othersFollow bool) (next phase, err error) {
	var loss script.Loss
	nothing, how := false, answered
	if err = call.Err; err == nil {
		loss, err = script.ReadLoss(c.Keys.Names, call.Reply)
		nothing = loss.IsWhole()
		if nothing && isDoubtful(call) && call.First.Before(until) {
			loss = script.Loss{}
		}
	}
	if err != nil {
		if how = failed; call.Err == nil || transport.IsFinal(err) {
			how = refused
		}
		if names := c.Keys.Names; len(names) > 0 { // without names, only an event reports it
			err = fault.Failed("release", names, fault.WithHint(names, err))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next = c.happens(event{kind: how})
	decides := !nothing || next != waiting && next != sending // otherwise the next round does
	if !next.isOver() {
		c.announce() // before others know what was found
	}
	doubtful := isDoubtful(call)
	if how != answered {
		m := c.known()
		m.rounds, m.err, m.earlier = m.rounds+1, err, call
	} else if m := c.more; m != nil || next != freed || doubtful || !loss.IsNone() {
		m = c.known()
		if m.taken, m.sent, m.earlier = m.taken[m.sent:], 0, nil; !decides && doubtful {
			m.earlier = call // what is in doubt stays so until a round decides
		}
		if !m.told {
			m.told, m.found = decides, Found{loss, doubtful, nothing && loss.IsNone(), next != freed && !m.knew}
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
		m.told, m.found.Loss = true, script.Loss{Keys: c.Keys.Names, Total: len(c.Keys.Names)}
	}
	return next
}
