package place

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/line"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
	"github.com/redislock/redislock/internal/undo"
)

// Claim is what a token has at one place: keys, until it gives them back. It does not know who counts on them, nor for how
// long.
type Claim struct {
	Place    *Place
	Keys     script.Keys
	Token    string
	FenceKey string        // "" for none, or if attached
	Obtained time.Duration // the ttl of the obtain; 0 if attached

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

// RefreshCall returns an unsent call that gives the keys a new ttl; see script.Scripts.Refresh.
func (k *Claim) RefreshCall(ttl time.Duration, metadata string, renewal bool) *transport.Call {
	return k.Place.set.Scripts.Refresh(k.Token, k.Keys, ttl, metadata, renewal)
}

// ReadRefresh reads the reply to a call of RefreshCall. If keys are lost, it returns which, and an error that matches
// ErrNotObtained.
func (k *Claim) ReadRefresh(operation string, c *transport.Call) (script.Loss, error) {
	if c.Err != nil {
		return script.Loss{}, fault.Failed(operation, k.Keys.Names, fault.WithHint(k.Keys.Names, c.Err))
	}
	loss, err := k.Place.ReadLoss(k.Keys.Names, c.Reply, fault.ErrNotObtained)
	if err != nil && !errors.Is(err, fault.ErrNotObtained) {
		err = fault.Failed(operation, k.Keys.Names, err)
	}
	return loss, err
}

// TTL asks for the remaining ttl.
func (k *Claim) TTL(ctx context.Context) (time.Duration, error) {
	reply, err := k.Place.ask(ctx, "ttl", k.Keys.Names, k.Place.set.Scripts.TTL(k.Token, k.Keys))
	if err != nil {
		return 0, err
	}
	left, err := script.ReadTTL(reply)
	if err != nil {
		return 0, fault.Failed("ttl", k.Keys.Names, err)
	}
	return left, nil
}

// GiveBack releases the keys in the background; they last for no longer than longest. again says that a request which
// acquires them may still be stuck.
func (k *Claim) GiveBack(ctx context.Context, longest time.Duration, again bool) {
	x := undo.New(k.Place.ReleaseCall(ctx, k.Token, k.Keys), undo.Late, k.Keys.Names, longest)
	x.Again = again
	k.Place.Cleanups.Sweep(x, 0)
}

// isDoubtful reports whether a sending of the obtain was not answered, which may acquire the keys again later. It is of no
// use after a release.
func (k *Claim) isDoubtful() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.unanswered != nil
}

// Doubt notes that a sending of the obtain was not answered.
func (k *Claim) Doubt() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.unanswered == nil {
		k.unanswered = &unanswered{}
	}
}
