package redislock

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/claim"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/place"
)

// Tracer is a set of functions that a Client calls when something happens to its locks: see [WithTracer]. Each field may
// be nil. [LogTracer] returns a Tracer that logs, [Tracers] combines several, and the module redislockotel has one that
// feeds OpenTelemetry.
//
// The Client holds none of its own mutexes while it calls a function. It calls the functions from many goroutines,
// possibly concurrently. A function may call the library, but it should not block for long: a call of the library may be
// waiting for it. No renewal ever waits. The events that follow from renewals come one after the other, from a goroutine
// of the Client: while a function blocks, the others wait, and of several renewals of one lock only the next is reported.
// If a function panics in the goroutine of a caller, the caller gets the panic. If it panics in a goroutine of the
// library, the program ends.
//
// Each event has the keys of its call or lock, in the order given, each once. Do not change the slice. All events of one
// lock have the same slice, so the address &e.Keys[0] tells two locks on the same keys apart. With a custom token, a
// [CleanedUp] may have only some of the keys, in another slice. With [Options.Explain], [Refused] and the [*RefusedError]
// of an [ObtainEnd] have the whole token of a holder. No other event has a whole token.
//
// A hold begins with an ObtainEnd without an error, or with an Attach, which has no event. Exactly one event, Lost or
// Released, reports the end of a hold, and its Held says how long that was. A lock that expires without being kept,
// refreshed or released has no such event. A Refresh that succeeds after Lost revives the hold. Then Lost or Released
// reports the end once more. A [Client.Do] whose keys an outer Do holds acquires nothing, and has no events.
//
// A lock on several places (the servers of a quorum, or the slots of [Options.AcrossSlots]) has the same events, one for
// the lock and none for each place. A failure at some places has no event if the other places suffice.
type Tracer struct {
	// ObtainStart is called when an obtain has checked its arguments, before it asks for the lock, in the goroutine and
	// with the ctx of the caller. The call goes on with the ctx that ObtainStart returns, so hooks of the Redis client
	// see the values of that ctx. Derive it from the ctx given; nil stands for the ctx given.
	ObtainStart func(context.Context, ObtainStart) context.Context

	// Refused is called after each refused try, in the goroutine of the caller, with a ctx derived from that of
	// ObtainStart.
	Refused func(context.Context, Refused)

	// ObtainEnd is called once for each ObtainStart that has returned, right before the call returns or panics, in the
	// goroutine of the caller. Its ctx is that of ObtainStart, which may have ended. If ObtainEnd panics, the library
	// releases the lock that was just acquired, unless it has a custom token.
	ObtainEnd func(context.Context, ObtainEnd)

	// Refreshed is called at the end of each Refresh with usable arguments, in the goroutine of the caller and with its
	// ctx. It is also called when a renewal of KeepAlive or Do was confirmed or has failed, in a goroutine of the
	// library. The ctx then has the values of the ctx given to KeepAlive or Do, and does not end. A renewal without an
	// answer has no event until its connection fails or times out. The library sends other renewals meanwhile.
	Refreshed func(context.Context, Refreshed)

	// GuardClosed is called when a Client with [WithGuard] first learns that the guard of a server is closed. It is called
	// once for each term of the server, and again if the guard has opened meanwhile, as after a second FLUSHALL. The
	// goroutine is one of the library, and the ctx has the values of the ctx of a call that has learned it.
	GuardClosed func(context.Context, GuardClosed)

	// Restored is called when a Refresh or a renewal under [WithGuard] has put keys back that a server had forgotten. The
	// goroutine and the ctx are those of Refreshed. On a quorum, each server has its own event.
	Restored func(context.Context, Restored)

	// Lost is called once for a hold: when a renewal, a Refresh or a Release finds that keys of the lock are lost, or when
	// the validity of a kept lock ends. The goroutine is that of the Refresh, of the Release, of a caller that looks at the
	// context of the kept lock, or one of the library. In a Refresh or a Release, the ctx is that of the call. Otherwise, it
	// has the values of the ctx given to KeepAlive or Do, and does not end.
	Lost func(context.Context, Lost)

	// Released is called at the end of each Release with a usable ctx, in the goroutine of the caller and with its ctx,
	// which may have ended.
	Released func(context.Context, Released)

	// CleanedUp is called when a cleanup has ended: when the library has released in the background what an abandoned
	// call may have acquired, or has given up a position in line. It is called in a goroutine of the library, with the
	// values of the ctx of the call. On several servers or slots, the cleanup on each of them has its own event, with the
	// keys there.
	CleanedUp func(context.Context, CleanedUp)
}

// ObtainStart reports the beginning of an obtain: Obtain, ObtainMulti, or the one inside Do.
type ObtainStart struct {
	Keys   []string
	TTL    time.Duration
	Queue  bool // the obtain waits in line if it is refused
	Fenced bool // the obtain asks for a fencing token

	Shared  []string       // as in [Options]
	Permits map[string]int // as in [Options]
}

// Refused reports a refused try. Key, Holder, Holders, Metadata, TTL, Ahead and Closed mean the same as in [RefusedError].
// The first refusal of a call with [Options.Explain] has them; in all others they are zero. The Err of ObtainEnd explains
// the last refusal.
type Refused struct {
	Keys     []string
	Try      int // 1 for the first
	Key      string
	Holder   string // the token of the holder. Show only a few characters: anyone who knows it can release the lock
	Metadata string
	TTL      time.Duration
	Ahead    int
	Holders  int
	Closed   time.Duration
}

// ObtainEnd reports the end of an obtain.
type ObtainEnd struct {
	Keys    []string
	Err     error         // what the call returns; nil if the lock was acquired
	Wait    time.Duration // how long the call took
	Tries   int           // how many tries the call made
	Resends int           // how often the library sent a try again after a failure
	Until   time.Time     // the end of the validity; zero if Err is set
	Fence   int64         // the fencing token; 0 without one
}

// Refreshed reports the end of a Refresh or a renewal.
type Refreshed struct {
	Keys    []string
	Renewal bool          // this was a renewal by KeepAlive or Do
	TTL     time.Duration // the new ttl
	Left    time.Duration // how much of the old validity was left at the end of the call; 0 if it had passed
	Err     error         // nil if the lock has the new ttl
}

// GuardClosed reports that the guard of a server is closed: the server may have forgotten locks, and grants none until every
// lock that it can have forgotten has ended.
type GuardClosed struct {
	Server string        // the address of the server, or the type of a client that does not say
	For    time.Duration // for how long the guard stays closed; longer if the server forgets again
}

// Restored reports that a server has keys again that it had forgotten.
type Restored struct {
	Keys []string
	Back []string // those of Keys that were put back
}

// LossCause says why a lock was lost.
type LossCause string

// The causes of a loss.
const (
	LossTaken  LossCause = "taken"  // another token holds some of the keys
	LossGone   LossCause = "gone"   // some keys have expired or were deleted, and nobody else holds any of the keys
	LossLapsed LossCause = "lapsed" // the validity of a kept lock ended without a renewal; the state of its keys is not known
)

// Lost reports the end of a hold that was not released.
type Lost struct {
	Keys     []string
	LostKeys []string // the keys that are gone or taken; nil if they are not known
	Cause    LossCause
	Held     time.Duration // the time since the request that acquired the lock was sent
	Err      error         // the error of the Release, or the cause of the contexts of the kept lock
}

// Released reports the end of a Release.
type Released struct {
	Keys []string
	// Held is the time from when the request that acquired the lock was sent until Release was called. It is 0 if an
	// earlier Lost or Released has reported it.
	Held time.Duration
	Wait time.Duration // how long the call took
	Err  error         // what the call returns
}

// The reasons for a cleanup.
const (
	WhyAbandoned = "abandoned obtain"  // the call ended without the answer to one of its tries
	WhyLate      = "late grant"        // a grant arrived after its validity or the Release, or may still arrive
	WhyResent    = "resent obtain"     // the lock is released, but its obtain was sent twice and may arrive again
	WhyRelease   = "abandoned release" // Release returned before the keys were freed
	WhyLine      = "place in line"     // a waiter gave up its position; metrics have this name
)

// CleanedUp reports the end of a cleanup.
type CleanedUp struct {
	Keys    []string // of the call or lock: those at one server or in one slot; with a custom token, perhaps only some
	Why     string   // one of WhyAbandoned, WhyLate, WhyResent, WhyRelease and WhyLine
	Err     error    // why it failed; the keys then expire with their ttl
	Dropped bool     // too many cleanups were running: nothing more is sent, and the keys may stay until their ttl ends
}

// Tracers returns a Tracer that calls each of the tracers in turn. It skips nil ones, and returns nil if all are nil. It
// passes the ctx that one ObtainStart returns to the next.
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
		GuardClosed: both(first.GuardClosed, rest.GuardClosed),
		Restored:    both(first.Restored, rest.Restored),
		Lost:        both(first.Lost, rest.Lost),
		Released:    both(first.Released, rest.Released),
		CleanedUp:   both(first.CleanedUp, rest.CleanedUp),
	}
}

// both returns a function that calls a and then b. It returns nil if both are nil, so that an event without a listener
// costs nothing.
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
	if a == nil && b == nil {
		return nil
	}
	return func(ctx context.Context, e ObtainStart) context.Context { return started(started(ctx, a, e), b, e) }
}

// started calls an ObtainStart, if it is set, and returns the ctx with which to go on.
func started(
	ctx context.Context, f func(context.Context, ObtainStart) context.Context, e ObtainStart,
) context.Context {
	if f == nil {
		return ctx
	}
	return cmp.Or(f(ctx, e), ctx)
}

// silent is the Tracer of a Client that was given none, and silence the events of its locks.
var (
	silent  = &Tracer{}
	silence = &life.Events{}
)

// events returns what the Tracer hears of locks.
func (t *Tracer) events() *life.Events {
	if t.Refreshed == nil && t.Restored == nil && t.Lost == nil && t.Released == nil {
		return silence
	}
	events := &life.Events{}
	if report := t.Refreshed; report != nil {
		events.Refreshed = func(ctx context.Context, e life.Refreshed) { report(ctx, Refreshed(e)) }
	}
	if report := t.Restored; report != nil {
		events.Restored = func(ctx context.Context, e life.Restored) { report(ctx, Restored(e)) }
	}
	if report := t.Lost; report != nil {
		events.Lost = func(ctx context.Context, e life.Lost) {
			report(ctx, Lost{Keys: e.Keys, LostKeys: e.LostKeys, Cause: lossCauses[e.Cause], Held: e.Held, Err: e.Err})
		}
	}
	if report := t.Released; report != nil {
		events.Released = func(ctx context.Context, e life.Released) { report(ctx, Released(e)) }
	}
	return events
}

// guardClosed returns what to do when a guard was found closed; nil for nothing.
func (t *Tracer) guardClosed() func(context.Context, place.GuardClosed) {
	report := t.GuardClosed
	if report == nil {
		return nil
	}
	return func(ctx context.Context, e place.GuardClosed) { report(ctx, GuardClosed(e)) }
}

// cleanedUp returns what to do at the end of a cleanup; nil for nothing.
func (t *Tracer) cleanedUp() func(context.Context, claim.Event) {
	report := t.CleanedUp
	if report == nil {
		return nil
	}
	return func(ctx context.Context, e claim.Event) {
		report(ctx, CleanedUp{Keys: e.Keys, Why: whys[e.Why], Err: e.Err, Dropped: e.Dropped})
	}
}

var whys = map[claim.Why]string{
	claim.Abandoned: WhyAbandoned, claim.Late: WhyLate, claim.Resent: WhyResent, claim.Release: WhyRelease, claim.Line: WhyLine,
}

var lossCauses = map[life.Cause]LossCause{life.Taken: LossTaken, life.Gone: LossGone, life.Lapsed: LossLapsed}
