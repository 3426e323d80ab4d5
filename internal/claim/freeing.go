package claim

import (
	"context"
	"time"

	"github.com/redislock/redislock/internal/transport"
)

const (
	// AttachedLasts is for how long a freeing goes on if it is not known for how long its keys last.
	AttachedLasts = time.Minute

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
	until time.Time     // the end of the validity before
	lasts time.Duration // for how long the keys last; 0 if that is not known
	ends  time.Time     // the keys have expired by then
	first *transport.Call
	done  func() // called once the first release was answered, or there will be no answer; nil for none

	work    *Work
	leaves  bool // a waiter is about to leave, which needs no room
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
	act := c.happens(event{kind: drop})
	if !joins {
		c.known().told = true // what is found matters to nobody
	}
	c.mu.Unlock()
	if joins || act == end {
		f.tell()
		return
	}
	f.begin(act, nil)
}

// tell calls done.
func (f *freeing) tell() {
	if f.done != nil {
		f.done()
		f.done = nil
	}
}

// begin goes on in a goroutine: with act, or with what follows from a release that is under way.
func (f *freeing) begin(act action, underWay *transport.Call) {
	f.Claim.mu.Lock()
	f.leaves = f.known().line != "" && act == send
	f.Claim.mu.Unlock()
	if f.lasts = max(f.lasts, f.Lasts); f.lasts == 0 {
		f.lasts = AttachedLasts
	}
	f.prolong()
	f.closed = f.Ledger.Closed
	f.work = &Work{Token: f.Token, Keys: f.Keys.Names}
	f.work.Note(underWay)
	f.Ledger.Begin(f.work)
	go f.run(act, underWay)
}

// prolong notes that keys may have been taken until now.
func (f *freeing) prolong() {
	if ends := time.Now().Add(f.lasts); ends.After(f.ends) {
		f.ends = ends
	}
}

// run frees the claim.
func (f *freeing) run(act action, underWay *transport.Call) {
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
		underWay.Wait(context.Background())
		act = f.conclude(underWay)
	}
	for failures := 0; act != end; {
		switch {
		case !f.hasRoom():
			act = f.giveUp(crowded)
		case act == send:
			if act = f.send(); f.err == nil {
				failures = 0
			}
		case act == retry:
			act = f.rest(failures)
			failures++
		case act == linger:
			time.Sleep(lingerFor)
			f.prolong()
			act, failures = f.on(due), 0
		default:
			act, failures = f.await(), 0
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
	f.dropped = true
	go f.report(Event{Keys: f.about, Why: f.why, Dropped: true}) // it may call Free, which waits for this goroutine
	return false
}

func (f *freeing) report(e Event) {
	if f.Ledger.Report != nil && f.why != Step {
		f.Ledger.Report(f.ctx, e)
	}
}

// send sends a release, and returns what follows.
func (f *freeing) send() action {
	call := f.first
	if call != nil {
		call.Persist() // a later release does not step back
	}
	if f.first = nil; call == nil {
		f.Claim.mu.Lock()
		call = f.release(f.ctx)
		f.Claim.mu.Unlock()
	}
	call.GiveUp = f.ends
	f.work.Note(call)
	f.Ledger.Link.Send(call)
	f.leaves = false
	return f.conclude(call)
}

func (f *freeing) conclude(call *transport.Call) (act action) {
	_, act, f.err = f.Claim.conclude(call, f.until, !f.dropped)
	if f.err == nil {
		f.tell()
	}
	return act
}

// giveUp ends the freeing for a reason other than an answer.
func (f *freeing) giveUp(why kind) action {
	f.Claim.mu.Lock()
	defer f.Claim.mu.Unlock()
	return f.Claim.giveUp(why, f.err)
}

// rest pauses after so many failures, and returns what follows.
func (f *freeing) rest(failures int) action {
	pause := f.Ledger.Link.ResendWait(failures)
	f.Claim.mu.Lock()
	if ends := f.more.asked.Add(f.lasts); ends.After(f.ends) { // it may have taken keys
		f.ends = ends
	}
	f.Claim.mu.Unlock()
	if time.Now().Add(pause).After(f.ends) {
		return f.giveUp(expired)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return f.on(due)
	case <-f.more.hurry:
	case <-f.closed: // Close waits for the freeing, but not for long
		f.closed = nil
	}
	return f.on(hurry)
}

// await waits until the asks have ended, and returns what follows.
func (f *freeing) await() action {
	f.Claim.mu.Lock()
	strays := f.more.strays
	f.more.strays = nil
	f.Claim.mu.Unlock()
	for _, stray := range strays {
		f.awaitStray(stray)
	}
	act := <-f.more.news
	f.prolong()
	return act
}
