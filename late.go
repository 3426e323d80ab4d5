package redislock

import (
	"context"
	"fmt"
	"time"

	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/transport"
)

// lateError is the error of an obtain whose grant took too long to arrive.
type lateError struct{ took, ttl time.Duration }

// tooLate returns the error for a grant that has just arrived, of a request that was sent at that time.
func tooLate(sent time.Time, ttl time.Duration) error {
	return &lateError{took: time.Since(sent), ttl: ttl}
}

func (e *lateError) Error() string {
	took := e.took.Round(time.Millisecond)
	return fmt.Sprintf("%v: the grant took %v to arrive, and the ttl is %v", ErrNotObtained, took, e.ttl)
}

// Is reports whether target is ErrNotObtained or ErrLapsed.
func (e *lateError) Is(target error) bool { return target == ErrNotObtained || target == ErrLapsed }

// maxBelated is how many grants in a row may come too late.
const maxBelated = 2

// decline gives back a grant of a request that was sent at that time, and whose reply came too late to be relied on. It
// returns an error that says so.
//
// One such grant may be chance: a pause of the process or of the server. The second one in a row ends the obtain, because
// answers take longer than the ttl lasts, and the next one would as well. Each of them keeps the keys from others for a
// moment and, in line, takes the turn of the next waiter. A refusal that comes in time shows that answers can be fast
// enough, so the count begins again.
//
// With a random token, the next try uses a new token. So the old one can be released in the background, and no release
// can hit a later grant. All keys are released, because the grant may answer a resend whose first sending acquired
// them.
//
// A custom token stays. Then the release must be answered before the next try. If it is not, there is no next try.
//
// An obtain at one of several places leaves the keys to its round, or to the lock. The token may be
// used there again, and a release that is sent twice could take away what the next call obtains. It does the same if the
// lock is made already: a call after this one may have obtained the hold.
func (o *obtaining) decline(ctx context.Context, since time.Time, taken []string) (again bool, err error) {
	if o.waiter != nil {
		o.waiter.next = time.Now().Add(time.Millisecond)
	}
	if o.joins != nil { // its caller has the lock
		o.late = true
		return true, ErrNotObtained
	}
	o.failure = tooLate(since, o.ttl)
	o.belated++
	again = o.belated < maxBelated
	if o.part {
		o.late = true
		return again, o.failure
	}
	if !o.custom {
		back := o.newRelease(ctx)
		if o.waiter != nil { // a try that is still on its way may enter the lines again, with the old token
			andLeave(back, o.waiter.entry)
			o.waiter.renew()
		}
		o.place.sweep(newCleanup(back, WhyLate, o.keys, o.ttl), 0, o.abandoned...)
		o.token, o.doubtful = randomToken(), false
		o.abandoned, o.late, o.taken = nil, false, nil // they have the old token
		return again, o.failure
	}
	if len(taken) == 0 { // the others may belong to an earlier hold
		return again, o.failure
	}
	back := releaseOf(ctx, o.token, taken)
	back.GiveUp = time.Now().Add(o.ttl)
	before := o.taken
	o.taken = append(o.taken, taken...) // for withdraw, if this fails or a hook panics
	answered := o.place.redis.Do(ctx, back)
	if !answered || back.Err == nil {
		o.taken = before
	}
	if !answered {
		o.place.persist(back, WhyLate, taken)
		back = &transport.Call{Err: errUnanswered}
	}
	if back.Err != nil {
		o.doubtful = true
		o.fail(back)
		if ended(ctx) != nil {
			return false, o.cutShort(ctx)
		}
		return false, o.failure
	}
	return again && !back.Doubtful, o.failure
}

// unanswered returns the error of a try that began at that time and was not answered by the end of ctx.
func (o *obtaining) unanswered(began time.Time) error {
	if o.limited && lease.Passed(lease.ValidUntil(began, o.ttl)) {
		return fmt.Errorf("%w within the ttl of %v: %w", errUnanswered, o.ttl, ErrLapsed)
	}
	return errUnanswered
}
