package several_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redislock/redislock"
)

// placesClaims are the locks that the callers of a schedule believe to have, and the checks of them:
//   - No two locks that share a key are valid at the same time.
//   - A valid lock has the largest fencing token of all that were granted for its keys.
//   - As many places as it needs hold the keys of a valid lock, for as long as the lock says.
//
// What the guarantees except is left out: a lock that was deleted everywhere, and one that was granted just before
// servers forgot it.
type placesClaims struct {
	need  int
	holds func(lock *redislock.Lock, left time.Duration) bool // whether the places hold it for that long; nil if unknown
	began time.Time

	mu       sync.Mutex // protects the fields below
	claims   []*claim
	last     map[string]int64 // by key: the largest fencing token
	shocks   []shock
	problems []string
	grants   int
}

// claim is a lock that somebody believes to have.
type claim struct {
	lock    *redislock.Lock
	granted time.Time
	kept    bool
	excused bool // the guarantees do not cover it any more
}

func newPlacesClaims(need int) *placesClaims {
	return &placesClaims{need: need, last: map[string]int64{}, began: time.Now()}
}

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

// granted notes a lock, and checks all.
func (p *placesClaims) granted(lock *redislock.Lock) *claim {
	c := &claim{lock: lock, granted: time.Now()}
	p.mu.Lock()
	p.grants++
	p.claims = append(p.claims, c)
	c.excused = slices.ContainsFunc(p.shocks, func(s shock) bool { return !c.granted.Before(s.from) && c.granted.Before(s.to) })
	for _, key := range lock.Keys() {
		p.last[key] = max(p.last[key], lock.FenceToken())
	}
	p.mu.Unlock()
	p.check()
	return c
}

// keep notes whether a lock is kept.
func (p *placesClaims) keep(c *claim, kept bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.kept = kept
}

// forced notes that a lock was deleted everywhere.
func (p *placesClaims) forced(c *claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.excused = true
}

// shaken notes that some servers have forgotten what they had. A lock that was granted since then, up to a moment after it,
// may stand on a bare majority.
func (p *placesClaims) shaken(since time.Time, moment time.Duration) {
	p.mu.Lock()
	p.shocks = append(p.shocks, shock{since, time.Now().Add(moment)})
	for _, c := range p.claims {
		c.excused = c.excused || !c.granted.Before(since)
	}
	p.mu.Unlock()
}

// shock is a time in which servers have forgotten what they had.
type shock struct{ from, to time.Time }

// valid returns the locks that are valid now.
func (p *placesClaims) valid() []*claim {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.validLocked()
}

func (p *placesClaims) validLocked() []*claim {
	now := time.Now()
	var valid []*claim
	p.claims = slices.DeleteFunc(p.claims, func(c *claim) bool {
		until := c.lock.Until()
		if until.After(now) {
			valid = append(valid, c)
		}
		return now.Sub(until) > 15*time.Second && !c.kept
	})
	return valid
}

// keptNow returns the valid locks that are kept.
func (p *placesClaims) keptNow() []*claim { return p.stillKept(p.valid()) }

// stillKept returns those of the locks that are kept.
func (p *placesClaims) stillKept(claims []*claim) []*claim {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(claims, func(c *claim) bool { return !c.kept })
}

// check looks at the locks that are valid now. It compares with the time after it has looked at all: what is valid then
// was valid when it began, and so are two such locks at the same time.
func (p *placesClaims) check() {
	type view struct {
		*claim
		until time.Time
	}
	p.mu.Lock()
	var views []view
	for _, c := range p.validLocked() {
		if !c.excused {
			views = append(views, view{c, c.lock.Until()})
		}
	}
	now := time.Now()
	var problems []string
	holder := map[string]view{}
	for _, v := range views {
		left := v.until.Sub(now)
		if left <= 0 {
			continue
		}
		for _, key := range v.lock.Keys() {
			if other, taken := holder[key]; taken && other.lock.Token() != v.lock.Token() {
				problems = append(problems, fmt.Sprintf("exclusion: %q has two holders, for %v and %v more", key, other.until.Sub(now), left))
			}
			holder[key] = v
			if v.lock.FenceToken() < p.last[key] {
				problems = append(problems, fmt.Sprintf("fence: %q is held with fencing token %d after %d", key, v.lock.FenceToken(), p.last[key]))
			}
		}
		if p.holds != nil && !p.holds(v.lock, left) && time.Until(v.lock.Until()) > 0 {
			problems = append(problems, fmt.Sprintf("truth: %q, obtained %v ago, is not held for another %v", v.lock.Keys(), now.Sub(v.granted), left))
		}
	}
	p.mu.Unlock()
	for _, problem := range problems {
		p.problem("%s", problem)
	}
}

// watch checks again and again until ctx ends.
func (p *placesClaims) watch(over context.Context, pause time.Duration) {
	for over.Err() == nil {
		p.check()
		time.Sleep(pause)
	}
}
