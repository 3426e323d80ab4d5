package undo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/transport"
)

// A call that has returned may leave work behind. With a random token, that work concerns no other call. With a custom
// token, a later obtain may want the same keys under the same token:
//
//  1. The caller abandons an obtain with the token T. A cleanup is about to release what T has.
//  2. The caller obtains with T again, and is granted the keys.
//  3. The release of step 1 arrives, and frees them.
//
// So an obtain with a custom token waits until such work has ended. It does not see the work of other Clients or processes.

// Work may free keys of a token or shorten their ttl: it is a cleanup, or a Refresh, which its caller may have abandoned.
type Work struct {
	Token string
	Keys  []string      // that the work may free, or whose ttl it may shorten; never changed
	Hurry chan struct{} // a value ends the present pause, see hurry; nil for a Refresh, which does not pause
	done  chan struct{} // closed when nothing more is sent

	at      int             // its index in Cleanups.byToken; Cleanups.mu protects at and the fields below
	request *transport.Call // the last one; nil for none
	hurried time.Time       // when hurry last ended a pause
}

// Cleanups is the work of one Client in the background at one Redis. Set the exported fields before anything else, and do
// not change them afterwards. It is safe for concurrent use.
type Cleanups struct {
	Link    *transport.Link
	Closed  <-chan struct{}                    // closed when the Client is
	Running *atomic.Int64                      // cleanups that release keys, of all Clients of the Redis client; see MaxRunning
	Report  func(ctx context.Context, e Event) // gets the end of each cleanup; may be nil

	mu      sync.Mutex // protects byToken
	byToken map[string][]*Work
}

// Event is the end of a cleanup; see CleanedUp in the root.
type Event struct {
	Keys    []string
	Why     Why
	Err     error
	Dropped bool // there was no room, and nothing was sent
}

// Begin makes work known to later obtains. Call End when nothing more is sent, and the work that follows has begun.
func (c *Cleanups) Begin(w *Work) {
	w.done = make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byToken == nil {
		c.byToken = make(map[string][]*Work)
	}
	w.at = len(c.byToken[w.Token])
	c.byToken[w.Token] = append(c.byToken[w.Token], w)
}

// End ends what Begin has begun. It does nothing for nil.
func (c *Cleanups) End(w *Work) {
	if w == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.byToken[w.Token]
	last := len(all) - 1
	moved := all[last] // there may be many, and their order means nothing
	all[w.at], moved.at = moved, w.at
	all[last] = nil
	if c.byToken[w.Token] = all[:last]; last == 0 {
		delete(c.byToken, w.Token)
	}
	close(w.done)
}

// IsBusy reports whether any work goes on.
func (c *Cleanups) IsBusy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byToken) > 0
}

// Note notes which request of the work is under way.
func (c *Cleanups) Note(w *Work, request *transport.Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.request = request
}

// failure returns how the last request of the work has failed; nil if it has not.
func (c *Cleanups) failure(w *Work) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.request == nil {
		return nil
	}
	return w.request.Failure()
}

// own returns the work under a token that concerns some of these keys. It compares the keys while the mutex is not locked,
// because there may be many.
func (c *Cleanups) own(token string, keys []string) []*Work {
	c.mu.Lock()
	found := slices.Clone(c.byToken[token])
	c.mu.Unlock()
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

// hurry ends the present pauses of this work. An obtain that waits for the work calls hurry every hurriedPause. So while an
// obtain waits, no pause lasts longer than that. When the last one has given up, pauses last as long as usual.
//
// The channels have no room, so a value that no pause receives is lost. That does no harm: while a request is under way,
// there is no pause to end, and if the work is about to pause, the next call ends that pause. If there was room, a value
// that was sent during a request would end a pause that has just begun, or one that begins when no obtain waits any more.
//
// The work never sends without a pause, because a call ends at most one pause. If many obtains wait, at least half of
// hurriedPause passes from one end to the next. It is not the whole of hurriedPause, because the calls of one obtain are
// sometimes a little closer together.
func (c *Cleanups) hurry(all []*Work) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, w := range all {
		if now.Sub(w.hurried) < hurriedPause/2 {
			continue
		}
		select {
		case w.Hurry <- struct{}{}:
			w.hurried = now
		default:
		}
	}
}

const (
	// hurriedPause is the longest pause of work for which an obtain waits.
	hurriedPause = 50 * time.Millisecond

	// ownPatience is how long an obtain waits for work if its requests only fail.
	ownPatience = time.Second
)

// WaitForOwn waits until earlier work under the token of an obtain has ended, as far as the work concerns the keys. It
// hurries the pauses of the work, but not its requests: after a lost reply, it waits until the Redis client gives up the
// connection. If the requests only fail, it waits for ownPatience, or for longer if patient is set.
//
// A cleanup may lead to another one, which has begun when the first one ends. So WaitForOwn looks again after it has waited.
// It does not look again for refreshes, because an endless series of them would keep it waiting.
//
// WaitForOwn returns an error that matches ErrNotObtained if ctx ends first, ErrClosed if the Client is closed first, and
// otherwise how the requests have failed.
func (c *Cleanups) WaitForOwn(ctx context.Context, token string, keys []string, patient bool) error {
	for again := false; ; again = true {
		own := c.own(token, keys)
		if again {
			own = slices.DeleteFunc(own, func(w *Work) bool { return w.Hurry == nil })
		}
		if len(own) == 0 {
			return nil
		}
		if err := c.waitFor(ctx, own, keys, patient); err != nil {
			return err
		}
	}
}

// waitFor waits for these pieces of work, one after the other, and hurries all of them meanwhile.
func (c *Cleanups) waitFor(ctx context.Context, own []*Work, keys []string, patient bool) error {
	hurry := time.NewTicker(hurriedPause)
	defer hurry.Stop()
	look := time.NewTicker(ownPatience)
	defer look.Stop()
	for _, x := range own {
		look.Reset(ownPatience)
		for !fault.IsClosed(x.done) {
			select {
			case <-x.done:
			case <-hurry.C:
				c.hurry(own)
			case <-c.Closed:
				return fault.ErrClosed
			case <-ctx.Done():
				why := fault.ErrUnanswered
				if failure := c.failure(x); failure != nil {
					why = failure
				}
				return fault.NotObtained(fmt.Errorf("%w; an earlier call with the same token: %w", fault.Ended(ctx), why))
			case <-look.C:
				if failure := c.failure(x); failure != nil && !patient {
					failure = fmt.Errorf("an earlier call with the same token: %w", fault.WithHint(keys, failure))
					return fault.Failed("obtain", keys, failure)
				}
			}
		}
	}
	return nil
}
