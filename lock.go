package redislock

import (
	"context"
	_ "embed" // for the scripts
	"math"
	"slices"
	"sync"
	"time"
)

var (
	//go:embed release.lua
	releaseSource string
	//go:embed pttl.lua
	pttlSource string

	releaseScript = newScript("release", releaseSource)
	pttlScript    = newScript("pttl", pttlSource)
)

// Lock is a hold on one or more keys. It is safe for concurrent use and must not be copied. A nil *Lock is a lock that
// is not held: its methods say so.
type Lock struct {
	client *Client
	keys   []string
	token  string
	fence  int64

	mu       sync.Mutex // protects what follows
	metadata string
	until    time.Time // the end of validity
	released time.Time // when Release was first called; zero if it was not
	unsure   bool      // a release that left before until was never answered

	// A refresh that was never answered may still be on its way, and may cut the remaining ttl down to its own at any
	// time from now on. Later ones therefore promise no more than the least of those ttls.
	unanswered time.Duration // 0 if there is none

	refreshing chan struct{} // closed when the refresh on the wire has ended; nil if there is none
}

// Key returns the first key of the lock, "" for a nil lock.
func (l *Lock) Key() string {
	if l == nil {
		return ""
	}
	return l.keys[0]
}

// Keys returns a copy of the keys, in the order in which they were given, each once.
func (l *Lock) Keys() []string {
	if l == nil {
		return nil
	}
	return slices.Clone(l.keys)
}

// Token returns the token that the keys hold, "" for a nil lock. Who knows it can attach to the lock.
func (l *Lock) Token() string {
	if l == nil {
		return ""
	}
	return l.token
}

// Metadata returns the metadata that this handle stored last or, when attached, found.
func (l *Lock) Metadata() string {
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.metadata
}

// FenceToken returns the fencing token of this hold: 0 without [Options.FenceKey] and for an attached lock. It is higher
// than that of every earlier hold with the same FenceKey, re-obtaining by token included, also after the counter was lost,
// unless the clock of the server was set back meanwhile. A resource that remembers the highest token it has seen, and
// refuses lower ones, is safe from a holder that outlived its lock.
func (l *Lock) FenceToken() int64 {
	if l == nil {
		return 0
	}
	return l.fence
}

// Until returns the time up to which the lock is certainly held, as far as this handle knows: from before the last
// successful Obtain or Refresh was sent, its ttl less 1 % and 1 ms. Check it right before a step that the lock guards:
//
//	if !time.Now().Before(lock.Until()) { … }
//
// It lies in the past once the lock was released or a Refresh has found it lost. A Refresh to a shorter ttl brings it
// forward from the moment that it is sent. What happens through other handles of the same token is not seen. It never
// blocks. For a nil lock it is the zero time.
func (l *Lock) Until() time.Time {
	if l == nil {
		return time.Time{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.released.IsZero() && l.released.Before(l.until) {
		return l.released
	}
	return l.until
}

// validUntil returns the end of the validity that a request sent at that time gains: the ttl less 1 %, for clocks that
// run at slightly different speeds, and less 1 ms, for Redis keeps whole milliseconds.
func validUntil(sent time.Time, ttl time.Duration) time.Time {
	ttl = ttl.Truncate(time.Millisecond)
	return sent.Add(ttl - ttl/100 - time.Millisecond)
}

// passed reports whether t has come by either clock: the monotonic one stands still while a machine is suspended, and
// the wall clock can be set back.
func passed(t time.Time) bool {
	now := time.Now()
	return !now.Before(t) || !now.Round(0).Before(t.Round(0))
}

// TTL asks Redis for the least time left to any key of the lock. It is 0 if any of the keys is not the lock's any more,
// and the largest Duration if none of them has an expiry. TTL blocks until Redis answers or ctx ends, and returns an
// error, wrapped, if Redis fails or ctx ends first; [ErrInvalid] for a nil ctx; and ErrLockNotHeld for a nil lock.
func (l *Lock) TTL(ctx context.Context) (time.Duration, error) {
	switch {
	case l == nil:
		return 0, ErrLockNotHeld
	case ctx == nil:
		return 0, errNilContext
	}
	reply, err := l.client.ask(&call{script: pttlScript, keys: l.keys, token: l.token, ctx: ctx})
	if err != nil {
		return 0, err
	}
	left, ok := reply.(int64)
	switch {
	case !ok:
		return 0, failed("pttl", l.keys, unexpected(reply))
	case left < 0:
		return math.MaxInt64, nil
	}
	return time.Duration(left) * time.Millisecond, nil
}

// Release frees every key of the lock that its token still holds, also when others are lost. From its call on the lock
// counts as given up: [Lock.Until] has passed, and Refresh refuses.
//
// Release blocks until Redis answers or ctx ends. It is cleanup: called with a ctx that has ended already, it is sent all
// the same, and the answer awaited for a second at most and not past Until. If ctx ends, Release returns and the sending
// goes on in the background until the ttl is over. It returns:
//   - nil if all keys were freed, by this call or by one that was sent before Until and not answered;
//   - [ErrLockNotHeld] if no key was the lock's any more, and for a nil lock;
//   - a [*LostError] if some were not; the others are free now;
//   - [ErrInvalid] for a nil ctx;
//   - an error that wraps ctx.Err() if ctx ended first, and whatever Redis reported otherwise. It may be called again.
func (l *Lock) Release(ctx context.Context) error {
	switch {
	case l == nil:
		return ErrLockNotHeld
	case ctx == nil:
		return errNilContext
	}
	until := l.markReleased()
	giveUp := time.Now().Add(releaseWait)
	if giveUp.Before(until) {
		giveUp = until
	}
	c := &call{script: releaseScript, keys: l.keys, token: l.token, ctx: ctx, giveUp: giveUp}
	wait := ctx
	if ctx.Done() != nil {
		c.ctx = context.WithoutCancel(ctx)
	}
	if ctx.Err() != nil {
		patience := max(releaseLeast, min(releaseWait, time.Until(until)))
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(c.ctx, patience)
		defer cancel()
	}
	if !l.client.node.do(wait, c) {
		l.client.persist(c)
		l.noteUnsure(time.Now(), until)
		return failed("release", l.keys, ended(ctx))
	}
	if c.doubtful {
		l.noteUnsure(c.first, until)
	}
	if c.err != nil {
		return failed("release", l.keys, explain(l.keys, c.err))
	}
	err := loss(l.keys, c.reply, ErrLockNotHeld)
	if err == ErrLockNotHeld && l.isUnsure() { //nolint:errorlint // the bare sentinel: all are lost
		return nil // an earlier sending of ours did it
	}
	return err
}

const (
	releaseWait  = time.Second           // how long a Release waits that was called with a ctx already ended
	releaseLeast = 20 * time.Millisecond // the same if Until has passed too: long enough to hear what became of the lock
)

// markReleased returns the end of validity, as it was before.
func (l *Lock) markReleased() (until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released.IsZero() {
		l.released = time.Now()
	}
	return l.until
}

// noteUnsure remembers that a release which left at that time may have freed the keys, if it left while they were ours.
func (l *Lock) noteUnsure(left, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsure = l.unsure || left.Before(until)
}

func (l *Lock) isUnsure() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unsure
}
