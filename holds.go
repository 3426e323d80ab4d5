package redislock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/transport"
)

// holds are what a lock on several places consists of: a Lock for each place, which refreshes, renews and releases the
// keys there. The whole is valid as long as enough of them are.
//
// holds.mu may be locked while Lock.mu of the whole is, and Lock.mu of a hold while holds.mu is; never the other way
// round.
type holds struct {
	places   *places
	whole    *Lock
	token    string
	fence    int64
	fenceKey string

	mu    sync.Mutex      // protects the fields below
	at    []hold          // by place
	over  bool            // released or lost: nothing is added
	shown time.Time       // the end of the validity that a Tracer was last told of
	kept  context.Context // the values for renewals; nil unless the lock is kept
	last  lastRefresh
}

// lastRefresh is what the last Refresh has asked for.
type lastRefresh struct {
	ttl      time.Duration // 0 if there was none
	metadata string        // of the last Refresh that had any
}

// hold is what a lock has at one place.
type hold struct {
	lock    *Lock              // nil for none
	counts  bool               // it counts for the validity
	stop    context.CancelFunc // stops its renewals; nil if it is not kept
	heard   time.Time          // when the last request was sent that confirmed it
	missing time.Time          // when the place was last found without it; zero if it has it
	lost    []string           // the keys that another has there, or that are gone; nil for none
	unsure  bool               // a request may have acquired keys unnoticed
	freed   bool               // a Release has freed it
	mending bool               // it is being obtained again
}

// until returns the end of the validity: the need-th largest of those of the holds.
func (h *holds) until() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.untilLocked()
}

func (h *holds) untilLocked() time.Time {
	var room [8]time.Time
	all := room[:0]
	for i := range h.at {
		if at := &h.at[i]; at.lock != nil && at.counts {
			all = append(all, at.lock.leaseUntil())
		}
	}
	if len(all) < h.places.need {
		return time.Time{}
	}
	slices.SortFunc(all, func(a, b time.Time) int { return b.Compare(a) })
	return all[h.places.need-1]
}

// leaseUntil returns the end of the validity of a hold.
func (l *Lock) leaseUntil() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lease.Until()
}

// put adds a hold. The caller holds h.mu, or is alone.
func (h *holds) put(i int, lock *Lock) {
	lock.holds, lock.number = h, int32(i+1)
	at := &h.at[i]
	*at = hold{lock: lock, counts: h.fence == 0 || lock.fence != 0 && lock.fence <= h.fence || !h.places.isQuorum(), heard: lock.since}
	if h.kept != nil {
		h.keepAt(i)
	}
}

// join adds a hold that was granted after the lock was made, or gives it back if the lock has ended.
//
// With a fence key, a hold counts only if its place has seen no larger fencing token: otherwise somebody else may have
// held the lock in between.
func (h *holds) join(ctx context.Context, i int, lock *Lock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		h.giveBack(ctx, i, lock.obtained)
		return
	}
	h.put(i, lock)
	if last := h.last; last.ttl > 0 && (last.ttl != lock.obtained || last.metadata != "" && last.metadata != lock.metadata) {
		transport.Go(func() { h.catchUp(i, lock, last) }) // ends with the call
	}
}

// catchUp refreshes a hold that has joined the lock too late for the last Refresh. Otherwise the place would drop the lock
// when the ttl of the Obtain is over, and no renewal would bring it back.
func (h *holds) catchUp(i int, lock *Lock, last lastRefresh) {
	defer func() { _ = recover() }() // a hook has panicked, and the lock is held without this place
	sent := time.Now()
	err := lock.refresh(context.Background(), last.ttl, &Options{Metadata: last.metadata})
	h.confirm(i, sent, err)
}

// giveBack releases, in the background, what the token may have at a place.
func (h *holds) giveBack(ctx context.Context, i int, ttl time.Duration) {
	p := h.places.all[i]
	n := len(p.keys)
	p.client.sweep(newRelease(ctx, h.token, p.boxed[:n:n], p.boxed[n:]), WhyLate, p.keys, ttl, 0)
}

// miss notes that a place has no hold. unsure says that it may have acquired keys unnoticed.
func (h *holds) miss(i int, unsure bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := &h.at[i]
	if at.lock != nil { // it was obtained again meanwhile
		return
	}
	at.missing = time.Now()
	at.unsure = at.unsure || unsure
	if at.lost == nil {
		at.lost = h.places.all[i].keys
	}
	if h.over && unsure {
		h.giveBack(context.Background(), i, h.whole.obtained)
	}
}

func (h *holds) isOver() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over
}

// raiser returns what a new hold must do about the fence counter; nil for nothing.
func (h *holds) raiser() raiser {
	if h.fenceKey == "" || !h.places.isQuorum() {
		return nil
	}
	return func(ctx context.Context, hold *Lock) int64 {
		n := len(hold.keys)
		counter, err := hold.client.fenceTo(ctx, hold.keys, hold.token, hold.boxed[:n:n], h.fenceKey, h.fence)
		if err != nil {
			return 0
		}
		return counter
	}
}

// numbers returns the numbers of the places with a hold.
func (h *holds) numbers() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	var numbers []int
	for i := range h.at {
		if h.at[i].lock != nil {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

func (h *holds) lockAt(i int) *Lock {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at[i].lock
}

// poll collects what the places say about the lock when they are asked for one thing.
type poll struct {
	h      *holds
	agreed int        // places that have all keys
	gone   int        // places that have lost some
	lost   [][]string // those keys, by place
	errs   []error
}

func (h *holds) newPoll() *poll { return &poll{h: h, lost: make([][]string, len(h.at))} }

// note takes the answer of one place and reports whether the answers decide.
func (p *poll) note(i int, err error) (enough bool) {
	var partial *LostError
	switch {
	case err == nil:
		p.agreed++
	case errors.As(err, &partial):
		p.loses(i, partial.Keys)
	case err == ErrLockNotHeld || err == ErrNotObtained:
		p.loses(i, p.h.places.all[i].keys)
	default:
		p.errs = append(p.errs, p.h.named(i, err))
	}
	if !p.h.places.isQuorum() { // each has other keys, and an error names all that are lost
		return p.agreed+p.gone+len(p.errs) == len(p.h.at)
	}
	return p.agreed >= p.h.places.need || p.gone > p.h.places.spare()
}

func (p *poll) loses(i int, keys []string) {
	p.gone++
	p.lost[i] = keys
}

// err returns the result for the whole lock. whole is the error if all keys are lost.
func (p *poll) err(ctx context.Context, operation string, whole error) error {
	places := p.h.places
	switch {
	case p.agreed >= places.need:
		return nil
	case p.gone > places.spare():
		return p.h.lossOf(p.lost, whole)
	case ended(ctx) != nil:
		return failed(operation, p.h.whole.keys, ended(ctx))
	case len(p.errs) == 0: // too few holds were left to ask
		return p.h.lossOf(p.lost, whole)
	}
	return failed(operation, p.h.whole.keys, joined(p.errs))
}

func (h *holds) named(i int, err error) error {
	if !h.places.isQuorum() {
		return err
	}
	return &placeError{h.places.all[i].name, err}
}

// placeError is an error with the name of its place.
type placeError struct {
	name string
	err  error
}

func (e *placeError) Error() string { return e.name + ": " + e.err.Error() }
func (e *placeError) Unwrap() error { return e.err }

// lossOf returns the error for a lock that has lost these keys at its places: whole, if it has lost all of them. A key
// is lost if more places miss it than can be missing. If none is, although no majority has all keys, those count that
// any place misses.
func (h *holds) lossOf(lost [][]string, whole error) error {
	count := map[string]int{}
	for _, keys := range lost {
		for _, key := range keys {
			count[key]++
		}
	}
	spare := h.places.spare()
	missing := slices.DeleteFunc(slices.Clone(h.whole.keys), func(key string) bool { return count[key] <= spare })
	if len(missing) == 0 {
		missing = slices.DeleteFunc(slices.Clone(h.whole.keys), func(key string) bool { return count[key] == 0 })
	}
	if len(missing) == len(h.whole.keys) || len(missing) == 0 {
		return whole
	}
	return &LostError{Keys: missing, total: len(h.whole.keys), decides: whole}
}

// ttl returns the remaining ttl that enough places have at least.
func (h *holds) ttl(ctx context.Context) (time.Duration, error) {
	type answer struct {
		left time.Duration
		err  error
	}
	free, stop := detached(ctx)
	defer stop()
	p := h.newPoll()
	var left []time.Duration
	sideBySide(h.numbers(), func(i int) answer {
		left, err := h.lockAt(i).TTL(free)
		return answer{left, err}
	}, func(i int, a answer) bool {
		switch {
		case a.err != nil:
			return p.note(i, a.err)
		case a.left == 0:
			return p.note(i, ErrLockNotHeld)
		}
		left = append(left, a.left)
		return p.note(i, nil)
	})
	err := p.err(ctx, "ttl", ErrLockNotHeld)
	switch {
	case errors.Is(err, ErrLockNotHeld):
		return 0, nil
	case err != nil:
		return 0, err
	}
	slices.SortFunc(left, func(a, b time.Duration) int { return int(min(max(b-a, -1), 1)) })
	// The first answers may be those of places that the last refresh has not reached yet. The lock lasts until Until all
	// the same.
	valid := max(time.Until(h.until()), 0).Truncate(time.Millisecond)
	return max(left[h.places.need-1], valid), nil
}

// refresh refreshes all holds, and obtains those again that are missing once enough have been refreshed.
func (h *holds) refresh(ctx context.Context, ttl time.Duration, opt *Options) error {
	l := h.whole
	l.mu.Lock()
	given := !l.released.IsZero()
	l.mu.Unlock()
	if given {
		return ErrNotObtained
	}
	free, stop := detached(ctx)
	defer stop()
	p := h.newPoll()
	now := time.Now()
	h.mu.Lock()
	h.last.ttl = ttl
	if opt != nil && opt.Metadata != "" {
		h.last.metadata = opt.Metadata
	}
	h.mu.Unlock()
	var confirmed atomic.Bool // by enough places
	sideBySide(h.numbers(), func(i int) error {
		lock := h.lockAt(i)
		err := lock.refresh(free, ttl, opt)
		if err == ErrNotObtained && !lock.isLost() {
			err = errLate
		}
		h.confirm(i, now, err)
		if err != nil && confirmed.Load() { // too late to be mended below
			h.mend()
		}
		return err
	}, p.note)
	err := p.err(ctx, "refresh", ErrNotObtained)
	if err == nil {
		l.mu.Lock()
		if l.released.IsZero() { // otherwise a Release has ended it meanwhile, and nothing may be obtained again
			l.ended, l.told = nil, false
			h.mu.Lock()
			h.over = false
			h.mu.Unlock()
		}
		l.renewErr = nil
		if opt != nil && opt.Metadata != "" {
			l.metadata = opt.Metadata
		}
		l.mu.Unlock()
		confirmed.Store(true)
		h.mend()
		if lease.Passed(h.until()) {
			return ErrNotObtained
		}
		return nil
	}
	h.check(ctx)
	return err
}

// errLate is the error of a refresh at one place.
var errLate = errors.New("the answer came too late to be relied on")

// isLost reports whether the lock was found lost.
func (l *Lock) isLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended != nil
}

// lostKeys returns the keys that an error reports as lost.
func lostKeys(keys []string, err error) []string {
	var partial *LostError
	if errors.As(err, &partial) {
		return partial.Keys
	}
	return keys
}

// confirm notes what a place has answered to a request that was sent at that time.
func (h *holds) confirm(i int, sent time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := &h.at[i]
	var partial *LostError
	switch {
	case err == nil:
		at.heard, at.missing, at.lost = sent, time.Time{}, nil
	case errors.As(err, &partial):
		at.missing, at.lost = sent, partial.Keys
	case errors.Is(err, ErrLockNotHeld), err == ErrNotObtained:
		at.missing, at.lost = sent, h.places.all[i].keys
	}
}

// release releases all holds.
func (h *holds) release(ctx context.Context) error {
	h.mu.Lock()
	h.over = true
	for i := range h.at {
		if at := &h.at[i]; at.unsure {
			at.unsure = false
			h.giveBack(ctx, i, h.whole.obtained)
		}
	}
	h.mu.Unlock()
	free, stop := detached(ctx)
	defer stop()
	p := h.newPoll()
	for i := range h.at {
		if h.lockAt(i) == nil {
			p.note(i, ErrLockNotHeld)
		}
	}
	// Enough places may answer before others, which then release on. A later obtain with the same token waits for them.
	numbers := h.numbers()
	calls := make([]*cleanup, len(h.at))
	for _, i := range numbers {
		calls[i] = h.places.all[i].client.underWay(h.token, h.places.all[i].keys)
	}
	sideBySide(numbers, func(i int) error {
		defer h.places.all[i].client.ended(calls[i])
		err := h.lockAt(i).Release(free)
		h.mu.Lock()
		defer h.mu.Unlock()
		if at := &h.at[i]; err == nil {
			at.freed = true
		} else if err == ErrLockNotHeld && at.freed {
			err = nil // an earlier Release has freed it, but not enough others
		}
		return err
	}, p.note)
	err := p.err(ctx, "release", ErrLockNotHeld)
	if err == nil || errors.Is(err, ErrLockNotHeld) {
		h.mu.Lock()
		for i := range h.at {
			h.at[i].freed = false
		}
		h.mu.Unlock()
	}
	if errors.Is(err, ErrLockNotHeld) {
		h.whole.tellLost(ctx, lostKeys(h.whole.keys, err), h.lossCause(), err)
	}
	return err
}

// mendNear is how much earlier than the loss of one hold the others may have been confirmed, as a part of the ttl. The
// renewals of one round are sent at nearly the same time.
const mendNear = 6

// mend obtains missing holds again, each if enough others were confirmed since it was found missing. So a lock whose
// keys an operator has deleted at all places does not come back.
func (h *holds) mend() {
	h.mu.Lock()
	defer h.mu.Unlock()
	ttl := h.ttlLocked()
	if h.over || ttl == 0 {
		return
	}
	for i := range h.at {
		at := &h.at[i]
		if at.missing.IsZero() || at.mending {
			continue
		}
		since, confirmed := at.missing.Add(-ttl/mendNear), 0
		for j := range h.at {
			if other := &h.at[j]; j != i && other.missing.IsZero() && other.lock != nil && other.heard.After(since) {
				confirmed++
			}
		}
		if confirmed < h.places.need {
			continue
		}
		at.mending = true
		client := h.places.all[i].client
		call := client.underWay(h.token, h.places.all[i].keys)
		transport.Go(func() { // ends with the call
			defer client.ended(call)
			h.mendAt(i, ttl)
		})
	}
}

// maxTopUps is how often a place is asked for a hold that was refused when the lock was made. That takes 150 ms.
const maxTopUps = 5

// topUp obtains a hold soon after the lock was made, because the place was about to get it back from somebody else. Until
// then, one server that forgets could give the lock to another.
func (h *holds) topUp(i, tries int) {
	time.AfterFunc(topUpAfter<<tries, func() {
		if lease.Passed(h.until()) {
			return
		}
		h.mu.Lock()
		at := &h.at[i]
		wanted := !h.over && at.lock == nil && !at.mending
		at.mending = at.mending || wanted
		h.mu.Unlock()
		if !wanted {
			return
		}
		h.mendAt(i, h.whole.obtained)
		if tries+1 < maxTopUps {
			h.topUp(i, tries+1)
		}
	})
}

// knowTTL reports whether there is a ttl to renew the holds with.
func (h *holds) knowTTL() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ttlLocked() > 0
}

// ttlLocked returns the ttl of the last obtain or refresh; 0 if it is not known. The caller holds h.mu.
func (h *holds) ttlLocked() (ttl time.Duration) {
	for i := range h.at {
		if lock := h.at[i].lock; lock != nil && h.at[i].missing.IsZero() {
			lock.mu.Lock()
			ttl = max(ttl, lock.lease.TTL())
			lock.mu.Unlock()
		}
	}
	return ttl
}

// mendAt obtains the keys again at one place. It does not look at lines: this lock is held.
func (h *holds) mendAt(i int, ttl time.Duration) {
	p := h.places.all[i]
	n := len(p.keys)
	o := &obtaining{
		client: p.client, keys: p.keys, boxed: p.boxed[:n:n], ttl: ttl, metadata: h.whole.Metadata(), token: h.token, part: true,
		raise: h.raiser(),
	}
	err, began := ErrNotObtained, time.Now()
	defer func() {
		if err != nil {
			_ = recover() // a hook has panicked, and the lock is held without this place
			h.missAgain(i, began, o.doubtful)
		}
	}()
	err = o.tryHere(context.Background(), &o.first)
	if err == nil {
		o.lock.boxed = p.boxed
		h.join(context.Background(), i, o.lock)
	}
}

// missAgain notes that a hold could not be obtained again.
func (h *holds) missAgain(i int, at time.Time, unsure bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at[i].mending, h.at[i].missing = false, at
	h.at[i].unsure = h.at[i].unsure || unsure
	if h.over && unsure {
		h.giveBack(context.Background(), i, h.whole.obtained)
	}
}
