package several_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/internal/testing/history/check"
)

// placesClaims writes the history of a schedule: the locks that the callers believe to have, what the servers hold, and what
// the guarantees except. judge checks the history.
type placesClaims struct {
	need  int
	held  func() []history.Held // what the servers hold; nil if the schedule makes them lose keys of valid locks
	began time.Time

	mu       sync.Mutex // protects the fields below
	events   []history.Event
	last     int64 // the time of the last event
	claims   []*claim
	problems []string
	grants   int
}

// claim is a lock that a caller believes to have.
type claim struct {
	lock   *redislock.Lock
	until  time.Time // as the history has it
	shared bool      // others may hold some of the keys as well
	kept   bool
}

func newPlacesClaims(need int) *placesClaims { return &placesClaims{need: need, began: time.Now()} }

func (p *placesClaims) problem(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.problems) < 3 {
		p.problems = append(p.problems, fmt.Sprint(time.Since(p.began), ": ", fmt.Sprintf(format, args...)))
	}
}

// countGrants returns how many locks were granted.
func (p *placesClaims) countGrants() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.grants
}

// at returns a time as the history has it.
func (p *placesClaims) at(t time.Time) int64 { return int64(t.Sub(p.began)) }

// nowLocked returns the time, and never the same twice, so that the events are in order although a fake clock stands still.
func (p *placesClaims) nowLocked() int64 {
	p.last = max(p.last+1, p.at(time.Now()))
	return p.last
}

// granted notes a lock that was granted to a call that began then.
func (p *placesClaims) granted(began time.Time, lock *redislock.Lock, opt *redislock.Options) *claim {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &claim{lock: lock, until: lock.Until(), shared: len(opt.Shared)+len(opt.Permits) > 0}
	p.grants++
	p.events = append(p.events, history.Event{
		Kind: history.Grant, At: p.lookLocked(), Start: p.at(began), Until: p.at(c.until), Name: "Obtain",
		Op: lock.Token(), Token: lock.Token(), Keys: lock.Keys(), FenceKey: "fence", Fence: lock.FenceToken(),
		Need: int64(p.need), Holders: history.HoldersOf(lock.Keys(), opt.Shared, opt.Permits),
	})
	p.claims = append(p.claims, c)
	p.sampleLocked()
	return c
}

// lookLocked notes for which locks Until has changed, and returns the time of that. It reads the time after it has read all
// Untils, and all changes have the same time. So if two locks are valid at the same time in the history, both were when the
// look began.
func (p *placesClaims) lookLocked() (now int64) {
	untils := map[*claim]time.Time{}
	for _, c := range p.claims {
		untils[c] = c.lock.Until()
	}
	now = p.nowLocked()
	p.claims = slices.DeleteFunc(p.claims, func(c *claim) bool {
		if until := untils[c]; !until.Equal(c.until) {
			c.until = until
			p.events = append(p.events, history.Event{Kind: history.Claim, At: now, Op: c.lock.Token(), Until: max(0, p.at(until))})
		}
		return now-p.at(c.until) > int64(15*time.Second) && !c.kept
	})
	return now
}

// sampleLocked notes what the servers hold. It looks again before it notes that: a lock whose Until has changed meanwhile is
// not compared with the sample.
func (p *placesClaims) sampleLocked() {
	if p.held == nil {
		return
	}
	sample := history.Event{Kind: history.Sample, Start: p.nowLocked(), Held: p.held(), Need: int64(p.need), Exact: true}
	p.lookLocked()
	sample.At = p.nowLocked()
	p.events = append(p.events, sample)
}

// watch looks again and again until ctx ends.
func (p *placesClaims) watch(over context.Context, pause time.Duration) {
	for over.Err() == nil {
		p.mu.Lock()
		p.lookLocked()
		p.sampleLocked()
		p.mu.Unlock()
		time.Sleep(pause)
	}
}

// keep notes whether a lock is kept.
func (p *placesClaims) keep(c *claim, kept bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.kept = kept
}

// note notes an event that happens now.
func (p *placesClaims) note(e history.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.At = p.nowLocked()
	p.events = append(p.events, e)
}

// deleted notes that an operator deletes the keys of a lock. Those who share them lose them as well.
func (p *placesClaims) deleted(c *claim) {
	e := history.Event{Kind: history.Fault, Name: "delete", Op: c.lock.Token(), End: p.at(time.Now())}
	if c.shared {
		e.Keys = c.lock.Keys()
	}
	p.note(e)
}

// shaken notes that some servers have lost keys since then. What was granted since then, up to a moment after now, may stand
// on a bare majority.
func (p *placesClaims) shaken(since time.Time, moment time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, history.Event{
		Kind: history.Fault, Name: "forget", At: p.at(since), End: p.at(time.Now().Add(moment)), Fresh: true,
	})
}

// valid returns the locks that are valid now.
func (p *placesClaims) valid() []*claim {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	return slices.DeleteFunc(slices.Clone(p.claims), func(c *claim) bool { return !c.lock.Until().After(now) })
}

// keptNow returns the valid locks that are kept.
func (p *placesClaims) keptNow() []*claim { return p.stillKept(p.valid()) }

// stillKept returns those of the locks that are kept.
func (p *placesClaims) stillKept(claims []*claim) []*claim {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(claims, func(c *claim) bool { return !c.kept })
}

// judge checks the history, and notes what is wrong with it.
func (p *placesClaims) judge() *check.Result {
	result := check.Run(p.events)
	for _, v := range result.Violations {
		p.problem("%v: %s", time.Duration(v.At), v.Text(p.events))
	}
	return result
}
