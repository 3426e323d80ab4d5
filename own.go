package redislock

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

// A call that has returned may leave work behind. With a random token, that work concerns nobody else. With a custom token,
// a later obtain may want the same keys under the same token:
//
//  1. The caller abandons an obtain with the token T. A cleanup is about to release what T has.
//  2. The caller obtains with T again, and is granted the keys.
//  3. The release of step 1 arrives, and frees them.
//
// So an obtain with a custom token waits until such work has ended. It does not see other Clients or processes with the same
// token.

// pending is work under a token that may free keys or shorten their ttl: a cleanup, or a Refresh, which a caller may have
// abandoned.
type pending struct {
	token string
	keys  []string      // that it may free, or whose ttl it may shorten; never changed
	hurry chan struct{} // a value ends the pause under way; see pendings.hurry; nil for a Refresh, which does not pause
	done  chan struct{} // closed when nothing more is sent

	at      int             // its index in pendings.byToken; pendings.mu protects it, and the fields below
	request *transport.Call // that is under way, or was last; nil for none
	hurried time.Time       // when hurry last ended a pause
}

// pendings are those of one place.
type pendings struct {
	cleaning *atomic.Int64 // cleanups under way that release keys, of all Clients of the Redis client; see maxCleanups

	mu      sync.Mutex // protects byToken
	byToken map[string][]*pending
}

// begin makes work known to later obtains. Call end when nothing more is sent, and the work that follows has begun.
func (s *pendings) begin(p *pending) {
	p.done = make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byToken == nil {
		s.byToken = make(map[string][]*pending)
	}
	p.at = len(s.byToken[p.token])
	s.byToken[p.token] = append(s.byToken[p.token], p)
}

// end ends what begin has begun. It does nothing for nil.
func (s *pendings) end(p *pending) {
	if p == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.byToken[p.token]
	last := len(all) - 1
	moved := all[last] // there may be many, and their order means nothing
	all[p.at], moved.at = moved, p.at
	all[last] = nil
	if s.byToken[p.token] = all[:last]; last == 0 {
		delete(s.byToken, p.token)
	}
	close(p.done)
}

// any reports whether any work is pending.
func (s *pendings) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byToken) > 0
}

// send notes which request is under way.
func (s *pendings) send(p *pending, request *transport.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.request = request
}

// failure returns how the last request has failed; nil if it has not.
func (s *pendings) failure(p *pending) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.request == nil {
		return nil
	}
	return p.request.Failure()
}

// own returns the work under a token that concerns some of these keys.
//
// It compares the keys without holding the mutex, because there may be many.
func (s *pendings) own(token string, keys []string) []*pending {
	s.mu.Lock()
	found := slices.Clone(s.byToken[token])
	s.mu.Unlock()
	if len(found) == 0 {
		return nil
	}
	wanted := make(map[string]bool, len(keys))
	for _, key := range keys {
		wanted[key] = true
	}
	return slices.DeleteFunc(found, func(p *pending) bool {
		return !slices.ContainsFunc(p.keys, func(key string) bool { return wanted[key] })
	})
}

// hurry ends the pauses under way of this work. An obtain that waits for the work calls it every hurriedPause. So while an
// obtain waits, no pause lasts longer than that, and when the last one has given up, pauses last as long as ever.
//
// The channels have no room. A value that no pause receives is lost, which does no harm: while a request is under way, no
// pause is to be ended, and if the work is about to pause, the next call ends that pause. With room, a value from the time
// of a request would end a pause that has just begun, or one that begins when no obtain waits any more.
//
// The work does not send without a pause, because a call ends no more than one pause. If many obtains wait, at least half of
// hurriedPause passes from one end to the next. It is not the whole, because the calls of one obtain are sometimes a little
// less than hurriedPause apart.
func (s *pendings) hurry(work []*pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, p := range work {
		if now.Sub(p.hurried) < hurriedPause/2 {
			continue
		}
		select {
		case p.hurry <- struct{}{}:
			p.hurried = now
		default:
		}
	}
}

const (
	// hurriedPause is how long work that an obtain waits for pauses at most.
	hurriedPause = 50 * time.Millisecond

	// ownPatience is how long an obtain waits for work whose requests only fail.
	ownPatience = time.Second
)

// waitForOwn waits until earlier work under the token of an obtain has ended, as far as it concerns the keys. It hurries the
// pauses of that work, but not its requests: after a lost reply, it waits until the Redis client gives up the connection.
// patient says to wait for longer than ownPatience if the requests fail.
//
// A cleanup may lead to another one, which has begun when the first one ends. So waitForOwn looks again after it has waited.
// It does not look again for refreshes, because an endless series of them would keep it waiting.
//
// It returns an error that matches ErrNotObtained if ctx ends first, ErrClosed if the Client is closed, and how the requests
// have failed.
func (p *place) waitForOwn(ctx context.Context, token string, keys []string, patient bool) error {
	for again := false; ; again = true {
		own := p.pendings.own(token, keys)
		if again {
			own = slices.DeleteFunc(own, func(p *pending) bool { return p.hurry == nil })
		}
		if len(own) == 0 {
			return nil
		}
		if err := p.waitFor(ctx, own, keys, patient); err != nil {
			return err
		}
	}
}

// waitFor waits for these pieces of work, one after the other, and hurries all of them meanwhile.
func (p *place) waitFor(ctx context.Context, own []*pending, keys []string, patient bool) error {
	hurry := time.NewTicker(hurriedPause)
	defer hurry.Stop()
	look := time.NewTicker(ownPatience)
	defer look.Stop()
	for _, x := range own {
		look.Reset(ownPatience)
		for !isClosed(x.done) {
			select {
			case <-x.done:
			case <-hurry.C:
				p.pendings.hurry(own)
			case <-p.closed:
				return ErrClosed
			case <-ctx.Done():
				why := fault.ErrUnanswered
				if failure := p.pendings.failure(x); failure != nil {
					why = failure
				}
				return fault.NotObtained(fmt.Errorf("%w; an earlier call with the same token: %w", fault.Ended(ctx), why))
			case <-look.C:
				if failure := p.pendings.failure(x); failure != nil && !patient {
					failure = fmt.Errorf("an earlier call with the same token: %w", fault.WithHint(keys, failure))
					return fault.Failed("obtain", keys, failure)
				}
			}
		}
	}
	return nil
}
