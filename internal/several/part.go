package several

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/majority"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/transport"
)

// part is what an obtain does at one place. While busy, its attempt belongs to the goroutine of the call; otherwise
// Tries.mu protects it. A part with an answer is not busy.
type part struct {
	place.Attempt

	number int // of the place
	site   *site

	busy  bool      // a call is under way, perhaps of an earlier round
	began time.Time // when that began

	answer answer        // in the present round
	err    error         // how the place has failed in the present round; nil if it has not
	grant  place.Granted // the grant, while answer is granted
	last   answer        // to the last call, of any round; stays when the place steps back

	request majority.Request // of the lock that was made of this round
}

// answer is how a place has answered the call of a round.
type answer int

const (
	none    answer = iota
	granted        // and has not stepped back since
	denied         // it refused, or its grant came too late
	failed         // it answered with an error, or was not asked because it does not answer earlier calls
)

// errHangs is the error of a place that was not asked.
var errHangs = errors.New("does not answer earlier calls")

// count returns how many parts meet a condition. The caller holds t.mu.
func (t *Tries) count(meets func(*part) bool) (n int) {
	for _, p := range t.parts {
		if meets(p) {
			n++
		}
	}
	return n
}

// isBusy reports whether a call to a place is under way.
func isBusy(p *part) bool { return p.busy }

// hasFailed reports whether a place has failed in the present round.
func hasFailed(p *part) bool { return p.answer == failed }

// hasDenied reports whether the last call of a part was refused, or granted too late.
func hasDenied(p *part) bool { return p.last == denied }

// launch asks those places that are still to be asked in this round. The caller holds t.mu.
func (t *Tries) launch(ctx context.Context, now time.Time) {
	var least time.Duration
	isUp := func(p *part) bool { return p.site.health.IsUp(now, len(p.Keys.Names)) }
	if t.places.quorum && t.count(isUp) < t.places.need { // see judge
		least = health.FirstPatience
	}
	for _, p := range t.parts {
		if p.answer == none && !p.busy {
			t.ask(ctx, p, now, least)
		}
		if t.isOrdered() && p.answer != granted {
			return
		}
	}
}

// ask sends the obtain to one place, unless that has been silent for too long, and at least for that long. It does so in a
// goroutine, which ends with the call. The caller holds t.mu.
func (t *Tries) ask(ctx context.Context, p *part, now time.Time, least time.Duration) {
	p.Begin(ctx, t.token, t.began.UnixMicro()) // a server ignores a proposal that is over a second old
	if t.places.quorum && !p.site.health.Admit(now, len(p.Keys.Names), least) {
		p.answer, p.err = failed, errHangs
		p.Waiter.PassOver(now)
		return
	}
	p.busy, p.began = true, now
	free := ctx
	if ctx.Done() != nil {
		free = context.WithoutCancel(ctx)
	}
	p.site.Calls.Add(1)
	c := new(transport.Call)
	transport.Go(func() {
		var grant place.Granted
		err := fault.ErrPanicked // unless TryHere returns
		guarded(func() { grant, err = p.TryHere(free, c) }, func(hook *panicked) {
			p.Doubtful = p.Doubtful || hook != nil
			t.land(free, p, c, grant, err, hook)
			p.site.Calls.Add(-1)
		})
	})
}

// land takes the answer of a call that has ended.
func (t *Tries) land(
	ctx context.Context, p *part, c *transport.Call, grant place.Granted, err error, hook *panicked,
) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.signal()
	p.busy, p.grant = false, grant
	t.panicked = cmp.Or(t.panicked, hook)
	now := time.Now()
	took, isAnswered := now.Sub(p.began), c.IsAnswered()
	if t.places.quorum {
		p.site.health.Ended(now, took, isAnswered)
	}
	switch {
	case err == nil:
		p.answer = granted
	case errors.Is(err, fault.ErrNotObtained):
		p.answer = denied
	default:
		p.answer, p.err = failed, err
		if w := p.Waiter; w != nil {
			w.Rest(now)
		}
	}
	p.last = p.answer
	if isAnswered && t.fastest == 0 {
		t.fastest = took
	}
	switch present := p.Token == t.token; {
	case present && t.lock != nil: // it has the token of the lock
		t.join(ctx, p)
	case present && (t.verdict == open || t.verdict == won):
		t.Resends += int(c.Resends)
	default:
		t.settle(ctx, p)
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
// part is not busy.
func (t *Tries) settle(ctx context.Context, p *part) {
	switch {
	case t.over || t.lock != nil:
		p.drop(ctx)
		if t.lock != nil { // the place was not asked for the lock yet
			t.lock.mendSoon(p.number)
		}
	case p.answer != none:
		t.stepBackAt(ctx, p)
	}
}

// stepBack gives back what the present round was granted, at all places. The caller holds t.mu.
func (t *Tries) stepBack(ctx context.Context) {
	t.verdict = undecided
	if t.queue {
		t.agree()
	}
	for _, p := range t.parts {
		if !p.busy {
			t.stepBackAt(ctx, p)
		}
	}
}

// stepBackAt gives back what a place has granted. In line, the waiter keeps its place, with the common ticket. The caller
// holds t.mu, and the part is not busy.
func (t *Tries) stepBackAt(ctx context.Context, p *part) {
	had := p.answer == granted
	p.answer, p.began = none, time.Now()
	p.busy = p.StepBack(ctx, had, t.ticket, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		p.busy = false
		t.settle(ctx, p)
		t.signal()
	})
}

// drop gives up all that an obtain that has ended may have at a place, apart from the hold of a lock. The caller holds
// Tries.mu, and the part is not busy.
func (p *part) drop(ctx context.Context) {
	had := p.answer == granted
	p.answer = none
	p.Drop(ctx, had)
}

// reply returns what a place has answered to the request of the lock that was made of its round. The caller holds
// Tries.mu, and the part is not busy.
func (p *part) reply(fence int64) reply {
	a := reply{Answer: majority.Answer{Doubtful: p.Doubtful}, err: p.err, lost: p.Keys.Names}
	switch {
	case p.lags(fence): // it does not count before a mend has raised the counter
		a.lost, a.has = nil, true
	case p.answer == granted:
		a.Result, a.Until = majority.Confirmed, lease.ValidUntil(p.grant.Since, p.TTL)
	case p.Late: // nobody can rely on it
		a.Doubtful = true
	case p.answer == denied:
		a.Result = majority.Denied
	}
	return a
}

// lags reports whether a place has granted, but its fence counter is lower than the fencing token of the lock. A majority
// with this place could mint a smaller token next. The caller holds Tries.mu.
func (p *part) lags(fence int64) bool {
	return p.answer == granted && p.FenceKey != "" && p.grant.Fence < fence
}

// join reports to the lock what a place has answered that had not when the lock was made. A place that has refused is asked
// again: perhaps another caller, who has too few places, was about to give back the keys there. While three places have the
// lock, a server that forgets its data does no harm. The caller holds t.mu.
func (t *Tries) join(ctx context.Context, p *part) {
	l := t.lock
	a := p.reply(l.Fence)
	if p.answer == granted {
		p.PassDoubt(&l.at[p.number].Claim) // before the answer, after which a Release may go on
		l.answer(l.ctx, p.request, a)
		if p.lags(l.Fence) {
			l.mendSoon(p.number)
		}
		return
	}
	l.answer(l.ctx, p.request, a)
	if a.Result == majority.Denied {
		l.mendSoon(p.number)
	}
	p.QuitLine(ctx)
}
