package guardrules_test

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

// record is the history of a schedule: the locks that the callers believe to have. judge checks it. Nothing is excepted: no
// event of a schedule may break a promise.
type record struct {
	began  time.Time
	maxTTL time.Duration

	mu       sync.Mutex // protects the fields below
	events   []history.Event
	last     int64 // the time of the last event
	claims   []*claim
	problems []string
	seen     counts
}

// counts says what has happened, so that a schedule in which nothing happens proves nothing.
type counts map[string]int

// What is counted.
const (
	grants    = "grants"
	queued    = "grants in line"
	attached  = "attached"
	losses    = "losses of memory"
	closures  = "closures"
	refusals  = "refused while closed"
	putBack   = "put back"
	survivors = "outlived a loss"
)

func (c counts) add(other counts) {
	for name, n := range other {
		c[name] += n
	}
}

// claim is a lock that a caller believes to have.
type claim struct {
	op    string
	lock  *redislock.Lock
	since time.Time
	until time.Time // as the history has it
	lost  time.Time // when a server last lost its memory while the lock was valid
	over  bool      // the caller has crashed
}

func newRecord(maxTTL time.Duration) *record {
	return &record{began: time.Now(), maxTTL: maxTTL, seen: counts{}}
}

func (r *record) problem(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.problems) < 3 {
		r.problems = append(r.problems, fmt.Sprint(time.Since(r.began), ": ", fmt.Sprintf(format, args...)))
	}
}

func (r *record) count(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[name]++
}

// at returns a time as the history has it.
func (r *record) at(t time.Time) int64 { return int64(t.Sub(r.began)) }

// nowLocked returns the time, and never the same twice, so that the events are in order although a fake clock stands still.
func (r *record) nowLocked() int64 {
	r.last = max(r.last+1, r.at(time.Now()))
	return r.last
}

// granted notes a lock that the function of that name has returned to a call that began then.
func (r *record) granted(name string, began time.Time, lock *redislock.Lock, opt *redislock.Options, need int) *claim {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[grants]++
	if opt.Queue {
		r.seen[queued]++
	}
	c := &claim{op: fmt.Sprint(lock.Token(), "/", r.seen[grants]), lock: lock, since: time.Now(), until: lock.Until()}
	r.events = append(r.events, history.Event{
		Kind: history.Grant, At: r.lookLocked(), Start: r.at(began), Until: r.at(c.until), Name: name, Op: c.op,
		Token: lock.Token(), Custom: opt.Token != "", Keys: lock.Keys(), FenceKey: opt.FenceKey, Fence: lock.FenceToken(),
		Need: int64(need), Holders: history.HoldersOf(lock.Keys(), opt.Shared, opt.Permits),
	})
	r.claims = append(r.claims, c)
	return c
}

// lookLocked notes for which locks Until has changed, and returns the time of that. It reads the time after it has read all
// Untils, and all changes have the same time. So if two locks are valid at the same time in the history, both were when the
// look began.
func (r *record) lookLocked() (now int64) {
	untils := map[*claim]time.Time{}
	for _, c := range r.claims {
		if !c.over {
			untils[c] = c.lock.Until()
		}
	}
	now = r.nowLocked()
	r.claims = slices.DeleteFunc(r.claims, func(c *claim) bool {
		if until := untils[c]; !until.Equal(c.until) {
			c.until = until
			r.events = append(r.events, history.Event{Kind: history.Claim, At: now, Op: c.op, Until: max(0, r.at(until))})
		}
		if !c.lost.IsZero() && c.until.After(c.lost.Add(r.maxTTL)) { // renewed since
			r.seen[survivors]++
			c.lost = time.Time{}
		}
		return c.over || now-r.at(c.until) > int64(15*time.Second)
	})
	return now
}

// crashed notes that a caller no longer believes in a lock.
func (r *record) crashed(c *claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.over = true
	r.lookLocked()
}

// forgotten notes that a server has lost its memory.
func (r *record) forgotten() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[losses]++
	now := time.Now()
	for _, c := range r.claims {
		if c.lock.Until().After(now) && c.lost.IsZero() {
			c.lost = now
		}
	}
}

// watch looks again and again until ctx ends, and calls also each time.
func (r *record) watch(over context.Context, also func()) {
	for over.Err() == nil {
		r.mu.Lock()
		r.lookLocked()
		r.mu.Unlock()
		also()
		time.Sleep(5 * time.Millisecond)
	}
}

// note notes an event that happens now.
func (r *record) note(e history.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.At = r.nowLocked()
	r.events = append(r.events, e)
}

// judge checks the history, and notes what is wrong with it.
func (r *record) judge() *check.Result {
	result := check.Run(r.events)
	for _, v := range result.Violations {
		r.problem("%v: %s", time.Duration(v.At), v.Text(r.events))
	}
	return result
}
