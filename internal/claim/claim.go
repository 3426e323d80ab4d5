package claim

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// Claim is all that a token may have at one Redis. Set the exported fields before anything else, and do not change them
// afterwards. It is safe for concurrent use, and must not be copied once a method was called.
type Claim struct {
	Ledger   *Ledger
	Keys     script.Keys
	Token    string
	FenceKey string        // a release mints the fencing token of the next in line from it; "" for none
	Lasts    time.Duration // for how long what an ask takes can last; 0 if that is not known
	Origin   Origin

	state state
	mu    sync.Mutex // protects state and more; the code that holds it locks nothing else but Ledger.mu
	more  *more      // nil for most claims
}

// Origin says where the token of a claim is from.
type Origin int8

// The origins of a token.
const (
	Attached Origin = iota // from a caller, who has attached to keys that have it
	Custom                 // from a caller, who has obtained with it; the keys may be of an earlier hold
	Random                 // from the library: no other claim has it, had it or will have it
)

// more is what is known of a claim in which something is late, has failed, or is wanted by two at a time. Claim.mu protects
// it.
type more struct {
	line   Position          // which a release gives up
	strays []*transport.Call // asks whose end nobody else reports
	unsure bool              // an obtain with a Custom token has ended unanswered and may still arrive
	taken  []string          // with a Custom token, the keys that were taken since the last release that was answered
	sent   int               // how many of these the present release frees
	took   bool              // an ask has taken keys since the freeing began
	knew   bool              // one had before the present release was sent
	whole  bool              // a refresh without an answer may put back any key
	asked  time.Time         // until when an ask may have been executed that has ended

	lost script.Loss // what was known to be lost before the freeing
	gone time.Time   // when a reply has said during the freeing that all keys are lost; zero if none has
	held time.Time   // until when the others are known to have been there, by Lose, Know and the first call that was told

	said    bool          // some call was told
	told    bool          // what the freeing finds is known, or matters to nobody
	found   finding       // of the last release that was answered, until told
	rounds  int           // how many releases have ended without an answer
	err     error         // of the last one of these
	doubt   time.Time     // as in a finding, for the next release
	changed chan struct{} // closed, and another one made, when something happens to a claim that is being freed
	work    *Work         // see announce; nil if nobody but the caller knows of the freeing
}

// finding is what a release has found.
type finding struct {
	script.Loss

	doubt time.Time // when the first release was sent that has no answer, and may be executed before this one; zero for none
	knew  bool      // an ask had taken keys since the freeing began, before this one was sent
	err   error     // of another release, if the keys have expired since; nil otherwise
}

// isNothing reports whether the release has freed all keys, and no other one was sent.
func (f *finding) isNothing() bool { return f.IsNone() && f.doubt.IsZero() }

// Rest is what an obtain leaves behind: it may have taken more than it knows of.
type Rest struct {
	Strays   []*transport.Call // tries without an answer, which may still be executed
	Doubtful bool              // some other sending without an answer may have been executed, or may still be
	Taken    []string          // what late grants have taken
	Line     Position
}

// Position is a position in line, which strays may take again. The zero Position is none.
type Position struct {
	Entry string       // of the waiter
	Stays *atomic.Bool // set if the freeing is given up, because the waiter may still stand in line then
}

// MayTake reports whether the obtain may have taken more than it knows of.
func (r *Rest) MayTake() bool { return r.Doubtful || len(r.Strays) > 0 }

// IsEmpty reports whether there is nothing to free.
func (r *Rest) IsEmpty() bool { return !r.MayTake() && len(r.Taken) == 0 }

// known returns what else is known of the claim. The caller holds c.mu.
func (c *Claim) known() *more {
	if c.more == nil {
		c.more = &more{changed: make(chan struct{})}
	}
	return c.more
}

// happens applies an event, and returns the phase that follows. The caller holds c.mu.
func (c *Claim) happens(e event) phase {
	c.state = next(c.state, e)
	if m := c.more; m != nil && c.state.phase != live {
		m.change()
		if m.line.Stays != nil && (c.state.phase == givenUp || e.kind == expired) {
			m.line.Stays.Store(true)
		}
		if m.work != nil && c.state.phase.isOver() {
			c.Ledger.End(m.work)
			m.work = nil
		}
	}
	return c.state.phase
}

// announce makes what the claim still sends known to the Ledger until the freeing is over. The caller holds c.mu.
func (c *Claim) announce() {
	if m := c.known(); m.work == nil {
		m.work = &Work{Token: c.Token, Keys: c.Keys.Names}
		c.Ledger.Begin(m.work)
	}
}

// change tells all who wait for a change. The caller holds Claim.mu.
func (m *more) change() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// on is happens for a caller who does not hold c.mu.
func (c *Claim) on(k kind) phase {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.happens(event{kind: k})
}

// Take notes what an obtain has left behind. If it is called for a claim that may be being freed, an Ask must be under way.
func (c *Claim) Take(r Rest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.happens(event{kind: learned})
	m := c.known()
	for range r.Strays {
		c.happens(event{kind: learned})
	}
	if m.strays = append(m.strays, r.Strays...); c.state.phase != live {
		c.awaitStrays()
	}
	if r.Line.Entry != "" {
		m.line = r.Line
		c.happens(event{kind: learned})
		c.happens(event{kind: ended, took: true})
	}
	c.ended(r.Taken, len(r.Taken) > 0, r.Doubtful)
}

// Ask notes that a request is about to be sent that may take keys. If it returns false, do not send the request: nobody
// would free what it takes. Otherwise, call Ended when the request has ended.
func (c *Claim) Ask() bool { return c.on(ask) == live }

// Ended notes that a request has ended. taken are keys that it has taken and that nobody relies on. doubtful says that a
// sending without an answer may have been executed, or may still be.
//
// With a Custom token, what such a sending of an obtain may take is left alone: it may be of another hold by then.
func (c *Claim) Ended(taken []string, doubtful bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended(taken, len(taken) > 0, doubtful)
}

// RefreshEnded is Ended for a refresh, which can put back only keys of this claim. So these are freed with any token.
func (c *Claim) RefreshEnded(back []string, doubtful bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if doubtful {
		c.known().whole = true
	}
	c.apply(back, len(back) > 0, doubtful)
}

// ended applies the end of an ask of an obtain. keys says that some of what it has taken is a key. The caller holds c.mu.
func (c *Claim) ended(taken []string, keys, doubtful bool) {
	if doubtful && c.Origin == Custom {
		c.known().unsure = true
		doubtful = false
	}
	c.apply(taken, keys, doubtful)
}

// apply applies the end of any ask. The caller holds c.mu.
func (c *Claim) apply(taken []string, keys, doubtful bool) {
	if c.Origin == Custom && len(taken) > 0 {
		c.known().taken = append(c.known().taken, taken...)
	}
	if keys && c.state.phase != live {
		c.known().took = true
	}
	if at := time.Now(); doubtful {
		c.known().asked = at.Add(lingerFor)
	} else if c.state.phase != live && at.After(c.known().asked) {
		c.more.asked = at
	}
	if c.happens(event{kind: ended, took: len(taken) > 0, doubt: doubtful}) == lingering { // they have taken nothing
		c.more.told = true
	}
}

// awaitStrays notes the ends of the asks that nobody else reports. The caller holds c.mu, and the claim is being freed.
func (c *Claim) awaitStrays() {
	if strays := c.more.strays; len(strays) > 0 {
		c.more.strays = nil
		go func() { // ends with the calls
			for _, stray := range strays {
				c.awaitStray(stray)
			}
		}()
	}
}

func (c *Claim) awaitStray(call *transport.Call) {
	<-call.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.strayEnded(call)
}

// noteStrays notes the ends of the strays that have ended by now. The caller holds c.mu, and is about to send a release that
// frees what they have taken.
func (c *Claim) noteStrays() {
	if c.more == nil {
		return
	}
	c.more.strays = slices.DeleteFunc(c.more.strays, func(stray *transport.Call) bool {
		ended := fault.IsClosed(stray.Done())
		if ended {
			c.strayEnded(stray)
		}
		return ended
	})
}

// strayEnded notes the end of an ask that nobody else reports. The caller holds c.mu.
func (c *Claim) strayEnded(call *transport.Call) {
	g, err := script.Grant{}, call.Err
	if err == nil {
		g, err = script.ReadGrant(c.Keys.Names, call.Reply)
	}
	switch {
	case call.Err != nil:
		c.ended(nil, false, call.Doubtful)
	case c.more.line.Entry != "": // also if it was refused, it has perhaps put the waiter into the lines again
		c.ended([]string{c.more.line.Entry}, g.Granted, call.Doubtful)
	default:
		c.ended(g.Taken, len(g.Taken) > 0, call.Doubtful || err != nil)
	}
}

// IsDoubtful reports whether some ask without an answer may still take keys.
func (c *Claim) IsDoubtful() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.doubtful || c.state.underWay > 0 || c.more != nil && c.more.unsure
}

// Begun returns what is closed when the claim is being freed.
func (c *Claim) Begun() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if begun := c.known().changed; c.state.phase == live {
		return begun
	}
	begun := make(chan struct{})
	close(begun)
	return begun
}
