package several

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/lease"
	"github.com/redislock/redislock/internal/place"
	"github.com/redislock/redislock/internal/retry"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// Tries makes the tries of an obtain at several places. A try is a round: it asks all places side by side, and ends as
// soon as enough of them have granted or refused. A goroutine for each call waits for the answer, so a server that hangs
// does not delay the round.
//
// Three rules keep rounds apart. At most one call of an obtain is under way to a place. A late answer belongs to the round
// that asked: what it grants is given back, unless that round made the lock. Each round has a new random token, so giving
// back never releases what a later round was granted.
type Tries struct {
	place.Progress // belongs to the goroutine of the caller; but mu protects Resends until the obtain has ended

	keys     []string      // of all places
	want     script.Obtain // at each place, except for keys and token
	places   *Group
	queue    bool           // the caller waits in line between rounds
	strategy retry.Strategy // says when to try again; in line, only while messages cannot arrive; nil for none
	since    time.Time      // when the obtain began
	news     chan struct{}  // has room for one: an answer has arrived, or a message has woken a waiter

	// These belong to the goroutine of the caller.
	patient bool // the present round is the last one
	refused bool // some round was refused
	splits  int  // how many rounds in a row were split: some places granted, and others refused

	mu       sync.Mutex // protects the fields below
	attempts []*attempt
	token    string        // of the present round
	began    time.Time     // when the present round began
	verdict  verdict       // on the present round
	fastest  time.Duration // how long the first answer of the round took; 0 before
	ticket   int64         // of the waiter in all lines, from tickets; 0 before a place has given one
	over     bool          // the obtain has ended
	lock     *Lock         // that the obtain has made; nil before
	panicked *panicked     // what a hook has panicked with; nil if none has
}

// lastNumber is the last number that a waiter at several places got. Obtains of many Clients may share an inbox.
var lastNumber atomic.Int64

// NewTries returns what makes the tries of an obtain of all keys. want says what else it asks for; it has no token. With
// queue, the caller waits in line after a refused round.
func NewTries(at *Group, keys []string, want *script.Obtain, queue bool, strategy retry.Strategy) *Tries {
	n := len(at.all)
	t := &Tries{
		keys: keys, want: *want, places: at, queue: queue, strategy: strategy, since: time.Now(),
		news: make(chan struct{}, 1), attempts: make([]*attempt, n),
	}
	first := lastNumber.Add(int64(n)) - int64(n) + 1
	for i, here := range at.all {
		a := &attempt{number: i, site: here}
		a.Obtain, a.Place, a.Keys = *want, here.Place, here.keys
		if !at.quorum { // the fencing token is minted when all keys are held
			a.FenceKey = ""
		}
		if queue {
			a.QueueWith(t.news, first+int64(i))
		}
		t.attempts[i] = a
	}
	return t
}

// Lock returns the lock, once a try has succeeded. Only the goroutine of the caller sets it.
func (t *Tries) Lock() *Lock { return t.lock }

// Lengthen returns the strategy for the tries: on a quorum, one that waits up to half longer each time, at random.
func (t *Tries) Lengthen(strategy retry.Strategy) retry.Strategy {
	if t.places.quorum {
		return lengthened{strategy}
	}
	return strategy
}

// lengthened makes each wait of a strategy up to half longer, at random.
type lengthened struct{ strategy retry.Strategy }

func (l lengthened) NextBackoff() time.Duration {
	wait := l.strategy.NextBackoff()
	if wait < 2 {
		return wait
	}
	return wait + rand.N(wait/2)
}

const (
	// maxSplits is how often a try without a line asks again after a split round.
	maxSplits = 3

	// splitPause bounds the random wait before that. It doubles each time.
	splitPause = 2 * time.Millisecond
)

// Try asks the places for the lock. It reports whether another try makes sense.
//
// Without a line, two callers that try at the same time can refuse each other: each has some places, and neither has
// enough. No holder has refused them, so Try asks again, a few times and at random moments.
func (t *Tries) Try(ctx context.Context) (again bool, err error) {
	if fault.Ended(ctx) != nil {
		return false, fault.ErrCut
	}
	t.Tried++
	for splits := 0; ; splits++ {
		t.patient = t.isOnce() && splits == maxSplits
		again, err = t.tryRound(ctx)
		decided := err == nil || err == fault.ErrClosed || t.splits == 0 || t.Belated >= place.MaxBelated
		if decided || t.queue || splits >= maxSplits || fault.Ended(ctx) != nil {
			return again, err
		}
		pause := time.NewTimer(rand.N(splitPause << splits))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return false, fault.ErrCut
		case <-t.places.set.Closed:
			pause.Stop()
			return false, fault.ErrClosed
		}
	}
}

// Decide follows the last try, which ended with that error. If some servers granted the last round and others refused it, a
// slow server may decide. Then Decide asks once more, and waits for all servers.
func (t *Tries) Decide(ctx context.Context, err error) error {
	if t.places.quorum && t.splits > 0 && !t.patient && err != fault.ErrClosed && fault.Ended(ctx) == nil {
		t.patient = true
		_, err = t.tryRound(ctx)
	}
	return err
}

// isOnce reports whether the caller makes a single try.
func (t *Tries) isOnce() bool { return !t.queue && t.strategy == nil }

// isOrdered reports whether the present try asks one place after the other. Two callers that try again and again across the
// same slots would otherwise refuse each other.
func (t *Tries) isOrdered() bool { return t.Tried > 1 && !t.queue && !t.places.quorum }

// tryRound asks the places once.
func (t *Tries) tryRound(ctx context.Context) (again bool, err error) {
	t.begin()
	found, err := t.collect(ctx, place.LastWord, func(now time.Time) (verdict, time.Time) {
		t.launch(ctx, now)
		return t.judge(now)
	})
	switch {
	case err != nil:
		t.mu.Lock()
		if t.Failure == nil || t.count(hasFailed) > 0 { // otherwise how the round before has failed says more
			t.Failure = t.failures()
		}
		t.mu.Unlock()
		if fault.Ended(ctx) != nil {
			return false, fault.ErrCut
		}
		return false, err
	case found == won:
		t.Failure, t.splits = nil, 0
		if err := t.makeLock(ctx); err != fault.ErrNotObtained {
			return false, err
		}
	}
	t.mu.Lock()
	switch found {
	case refused:
		t.Failure = t.lateness()
	case undecided:
		t.Failure = t.failures()
	default: // makeLock has said why there is no lock
	}
	final := t.count(func(a *attempt) bool { return hasFailed(a) && transport.IsFinal(a.err) })
	t.stepBack(ctx)
	t.mu.Unlock()
	if t.waitForSteps(ctx) != nil && fault.Ended(ctx) != nil {
		return false, fault.ErrCut
	}
	if t.splits++; !t.isSplit() {
		t.splits = 0
	}
	switch {
	case found != undecided && errors.Is(t.Failure, fault.ErrLapsed):
		t.Belated++
		return t.Belated < place.MaxBelated, t.Failure
	case t.Failure != nil: // enough places may grant later, unless too many have answered with an error that stays
		return final <= t.places.spare() && t.bears(ctx), t.Failure
	case !lease.Passed(lease.ValidUntil(t.began, t.want.TTL)): // see place.Tries.decline
		t.Belated = 0
	}
	t.refused = true
	return true, fault.ErrNotObtained
}

// bears reports whether the obtain goes on after a round that has failed in a way that may pass.
//
// In line, the rule is that of one place: see line.Waiter.Bear. But a quorum gives each server a fraction of a second, and
// the first try at one place takes seconds. So on a quorum without a deadline, the first try is as many rounds as fit into
// LongPatience. Without a line, a quorum tries again as the strategy says. Across slots, calls have been resent for as long
// as at one place.
func (t *Tries) bears(ctx context.Context) bool {
	if !t.queue {
		return t.places.quorum
	}
	return t.refused || fault.HasDeadline(ctx) || t.places.quorum && time.Since(t.since) < health.LongPatience
}

// begin begins a round.
func (t *Tries) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.token, t.began, t.verdict, t.fastest = place.NewToken(), time.Now(), open, 0
	for _, a := range t.attempts {
		a.vote, a.err = none, nil
	}
}

// waitForSteps waits until the places have released what they granted. On a quorum, it also waits for calls that are still
// under way. But while other callers may need what this obtain is granted next, it does not wait for a server that takes
// much longer than the others. It returns an error if ctx ends or the Client is closed first.
func (t *Tries) waitForSteps(ctx context.Context) error {
	_, err := t.collect(ctx, place.LastWord, func(now time.Time) (verdict, time.Time) {
		limit := t.splitPatience()
		if t.isOnce() { // nobody needs the keys: they are released. Without this, the calls of a loop pile up at a slow server.
			limit = health.NoLimit
		}
		if waits, until := t.waits(now, 0, t.fastest, limit); waits {
			return open, until
		}
		return undecided, time.Time{}
	})
	return err
}

// isSplit reports whether some places have granted the last round and others have refused it. A place that granted after
// the round was refused counts too: perhaps it was slow because this Client had just released the lock there. A caller that
// obtains, releases and obtains again must not be refused by itself.
func (t *Tries) isSplit() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count(func(a *attempt) bool { return a.last == granted }) > 0 && t.count(hasDenied) > 0
}

// End ends the obtain. Unless it made a lock, it gives everything back in the background.
func (t *Tries) End(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over, t.verdict = true, undecided
	if t.ticket > 0 {
		tickets.drop(t.ticket)
	}
	for _, a := range t.attempts {
		switch {
		case a.busy: // land or steppedBack drops it
		case t.lock == nil:
			a.drop(ctx)
		default:
			a.Waiter.QuitInbox()
		}
	}
}

// ClosedFor returns for how long too many guards that have refused the last try still refuse every obtain; 0 if enough are
// open.
func (t *Tries) ClosedFor() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closedFor()
}

// closedFor is ClosedFor for callers that hold t.mu.
func (t *Tries) closedFor() time.Duration {
	var closed []time.Duration
	for _, a := range t.attempts {
		if hasDenied(a) && !a.busy && a.ClosedFor() > 0 {
			closed = append(closed, a.ClosedFor())
		}
	}
	more := len(closed) - t.places.spare() // so many have to open first
	if more <= 0 {
		return 0
	}
	slices.Sort(closed)
	return closed[more-1]
}

// Blocker asks the places of a quorum that have refused what blocks the obtain, and returns what most of them say: one
// place may name a caller that has too few places. If too many guards are closed, it asks nobody. Across slots, it asks the
// first place that has refused.
func (t *Tries) Blocker(ctx context.Context) script.Blocker {
	var asked []int
	attempts := make([]place.Attempt, len(t.attempts)) // copies, because the obtain may end first
	t.mu.Lock()
	closed := t.closedFor()
	for i, a := range t.attempts {
		switch {
		case !hasDenied(a) || a.busy:
		case a.ClosedFor() > 0:
		case t.places.quorum || len(asked) == 0:
			asked, attempts[i] = append(asked, i), a.Attempt
		}
	}
	t.mu.Unlock()
	if closed > 0 {
		return script.Blocker{Closed: closed}
	}
	type holder struct{ key, token string }
	count := map[holder]int{}
	most, why := 0, script.Blocker{}
	sideBySide(asked, func(i int) script.Blocker { return attempts[i].Blocker(ctx) }, func(_ int, b script.Blocker) bool {
		is := holder{b.Key, b.Token}
		if count[is]++; b.Key != "" && count[is] > most {
			most, why = count[is], b
		}
		return false
	})
	return why
}
