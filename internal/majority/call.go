package majority

import (
	"slices"
	"time"
)

// Kind is what a call is for.
type Kind int

// The kinds of calls.
const (
	Obtain Kind = iota // one round
	Attach
	Refresh
	Renewal // one round
)

// Call is one question to all places.
type Call struct {
	Kind     Kind
	Began    time.Time
	TTL      time.Duration // 0 for an Attach
	Metadata string        // for its owner

	number int       // how many calls had begun, with this one
	parts  []part    // by place
	until  time.Time // the need-th largest end of these when a majority had confirmed the call; zero before
	over   bool      // it gains nothing any more
	failed bool      // Outcome.Failed was reported
	sent   bool      // some request may have been sent
}

// part is what a call has at one place.
type part struct {
	asked int       // requests under way
	until time.Time // until when the place has confirmed the call; zero if it has not

	// Of a Refresh, when it made the hold last no longer than it leaves:
	was, limit time.Time // until when the hold lasted before that, and after it
	change     int       // of the hold
}

// IsConfirmed reports whether a majority has confirmed the call.
func (c *Call) IsConfirmed() bool { return !c.until.IsZero() }

// isAsked reports whether some request is under way.
func (c *Call) isAsked() bool {
	return slices.ContainsFunc(c.parts, func(p part) bool { return p.asked > 0 })
}

// Request asks one place whether it confirms a call.
type Request struct {
	Call     *Call
	Place    int
	Acquires bool // the key is to be acquired; otherwise it is refreshed or, by an Attach, looked at

	change int // of the hold when the request was made
}

// Answer is how a request has ended.
type Answer struct {
	Result   Result
	Until    time.Time // of a confirmation: the end of the validity that the place has confirmed
	Doubtful bool      // some sending of the request was not answered, and may still be executed
}

// Result is what a place has answered.
type Result int

// The results of a request.
const (
	Silence   Result = iota // nobody knows what the place has done
	Unsent                  // the request has never left
	Confirmed               // the place has the key
	Denied                  // the place does not have the key, and has not acquired it
)

// Outcome is what an answer has changed.
type Outcome struct {
	Confirmed bool      // a majority has now confirmed the call of the request; Until says how long the lock is valid
	Failed    bool      // no majority of the places that were asked can confirm it; once, unless it has ended otherwise
	Lost      bool      // the place has lost the key
	Asks      []Request // to be sent now, because the place has the key again
}
