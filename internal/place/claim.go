package place

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/script"
	"github.com/redislock/redislock/internal/transport"
	"github.com/redislock/redislock/internal/undo"
)

// Claim is what a token has at a place: keys, until they are released. A Claim does not know for how long they are valid.
type Claim struct {
	Place    *Place
	Keys     script.Keys
	Token    string
	FenceKey string        // "" for no fencing token, and for an attached lock
	Obtained time.Duration // the ttl of the obtain; 0 for an attached lock
	Random   bool          // the library chose the token, so no other claim has it, and none had or will have

	mu      sync.Mutex      // protects the fields below
	release *transport.Call // the last release, unless that was answered
	pursuit *pursuit        // the rounds that go on with release; nil for none
	strays  *strays         // nil for none
}

// strays are requests of a Claim that may still be executed, even after its release. Claim.mu protects the fields.
type strays struct {
	obtain *Attempt // see isDoubtful; nil if each sending was answered, and after a release

	// Refreshes that may put the keys back, because the place has a guard and Redis forgets: see BeginRevival.
	underWay []chan struct{} // each is closed when its refresh has ended; one that ends before any release is taken out
	unheard  bool            // one has ended, but may still be executed
	released bool            // a release has begun: no other is to be sent
	over     chan struct{}   // closed when released is set; nil if nobody has asked
}

// noStrays are the strays of a claim whose release has begun, if it has none. They never change: most locks under a guard
// are released so, and need no strays of their own.
var noStrays = &strays{released: true}

// stray returns the strays, which can be changed. The caller holds c.mu.
func (c *Claim) stray() *strays {
	switch c.strays {
	case nil:
		c.strays = &strays{}
	case noStrays:
		c.strays = &strays{released: true}
	}
	return c.strays
}

// RefreshCall returns an unsent call that gives the keys a new ttl; see script.Scripts.Refresh.
func (c *Claim) RefreshCall(ttl time.Duration, metadata, kept string, prolongs bool) *transport.Call {
	return c.Place.set.Scripts.Refresh(c.Token, c.Keys, ttl, metadata, kept, prolongs)
}

// SendRefresh sends a call of RefreshCall until ctx ends. It returns the last call, and whether that has finished. If the
// refresh only prolongs, and no other claim can have the token, a late execution does no harm: then a call whose connection
// has died is appended to lost, and another one goes at once.
func (c *Claim) SendRefresh(
	ctx context.Context, call *transport.Call, prolongs bool, lost *[]*transport.Call,
) (last *transport.Call, answered bool) {
	call.Ctx = ctx
	if !prolongs || !c.Random {
		return call, c.Place.Redis.Do(ctx, call)
	}
	return c.Place.Redis.DoAnew(ctx, call, func(left, _ *transport.Call) { *lost = append(*lost, left) })
}

// ReadRefresh reads the reply to a call of RefreshCall. If keys are lost, it returns an error that matches ErrNotObtained.
// It also returns an error if a guard has not executed the call.
func (c *Claim) ReadRefresh(operation string, call *transport.Call) (r script.Refreshed, err error) {
	if call.Err != nil {
		return r, fault.Failed(operation, c.Keys.Names, fault.WithHint(c.Keys.Names, call.Err))
	}
	if r, err = script.ReadRefreshed(c.Keys.Names, call.Reply); err == nil {
		c.Place.noteClosure(call.Ctx, r.Closure)
		err = c.Place.LossError(r.Loss, fault.ErrNotObtained)
	}
	if r.Again > 0 {
		err = notExecuted(r.Again)
	}
	if err != nil && !errors.Is(err, fault.ErrNotObtained) {
		err = fault.Failed(operation, c.Keys.Names, err)
	}
	return r, err
}

// TTL asks for the least remaining ttl of the keys: 0 if the token lacks one of them.
func (c *Claim) TTL(ctx context.Context) (time.Duration, error) {
	call, err := c.Place.ask(ctx, "ttl", c.Keys.Names, c.Place.set.Scripts.TTL(c.Token, c.Keys))
	if err != nil {
		return 0, err
	}
	left, err := script.ReadTTL(call.Reply)
	if err != nil {
		return 0, fault.Failed("ttl", c.Keys.Names, err)
	}
	return left, nil
}

// GiveBack releases the keys in the background; they last for no longer than longest. again says that a request which
// acquires them may still be stuck. Unless freeing is nil, the release waits until it is closed, and for a pursuit that goes
// on then: a Free that is under way, or joins the pursuit, would take for lost what the release has freed. When the obtains
// have ended that were lost, and may acquire the keys as well, GiveBack releases the keys once more.
func (c *Claim) GiveBack(ctx context.Context, longest time.Duration, again bool, freeing <-chan struct{}) {
	x := undo.New(c.Place.ReleaseCall(ctx, c.Token, c.Keys), undo.Late, c.Keys.Names, longest)
	x.Again = again
	c.Place.Cleanups.Run(x, func() error {
		if freeing != nil {
			<-freeing
			c.awaitPursuit()
		}
		return c.Place.Cleanups.SweepTwice(x, c.lostObtains())
	})
}

// isDoubtful reports whether some sending of the obtain was never answered, although a later one was. Such a sending may
// still arrive. After a loss or a release, it would acquire the keys again, or take a position in line again.
func (c *Claim) isDoubtful() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.strays != nil && c.strays.obtain != nil
}

// Doubt notes that some sending of the obtain was never answered, and which calls may still be executed.
func (c *Claim) Doubt(lost []*transport.Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stray()
	if s.obtain == nil {
		s.obtain = &Attempt{}
	}
	s.obtain.abandoned = append(s.obtain.abandoned, lost...)
}

// lostObtains returns the obtains that may still be executed, as far as the claim knows.
func (c *Claim) lostObtains() []*transport.Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.strays == nil || c.strays.obtain == nil {
		return nil
	}
	return slices.Clone(c.strays.obtain.abandoned)
}

// doubt notes what may still arrive of the obtain; nil if each sending was answered.
func (c *Claim) doubt(unanswered *Attempt) {
	if unanswered == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stray().obtain = unanswered
}
