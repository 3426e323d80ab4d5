package several

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/majority"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/retry"
	"github.com/redislock/redislock/internal/transport"
)

// A question is a Refresh that waits for answers.
type question struct {
	call  *majority.Call
	ctx   context.Context
	heard chan heard // a place may be heard twice: when it is not being acquired any more, and when it has answered

	refreshes []*lease.Pending // at the places; Lock.mu protects it
}

// heard is how one place has answered a question, or could not be asked.
type heard struct {
	i        int
	lost     []string // the keys that the place has lost; nil for none
	err      error
	panicked *panicked // nil if no hook has panicked
}

// hear tells the question what a place has answered.
func (q *question) hear(a heard) {
	select {
	case q.heard <- a:
	default: // it was told so often that it has ended
	}
}

// Refresh asks all places that have the keys to confirm the new ttl. Those that miss them acquire them again when enough
// others have confirmed it.
func (h *Lock) Refresh(ctx context.Context, ttl time.Duration, metadata string, strategy retry.Strategy) error {
	if h.WasReleased() {
		return fault.ErrNotObtained
	}
	valid, stop := place.WhileValid(ctx, h, place.LateAnswer)
	defer stop()
	leave := h.takeTurn(ctx)
	defer leave()
	cut, err := retry.Do(valid, nil, strategy, life.Until(h), func() (bool, error) {
		return h.tryRefresh(ctx, valid, ttl, metadata)
	})
	if cut {
		err = fault.Failed("refresh", h.keys, fmt.Errorf("%w; the last try: %w", place.Outlived(ctx), err))
	}
	if err != nil {
		life.Check(ctx, h)
	}
	return err
}

// takeTurn waits for the end of the Refresh whose turn it is, but no longer than the lock is valid: a Refresh that begins
// ends the one before it (6b). Call the returned function at the end.
func (h *Lock) takeTurn(ctx context.Context) (leave func()) {
	leave = func() { <-h.turn }
	select {
	case h.turn <- struct{}{}:
		return leave
	default:
	}
	valid, stop := place.WhileValid(ctx, h, 0)
	defer stop()
	select {
	case h.turn <- struct{}{}:
		return leave
	case <-valid.Done():
		return func() {}
	}
}

// tryRefresh refreshes the lock once. It reports whether that failed in a way that makes another try worthwhile. valid
// comes from place.WhileValid.
func (h *Lock) tryRefresh(ctx, valid context.Context, ttl time.Duration, metadata string) (again bool, err error) {
	if fault.Ended(valid) != nil {
		return false, fault.Failed("refresh", h.keys, place.Outlived(ctx))
	}
	free, stop := place.Detached(valid)
	defer stop()
	p := h.newPoll()
	q := &question{ctx: free, heard: make(chan heard, 2*len(h.at))}
	waits, acquiring := make([]bool, len(h.at)), false // for which places
	h.mu.Lock()
	now := time.Now()
	lapsed := h.lock.HasLapsed(now)
	call, requests := h.lock.Refresh(now, ttl, metadata)
	q.call, h.questions = call, append(h.questions, q)
	h.pace.Follow(now, h.lock.Until(now))
	if metadata != "" {
		h.metadata = metadata
	}
	for i := range h.at {
		switch {
		case h.at[i].coming != nil:
			waits[i], acquiring = true, true
		case h.at[i].lost != nil:
			p.noteLost(i, h.at[i].lost)
		}
	}
	due, asks := h.pace.Due(), h.begin(requests)
	h.mu.Unlock()
	h.renewals().LookBy(h, due)
	for _, a := range asks {
		waits[a.Place] = true
		transport.Go(func() { h.askFor(q, a) }) // ends with the call
	}
	confirmed := func() bool { // also after a panic
		h.mu.Lock()
		defer h.mu.Unlock()
		h.questions = slices.DeleteFunc(h.questions, func(other *question) bool { return other == q })
		h.lock.Abandon(call) // 6a
		for _, r := range q.refreshes {
			if call.IsConfirmed() {
				r.Leave()
			} else {
				r.Abandon()
			}
		}
		return call.IsConfirmed()
	}
	defer confirmed()
	p.listen(valid, q, waits, acquiring)
	err = p.err(ctx, "refresh", fault.ErrNotObtained)
	switch {
	case confirmed():
		return false, h.refreshed(metadata)
	case err == nil: // it was released, or has lapsed
		return false, fault.ErrNotObtained
	case errors.Is(err, fault.ErrNotObtained):
		return false, err
	case fault.Ended(valid) != nil:
		return false, fault.Failed("refresh", h.keys, place.Outlived(ctx))
	case len(p.errs) > 0 && !slices.ContainsFunc(p.errs, func(err error) bool { return !errors.Is(err, errLate) }):
		return false, fmt.Errorf("%w: %w", fault.ErrNotObtained, err)
	case !lapsed && lease.Passed(h.until()):
		return false, fault.Failed("refresh", h.keys, fmt.Errorf("%w: %w", fault.ErrLapsed, err))
	}
	return true, err
}

// listen waits for the answers of those places, until they decide. If some places are still being acquired, it waits for
// these as await does.
func (p *poll) listen(valid context.Context, q *question, waits []bool, acquiring bool) {
	enough := p.isDecided()
	var impatient <-chan time.Time
	var over <-chan struct{}
	if acquiring {
		timer := time.NewTimer(health.FirstPatience)
		defer timer.Stop()
		impatient, over = timer.C, valid.Done()
	}
	for !enough && slices.Contains(waits, true) {
		select {
		case a := <-q.heard:
			a.panicked.again()
			waits[a.i] = false
			enough = p.note(a.i, a.lost, a.err)
			continue
		case <-impatient:
		case <-over:
		}
		impatient, over = nil, nil
		p.h.mu.Lock()
		for i := range waits {
			waits[i] = waits[i] && p.h.at[i].coming == nil
		}
		p.h.mu.Unlock()
	}
}

// refreshed notes that a Refresh was confirmed.
func (h *Lock) refreshed(metadata string) error {
	h.Life.Mu.Lock()
	valid := !lease.Passed(h.until())
	if h.Renewed(nil); valid {
		h.Revive(true)
	}
	h.SetMetadata(metadata)
	h.Life.Mu.Unlock()
	if !valid {
		return fault.ErrNotObtained
	}
	return nil
}

// asking is a request to one place to confirm a call.
type asking struct {
	majority.Request

	refresh *lease.Pending // nil for a call that shortens no ttl
}

// begin begins the refreshes of requests. It does so in the moment in which the requests are made: a renewal that comes now
// must allow for them, although they wait until they are sent (7). The caller holds h.mu.
func (h *Lock) begin(requests []majority.Request) []asking {
	asks := make([]asking, len(requests))
	for i, r := range requests {
		if asks[i].Request = r; r.Call.Kind == majority.Refresh {
			refresh := h.at[r.Place].refreshes.Add(r.Call.TTL, r.Call.Metadata != "")
			asks[i].refresh = refresh
			if q := h.questionOf(r.Call); q != nil {
				q.refreshes = append(q.refreshes, refresh)
			} else {
				refresh.Leave() // a majority has confirmed the call
			}
		}
	}
	return asks
}

// questionOf returns the question that waits for the answers to a call, or nil if nobody does. The caller holds h.mu.
func (h *Lock) questionOf(c *majority.Call) *question {
	if i := slices.IndexFunc(h.questions, func(q *question) bool { return q.call == c }); i >= 0 {
		return h.questions[i]
	}
	return nil
}

// askFor asks one place to confirm a Refresh, and tells the question what it has answered.
func (h *Lock) askFor(q *question, r asking) {
	a := heard{r.Place, nil, fault.ErrPanicked, &panicked{}} // unless ask returns
	defer func() {
		if a.panicked != nil {
			a.panicked.value = recover()
		}
		q.hear(a)
	}()
	a.lost, a.err = h.ask(q.ctx, r, r.Call.Metadata)
	a.panicked = nil
}

// askLate asks a place that has the keys now to confirm a call that has asked the others before.
func (h *Lock) askLate(r asking) {
	h.mu.Lock()
	metadata, q := h.metadata, h.questionOf(r.Call)
	h.mu.Unlock()
	if q != nil {
		h.askFor(q, r)
		return
	}
	defer func() { _ = recover() }() // a hook has panicked, and the lock is held without this place
	_, _ = h.ask(h.ctx, r, metadata)
}

// errLate is the error of a refresh at one place that came too late.
var errLate = errors.New("the answer came too late to be relied on")

// ask asks one place to confirm a call, and returns which keys it has lost and what has failed there. A Refresh waits for
// its turn, as at one place: see lease.Refreshes.Ahead. If ctx ends, the request goes on without its caller.
func (h *Lock) ask(ctx context.Context, r asking, metadata string) (lost []string, err error) {
	at, call, refresh := &h.at[r.Place], r.Call, r.refresh
	h.mu.Lock()
	if refresh != nil {
		for ahead := at.refreshes.AheadOf(refresh); ahead != nil && ctx.Err() == nil; ahead = at.refreshes.AheadOf(refresh) {
			h.mu.Unlock()
			select {
			case <-ahead.Ended():
			case <-ctx.Done():
			}
			h.mu.Lock()
		}
		if ctx.Err() != nil {
			at.refreshes.Finish(refresh)
			h.mu.Unlock()
			h.answer(ctx, r.Request, reply{Answer: majority.Answer{Result: majority.Unsent}})
			return nil, fault.Failed("refresh", at.Keys.Names, fault.Ended(ctx))
		}
	}
	certain := at.refreshes.Certain(call.TTL) // 7
	giveUp := h.lock.Until(time.Now())
	h.mu.Unlock()
	c := at.RefreshCall(call.TTL, metadata, refresh == nil)
	c.Ctx, c.GiveUp = ctx, giveUp
	returned := false
	defer func() {
		if !returned { // a hook has panicked, and it is not known what the server did
			c.Doubtful = true
			c.Err = fault.ErrPanicked
			_, _ = h.asked(ctx, r, c, certain)
		}
	}()
	answered := at.Place.Redis.Do(ctx, c)
	returned = true
	if answered {
		return h.asked(ctx, r, c, certain)
	}
	h.mu.Lock()
	if refresh != nil {
		refresh.Abandon()
	}
	h.mu.Unlock()
	go func() { // ends with the call
		<-c.Done()
		_, _ = h.asked(ctx, r, c, certain)
	}()
	return nil, fault.Failed("refresh", at.Keys.Names, fault.Ended(ctx))
}

// asked takes the answer to a request of ask, which has ended.
func (h *Lock) asked(ctx context.Context, r asking, c *transport.Call, certain time.Duration) (lost []string, err error) {
	at := &h.at[r.Place]
	a := at.read("refresh", c, certain)
	h.mu.Lock()
	if r.refresh != nil {
		if c.Doubtful {
			at.refreshes.Doubt(r.refresh)
		}
		at.refreshes.Finish(r.refresh)
	}
	h.mu.Unlock()
	h.answer(ctx, r.Request, a)
	return a.lost, a.err
}

// read reads the reply to a refresh or a renewal, whose success is certain to hold for that ttl.
func (at *standing) read(operation string, c *transport.Call, certain time.Duration) (a reply) {
	a.Doubtful = c.Doubtful
	if c.Err != nil {
		if c.First.IsZero() {
			a.Result = majority.Unsent
		}
		a.err = fault.Failed(operation, at.Keys.Names, fault.WithHint(at.Keys.Names, c.Err))
		return a
	}
	switch loss, err := at.Place.ReadLoss(at.Keys.Names, c.Reply, fault.ErrNotObtained); {
	case errors.Is(err, fault.ErrNotObtained):
		a.Result, a.err, a.lost, a.taken = majority.Denied, err, loss.Keys, loss.Taken > 0
		return a
	case err != nil:
		a.err = fault.Failed(operation, at.Keys.Names, err)
		return a
	}
	a.Result, a.Until = majority.Confirmed, lease.ValidUntil(c.Sent, certain)
	if lease.Passed(a.Until) {
		a.err = errLate
	}
	return a
}
