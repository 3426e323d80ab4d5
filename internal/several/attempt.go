package several

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/majority"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/transport"
)

// attempt is what an obtain does at one place. While busy, its attempt belongs to the goroutine of the call; otherwise
// Tries.mu protects it. An attempt with a vote is not busy.
type attempt struct {
	place.Attempt

	number int // of the place
	site   *site

	busy  bool      // a call is under way, perhaps of an earlier round
	began time.Time // when that began

	vote  vote          // in the present round
	err   error         // how the place has failed in the present round; nil if it has not
	grant place.Granted // the grant, while vote is granted
	last  vote          // to the last call, of any round; stays when the place steps back

	request majority.Request // of the lock that was made of this round
}

// vote is how a place has answered the call of a round.
type vote int

const (
	none    vote = iota
	granted      // and has not stepped back since
	denied       // it refused, or its grant came too late
	failed       // it answered with an error, or was not asked because it does not answer earlier calls
)

// errHangs is the error of a place that was not asked.
var errHangs = errors.New("does not answer earlier calls")

// count returns how many attempts meet a condition. The caller holds t.mu.
func (t *Tries) count(meets func(*attempt) bool) (n int) {
	for _, a := range t.attempts {
		if meets(a) {
			n++
		}
	}
	return n
}

// isBusy reports whether a call to a place is under way.
func isBusy(a *attempt) bool { return a.busy }

// hasFailed reports whether a place has failed in the present round.
func hasFailed(a *attempt) bool { return a.vote == failed }

// hasDenied reports whether the last call of an attempt was refused, or granted too late.
func hasDenied(a *attempt) bool { return a.last == denied }

// launch asks those places that are still to be asked in this round. The caller holds t.mu.
func (t *Tries) launch(ctx context.Context, now time.Time) {
	var least time.Duration
	isUp := func(a *attempt) bool { return a.site.health.IsUp(now, len(a.Keys.Names)) }
	if t.places.quorum && t.count(isUp) < t.places.need { // see judge
		least = health.FirstPatience
	}
	for _, a := range t.attempts {
		if a.vote == none && !a.busy {
			t.ask(ctx, a, now, least)
		}
		if t.isOrdered() && a.vote != granted {
			return
		}
	}
}

// ask sends the obtain to one place, unless that has been silent for too long, and at least for that long. It does so in a
// goroutine, which ends with the call. The caller holds t.mu.
func (t *Tries) ask(ctx context.Context, a *attempt, now time.Time, least time.Duration) {
	a.Begin(ctx, t.token, t.began.UnixMicro()) // a server ignores a proposal that is over a second old
	if t.places.quorum && !a.site.health.Admit(now, len(a.Keys.Names), least) {
		a.vote, a.err = failed, errHangs
		if why := a.site.health.Failure(); why != nil {
			a.err = fmt.Errorf("%w: %w", errHangs, why)
		}
		a.Waiter.PassOver(now)
		return
	}
	a.busy, a.began = true, now
	free := ctx
	if ctx.Done() != nil {
		free = context.WithoutCancel(ctx)
	}
	a.site.DetachedCalls.Add(1)
	c := new(transport.Call)
	a.site.health.Sent(c)
	transport.Go(func() {
		var grant place.Granted
		last, err := &transport.Call{Err: fault.ErrPanicked}, fault.ErrPanicked // unless TryOnce returns
		catch(func() { last, grant, err = a.TryOnce(free, c) }, func(hook *panicked) {
			a.Rest.Doubtful = a.Rest.Doubtful || hook != nil
			t.land(free, a, last, grant, err, hook)
			a.site.DetachedCalls.Add(-1)
		})
	})
}

// land takes the answer of a call that has ended.
func (t *Tries) land(
	ctx context.Context, a *attempt, c *transport.Call, grant place.Granted, err error, hook *panicked,
) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.signal()
	a.busy, a.grant = false, grant
	t.panicked = cmp.Or(t.panicked, hook)
	now := time.Now()
	took, isAnswered := now.Sub(a.began), c.IsAnswered()
	if t.places.quorum {
		a.site.health.Ended(now, took, isAnswered)
	}
	switch {
	case err == nil:
		a.vote = granted
	case errors.Is(err, fault.ErrNotObtained):
		a.vote = denied
	default:
		a.vote, a.err = failed, err
		if w := a.Waiter; w != nil {
			w.Rest(now)
		}
	}
	a.last = a.vote
	if isAnswered && t.fastest == 0 {
		t.fastest = took
	}
	switch present := a.Token == t.token; {
	case present && t.lock != nil: // it has the token of the lock
		t.join(ctx, a)
	case present && (t.verdict == open || t.verdict == won):
		t.Resends += int(c.Resends)
	default:
		t.settle(ctx, a)
	}
}

// signal makes collect look again.
func (t *Tries) signal() {
	select {
	case t.news <- struct{}{}:
	default:
	}
}

// settle is for a place whose answer came too late for its round, or that has stepped back. The caller holds t.mu, and the
// attempt is not busy.
func (t *Tries) settle(ctx context.Context, a *attempt) {
	switch {
	case t.over || t.lock != nil:
		a.drop(ctx)
		if t.lock != nil { // the place was not asked for the lock yet
			t.lock.mendSoon(a.number)
		}
	case a.vote != none:
		t.agree()
		t.stepBackAt(ctx, a)
	}
}

// stepBack gives back what the present round was granted, at all places. The caller holds t.mu.
func (t *Tries) stepBack(ctx context.Context) {
	t.verdict = undecided
	t.agree()
	for _, a := range t.attempts {
		if !a.busy {
			t.stepBackAt(ctx, a)
		}
	}
}

// stepBackAt gives back what a place has granted. In line, the waiter keeps its position, with the common ticket. The caller
// holds t.mu, and the attempt is not busy.
func (t *Tries) stepBackAt(ctx context.Context, a *attempt) {
	had := a.vote == granted
	a.vote, a.began = none, time.Now()
	a.busy = a.StepBack(ctx, had, t.ticket, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		a.busy = false
		t.settle(ctx, a)
		t.signal()
	})
}

// drop gives up all that an obtain that has ended may have at a place, apart from the hold of a lock. The caller holds
// Tries.mu, and the attempt is not busy.
func (a *attempt) drop(ctx context.Context) {
	had := a.vote == granted
	a.vote = none
	a.Drop(ctx, had)
}

// answer returns what a place has answered to the request of the lock that was made of its round. The caller holds
// Tries.mu, and the attempt is not busy.
func (a *attempt) answer(fence int64) answer {
	said := answer{Answer: majority.Answer{Doubtful: a.Rest.MayTake()}, err: a.err, lost: a.Keys.Names}
	switch {
	case a.lags(fence): // it does not count before a mend has raised the counter
		said.lost, said.has = nil, true
	case a.vote == granted:
		said.Result, said.Until = majority.Confirmed, lease.ValidUntil(a.grant.Since, a.TTL)
	case a.Late: // nobody can rely on it
		said.Doubtful = true
	case a.vote == denied:
		said.Result = majority.Denied
	}
	return said
}

// lags reports whether a place has granted, but its fence counter is lower than the fencing token of the lock. A majority
// with this place could mint a smaller token next. The caller holds Tries.mu.
func (a *attempt) lags(fence int64) bool {
	return a.vote == granted && a.FenceKey != "" && a.grant.Fence < fence
}

// join reports to the lock what a place has answered that had not when the lock was made. A place that has refused is asked
// again: perhaps another caller, who has too few places, was about to give back the keys there. While three places have the
// lock, a server that forgets its data does no harm. The caller holds t.mu.
func (t *Tries) join(ctx context.Context, a *attempt) {
	l := t.lock
	said := a.answer(l.Fence)
	if said.Result == majority.Confirmed || said.has {
		l.noteHad(a.number) // before its keys are passed on, because a Release may be under way
	}
	a.passTo(ctx, l.at[a.number]) // before the answer, after which a Release may go on
	l.apply(l.ctx, a.request, said)
	if a.lags(l.Fence) || said.Result == majority.Denied {
		l.mendSoon(a.number)
	}
}

// passTo makes the lock responsible for what its round has taken at a place, or may take. The caller holds Tries.mu.
func (a *attempt) passTo(ctx context.Context, at *record) {
	var taken []string
	if a.vote == granted || a.Late {
		taken = a.Keys.Names
	}
	a.PassRest(ctx, &at.Hold, a.vote == granted)
	at.Ended(taken, false)
}
