package several

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/majority"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// Mend acquires the keys again where they are missing, if a majority has confirmed the lock since that was known (9). It
// does not ask a server that hangs, or that has too many of these requests already: see health.Server.AdmitMend.
func (l *Lock) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	now := time.Now()
	for _, i := range l.lock.Missing(now) {
		s := l.places.all[i]
		if !s.health.AdmitMend(now, len(s.keys.Names), l, l.keeping) {
			continue
		}
		r, at := l.lock.Mend(i), l.at[i]
		at.lasts = max(at.lasts, r.Call.TTL)
		certain := at.refreshes.Certain(r.Call.TTL) // 7
		at.Ask()                                    // the lock is not released
		s.DetachedCalls.Add(1)
		transport.Go(func() { // ends with the call
			defer s.DetachedCalls.Add(-1)
			l.mendAt(r, certain)
		})
	}
}

// mendAt acquires the keys again at one place, which has admitted that. The request skips the lines, because this lock is
// held.
func (l *Lock) mendAt(r majority.Request, certain time.Duration) {
	i := r.Place
	s := l.places.all[i]
	a := &place.Attempt{Place: s.Place, Obtain: script.Obtain{
		Keys: s.keys.WithoutLines(), Token: l.token, Mends: true, TTL: r.Call.TTL,
		Metadata: cmp.Or(r.Call.Metadata, l.Metadata()), // the Refresh may not have returned yet
	}}
	got := answer{Answer: majority.Answer{Doubtful: true}} // the place may have the keys, but must not count
	began, answered := time.Now(), false
	var taken []string
	defer func() {
		_ = recover() // a hook has panicked, and the lock is held without this place
		s.health.MendEnded(time.Now(), time.Since(began), answered)
		l.apply(l.ctx, r, got)
		l.at[i].Ended(taken, got.Doubtful)
		switch {
		case got.Result == majority.Denied:
			l.mendSoon(i)
		case !answered:
			l.mendLater(i)
		}
	}()
	c := new(transport.Call)
	_, g, err := a.TryOnce(l.ctx, c)
	answered = c.IsAnswered()
	granted := err == nil || a.Late
	if granted {
		taken = s.keys.Names
	}
	if key := l.at[i].FenceKey; granted && key != "" && s.raise(l.ctx, l.token, key, l.Fence) != nil {
		return
	}
	got.Doubtful = a.Rest.Doubtful
	switch {
	case granted:
		got.Result, got.Until = majority.Confirmed, lease.ValidUntil(g.Since, certain)
	case errors.Is(err, fault.ErrNotObtained):
		got.Result, got.lost, got.taken = majority.Denied, s.keys.Names, !a.IsClosed()
	case c.First.IsZero():
		got.Result = majority.Unsent
	}
}

const (
	// soonAfter is how long after a refusal a place is asked again. It doubles each time.
	soonAfter = 5 * time.Millisecond

	// maxSoon bounds how often mendSoon mends at one place, which takes 155 ms, or up to twice as long.
	maxSoon = 5
)

// mendSoon mends in a moment. A place mostly refuses because a caller who has too few places is about to release the keys
// there. Until the place has the keys of this lock, one more server that forgets could give the lock to another caller.
func (l *Lock) mendSoon(i int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.at[i]; at.refused < maxSoon && !l.over {
		pause := soonAfter << at.refused
		time.AfterFunc(pause+rand.N(pause), l.Mend)
		at.refused++
	}
}

// mendLater mends when the server answers, if the lock is kept.
func (l *Lock) mendLater(i int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keeping && !l.over {
		l.places.all[i].health.Await(l)
	}
}
