package several

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/claim"
	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/majority"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/retry"
	"github.com/redislock/redislock/internal/transport"
)

// question is a Refresh that waits for answers.
type question struct {
	call    *majority.Call
	ctx     context.Context
	answers outcomes[answer]
	asked   []asking // the requests to places; Lock.mu protects it
}

// asking is a request to one place to confirm a call.
type asking struct {
	majority.Request

	refresh  *lease.Pending // nil for a renewal
	prolongs bool           // it leaves keys alone that last longer, as every renewal does
}

// Refresh asks all places that have the keys to confirm the new ttl. Where keys are missing, they are acquired again when
// enough other places have confirmed the ttl. An answer past Until extends the validity only if the lock had lapsed before
// the Refresh began.
func (l *Lock) Refresh(ctx context.Context, ttl time.Duration, metadata string, strategy retry.Strategy) error {
	if l.WasReleased() {
		return fault.ErrNotObtained
	}
	valid, stop := place.WhileValid(ctx, l, l.Home().LateAnswer())
	defer stop()
	leave := l.takeTurn(ctx)
	defer leave()
	cut, err := retry.Do(valid, nil, strategy, life.Until(l), func() (bool, error) {
		return l.tryRefresh(ctx, valid, ttl, metadata)
	})
	if cut {
		err = fault.Failed("refresh", l.keys, fmt.Errorf("%w; the last try: %w", place.Outlived(ctx), err))
	}
	if err != nil {
		life.Check(ctx, l)
	}
	return err
}

// takeTurn waits until no other Refresh is under way, because a Refresh that begins ends the one before (6b). But it waits
// no longer than the lock is valid. Call the returned function at the end of the Refresh.
func (l *Lock) takeTurn(ctx context.Context) (leave func()) {
	leave = func() { <-l.turn }
	select {
	case l.turn <- struct{}{}:
		return leave
	default:
	}
	valid, stop := place.WhileValid(ctx, l, 0)
	defer stop()
	select {
	case l.turn <- struct{}{}:
		return leave
	case <-valid.Done():
		return func() {}
	}
}

// tryRefresh refreshes the lock once. again says whether it failed in a way that makes another try worthwhile.
// place.WhileValid has made valid from ctx.
func (l *Lock) tryRefresh(ctx, valid context.Context, ttl time.Duration, metadata string) (again bool, err error) {
	if fault.Ended(valid) != nil {
		return false, fault.Failed("refresh", l.keys, place.Outlived(ctx))
	}
	free, stop := place.Detached(valid)
	defer stop()
	brief, enough := context.WithCancel(valid)
	defer enough()
	p := l.newPoll()
	q := &question{ctx: free, answers: make(outcomes[answer], 2*len(l.at))}
	waits := make([]bool, len(l.at)) // by place: an answer may come that this Refresh needs
	l.mu.Lock()
	now := time.Now()
	lapsed := l.lock.HasLapsed(now)
	if lapsed && l.Home().IsGuarded() { // nobody knows who has had the keys since
		l.mu.Unlock()
		return false, fault.ErrNotObtained
	}
	call, requests := l.lock.Refresh(now, ttl, metadata)
	q.call, l.questions = call, append(l.questions, q)
	l.pace.Follow(now, l.lock.Until(now))
	if metadata != "" {
		l.metadata = metadata
	}
	for i, at := range l.at {
		if waits[i] = at.coming != nil; waits[i] {
			transport.Go(func() { l.awaitAsked(brief, q, i) }) // ends with brief
		} else {
			p.noteLost(i, at.lost)
		}
	}
	due, asks := l.pace.Due(), l.prepare(requests)
	l.mu.Unlock()
	l.Home().Keeper.LookBy(l, due)
	for _, a := range asks {
		waits[a.Place] = true
		transport.Go(func() { l.askFor(q, a) }) // ends with the call
	}
	defer l.end(q) // also after a panic
	for decided := p.isDecided(); !decided && slices.Contains(waits, true); {
		a := <-q.answers
		a.hook.again()
		waits[a.i] = false
		decided = p.note(a.i, a.result)
	}
	err = p.err(ctx, "refresh", fault.ErrNotObtained)
	switch {
	case l.end(q):
		return false, l.refreshed(metadata)
	case err == nil: // the lock was released, or has lapsed
		return false, fault.ErrNotObtained
	case errors.Is(err, fault.ErrNotObtained):
		return false, err
	case fault.Ended(valid) != nil:
		return false, fault.Failed("refresh", l.keys, place.Outlived(ctx))
	case len(p.errs) > 0 && !slices.ContainsFunc(p.errs, func(err error) bool { return !errors.Is(err, errLate) }):
		return false, fmt.Errorf("%w: %w", fault.ErrNotObtained, err)
	case !lapsed && lease.Passed(l.until()):
		return false, fault.Failed("refresh", l.keys, fmt.Errorf("%w: %w", fault.ErrLapsed, err))
	}
	return true, err
}

// end ends a question: nobody waits for the answers any longer (6a). It reports whether a majority has confirmed the call.
func (l *Lock) end(q *question) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.questions = slices.DeleteFunc(l.questions, func(other *question) bool { return other == q })
	l.lock.Abandon(q.call)
	for _, a := range q.asked {
		if q.call.IsConfirmed() {
			a.refresh.Leave()
		} else {
			a.refresh.Abandon()
		}
	}
	return q.call.IsConfirmed()
}

// refreshed notes that a Refresh was confirmed. It returns ErrNotObtained if the confirmation came too late.
func (l *Lock) refreshed(metadata string) error {
	l.Life.Mu.Lock()
	valid := !lease.Passed(l.until())
	if l.Renewed(nil); valid {
		l.Revive(true)
	}
	l.SetMetadata(metadata)
	l.Life.Mu.Unlock()
	if !valid {
		return fault.ErrNotObtained
	}
	return nil
}

// prepare begins the refreshes of requests, in the critical section in which the majority.Lock has made these. A renewal
// that comes next must allow for the refreshes, although they are not sent yet (7). The caller holds l.mu.
func (l *Lock) prepare(requests []majority.Request) []asking {
	asks := make([]asking, len(requests))
	for i, r := range requests {
		at := l.at[r.Place]
		refreshes, writes := r.Call.Kind == majority.Refresh, r.Call.Metadata != ""
		asks[i].prolongs = !refreshes || at.Origin == claim.Random && !writes && r.Call.TTL >= l.longest(r.Place)
		at.lasts = max(at.lasts, r.Call.TTL)
		if asks[i].Request = r; refreshes {
			asks[i].refresh = at.refreshes.Add(r.Call.TTL, asks[i].prolongs, writes)
			if q := l.questionOf(r.Call); q != nil {
				q.asked = append(q.asked, asks[i])
			} else {
				asks[i].refresh.Leave() // a majority has confirmed the call
			}
		}
	}
	return asks
}

// questionOf returns the question that waits for the answers to a call; nil if nobody does. The caller holds l.mu.
func (l *Lock) questionOf(c *majority.Call) *question {
	if i := slices.IndexFunc(l.questions, func(q *question) bool { return q.call == c }); i >= 0 {
		return l.questions[i]
	}
	return nil
}

// awaitAsked waits for a place that has not answered the obtain. When the place grants the keys, it is asked to confirm the
// Refresh. Otherwise awaitAsked reports that there are no keys to refresh.
func (l *Lock) awaitAsked(ctx context.Context, q *question, i int) {
	l.await(ctx, i)
	l.mu.Lock()
	asked := slices.ContainsFunc(q.asked, func(a asking) bool { return a.Place == i })
	l.mu.Unlock()
	if !asked {
		q.answers.run(i, func() answer { return answer{err: errNoHold} })
	}
}

// askFor asks one place to confirm a Refresh that waits for the answer.
func (l *Lock) askFor(q *question, r asking) {
	q.answers.run(r.Place, func() answer { return l.ask(q.ctx, r, r.Call.Metadata) })
}

// askLate asks a place that has just got the keys to confirm a call that the other places were asked before.
func (l *Lock) askLate(r asking) {
	l.mu.Lock()
	metadata, q := l.metadata, l.questionOf(r.Call)
	l.mu.Unlock()
	if q != nil {
		l.askFor(q, r)
		return
	}
	defer func() { _ = recover() }() // a hook has panicked, and the lock is held without this place
	l.ask(l.ctx, r, metadata)
}

// errLate is the error of a place whose confirmation came too late.
var errLate = errors.New("the answer came too late to be relied on")

// ask asks one place to confirm a call. A Refresh waits for those ahead of it, as it does for a lock at one place; see
// lease.Refreshes.Ahead. If ctx ends, the request goes on without its caller.
func (l *Lock) ask(ctx context.Context, r asking, metadata string) answer {
	at, call, refresh := l.at[r.Place], r.Call, r.refresh
	l.mu.Lock()
	if refresh != nil && !l.awaitAhead(ctx, at, refresh) {
		at.refreshes.Finish(refresh)
		l.mu.Unlock()
		l.apply(ctx, r.Request, answer{Answer: majority.Answer{Result: majority.Unsent}})
		return answer{err: fault.Failed("refresh", at.Keys.Names, cmp.Or(fault.Ended(ctx), fault.ErrUnanswered))}
	}
	if l.over && at.Place.IsGuarded() || !at.BeginRefresh() { // the request could put the keys back
		if refresh != nil {
			at.refreshes.Finish(refresh)
		}
		l.mu.Unlock()
		l.apply(ctx, r.Request, answer{Answer: majority.Answer{Result: majority.Unsent}})
		return answer{err: fault.ErrNotObtained}
	}
	certain := at.refreshes.Certain(call.TTL) // 7
	c := at.RefreshCall(call.TTL, metadata, l.kept(), r.prolongs)
	c.GiveUp = l.lock.Until(time.Now())
	l.mu.Unlock()
	pending := false
	c, answered := at.SendRefresh(ctx, c, r.prolongs, func() {
		pending = true
		l.mu.Lock()
		defer l.mu.Unlock()
		if refresh != nil {
			refresh.Abandon()
		}
	}, func(calls []*transport.Call, doubtful, returned bool) {
		if last := calls[len(calls)-1]; !returned {
			last.Doubtful = doubtful
			l.asked(ctx, r, last, certain)
		}
		l.finish(r, doubtful)
	})
	switch {
	case !answered:
		return answer{err: fault.Failed("refresh", at.Keys.Names, fault.Ended(ctx))}
	case !pending:
		l.finish(r, c.Doubtful)
	}
	return l.asked(ctx, r, c, certain)
}

// awaitAhead waits for the Refreshes ahead of one at a place. It returns false if ctx ends first, or if another Refresh
// begins to wait there: a server that hangs would gather them. The caller holds l.mu, which awaitAhead releases meanwhile.
func (l *Lock) awaitAhead(ctx context.Context, at *record, refresh *lease.Pending) bool {
	ahead := at.refreshes.AheadOf(refresh)
	if ahead == nil {
		return ctx.Err() == nil
	}
	if at.giveWay != nil {
		at.giveWay()
	}
	ctx, at.giveWay = context.WithCancel(ctx)
	defer at.giveWay()
	for ; ahead != nil && ctx.Err() == nil; ahead = at.refreshes.AheadOf(refresh) {
		l.mu.Unlock()
		select {
		case <-ahead.Ended():
		case <-ctx.Done():
		}
		l.mu.Lock()
	}
	return ctx.Err() == nil
}

// finish notes that no call of ask is under way any more.
func (l *Lock) finish(r asking, doubtful bool) {
	if r.refresh == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if doubtful {
		l.at[r.Place].refreshes.Doubt(r.refresh)
	}
	l.at[r.Place].refreshes.Finish(r.refresh)
}

// asked takes the answer to a call of ask.
func (l *Lock) asked(ctx context.Context, r asking, c *transport.Call, certain time.Duration) answer {
	at := l.at[r.Place]
	a := at.read("refresh", c, certain)
	l.apply(ctx, r.Request, a)
	l.Events().SendRestored(ctx, l.keys, a.back)
	return a
}

// errClosed is the error of a place whose guard is closed. It may be about to forget the keys again, so it does not count.
var errClosed = errors.New("the guard is closed, because the server may have forgotten locks")

// read reads the reply to a refresh or a renewal. A success is certain to hold for that long.
func (r *record) read(operation string, c *transport.Call, certain time.Duration) (a answer) {
	got, err := r.ReadRefresh(operation, c)
	a.Doubtful, a.err, a.back = c.Doubtful, err, got.Back
	switch {
	case c.Err != nil:
		if c.First.IsZero() {
			a.Result = majority.Unsent
		}
	case errors.Is(err, fault.ErrNotObtained):
		a.Result, a.lost, a.taken = majority.Denied, got.Loss.Keys, got.Loss.Taken > 0
	case err == nil && !got.Closure.IsOver():
		a.err = errClosed
	case err == nil:
		a.Result, a.Until = majority.Confirmed, lease.ValidUntil(c.Sent, certain)
		if lease.Passed(a.Until) {
			a.err = errLate
		}
	}
	return a
}
