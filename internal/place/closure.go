package place

import (
	"context"
	"fmt"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/script"
)

// GuardClosed says that a guard was found closed. Its fields are those of GuardClosed in the root.
type GuardClosed struct {
	Server string
	For    time.Duration
}

// IsGuarded reports whether the locks of the place have a guard. Then a lock that has lapsed never comes back.
func (p *Place) IsGuarded() bool { return p.set.Scripts.Guard.IsSet() }

// MaxTTL returns the longest ttl that a guard allows; 0 without one.
func (p *Place) MaxTTL() time.Duration { return p.set.Scripts.Guard.MaxTTL }

// closing is a closure of a guard that was reported.
type closing struct {
	term string
	end  time.Time
}

// noteClosure reports a guard that was found closed: once for each term of the server, and again if the server forgets again
// in the same term, as after a FLUSHALL, when the guard has been open meanwhile. It reports in another goroutine, because
// the caller may hold a mutex.
func (p *Place) noteClosure(ctx context.Context, c script.Closure) {
	if !c.IsOver() && p.set.GuardClosed != nil {
		p.reportClosure(ctx, c.For, c.Term)
	}
}

func (p *Place) reportClosure(ctx context.Context, closed time.Duration, term string) {
	now := time.Now()
	next := &closing{term: term, end: now.Add(closed)}
	if before := p.closing.Load(); before != nil && before.term == term && now.Before(before.end) {
		return
	} else if p.closing.CompareAndSwap(before, next) { // otherwise another answer has just reported it
		go p.set.GuardClosed(context.WithoutCancel(ctx), GuardClosed{Server: p.Address(), For: closed})
	}
}

// notExecuted returns the error of a refresh that a guard has not executed.
func notExecuted(again time.Duration) error {
	return fmt.Errorf("the guard has closed, because Redis may have forgotten locks; it renews none for another %v", again)
}

// attachClosed returns the error of an Attach that a guard has refused.
func attachClosed(keys []string, c script.Closure) error {
	return fault.Failed("attach", keys, fmt.Errorf("%w: the guard is closed for another %v, because Redis may have forgotten "+
		"locks", fault.ErrNotObtained, c.For))
}
