package several

import (
	"context"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/transport"
)

// Free releases the keys at all places. until is the end of the validity before the Release. If a Release has found the lock
// lost, later ones say the same: what a request has acquired since did not count, and was given back.
func (l *Lock) Free(ctx context.Context, _, until time.Time) (life.Loss, error) {
	l.mu.Lock()
	if !l.over {
		l.giveUp(ctx, until)
	}
	p, before := l.newPoll(), l.foundLost
	var asked, others []int                 // the places whose answers decide, and those that are released as well
	freeings := make([]*freeing, len(l.at)) // by place
	begins := make([]bool, len(l.at))       // this Release begins that freeing
	for i, at := range l.at {
		if at.releases {
			freeings[i], begins[i] = at.nextFreeing()
		}
		if at.counts {
			asked = append(asked, i)
			continue
		}
		p.noteLost(i, at.Keys.Names)
		if at.releases {
			others = append(others, i)
		}
	}
	if p.isDecided() || before != nil {
		asked, others = nil, append(others, asked...)
	}
	until = l.counted // as the first Release: one of its unanswered requests may have freed the keys
	l.mu.Unlock()
	free, stop := place.Detached(ctx)
	defer stop()
	// Free returns when enough places have answered. The other releases go on, and Close waits for them.
	for _, i := range slices.Concat(asked, others) {
		l.places.all[i].DetachedCalls.Add(1)
	}
	brief, enough := context.WithCancel(free)
	defer enough()
	release := func(i int) answer {
		f, ended := freeings[i], func() { l.places.all[i].DetachedCalls.Add(-1) }
		send := func() answer { return l.freeAt(free, i, until) }
		switch {
		case !begins[i]:
			defer ended()
			return l.joinFreeing(brief, i, f, send)
		case f.coming != nil:
			return l.freeLate(brief, i, f, func() answer {
				defer ended()
				return f.do(free, send)
			})
		default:
			defer ended()
			return f.do(free, send)
		}
	}
	for _, i := range others {
		transport.Go(func() { // ends with the call
			catch(func() { release(i) }, func(*panicked) {})
		})
	}
	sideBySide(asked, release, p.note)
	if before != nil {
		return before.Loss, before.err
	}
	err := p.err(ctx, "release", fault.ErrLockNotHeld)
	l.mu.Lock()
	defer l.mu.Unlock()
	loss := life.Loss{Cause: l.lossCause(), Keys: p.loss.Keys}
	switch {
	case err == nil:
		for _, at := range l.at {
			at.freed = false
		}
	case p.isLost(): // otherwise the cause of a ctx may match ErrLockNotHeld
		l.foundLost = &lossFound{loss, err}
	}
	return loss, err
}

// giveUp ends the lock, and decides how a Release frees each place. The caller holds l.mu.
func (l *Lock) giveUp(ctx context.Context, until time.Time) {
	l.over, l.counted = true, until
	for i, at := range l.at {
		at.counts = l.counts(i)
		switch {
		case at.had, at.coming != nil, at.Obtained == 0: // another handle may have got the keys back
			at.releases = true
		case l.lock.IsAcquiring(i): // acquired releases what the place grants (10b)
		case l.lock.MayAcquire(i):
			l.giveBack(ctx, i)
		}
	}
	l.lock.End()
}

// counts reports whether a Release counts how a place answers. If the place is known to have lost all keys, it does not: a
// guard that is closed does not say that keys were gone. The caller holds l.mu.
func (l *Lock) counts(i int) bool {
	switch at := l.at[i]; {
	case at.coming != nil, at.Obtained == 0: // see freeLate; and another handle may have got the keys back
		return true
	case l.lock.IsAcquiring(i):
		return false
	default:
		return at.had && (at.partly || len(at.lost) < len(at.Keys.Names))
	}
}

// freeAt releases the keys at one place, unless that has never had them.
func (l *Lock) freeAt(ctx context.Context, i int, until time.Time) answer {
	at := l.at[i]
	l.mu.Lock()
	has, longest := at.had || at.Obtained == 0, l.longest(i)
	l.mu.Unlock()
	if !has {
		return at.missing()
	}
	loss, err := at.Free(ctx, time.Now(), until, longest)
	l.mu.Lock()
	defer l.mu.Unlock()
	at.taken = at.taken || loss.Cause == life.Taken
	switch {
	case err == nil:
		at.freed = true
	case err == fault.ErrLockNotHeld && at.freed:
		return answer{} // an earlier Release freed the keys here, but at too few places
	}
	return answer{lost: loss.Keys, err: err}
}

// missing is the answer of a place that has never had the keys.
func (r *record) missing() answer { return answer{lost: r.Keys.Names, err: fault.ErrLockNotHeld} }

// freeing is what a Release does at one place.
type freeing struct {
	coming <-chan struct{} // closed when the place has answered the obtain; nil if it had before
	ended  chan struct{}   // closed when the freeing has ended; the fields below are set before
	answer answer
	isCut  bool // the ctx of the Release has ended first, and the tries go on
}

// nextFreeing returns the freeing of a Release that begins, and whether it is a new one. Before a place has answered the
// obtain, and while what it has granted is then being freed, all Releases share one freeing: none of them could join a call,
// and the second would take for lost what the first has just freed. The caller holds Lock.mu.
func (r *record) nextFreeing() (f *freeing, isNew bool) {
	if f = r.freeing; f != nil && f.coming != nil && !fault.IsClosed(f.ended) {
		return f, false
	}
	f = &freeing{coming: r.coming, ended: make(chan struct{}), answer: answer{err: fault.ErrPanicked}} // unless send returns
	r.freeing = f
	return f, true
}

// do carries a freeing out, by send, which ctx may cut.
func (f *freeing) do(ctx context.Context, send func() answer) answer {
	defer close(f.ended)
	f.answer = send()
	f.isCut = f.answer.err != nil && f.answer.lost == nil && ctx.Err() != nil
	return f.answer
}

// freeLate carries out a freeing at a place that has not answered the obtain yet, as soon as it has. If await gives up
// before that, the place counts as one that has never had the keys.
func (l *Lock) freeLate(ctx context.Context, i int, f *freeing, do func() answer) answer {
	freed := make(outcomes[answer], 1)
	transport.Go(func() { // ends with the call
		<-f.coming
		freed.run(i, do)
	})
	if !l.await(ctx, i) {
		return l.at[i].missing()
	}
	o := <-freed
	o.hook.again()
	return o.result
}

// joinFreeing waits for the freeing of an earlier Release, and returns its answer. If that was cut, joinFreeing calls send,
// which joins the tries that go on.
func (l *Lock) joinFreeing(ctx context.Context, i int, f *freeing, send func() answer) answer {
	if !l.await(ctx, i) {
		return l.at[i].missing()
	}
	select {
	case <-f.ended:
	case <-ctx.Done():
		return answer{err: fault.ErrUnanswered}
	}
	if f.isCut {
		return send()
	}
	return f.answer
}
