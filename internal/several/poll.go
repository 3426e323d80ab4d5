package several

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/majority"
	"github.com/redislock/redislock/internal/script"
)

// poll collects what the places of a lock say when they are asked for one thing.
type poll struct {
	lock   *Lock
	agreed int             // places that have all keys
	left   []time.Duration // the remaining ttls there, if that was the question
	gone   int             // places that have lost some keys
	lost   [][]string      // those keys, by place
	errs   []error
	loss   script.Loss // of the whole lock, if err has found one
}

// answer is what one place has said.
type answer struct {
	majority.Answer // to a request of package majority

	err   error         // what has failed, or that keys are lost
	lost  []string      // the keys that the place has lost, or has not granted; nil for none
	taken bool          // another has some of them
	left  time.Duration // the remaining ttl, if that was the question
	back  []string      // the keys that a guard has put back
	has   bool          // an obtain was granted that does not count: see part.lags
}

// errNoHold is the error of a place that has no keys of the lock, and that a call therefore does not ask.
var errNoHold = errors.New("no hold")

func (l *Lock) newPoll() *poll { return &poll{lock: l, lost: make([][]string, len(l.at))} }

// note takes the answer of one place. It reports whether the answers decide.
func (p *poll) note(i int, a answer) (enough bool) {
	switch {
	case a.err == nil:
		p.agreed++
		p.left = append(p.left, a.left)
	case a.err == errNoHold: // it says nothing about the lock
	case a.lost != nil:
		p.noteLost(i, a.lost)
	case p.lock.places.quorum:
		p.errs = append(p.errs, p.lock.places.all[i].named(a.err))
	default:
		p.errs = append(p.errs, a.err)
	}
	return p.isDecided()
}

// noteLost notes which keys a place has lost; nil for none.
func (p *poll) noteLost(i int, lost []string) {
	if lost != nil {
		p.gone++
		p.lost[i] = lost
	}
}

// isDecided reports whether the answers decide.
func (p *poll) isDecided() bool {
	if !p.lock.places.quorum { // each place has other keys, and an error names all that are lost
		return p.agreed+p.gone+len(p.errs) == len(p.lock.at)
	}
	return p.agreed >= p.lock.places.need || p.isLost()
}

// isLost reports whether too many places have lost keys.
func (p *poll) isLost() bool { return p.gone > p.lock.places.spare() }

// err returns the result for the whole lock. whole is the error if all keys are lost.
func (p *poll) err(ctx context.Context, operation string, whole error) error {
	var over error
	switch {
	case p.agreed >= p.lock.places.need:
		return nil
	case p.isLost():
	case fault.Ended(ctx) != nil:
		over = fault.Ended(ctx)
	case len(p.errs) > 0: // otherwise too few holds were left to ask
		over = fault.Joined(p.errs)
	}
	if over != nil {
		return fault.Failed(operation, p.lock.keys, over)
	}
	return p.lossError(whole)
}

// lossError notes what the whole lock has lost, and returns the error for that: whole, if all keys are lost. A key is lost
// if more places miss it than can be missing. If there is no such key, although too few places have all keys, every key
// counts as lost that any place misses.
func (p *poll) lossError(whole error) error {
	count := map[string]int{}
	for _, keys := range p.lost {
		for _, key := range keys {
			count[key]++
		}
	}
	missed := func(more int) []string {
		return slices.DeleteFunc(slices.Clone(p.lock.keys), func(key string) bool { return count[key] <= more })
	}
	missing := missed(p.lock.places.spare())
	if len(missing) == 0 {
		missing = missed(0)
	}
	if len(missing) == 0 {
		missing = p.lock.keys
	}
	p.loss = script.Loss{Keys: missing, Total: len(p.lock.keys)}
	return p.lock.Home().LossError(p.loss, whole)
}
