package claim

import (
	"context"
	"time"

	"github.com/redislock/redislock/internal/transport"
)

const (
	// attachedLasts is for how long a freeing goes on at least if another handle may have made the keys last longer.
	attachedLasts = time.Minute

	// askPatience is how long a Free that has overtaken the lock's obtain waits for that, after it has found nothing.
	askPatience = 250 * time.Millisecond

	// lingerFor is how long after an ask has ended without an answer another release follows. The ask may still have been on
	// its way although its connection was given up.
	lingerFor = time.Second
)

// freeing is what goes on in the background to free a claim. It belongs to its goroutine.
type freeing struct {
	*Claim

	ctx   context.Context // never ends; has the values of the call that the freeing is for
	why   Why
	about []string      // the keys in the event
	lasts time.Duration // for how long the keys last; 0 if that is not known
	ends  time.Time     // the keys have expired by then
	first *transport.Call
	done  func() // called once the first release was answered, or there will be no answer; nil for none

	work    *Work
	leaves  bool // a waiter is about to leave or to step back, which needs no room
	roomy   bool // it has got room
	dropped bool // there was none
	closed  <-chan struct{}
	err     error // of the last release
}

// Drop frees, in the background, what was taken and is relied on by nobody, or may have been. about are the keys in the
// event.
func (c *Claim) Drop(ctx context.Context, t Terms, about []string) {
	c.drop(&freeing{Claim: c, ctx: ctx, why: t.Why, about: about, lasts: t.Lasts})
}

// StepBack is Drop for an obtain that goes on with another token. first is the first release. done is called when that was
// answered, or the freeing has ended.
func (c *Claim) StepBack(first *transport.Call, done func()) {
	c.Take(Rest{Taken: c.Keys.Names}) // or first does more than to release keys
	c.drop(&freeing{Claim: c, ctx: first.Ctx, why: Step, first: first, done: done})
}

func (c *Claim) drop(f *freeing) {
	if f.ctx.Done() != nil {
		f.ctx = context.WithoutCancel(f.ctx)
	}
	c.mu.Lock()
	joins := c.state.phase != live
	next := c.happens(event{kind: drop})
	if !joins {
		c.known().told = true // what is found matters to nobody
	}
	c.mu.Unlock()
	if joins || next.isOver() {
		f.tell()
		return
	}
	f.begin(next, nil)
}

// tell calls done.
func (f *freeing) tell() {
	if f.done != nil {
		f.done()
		f.done = nil
	}
}

// begin goes on in a goroutine: with what that phase wants or, if a round is under way, with what follows from that.
func (f *freeing) begin(next phase, underWay *round) {
	f.mu.Lock()
	f.leaves = next == sending && (f.known().line.Entry != "" || f.first != nil)
	f.awaitStrays()
	f.mu.Unlock()
	if f.lasts = max(f.lasts, f.Lasts); f.Origin == Attached {
		f.lasts = max(f.lasts, attachedLasts)
	}
	f.prolong(time.Now())
	f.closed = f.Ledger.Closed
	f.work = &Work{Token: f.Token, Keys: f.Keys.Names}
	if underWay != nil {
		f.work.Note(underWay.last)
	}
	f.Ledger.Begin(f.work)
	go f.run(next, underWay)
}

// prolong notes that keys may have been taken at that time.
func (f *freeing) prolong(taken time.Time) {
	if ends := taken.Add(f.lasts); ends.After(f.ends) {
		f.ends = ends
	}
}

// run frees the claim. Only this goroutine ends the freeing. So if a phase is over by its doing, it does not look again:
// a Free may have begun the next freeing.
func (f *freeing) run(next phase, underWay *round) {
	defer func() {
		f.tell()
		f.Ledger.End(f.work)
		if f.roomy {
			f.Ledger.Running.Add(-1)
		}
		if !f.dropped { // only now, when nobody waits for the freeing any more, because Report may call the library
			f.report(Event{Keys: f.about, Why: f.why, Err: f.err})
		}
	}()
	f.hasRoom()
	if underWay != nil {
		underWay.last.Wait(context.Background())
		f.sortOut(context.Background(), underWay)
		next = f.conclude(underWay.last)
	}
	for failures := 0; !next.isOver(); {
		switch {
		case !f.hasRoom():
			next = f.giveUp(crowded)
		case next == sending:
			if next = f.send(); f.err == nil {
				failures = 0
			}
		case next == resting:
			next = f.rest(failures)
			failures++
		case next == lingering:
			time.Sleep(lingerFor)
			f.prolong(time.Now())
			next, failures = f.on(due), 0
		default:
			next, failures = f.await(), 0
		}
	}
}

// hasRoom reports whether the freeing has room, or needs none. If there is none, it says so once.
func (f *freeing) hasRoom() bool {
	switch {
	case f.roomy, f.leaves, len(f.Keys.Names) == 0:
		return true
	case f.dropped:
		return false
	case f.Ledger.Running.Add(1) <= MaxFreeings:
		f.roomy = true
		return true
	}
	f.Ledger.Running.Add(-1)
	if next, _ := f.now(); next.isOver() {
		return true
	}
	f.dropped = true
	go f.report(Event{Keys: f.about, Why: f.why, Dropped: true}) // it may call Free, which waits for this goroutine
	return false
}

func (f *freeing) report(e Event) {
	if f.Ledger.Report != nil && f.why != Step {
		f.Ledger.Report(f.ctx, e)
	}
}

// send sends a release, and returns the phase that follows.
func (f *freeing) send() phase {
	call := f.first
	if call != nil {
		call.Persist() // a later release does not step back
	}
	if f.first = nil; call == nil {
		f.mu.Lock()
		call = f.release(f.ctx)
		f.mu.Unlock()
	}
	call.GiveUp = f.ends
	f.work.Note(call)
	if !isIdle(call) {
		f.Ledger.Link.Send(call)
	}
	f.leaves = false
	return f.conclude(call)
}

func (f *freeing) conclude(call *transport.Call) (next phase) {
	next, f.err = f.Claim.conclude(call, !f.dropped)
	if f.err == nil {
		f.tell()
	}
	return next
}

// giveUp ends the freeing for a reason other than an answer, and returns the phase that follows.
func (f *freeing) giveUp(why kind) phase {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Claim.giveUp(why)
}

// now returns the phase, and what is closed when something happens to the claim.
func (f *freeing) now() (phase, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.prolong(f.more.asked)
	return f.state.phase, f.more.changed
}

// rest pauses after so many failures, but not for longer than the keys last, and returns the phase that follows.
func (f *freeing) rest(failures int) phase {
	next, changed := f.now()
	pause := min(f.Ledger.Link.ResendWait(failures), time.Until(f.ends))
	if pause <= 0 {
		return f.giveUp(expired)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for next == resting { // until a Release joins
		select {
		case <-timer.C:
			return f.on(due)
		case <-changed:
			next, changed = f.now()
		case <-f.closed: // Close waits for the freeing, but not for long
			f.closed = nil
			return f.on(hurry)
		}
	}
	return next
}

// await waits until the asks have ended, and returns the phase that follows.
func (f *freeing) await() phase {
	timer := time.NewTimer(askPatience)
	defer timer.Stop()
	for {
		next, changed := f.now()
		if next != waiting {
			return next
		}
		select {
		case <-changed:
		case <-timer.C:
			f.decide()
		}
	}
}

// decide makes what the last release has found the finding of the freeing, although asks are under way.
func (f *freeing) decide() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state.phase == waiting { // otherwise the next round decides
		f.more.told = true
		f.more.change()
	}
}
