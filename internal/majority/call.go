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
	Metadata string        // only the owner uses it

	number int       // how many calls had begun, this one included
	parts  []part    // by place
	until  time.Time // the end: the need-th largest until of the parts when a majority confirmed the call; zero before that
	over   bool      // the call gains nothing any more
	failed bool      // Outcome.Failed was reported
	sent   bool      // some request may have been sent
}

// part is what a call has at one place.
type part struct {
	asked int       // requests under way
	until time.Time // until when the place has confirmed the call; zero if it has not

	// If the call is a Refresh, which has shortened the hold:
	was, limit time.Time // until when the hold lasted before and after that
	change     int       // of the hold, then
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
	Acquires bool // the place is to acquire the key, and not only to refresh it or, for an Attach, to show it

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
	Silence   Result = iota // nobody knows whether the place has executed the request
	Unsent                  // the request was not sent
	Confirmed               // the place has the key
	Denied                  // the place does not have the key, and has not acquired it
)

// Outcome is what an answer has changed.
type Outcome struct {
	Confirmed bool      // a majority has now confirmed the call of the request; Until says how long the lock is valid
	Failed    bool      // no majority of the places that were asked can confirm the call; once, unless the call is over
	Lost      bool      // the place has lost the key
	Asks      []Request // to be sent at once, because the place has the key again
}

// IsLatest reports whether no other call has begun since a call. What a later one has found or confirmed may be newer.
func (l *Lock) IsLatest(c *Call) bool { return c.number == l.begun }
