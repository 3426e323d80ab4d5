package redislock

import (
	"context"
	"errors"
	"slices"

	"github.com/redislock/redislock/internal/fault"
)

// poll collects what the places say about the lock when they are asked for one thing.
type poll struct {
	h      *several
	agreed int        // places that have all keys
	gone   int        // places that have lost some
	lost   [][]string // those keys, by place
	errs   []error
}

func (h *several) newPoll() *poll { return &poll{h: h, lost: make([][]string, len(h.at))} }

// note takes the answer of one place and reports whether the answers decide.
func (p *poll) note(i int, err error) (enough bool) {
	switch lost := p.h.lostBy(i, err); {
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
	places := p.h.places
	switch {
	case p.agreed >= places.need:
		return nil
	case p.gone > places.spare():
		return p.h.lossOf(p.lost, whole)
	case fault.Ended(ctx) != nil:
		return fault.Failed(operation, p.h.keys, fault.Ended(ctx))
	case len(p.errs) == 0: // too few holds were left to ask
		return p.h.lossOf(p.lost, whole)
	}
	return fault.Failed(operation, p.h.keys, fault.Joined(p.errs))
}

// lostBy returns the keys that a place has lost, as the result of a call says; nil for none.
func (h *several) lostBy(i int, err error) []string {
	var partial *LostError
	switch {
	case errors.As(err, &partial):
		return partial.Keys
	case errors.Is(err, ErrLockNotHeld), err == ErrNotObtained:
		return h.places.all[i].keys.Names
	}
	return nil
}

// lossOf returns the error for a lock that has lost these keys at its places: whole, if it has lost all of them. A key
// is lost if more places miss it than can be missing. If there is no such key, although too few places have all keys,
// every key counts as lost that any place misses.
func (h *several) lossOf(lost [][]string, whole error) error {
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
	if len(missing) == len(h.keys) || len(missing) == 0 {
		return whole
	}
	return &LostError{Keys: missing, total: len(h.keys), decides: whole}
}

// lostKeys returns the keys that an error reports as lost.
func lostKeys(keys []string, err error) []string {
	if partial, is := errors.AsType[*LostError](err); is {
		return partial.Keys
	}
	return keys
}
