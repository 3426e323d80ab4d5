package claim

import (
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
	Again    bool // another Free had returned that before this one began
}

// round is one release, with its usual resends. It is there only if somebody waits for it.
type round struct {
	done     chan struct{} // closed when the round has ended; the fields below are set before
	found    Found
	err      error
	answered bool
}

// wait waits until the round has ended, or ctx. It reports whether the round has ended.
func (r *round) wait(ctx context.Context) bool {
	select {
	case <-r.done:
	case <-ctx.Done():
	}
	return fault.IsClosed(r.done)
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
	for {
		call, r, follows := c.enter(ctx)
		switch {
		case call != nil:
			if call.GiveUp = now.Add(freeWait); call.GiveUp.Before(t.Until) {
				call.GiveUp = t.Until
			}
			return c.free(ctx, wait, call, t)
		case r == nil:
			return c.tell(), nil
		case !r.wait(wait):
			return Found{}, fault.Failed("release", c.Keys.Names, fault.Ended(ctx))
		case r.answered:
			c.tell()
			return r.found, nil
		case follows:
			return Found{}, r.err
		}
	}
}

// enter begins the freeing, and returns its first release, or joins it. Then it returns the round that is under way or,
// while the claim rests, the one that follows, which it brings forward. It returns neither if a release was answered
// before.
func (c *Claim) enter(ctx context.Context) (call *transport.Call, r *round, follows bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch phase := c.state.phase; {
	case c.more != nil && c.more.told, phase == settling, phase == freed:
		return nil, nil, false
	case phase == live || phase == givenUp:
		if c.more != nil && c.more.begun != nil && phase == live {
			close(c.more.begun)
		}
		c.happens(event{kind: free})
		return c.release(ctx), nil, false
	}
	m := c.known()
	if m.round == nil {
		m.round = &round{done: make(chan struct{})}
	}
	if follows = c.state.phase == resting; follows {
		select {
		case m.hurry <- struct{}{}:
		default:
		}
	}
	return nil, m.round, follows
}

// tell returns what was found, and notes that a caller gets it.
func (c *Claim) tell() Found {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.more
	if m == nil || !m.told { // the first release was answered in time and has lost nothing
		return Found{Again: true}
	}
	before := m.returned
	m.returned = true
	return Found{Loss: m.found, Again: before}
}

// free sends the first release, and goes on in the background if that is not the end.
func (c *Claim) free(ctx, wait context.Context, call *transport.Call, t Terms) (Found, error) {
	sent, returned := call, false
	defer func() {
		if !returned { // a hook has panicked, and the keys may still exist
			if sent.Err == nil {
				sent.Err = fault.ErrPanicked
			}
			if _, act, err := c.conclude(sent, t.Until, true); act == retry { // as it is, unless the hook panicked after a reply
				c.goOn(call.Ctx, t, c.on(hurry), nil, err)
			}
		}
	}()
	last, answered := c.send(wait, call, func(copied *transport.Call) { sent = copied })
	returned = true
	if !answered {
		c.goOn(call.Ctx, t, nothing, last, nil)
		return Found{}, fault.Failed("release", c.Keys.Names, fault.Ended(ctx))
	}
	found, act, err := c.conclude(last, t.Until, true)
	if err == nil {
		c.tell()
	}
	if act != end {
		if err == nil && t.Why == Release {
			t.Why = Resent
		}
		c.goOn(call.Ctx, t, act, nil, err)
	}
	return found, err
}

// goOn lets a freeing go on in the background. err is the error of the release before, if that has ended.
func (c *Claim) goOn(ctx context.Context, t Terms, act action, underWay *transport.Call, err error) {
	f := &freeing{
		Claim: c, ctx: ctx, why: t.Why, about: c.Keys.Names, until: t.Until, lasts: t.Lasts, ends: t.Until, err: err,
	}
	f.begin(act, underWay)
}

// release returns the next release. The call has the values of ctx, and does not end with ctx. The caller holds c.mu.
func (c *Claim) release(ctx context.Context) *transport.Call {
	call := c.Ledger.Release(ctx, c.Token, c.Keys)
	m := c.more
	told := m != nil && m.told
	switch {
	case told && c.Origin == Custom && !m.whole: // the other keys may be of an earlier hold, or of a later one
		script.Limit(call, m.taken)
	case !told && c.FenceKey != "":
		script.AndFence(call, c.FenceKey)
	case m != nil && m.line != "":
		script.AndLeave(call, m.line)
	}
	if m != nil {
		m.sent = len(m.taken)
	}
	if m != nil && m.earlier != nil { // what is in doubt of that is also in doubt of this one
		call.First, call.Doubtful = m.earlier.First, m.earlier.Doubtful
	}
	return call
}

// send sends a release until ctx ends. It returns the call that says what was freed, and whether that has finished. If the
// connection of a call has died, send goes on with another one at once, and first calls anew with that. It does not do so
// with a token that another claim may have had or may get: the release could free what that claim takes.
func (c *Claim) send(
	ctx context.Context, call *transport.Call, anew func(*transport.Call),
) (last *transport.Call, answered bool) {
	if c.Origin != Random {
		return call, c.Ledger.Link.Do(ctx, call)
	}
	var lost []*transport.Call
	doubtful := call.Doubtful
	last, answered = c.Ledger.Link.DoAnew(ctx, call, func(left, next *transport.Call) {
		lost, next.Doubtful = append(lost, left), true
		anew(next)
		c.Ledger.outlast(left, c.Keys.Names)
	})
	if answered && len(lost) > 0 && last.Err == nil && c.deleted(last) < len(c.Keys.Names) {
		last = c.freedBy(ctx, last, lost, doubtful)
	}
	return last, answered
}

// deleted returns how many keys an answered release has deleted.
func (c *Claim) deleted(call *transport.Call) int {
	lost, _ := call.Reply.([]any)
	return len(c.Keys.Names) - len(lost)
}

// freedBy returns the one of several releases that has freed the keys. last has found them gone, and those that were
// lost may have freed them before. freedBy waits for these for a moment. If none of them is in doubt then, last is not
// either, unless it was sent more than once, or doubtful says that an earlier release is.
func (c *Claim) freedBy(ctx context.Context, last *transport.Call, lost []*transport.Call, doubtful bool) *transport.Call {
	wait, cancel := context.WithTimeout(ctx, freeWait)
	defer cancel()
	doubtful = doubtful || last.Resends > lost[len(lost)-1].Resends+1
	for _, call := range lost {
		switch {
		case !call.Wait(wait) || call.Err != nil:
			doubtful = true
		case c.deleted(call) > 0:
			return call
		}
	}
	last.Doubtful = doubtful
	return last
}

// conclude applies the result of a release that has ended, and returns what it has found and what to do. until is the end of
// the validity before the freeing: a release without an answer that was sent before it may have freed what this one misses.
// Unless others may follow, the freeing ends with it.
func (c *Claim) conclude(call *transport.Call, until time.Time, othersFollow bool) (found Found, act action, err error) {
	how := answered
	if err = call.Err; err == nil {
		found.Doubtful = call.Doubtful
		found.Loss, err = script.ReadLoss(c.Keys.Names, call.Reply)
		if found.IsWhole() && call.Doubtful && call.First.Before(until) {
			found.Loss = script.Loss{}
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
	act = c.happens(event{kind: how})
	switch m := c.more; {
	case how != answered:
		c.known().earlier = call
	case m != nil || act != end || !found.IsNone():
		m = c.known()
		m.taken, m.sent, m.earlier = m.taken[m.sent:], 0, nil
		if !m.told {
			m.told, m.found = true, found.Loss
		}
	}
	c.endRound(found, err, how == answered)
	if act != end && !othersFollow {
		act = c.giveUp(crowded, err)
	}
	return found, act, err
}

// giveUp ends the freeing for a reason other than an answer. The caller holds c.mu.
func (c *Claim) giveUp(why kind, err error) action {
	act := c.happens(event{kind: why})
	m := c.known()
	if act == nothing && !m.told { // the keys have expired, and nobody relies on what the asks under way take
		m.told, m.found = true, script.Loss{Keys: c.Keys.Names, Total: len(c.Keys.Names)}
	}
	if act == end {
		select {
		case <-m.news: // of no use any more
		default:
		}
	}
	c.endRound(Found{}, err, false)
	return act
}

// endRound tells those who wait for a round how it has ended. The caller holds c.mu.
func (c *Claim) endRound(found Found, err error, answered bool) {
	if m := c.more; m != nil && m.round != nil {
		r := m.round
		r.found, r.err, r.answered, m.round = found, err, answered, nil
		close(r.done)
	}
}
