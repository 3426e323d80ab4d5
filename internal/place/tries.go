package place

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/claim"
	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/retry"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// Tries makes the tries of an obtain. It belongs to the goroutine of the caller. A try that is not answered when ctx ends is
// abandoned.
type Tries struct {
	Attempt
	Progress

	won   bool      // a try was granted; the fields below are those of the lock
	since time.Time // before the keys were acquired
	valid lease.Lease
	fence int64
}

// Prepare sets what the tries ask for. Call it before the first one.
func (t *Tries) Prepare(p *Place, o *script.Obtain) {
	t.Place, t.Obtain = p, *o
}

// Queue makes a refused try take a position in line. Call it before the first one. pace may be nil; see line.Waiter.
func (t *Tries) Queue(pace retry.Strategy) { t.Waiter = t.Place.Lines.New(pace) }

// Await waits in line until the next try is due. It returns false if ctx ends first or the Client is closed first. Then
// Failure says so if Redis was away.
func (t *Tries) Await(ctx context.Context) bool {
	if t.Waiter.Await(ctx, t.Place.set.Closed) {
		return true
	}
	if err := t.Waiter.Failure(); err != nil && t.Failure == nil {
		t.Failure = t.failed(err)
	}
	return false
}

// WaitForOwn waits for earlier work under the token, if that is a custom one: see claim.Ledger.Await.
func (t *Tries) WaitForOwn(ctx context.Context) error {
	if !t.Custom {
		return nil
	}
	return t.Place.Ledger.Await(ctx, t.Token, t.Keys.Names)
}

// Try asks once for all keys. again says whether another try makes sense. It does after a refusal.
func (t *Tries) Try(ctx context.Context) (again bool, err error) {
	if fault.Ended(ctx) != nil {
		return false, fault.ErrCut
	}
	if fault.IsClosed(t.Place.set.Closed) { // a message or the end of a wait may have come at the same time
		return false, fault.ErrClosed
	}
	if t.Waiter != nil {
		done, h := t.Waiter.Admit(ctx, t.Place.set.Closed, len(t.Keys.Names))
		switch {
		case h != nil:
			return t.grant(ctx, t.Waiter.Since(h), h.Fence, t.Keys.Names)
		case done != nil:
			defer done()
		case fault.Ended(ctx) != nil:
			return false, fault.ErrCut
		default:
			return false, fault.ErrClosed
		}
	}
	c := new(transport.Call)
	t.fillObtain(ctx, c)
	t.Tried++
	began := time.Now()
	c.GiveUp = began.Add(t.TTL)
	var cancel context.CancelFunc
	t.collect()
	c.Ctx, cancel = t.Waiter.Patience(ctx, len(t.Rest.Strays))
	defer cancel()
	c, answered := t.send(c.Ctx, c)
	if answered || hear(c) {
		return t.conclude(ctx, c)
	}
	t.Rest.Strays = append(t.Rest.Strays, c)
	again, err = t.conclude(ctx, &transport.Call{Ctx: c.Ctx, Err: cmp.Or(c.Failure(), t.Unanswered(began, t.TTL))})
	if again {
		t.Waiter.TryAgain() // the abandoned try took longer than a wait would
	}
	return again, err
}

// conclude applies the result of a try that has ended.
func (t *Tries) conclude(ctx context.Context, c *transport.Call) (again bool, err error) {
	t.Rest.Doubtful = t.Rest.Doubtful || c.Doubtful
	t.Resends += int(c.Resends)
	if c.Err != nil {
		t.fail(c)
		if fault.Ended(ctx) != nil {
			return false, fault.ErrCut
		}
		return t.Waiter.Bear(ctx, c.Err), t.Failure
	}
	t.Failure = nil
	g, err := t.read(ctx, c)
	switch {
	case err == fault.ErrNotObtained:
		if t.Belated > 0 && !lease.Passed(lease.ValidUntil(c.Sent, t.TTL)) {
			t.Belated = 0
		}
		return true, err
	case err != nil:
		return false, err
	}
	return t.grant(ctx, c.Sent, g.Fence, g.Taken)
}

// grant notes a grant that was made after the time since, unless its validity is over already. Like Try, it says whether
// another try makes sense.
func (t *Tries) grant(ctx context.Context, since time.Time, fence int64, taken []string) (again bool, err error) {
	valid := lease.Granted(since, t.TTL)
	if lease.Passed(valid.Until()) {
		return t.decline(ctx, since, taken)
	}
	t.won, t.since, t.valid, t.fence = true, since, valid, fence
	return false, nil
}

// decline gives back a grant whose reply came too late: its request was sent at the time since. decline returns an error
// that says so.
//
// One late grant may be chance: a pause of the process or of the server. The second one in a row ends the obtain, because
// answers take longer than the ttl lasts. Each late grant keeps the keys from others for a moment and, in line, takes the
// turn of the next waiter. A refusal that comes in time shows that answers can be fast enough, so the count begins again.
//
// With a random token, the next try uses a new token. So the old token can be released in the background, and no release can
// hit a later grant. decline releases all keys, because the grant may answer a resend whose first sending acquired them.
//
// A custom token stays the same, so the release must be answered before the next try. If it is not, there is no next try.
func (t *Tries) decline(ctx context.Context, since time.Time, taken []string) (again bool, err error) {
	t.Waiter.TryAgain()
	t.Failure = fault.TooLate(since, t.TTL)
	t.Belated++
	again = t.Belated < MaxBelated
	if !t.Custom {
		rest := t.Rest
		rest.Taken, rest.Line = t.Keys.Names, t.position() // a stray may still enter the lines with the old token
		t.claim(t.Keys, rest).Drop(ctx, claim.Terms{Why: claim.Late}, t.Keys.Names)
		if t.Waiter != nil {
			t.Waiter.Renew()
		}
		t.Token, t.Rest, t.Late = NewToken(), claim.Rest{}, false
		return again, t.Failure
	}
	if len(taken) == 0 { // all keys may belong to an earlier hold
		return again, t.Failure
	}
	back := t.claim(t.Keys.Only(taken), claim.Rest{})
	if fault.Ended(ctx) != nil { // Free would wait
		back.Take(claim.Rest{Taken: taken})
		back.Drop(ctx, claim.Terms{Why: claim.Late}, taken)
		return false, fault.ErrCut
	}
	found, err := back.Free(ctx, claim.Terms{Why: claim.Late, Until: time.Now().Add(t.TTL)})
	if err != nil {
		t.fail(&transport.Call{Ctx: ctx, Err: err})
		if fault.Ended(ctx) != nil {
			return false, fault.ErrCut
		}
		return false, t.Failure
	}
	return again && !found.Doubtful, t.Failure
}

// Fill makes l the lock that was granted.
func (t *Tries) Fill(ctx context.Context, l *Lock) {
	l.Begin(t.Place, t.Token, t.Keys, t.origin())
	l.FenceKey, l.Lasts = t.FenceKey, t.TTL
	l.Lease, l.Fence, l.Since = t.valid, t.fence, t.since
	t.passRest(ctx, &l.Hold)
	l.SetMetadata(t.Metadata)
}

// GiveUp gives back, in the background, a lock that the caller never gets. Keys with a custom token may belong to an earlier
// hold, so they expire with their ttl instead.
func (t *Tries) GiveUp(ctx context.Context) {
	t.Rest.Doubtful = true
	t.Withdraw(ctx)
}

// End ends the obtain. Unless a try was granted, it withdraws the obtain in the background.
func (t *Tries) End(ctx context.Context, panicked bool) {
	if panicked {
		t.Rest.Doubtful = true
	}
	if panicked || !t.won {
		t.Withdraw(ctx)
	}
	t.Waiter.QuitInbox()
}

// LastWord is how long an obtain waits for a call whose ctx has ended. go-redis returns such a call at once, unless it is
// reading the reply, and a healthy server answers within this time.
const LastWord = 2 * time.Millisecond

// hear reports whether a call whose ctx has ended is answered within LastWord after all.
func hear(c *transport.Call) bool {
	timer := time.NewTimer(LastWord)
	defer timer.Stop()
	select {
	case <-c.Done():
		return true
	case <-timer.C:
		return false
	}
}

// fail notes how a try has failed. If its error is only the end of its ctx, the try was still waiting for something, for
// example a connection, after an earlier attempt had failed. Then the earlier failure says more.
func (t *Tries) fail(c *transport.Call) {
	if c.Ctx != nil && c.Ctx.Err() != nil && errors.Is(c.Err, c.Ctx.Err()) {
		c.Err = fault.ErrUnanswered
		if t.Failure != nil {
			return
		}
	}
	t.Failure = t.failed(c.Err)
}

// note notes the result of a stray that has ended.
func (a *Attempt) note(c *transport.Call) {
	a.Rest.Doubtful = a.Rest.Doubtful || c.Doubtful
	if c.Err != nil {
		return
	}
	g, err := script.ReadGrant(a.Keys.Names, c.Reply)
	a.Rest.Doubtful = a.Rest.Doubtful || err != nil
	a.Late = a.Late || g.Granted
	a.Rest.Taken = append(a.Rest.Taken, g.Taken...)
}

// collect notes the results of abandoned tries that have ended by now, because a wait of hours may abandon many.
func (t *Tries) collect() {
	t.Rest.Strays = slices.DeleteFunc(t.Rest.Strays, func(c *transport.Call) bool {
		ended := fault.IsClosed(c.Done())
		if ended {
			t.note(c)
		}
		return ended
	})
}
