package rules

import (
	"slices"
	"time"
)

// A rule is a rule of doc.go, or a part of one. Rules can be switched off, to show what each is for.
type rule int

const (
	ownToken       rule = 1 << iota // 1
	fromSending                     // 2
	needth                          // 2b
	sameCall                        // 3
	commonRounds                    // 3b
	oneEnd                          // 3c
	foundLost                       // 4
	lowers                          // 5
	abandoned                       // 6a
	refreshEnds                     // 6b
	lapseEnds                       // 6c
	limits                          // 7
	lapseForgets                    // 8a
	ofThisHold                      // 8b
	mendConfirmed                   // 9
	mendSince                       // 9b
	keepsWhileHeld                  // 10
	freesLate                       // 10b
)

// ruleNames has the names of the rules, in the same order.
const ruleNames = `ownToken fromSending needth sameCall commonRounds oneEnd foundLost lowers abandoned refreshEnds lapseEnds
	limits lapseForgets ofThisHold mendConfirmed mendSince keepsWhileHeld freesLate`

// A state is what a lock knows of one place; doc.go draws the transitions.
type state int

const (
	acquiring state = iota
	held
	missing
	freed
)

// A hold is what a lock has at one place.
type hold struct {
	state
	change int           // how often the state has changed
	since  time.Duration // if the state is missing: when this became known; -1 if the key was never there
	until  time.Duration // the end of the last call that the place has confirmed; 0 for none

	takes     int             // requests that acquire, and that are under way or were never answered
	refreshes []time.Duration // the ttl of each Refresh that is under way or was never answered
}

func (h *hold) become(s state) {
	h.state = s
	h.change++
}

// certain returns for how long a request for ttl that is sent now is certain to hold, because a Refresh may be executed
// after it (7). The request's own Refresh may be among these.
func (h *hold) certain(ttl time.Duration) time.Duration {
	for _, other := range h.refreshes {
		ttl = min(ttl, other)
	}
	return ttl
}

func (h *hold) answered(refresh time.Duration) {
	i := slices.Index(h.refreshes, refresh)
	h.refreshes = slices.Delete(h.refreshes, i, i+1)
}

// valid returns until when a confirmation makes the lock valid.
func valid(sent, ttl time.Duration) time.Duration { return sent + ttl - ttl/100 - time.Millisecond }
