package several

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/claim"
	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/majority"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/schedule"
	"github.com/redislock/redislock/internal/transport"
)

// Lock is a lock at several places. Its majority.Lock decides what it has at each of them, and until when it is valid. The
// Lock sends the requests that the majority.Lock returns, and does what package majority leaves to the owner: it counts
// confirmations from when the request was sent, allows for refreshes that may still be executed (7), abandons a call for
// which nobody waits any longer (6a), and gives everything back at the end (10). Numbers in comments are those of these
// rules.
type Lock struct {
	life.Life

	keys   []string
	token  string
	places *Group
	ctx    context.Context // never ends; has the values of the call that made the lock, for calls without a caller
	turn   chan struct{}   // has room for one: the Refresh whose turn it is
	entry  schedule.Entry  // in the schedule of renewals

	mu        sync.Mutex // protects the fields below; may be locked while Life.Mu is, and never the other way round
	lock      *majority.Lock
	at        []*record   // by place
	pace      lease.Pace  // of the renewals
	keeping   bool        // the lock is kept
	over      bool        // it was released
	counted   time.Time   // until when it was valid before that
	found     *finding    // of the first Release that has found out what became of the keys; the others return the same
	obtained  string      // the metadata of the obtain
	metadata  string      // of the last Refresh that had any
	questions []*question // of the Refreshes under way
}

// record is what a lock notes of one of its places, apart from what its majority.Lock knows. The hold has its own mutex,
// and Lock.mu protects the other fields.
type record struct {
	place.Hold

	lost      []string        // the keys that the place has lost; nil for none
	taken     bool            // another has some of them
	partly    bool            // the place may still have some of them: a refusal does not say which keys are another's
	had       bool            // the place has had the keys; a Release frees them there whatever it has answered since
	refreshes lease.Refreshes // that may still be executed there
	giveWay   func()          // ends the waiting of the last Refresh that has waited for those ahead; nil if none has
	lasts     time.Duration   // the longest ttl in a refresh, renewal or mend for the place
	refused   int             // how often the place has refused a mend since it had the keys last
	coming    chan struct{}   // closed when the place has answered the obtain or a mend; nil if it has, or is not asked

	// Until when the place was known to have the keys: those that are not lost, from when the others were found lost, or all,
	// from when the lock was given up. Zero if it was not.
	held time.Time

	// What a Release goes by, from when the lock was given up:
	again bool     // it was being asked again for keys that it had lost
	gone  []string // the keys that count as lost whatever the place answers; nil if its answer counts
}

// newLock returns a lock, and its claims at all places. Its majority.Lock is still to be set.
func newLock(ctx context.Context, places *Group, keys []string, token string) *Lock {
	l := &Lock{
		keys: keys, token: token, places: places, ctx: context.WithoutCancel(ctx),
		turn: make(chan struct{}, 1), at: make([]*record, len(places.all)),
	}
	for i, s := range places.all {
		l.at[i] = &record{}
		l.at[i].Begin(s.Place, token, s.keys, claim.Attached)
	}
	return l
}

// Handle returns what the handle knows of the lock.
func (l *Lock) Handle() *life.Life { return &l.Life }

// Names returns the keys and the token.
func (l *Lock) Names() (keys []string, token string) { return l.keys, l.token }

// Events returns which events the owner of the Client wants.
func (l *Lock) Events() *life.Events { return l.places.set.Events }

// Home returns the first place, whose Keeper renews the lock.
func (l *Lock) Home() *place.Place { return l.places.all[0].Place }

// ValidUntil returns the end of the validity; the zero time for a lock that was found lost. Its caller was told of the
// loss, so only a Refresh makes it valid again, although a mend may give it a majority before that.
func (l *Lock) ValidUntil() time.Time {
	if l.IsLost() {
		return time.Time{}
	}
	return l.until()
}

// KnowsTTL reports whether there is a ttl to renew the lock with.
func (l *Lock) KnowsTTL() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lock.TTL() > 0
}

// FoundLost ends a lock of which too many places have lost keys; see life.Owner.
func (l *Lock) FoundLost() *life.Lost {
	l.mu.Lock()
	p, cause := l.losses(), l.lossCause()
	l.mu.Unlock()
	if !p.isLost() {
		return nil
	}
	why := p.lossError(fault.ErrLockNotHeld)
	if why == fault.ErrLockNotHeld {
		why = fmt.Errorf("%w: %s is gone or another's at %d of %d places", why, fault.Describe(l.keys), p.gone, len(l.at))
	}
	return life.Lose(l, life.Loss{Cause: cause, Keys: p.loss.Keys}, why)
}

// losses returns what is known to be lost. The caller holds l.mu.
func (l *Lock) losses() *poll {
	p := l.newPoll()
	for i, at := range l.at {
		p.noteLost(i, at.lost)
	}
	return p
}

// lossCause returns Taken if another holder has some key of the lock, as far as is known. The caller holds l.mu.
func (l *Lock) lossCause() life.Cause {
	if slices.ContainsFunc(l.at, func(at *record) bool { return at.taken }) {
		return life.Taken
	}
	return life.Gone
}

// until returns the end of the validity.
func (l *Lock) until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lock.Until(time.Now())
}

// kept returns the metadata of keys that a guard puts back. The caller holds l.mu.
func (l *Lock) kept() string { return cmp.Or(l.metadata, l.obtained) }

// await waits until a place has answered the obtain that made the lock: for as long as for a server that nobody knows yet,
// and no longer than ctx allows. Without this, a call could fail that a majority answers, if one more server hangs.
func (l *Lock) await(ctx context.Context, i int) {
	l.mu.Lock()
	coming := l.at[i].coming
	l.mu.Unlock()
	if coming == nil {
		return
	}
	timer := time.NewTimer(health.FirstPatience)
	defer timer.Stop()
	select {
	case <-coming:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// noteHad notes that a place has had the keys.
func (l *Lock) noteHad(i int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at[i].had = true
}

// apply takes the answer of a place to a request, and does what follows from it. ctx has the values of the request. It
// also returns the end of the validity before.
func (l *Lock) apply(ctx context.Context, r majority.Request, a answer) (out majority.Outcome, before time.Time) {
	i, now := r.Place, time.Now()
	l.mu.Lock()
	before = l.lock.Until(now)
	held := l.lock.HeldUntil(i)
	out = l.lock.Answer(r, now, a.Answer)
	until := l.lock.Until(now)
	at, confirmed, denied := l.at[i], a.Result == majority.Confirmed, a.Result == majority.Denied
	at.had = at.had || confirmed || a.has
	switch {
	case confirmed && (l.lock.IsHeld(i) || r.Acquires): // otherwise the answer is older than the loss
		at.lost, at.taken, at.partly, at.refused = nil, false, false, 0
	case out.Lost, denied && r.Call.Kind == majority.Attach: // not what an older request has found
		at.lost, at.taken, at.partly, at.held = a.lost, a.taken, false, held
	case !l.over || r.Acquires || at.again || !l.lock.IsLatest(r.Call): // a Release does not go by this answer
	case confirmed && at.lost == nil:
		at.Know(a.Until)
	case denied && len(a.lost) > len(at.lost):
		at.taken = at.taken || a.taken
		at.Lose(at.loss(a.lost), at.held)
	}
	switch {
	case r.Acquires:
		l.acquired(i, a)
	case confirmed || denied:
		l.places.all[i].health.Answered(now)
	}
	if out.Confirmed {
		l.pace.Extend(r.Call.Began, until)
	} else {
		l.pace.Follow(now, until)
	}
	kept, needsRound := l.keeping, (out.Confirmed || out.Lost && r.Call.IsConfirmed()) && l.lock.NeedsRound(now)
	if out.Lost || needsRound { // a place may be lost before the others confirm the call
		l.pace.Hasten(now)
	}
	due, asks := l.pace.Due(), l.prepare(out.Asks)
	l.mu.Unlock()
	for _, ask := range asks {
		transport.Go(func() { l.askLate(ask) }) // ends with the call
	}
	if out.Confirmed {
		l.Mend()
	}
	switch {
	case kept:
		l.Home().Keeper.LookBy(l, due)
	case needsRound:
		l.renewOnce()
	}
	if out.Lost {
		life.Check(ctx, l)
	}
	return out, before
}

// acquired notes the answer to a request that was to acquire the keys. The caller holds l.mu.
func (l *Lock) acquired(i int, a answer) {
	at := l.at[i]
	awaited := at.coming != nil
	switch {
	case a.Result == majority.Confirmed:
	case awaited: // the place has never had the keys
		at.lost = a.lost
	case a.Result == majority.Denied && at.lost == nil && !l.lock.IsHeld(i):
		at.lost, at.partly = a.lost, true
	}
	at.taken = at.taken || a.taken
	if awaited {
		close(at.coming)
		at.coming = nil
	}
}

// longest returns for how long the keys at a place may last, as far as this handle knows: any request may be the last one
// that the server executes. The caller holds l.mu.
func (l *Lock) longest(i int) time.Duration { return max(l.at[i].Lasts, l.at[i].lasts) }
