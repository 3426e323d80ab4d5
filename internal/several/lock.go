package several

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/life"
	"github.com/redislock/redislock/internal/majority"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/schedule"
	"github.com/redislock/redislock/internal/transport"
	"github.com/redislock/redislock/internal/undo"
)

// Lock is a lock at several places. Its majority.Lock decides what it has at each of them, and until when it is valid.
// This type asks what that wants asked, and does what package majority leaves to its owner: it counts confirmations from
// their sending, allows for refreshes that may still be executed (7), gives up a call for which nobody waits any longer
// (6a), and gives back everything at the end (10).
//
// Lock.mu may be locked while Life.Mu is; never the other way round.
type Lock struct {
	life.Life

	keys     []string
	token    string
	places   *Group
	fenceKey string
	obtained time.Duration   // the ttl of the obtain; 0 if attached
	ctx      context.Context // never ends; has the values of the call that made the lock, for calls without a caller
	turn     chan struct{}   // has room for one: the Refresh whose turn it is
	entry    schedule.Entry  // its place among the renewals

	mu        sync.Mutex // protects the fields below
	lock      *majority.Lock
	at        []standing  // by place
	pace      lease.Pace  // of the renewals
	keeping   bool        // the lock is kept
	over      bool        // it was released
	counted   time.Time   // until when it was valid before that
	metadata  string      // of the last Refresh that had any
	questions []*question // of the Refreshes under way
}

// newLock returns a lock, and its claims at all places. Its majority.Lock is still to be set.
func newLock(ctx context.Context, places *Group, keys []string, token string) *Lock {
	h := &Lock{
		keys: keys, token: token, places: places, ctx: context.WithoutCancel(ctx),
		turn: make(chan struct{}, 1), at: make([]standing, len(places.all)),
	}
	for i, p := range places.all {
		k := &h.at[i].Claim
		k.Place, k.Keys, k.Token = p.Place, p.keys, token
	}
	return h
}

// Handle returns what the handle knows of the lock.
func (h *Lock) Handle() *life.Life { return &h.Life }

// Names returns the keys and the token.
func (h *Lock) Names() (keys []string, token string) { return h.keys, h.token }

// Events returns what the owner of the Client wants to be told.
func (h *Lock) Events() *life.Events { return h.places.set.Events }

// ValidUntil is until, but a lock that was found lost has ended: its caller was told so, and only a Refresh
// says that it has come back. A place that is mended meanwhile may give it a majority again.
func (h *Lock) ValidUntil() time.Time {
	if h.IsLost() {
		return time.Time{}
	}
	return h.until()
}

// KnowsTTL reports whether there is a ttl to renew the lock with.
func (h *Lock) KnowsTTL() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lock.TTL() > 0
}

// FoundLost ends a lock of which too many places have lost keys; see life.Bearer.
func (h *Lock) FoundLost() *life.Lost {
	loss, why := h.loss()
	if why == nil {
		return nil
	}
	return life.Lose(h, loss, why)
}

// until returns the end of the validity.
func (h *Lock) until() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lock.Until(time.Now())
}

// isFenced reports whether the counter at the place of a new hold must be as high as the fencing token of the lock.
func (h *Lock) isFenced() bool { return h.fenceKey != "" && h.places.quorum }

// raise raises the counter at a place, and reports whether it is at least the fencing token of the lock then.
func (h *Lock) raise(ctx context.Context, i int) bool {
	k := &h.at[i].Claim
	counter, err := k.Place.FenceTo(ctx, k.Keys.Names, k.Token, k.Keys, h.fenceKey, h.Fence)
	return err == nil && counter > 0
}

// reply is the answer of a place, and what only the lock of a caller has to know of it.
type reply struct {
	majority.Answer

	err   error    // what has failed, or that keys are lost
	lost  []string // the keys that the place has lost, or has not granted
	taken bool     // another has some of them
}

// answer takes the answer of a place to a request, and does what follows from it. ctx has the values of the request. It
// also returns the end of the validity before.
func (h *Lock) answer(ctx context.Context, r majority.Request, a reply) (out majority.Outcome, before time.Time) {
	i, now := r.Place, time.Now()
	p := h.places.all[i]
	h.mu.Lock()
	before = h.lock.Until(now)
	out = h.lock.Answer(r, now, a.Answer)
	until := h.lock.Until(now)
	at := &h.at[i]
	switch {
	case a.Result == majority.Confirmed:
		if h.lock.IsHeld(i) || r.Acquires { // otherwise this is older than the loss
			at.lost, at.taken, at.partly, at.refused = nil, false, false, 0
		}
		if at.lasts = max(at.lasts, r.Call.TTL); r.Call.Kind == majority.Refresh && !r.Acquires { // nothing else shortens it
			at.lasts = r.Call.TTL
		}
	case out.Lost, a.Result == majority.Denied && r.Call.Kind == majority.Attach: // not what an older request has found
		at.lost, at.taken, at.partly = a.lost, a.taken, false
	}
	switch answered := a.Result == majority.Confirmed || a.Result == majority.Denied; {
	case r.Acquires:
		h.acquired(ctx, i, a, out.Asks)
	case answered:
		p.health.Answers(now)
	}
	if out.Confirmed {
		h.pace.Extend(r.Call.Began, until)
	} else {
		h.pace.Follow(now, until)
	}
	kept, needsRound := h.keeping, (out.Confirmed || out.Lost && r.Call.IsConfirmed()) && h.lock.NeedsRound(now)
	if out.Lost || needsRound { // a place may be lost before the others confirm the call
		h.pace.Hasten(now)
	}
	due, asks := h.pace.Due(), h.begin(out.Asks)
	h.mu.Unlock()
	for _, ask := range asks {
		transport.Go(func() { h.askLate(ask) }) // ends with the call
	}
	if out.Confirmed {
		h.Mend()
	}
	switch {
	case kept:
		h.renewals().LookBy(h, due)
	case needsRound:
		h.renewOnce()
	}
	if out.Lost {
		life.Check(ctx, h)
	}
	return out, before
}

// acquired deals with the answer to a request that was to acquire the keys, and after which the place is to be asked for
// others. The caller holds h.mu.
func (h *Lock) acquired(ctx context.Context, i int, a reply, asks []majority.Request) {
	at := &h.at[i]
	switch {
	case a.Result == majority.Confirmed:
	case at.coming != nil: // the place has never had the keys
		at.lost = a.lost
	case a.Result == majority.Denied && at.lost == nil && !h.lock.IsHeld(i):
		at.lost, at.partly = a.lost, true
	}
	at.taken = at.taken || a.taken
	if at.coming != nil {
		at.arrived()
		h.tellQuestions(i, asks)
	}
	if a.Doubtful {
		at.Doubt()
	}
	// 10b. A place that has refused may have some of the keys all the same, from before it lost the others.
	if h.over && (a.Result != majority.Denied || a.Doubtful || at.hasSome() || h.lock.MayAcquire(i)) {
		h.giveBack(ctx, i)
	}
}

// tellQuestions tells the Refreshes that wait for a place that it is not being acquired any more, unless it is asked for
// them now. The caller holds h.mu.
func (h *Lock) tellQuestions(i int, asks []majority.Request) {
	for _, q := range h.questions {
		if !slices.ContainsFunc(asks, func(r majority.Request) bool { return r.Call == q.call }) {
			q.hear(heard{i: i, err: errNoHold})
		}
	}
}

// giveBack releases, in the background, what the token may have at a place. The caller holds h.mu.
func (h *Lock) giveBack(ctx context.Context, i int) {
	k := &h.at[i].Claim
	x := undo.New(k.Place.ReleaseCall(ctx, k.Token, k.Keys), undo.Late, k.Keys.Names, h.longest(i))
	x.Again = h.lock.MayAcquire(i)
	k.Place.Cleanups.Sweep(x, 0)
}

// longest returns for how long the keys at a place may last. The caller holds h.mu.
func (h *Lock) longest(i int) time.Duration {
	longest := max(h.obtained, h.lock.TTL(), h.at[i].lasts, h.at[i].refreshes.Longest())
	if h.obtained == 0 && h.at[i].lasts == 0 { // the ttl that another handle has given them is not known
		longest = max(longest, place.AttachedTTL)
	}
	return longest
}

// loss returns what is lost, and why the lock is no longer held; nil if it is, as far as is known.
func (h *Lock) loss() (life.Loss, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	lost, gone := make([][]string, len(h.at)), 0
	for i := range h.at {
		if lost[i] = h.at[i].lost; lost[i] != nil {
			gone++
		}
	}
	if gone <= h.places.spare() {
		return life.Loss{}, nil
	}
	missing := h.missing(lost)
	loss, why := life.Loss{Cause: h.lossCause(), Keys: missing.Keys}, h.lossError(missing, fault.ErrLockNotHeld)
	if why == fault.ErrLockNotHeld {
		why = fmt.Errorf("%w: %s is gone or another's at %d of %d places",
			fault.ErrLockNotHeld, fault.Describe(h.keys), gone, len(h.at))
	}
	return loss, why
}

// lossCause returns Taken if another holder has some key of the lock, as far as is known. The caller holds h.mu.
func (h *Lock) lossCause() life.Cause {
	for i := range h.at {
		if h.at[i].taken {
			return life.Taken
		}
	}
	return life.Gone
}

// errNoHold is the result of a place that has no keys of the lock, and that a call therefore does not ask.
var errNoHold = errors.New("no hold")
