package several

import (
	"context"
	"slices"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/script"
)

// poll collects what the places say about the lock when they are asked for one thing.
type poll struct {
	h      *Lock
	agreed int        // places that have all keys
	gone   int        // places that have lost some
	lost   [][]string // those keys, by place
	errs   []error
	loss   script.Loss // of the whole lock, if err has found one
}

func (h *Lock) newPoll() *poll { return &poll{h: h, lost: make([][]string, len(h.at))} }

// note takes the answer of one place, with the keys that it has lost, nil for none. It reports whether the answers decide.
func (p *poll) note(i int, lost []string, err error) (enough bool) {
	switch {
	case err == nil:
		p.agreed++
	case err == errNoHold: // it says nothing about the lock
	case lost != nil:
		p.noteLost(i, lost)
	case p.h.places.quorum:
		p.errs = append(p.errs, p.h.places.all[i].named(err))
	default:
		p.errs = append(p.errs, err)
	}
	return p.isDecided()
}

// noteLost notes that a place has lost these keys.
func (p *poll) noteLost(i int, lost []string) {
	p.gone++
	p.lost[i] = lost
}

// isDecided reports whether the answers decide.
func (p *poll) isDecided() bool {
	if !p.h.places.quorum { // each has other keys, and an error names all that are lost
		return p.agreed+p.gone+len(p.errs) == len(p.h.at)
	}
	return p.agreed >= p.h.places.need || p.gone > p.h.places.spare()
}

// err returns the result for the whole lock. whole is the error if all keys are lost.
func (p *poll) err(ctx context.Context, operation string, whole error) error {
	places, over := p.h.places, error(nil)
	switch {
	case p.agreed >= places.need:
		return nil
	case p.gone > places.spare():
	case fault.Ended(ctx) != nil:
		over = fault.Ended(ctx)
	case len(p.errs) > 0: // otherwise too few holds were left to ask
		over = fault.Joined(p.errs)
	}
	if over != nil {
		return fault.Failed(operation, p.h.keys, over)
	}
	p.loss = p.h.missing(p.lost)
	return p.h.lossError(p.loss, whole)
}

// missing returns what a lock has lost that has lost these keys at its places. A key is lost if more places miss it than
// can be missing. If there is no such key, although too few places have all keys, every key counts as lost that any place
// misses.
func (h *Lock) missing(lost [][]string) script.Loss {
	count := map[string]int{}
	for _, keys := range lost {
		for _, key := range keys {
			count[key]++
		}
	}
	spare := h.places.spare()
	missing := slices.DeleteFunc(slices.Clone(h.keys), func(key string) bool { return count[key] <= spare })
	if len(missing) == 0 {
		missing = slices.DeleteFunc(slices.Clone(h.keys), func(key string) bool { return count[key] == 0 })
	}
	if len(missing) == 0 {
		missing = h.keys
	}
	return script.Loss{Keys: missing, Total: len(h.keys)}
}

// lossError returns the error for a loss: whole, if all keys are lost.
func (h *Lock) lossError(l script.Loss, whole error) error {
	return h.places.all[0].LossError(l, whole)
}
