package redislock

import (
	"context"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/line"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
)

// claim is what a token has at one place: keys, until it gives them back. It does not know who counts on them, nor for how
// long.
type claim struct {
	place    *place
	keys     script.Keys
	token    string
	fenceKey string        // "" for none, or if attached
	obtained time.Duration // the ttl of the obtain; 0 if attached

	mu         sync.Mutex      // protects the fields below
	release    *transport.Call // the last release, if it was not answered
	pursuit    *pursuit        // goes on with release; nil if nothing does
	unanswered *unanswered     // nil if each sending of the obtain was answered, and once that no longer matters
}

// unanswered is what is known of those sendings of an obtain that were not answered, though a later one was. One that
// arrives after a Release acquires the keys again, or takes a place in line again.
type unanswered struct {
	waiter *line.Waiter      // of the obtain; nil if there was none
	tries  []*transport.Call // that the waiter has abandoned; they may still be under way for long
	custom bool              // a later obtain may have the keys with the same token: only what was newly taken is released
}

// newRefresh returns an unsent call that gives the keys a new ttl; see script.Scripts.Refresh.
func (k *claim) newRefresh(ttl time.Duration, metadata string, renewal bool) *transport.Call {
	return k.place.scripts.Refresh(k.token, k.keys, ttl, metadata, renewal)
}

// ttl asks for the remaining ttl.
func (k *claim) ttl(ctx context.Context) (time.Duration, error) {
	reply, err := k.place.ask(ctx, "ttl", k.keys.Names, k.place.scripts.TTL(k.token, k.keys))
	if err != nil {
		return 0, err
	}
	left, err := script.ReadTTL(reply)
	if err != nil {
		return 0, fault.Failed("ttl", k.keys.Names, err)
	}
	return left, nil
}

// isDoubtful reports whether a sending of the obtain was not answered, which may acquire the keys again later. It is of no
// use after a release.
func (k *claim) isDoubtful() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.unanswered != nil
}

// doubt notes what is known of unanswered sendings of the obtain, or that there were some. Nil for u says nothing else.
func (k *claim) doubt(u *unanswered) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case u != nil:
		k.unanswered = u
	case k.unanswered == nil:
		k.unanswered = &unanswered{}
	}
}
