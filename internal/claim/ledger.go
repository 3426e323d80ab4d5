package claim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// MaxFreeings bounds the freeings in the background of all Clients of one Redis client. Each costs a goroutine or two, about
// 6 KB. With a bound of 1,000, a Client that released 10,000 locks while Redis refused them left 9,000 behind. If there is
// no room for a freeing, its keys expire with their ttl. A waiter that leaves needs no room for its first round, because it
// has just freed the goroutine that waited.
const MaxFreeings = 10_000

// Ledger has what goes on in the background for the tokens of one Client at one Redis. Set the exported fields before
// anything else, and do not change them afterwards. It is safe for concurrent use.
type Ledger struct {
	Link    *transport.Link
	Scripts *script.Scripts
	Closed  <-chan struct{}                    // closed when the Client is
	Running *atomic.Int64                      // freeings of all Clients of the Redis client; see MaxFreeings
	Report  func(ctx context.Context, e Event) // gets the end of each freeing; may be nil

	mu      sync.Mutex // protects byToken
	byToken map[string][]*Work
}

// Event is the end of a freeing in the background; see CleanedUp in the root.
type Event struct {
	Keys    []string
	Why     Why
	Err     error
	Dropped bool // there was no room, and nothing more was sent
}

// Why is what a freeing in the background is for.
type Why int

// The reasons for a freeing.
const (
	Step      Why = iota // a step of a call that goes on: there is no event
	Abandoned            // an obtain has ended without a lock
	Late                 // a grant came too late to be relied on
	Resent               // the lock is released, but a request that takes its keys may still arrive
	Release              // a Release returned before the keys were freed
	Line                 // a waiter gave up its position
)

// Work may free keys of a token, or shorten their ttl, although its caller has returned: it is a freeing, or a Refresh.
// With a random token, it concerns no other call. With a custom token, a later obtain may want the same keys under the
// same token:
//
//  1. The caller abandons an obtain with the token T. A freeing is about to release what T has.
//  2. The caller obtains with T again, and is granted the keys.
//  3. The release of step 1 arrives, and frees them.
//
// So an obtain with a custom token waits until such work has ended. It does not see the work of other Clients or processes.
type Work struct {
	Token string
	Keys  []string // never changed

	done    chan struct{} // closed when nothing more is sent
	request atomic.Pointer[transport.Call]
	failure atomic.Pointer[error] // of an earlier request
	at      int                   // its index in Ledger.byToken; Ledger.mu protects it
}

// Note notes which request of the work is under way.
func (w *Work) Note(request *transport.Call) {
	if err := w.why(); err != nil {
		w.failure.Store(&err)
	}
	w.request.Store(request)
}

// why returns how the work has failed last; nil if it has not.
func (w *Work) why() error {
	if request := w.request.Load(); request != nil && request.Failure() != nil {
		return request.Failure()
	}
	if err := w.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Begin makes work known to later obtains. Call End when nothing more is sent.
func (l *Ledger) Begin(w *Work) {
	w.done = make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byToken == nil {
		l.byToken = make(map[string][]*Work)
	}
	w.at = len(l.byToken[w.Token])
	l.byToken[w.Token] = append(l.byToken[w.Token], w)
}

// End ends what Begin has begun. It does nothing for nil.
func (l *Ledger) End(w *Work) {
	if w == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.byToken[w.Token]
	last := len(all) - 1
	moved := all[last] // there may be many, and their order means nothing
	all[w.at], moved.at = moved, w.at
	all[last] = nil
	if l.byToken[w.Token] = all[:last]; last == 0 {
		delete(l.byToken, w.Token)
	}
	close(w.done)
}

// IsBusy reports whether any work goes on.
func (l *Ledger) IsBusy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.byToken) > 0
}

// outlast makes a release known that was given up, and that may still free keys which the same token acquires.
func (l *Ledger) outlast(release *transport.Call, keys []string) {
	w := &Work{Token: release.Token, Keys: keys}
	w.Note(release)
	l.Begin(w)
	go func() { // ends with the call
		release.Wait(context.Background())
		l.End(w)
	}()
}

// Release returns an unsent call that releases the keys. The call has the values of ctx, and does not end with ctx.
func (l *Ledger) Release(ctx context.Context, token string, keys script.Keys) *transport.Call {
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	c := l.Scripts.Release(token, keys)
	c.Ctx = ctx
	return c
}

// own returns the work under a token that concerns some of these keys. It compares the keys while the mutex is not locked,
// because there may be many.
func (l *Ledger) own(token string, keys []string) []*Work {
	l.mu.Lock()
	found := slices.Clone(l.byToken[token])
	l.mu.Unlock()
	if len(found) == 0 {
		return nil
	}
	wanted := make(map[string]bool, len(keys))
	for _, key := range keys {
		wanted[key] = true
	}
	return slices.DeleteFunc(found, func(w *Work) bool {
		return !slices.ContainsFunc(w.Keys, func(key string) bool { return wanted[key] })
	})
}

// ownPatience is how long an obtain without a deadline waits for work under its token.
const ownPatience = 5 * time.Second

// Await waits until earlier work under the token of an obtain has ended, as far as the work concerns the keys. It hurries
// nothing: after a lost reply, it waits until the Redis client gives up the connection, and if Redis fails, for pauses of up
// to 4 s. Without a deadline of ctx, it waits for ownPatience. It returns an error that matches ErrNotObtained if ctx ends
// first, ErrClosed if the Client is closed first, and otherwise how the work has failed.
//
// It does not look again when that work has ended. An endless series of refreshes would keep it waiting, and no freeing
// leads to another one.
func (l *Ledger) Await(ctx context.Context, token string, keys []string) error {
	own := l.own(token, keys)
	if len(own) == 0 {
		return nil
	}
	wait, cancel := ctx, context.CancelFunc(func() {})
	if !fault.HasDeadline(ctx) {
		wait, cancel = context.WithTimeout(ctx, ownPatience)
	}
	defer cancel()
	for _, w := range own {
		select {
		case <-w.done:
		case <-l.Closed:
			return fault.ErrClosed
		case <-wait.Done():
			why := fault.ErrUnanswered
			if err := w.why(); err != nil {
				why = fault.WithHint(keys, err)
			}
			why = fmt.Errorf("an earlier call with the same token: %w", why)
			if over := fault.Ended(ctx); over != nil {
				return fault.NotObtained(fmt.Errorf("%w; %w", over, why))
			}
			return fault.Failed("obtain", keys, why)
		}
	}
	return nil
}
