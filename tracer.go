package redislock

import (
	"context"
	"slices"
	"time"
)

// Tracer is told what happens to the locks of a Client: see [WithTracer]. Every field may be nil. [LogTracer] is a ready
// one, [Tracers] combines several, and the module redislockotel makes one that feeds OpenTelemetry.
//
// The library calls the functions outside all of its own locks, from many goroutines, possibly concurrently. They may
// call the library, but must not block: their caller waits meanwhile, which may be the goroutine that renews every
// lock of the Client. What they panic with reaches the caller, or ends the program.
//
// Each event names the keys of the call or the lock, in the order given, each once. The slice is the library's own: do
// not change it. No event carries a whole token but that of [Refused].
//
// A hold begins with an ObtainEnd without an error. At its end, exactly one event carries Held: Lost, or Released. A hold
// that its caller neither keeps alive, refreshes nor releases expires without an event. A Refresh that succeeds after
// Lost revives the hold, and then Lost or Released ends it again.
type Tracer struct {
	// ObtainStart is called when a call has passed the check of its arguments, before anything is sent, in the goroutine
	// and with the ctx of the caller. The ctx that it returns is used for all the call does, so hooks of the Redis client
	// see its values; derive it from the one given. Nil stands for the one given.
	ObtainStart func(context.Context, ObtainStart) context.Context

	// Refused is called after each try that was refused, in the goroutine of the caller, with the ctx of ObtainStart.
	Refused func(context.Context, Refused)

	// ObtainEnd is called once for each ObtainStart, before the call returns, in the goroutine of the caller, with the
	// ctx of ObtainStart, which may have ended.
	ObtainEnd func(context.Context, ObtainEnd)

	// Refreshed is called at the end of each Refresh, in the goroutine of its caller and with its ctx, and when a renewal
	// of KeepAlive or Do has been answered or has failed, in a goroutine of the library and with the values of the ctx
	// that KeepAlive or Do was given. A renewal that was not answered in time, and was tried again, ends later.
	Refreshed func(context.Context, Refreshed)

	// Lost is called when a renewal, a Refresh or a Release finds that keys of a lock were lost, and when the validity
	// of a kept lock has passed. It is called once for a hold, in the goroutine that notices: one of the library, that of
	// the Refresh or the Release, or one that looks at the context of the kept lock. ctx is that of the Refresh or the
	// Release; otherwise it has the values of that which KeepAlive or Do was given, and does not end.
	Lost func(context.Context, Lost)

	// Released is called at the end of each Release, in the goroutine of its caller and with its ctx, which may have
	// ended.
	Released func(context.Context, Released)

	// CleanedUp is called when a cleanup has ended: a release in the background of what an abandoned call may have taken,
	// or of a place in line. It is called in a goroutine of the library, with the values of the ctx of that call; with
	// Dropped, in the goroutine of the call. A cleanup that the caller's own token has made pointless, by obtaining the
	// keys again, is not told.
	CleanedUp func(context.Context, CleanedUp)
}

// ObtainStart is an obtain that begins.
type ObtainStart struct {
	Keys   []string
	TTL    time.Duration
	Queue  bool // it waits in line if it is refused
	Fenced bool // it asks for a fencing token
}

// Refused is a try that was refused. Key, Holder, Metadata, TTL and Ahead are as in [RefusedError]. They are known for
// the first refusal of a call with [Options.Explain], and empty otherwise. What the last refusal met is in the Err of
// ObtainEnd.
type Refused struct {
	Keys     []string
	Try      int // 1 for the first
	Key      string
	Holder   string // the token of the holder. It is a key to the lock: do not show more than a few characters
	Metadata string
	TTL      time.Duration
	Ahead    int
}

// ObtainEnd is an obtain that has ended.
type ObtainEnd struct {
	Keys    []string
	Err     error         // what the call returns; nil if it was granted
	Wait    time.Duration // how long the call took
	Tries   int           // how often it asked for the keys
	Resends int           // how often a try was sent again because it had failed
	Until   time.Time     // the end of the validity; zero unless granted
	Fence   int64         // the fencing token; 0 without one
}

// Refreshed is a Refresh or a renewal that has ended.
type Refreshed struct {
	Keys    []string
	Renewal bool          // by KeepAlive or Do
	TTL     time.Duration // what the lock was to have from then on
	// Left is what was left of the validity before, when this ended; 0 if nothing was. Beside TTL it tells how close the
	// lock came to its end.
	Left time.Duration
	Err  error // nil if the lock has the TTL
}

// LossCause is why a lock was lost.
type LossCause string

// The causes of a loss.
const (
	LossTaken  LossCause = "taken"  // another token holds some of the keys
	LossGone   LossCause = "gone"   // keys have expired or were deleted, and nobody held them when the library looked
	LossLapsed LossCause = "lapsed" // the validity of a kept lock has passed unrenewed; what became of its keys is not known
)

// Lost is a hold that is over though it was not released.
type Lost struct {
	Keys     []string
	LostKeys []string // those that are gone or taken; nil if that is not known
	Cause    LossCause
	Held     time.Duration // since the request that acquired the lock was sent
	Err      error         // the cause of the contexts that end with it
}

// Released is a Release that has ended.
type Released struct {
	Keys []string
	// Held is how long the lock was held when Release was called, from when the request that acquired it was sent. It is 0
	// if an earlier Lost or Released has told it.
	Held time.Duration
	Wait time.Duration // how long the call took
	Err  error         // what the call returns
}

// What a cleanup was for.
const (
	WhyAbandoned = "abandoned obtain"  // the call ended while a try was unanswered, or lost its reply
	WhyLate      = "late grant"        // the grant came after its ttl
	WhyResent    = "resent obtain"     // a released lock whose obtain was sent twice, and may arrive a second time
	WhyRelease   = "abandoned release" // Release returned before it was answered
	WhyLine      = "place in line"     // a waiter gave its place up
)

// CleanedUp is a cleanup that has ended.
type CleanedUp struct {
	Keys    []string
	Why     string // one of WhyAbandoned, WhyLate, WhyResent, WhyRelease, WhyLine
	Err     error  // how it failed; the keys expire with their ttl then
	Dropped bool   // there was no room for it: nothing was sent, and the keys expire with their ttl
}

// Tracers returns a Tracer that calls each of tracers in turn, of which nil ones are skipped. The ctx that the
// ObtainStart of one returns is passed to the next. It returns nil if there are none.
func Tracers(tracers ...*Tracer) *Tracer {
	tracers = slices.DeleteFunc(slices.Clone(tracers), func(t *Tracer) bool { return t == nil })
	switch len(tracers) {
	case 0:
		return nil
	case 1:
		return tracers[0]
	}
	first, rest := tracers[0], Tracers(tracers[1:]...)
	return &Tracer{
		ObtainStart: startBoth(first.ObtainStart, rest.ObtainStart),
		Refused:     both(first.Refused, rest.Refused),
		ObtainEnd:   both(first.ObtainEnd, rest.ObtainEnd),
		Refreshed:   both(first.Refreshed, rest.Refreshed),
		Lost:        both(first.Lost, rest.Lost),
		Released:    both(first.Released, rest.Released),
		CleanedUp:   both(first.CleanedUp, rest.CleanedUp),
	}
}

// both returns a function that calls a and then b. It is nil if both are, so that what nobody wants costs nothing.
func both[E any](a, b func(context.Context, E)) func(context.Context, E) {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return func(ctx context.Context, e E) {
		a(ctx, e)
		b(ctx, e)
	}
}

func startBoth(a, b func(context.Context, ObtainStart) context.Context) func(context.Context, ObtainStart) context.Context {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return func(ctx context.Context, e ObtainStart) context.Context {
		for _, start := range []func(context.Context, ObtainStart) context.Context{a, b} {
			if derived := start(ctx, e); derived != nil { // nil stands for the ctx that was passed, here as well
				ctx = derived
			}
		}
		return ctx
	}
}

// The methods below report an event to the Tracer. A Client without a Tracer has an empty one, so that the code
// that calls them need not ask.

func (t *Tracer) obtainStart(ctx context.Context, e ObtainStart) context.Context {
	if t.ObtainStart == nil {
		return ctx
	}
	if derived := t.ObtainStart(ctx, e); derived != nil {
		return derived
	}
	return ctx
}

// tell calls a function of a Tracer, if it is set.
func tell[E any](ctx context.Context, f func(context.Context, E), e E) {
	if f != nil {
		f(ctx, e)
	}
}
