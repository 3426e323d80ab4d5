package worker

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/testing/history"
	"github.com/redislock/redislock/torture/internal/clock"
)

// held is a lock that was granted.
type held struct {
	g      *goroutine
	op     string
	lock   *redislock.Lock
	client *redislock.Client // nil if the lock was obtained by a function of the package
	keys   []string
	ttl    time.Duration
	fence  string // the name of the counter; "" without one
	shared bool   // another handle of the same token may have released the lock
}

// obtain makes a call and writes how it ended. It returns nil if the call was not granted.
func (g *goroutine) obtain(c *call, client *redislock.Client) *held {
	var lock *redislock.Lock
	var err error
	switch backend := g.backend.client; {
	case c.name == "Obtain" && client == nil && backend != nil:
		c.with("package")
		lock, err = redislock.Obtain(c.ctx, backend, c.keys[0], c.ttl, c.opt)
	case client == nil && backend != nil:
		c.with("package")
		lock, err = redislock.ObtainMulti(c.ctx, backend, c.keys, c.ttl, c.opt)
	case c.name == "Obtain":
		lock, err = client.Obtain(c.ctx, c.keys[0], c.ttl, c.opt)
	default:
		lock, err = client.ObtainMulti(c.ctx, c.keys, c.ttl, c.opt)
	}
	if err != nil {
		g.ended(c, err, "")
		return nil
	}
	g.granted(c, lock.Token(), lock.Until(), lock.FenceToken())
	g.ended(c, nil, "granted")
	return &held{g: g, op: c.op, lock: lock, client: client, keys: c.keys, ttl: c.ttl, fence: c.opt.FenceKey}
}

// until returns two times: the lock ends no earlier than the first, and no later than the second; see timeOf.
func (h *held) until() (early, late int64) { return timeOf(h.lock.Until(), clock.Now) }

// claim writes until when the lock is certainly held.
func (h *held) claim() {
	at := clock.Now()
	early, _ := h.until()
	h.g.log.Write(history.Event{Kind: history.Claim, At: at, End: clock.Now(), Op: h.op, Until: max(early, 0)})
}

// unclaim writes that the worker does not rely on the lock any more.
func (h *held) unclaim() {
	h.g.log.Write(history.Event{Kind: history.Claim, At: clock.Now(), Op: h.op})
}

// done writes how a call for the lock has ended.
func (h *held) done(e history.Event, err error) {
	e.Kind, e.Op, e.At = history.Done, h.op, clock.Now()
	conclude(&e, err, "ok")
	if h.shared {
		e.Lost = false
	}
	h.g.log.Write(e)
}

// write writes to the guarded store, even if the lock is no longer valid.
func (h *held) write() {
	if h.fence == "" {
		return
	}
	if _, err := h.g.store.Write(h.op, h.fence, h.lock.FenceToken()); err != nil {
		h.done(history.Event{Name: "Write", Outcome: "unexpected"}, err)
	}
}

// release gives the lock up. With a patience of 0, its ctx does not end. With a negative one, it has ended before.
func (h *held) release(patience time.Duration) {
	h.unclaim()
	e := history.Event{Name: "Release"}
	ctx, cancel := h.g.limited(patience, &e)
	defer cancel()
	e.Start = clock.Now()
	err := h.lock.Release(ctx)
	e.Lost = isLoss(err)
	h.done(e, err)
}

// limited returns a ctx that ends after patience, and notes in e when that is.
func (g *goroutine) limited(patience time.Duration, e *history.Event) (context.Context, context.CancelFunc) {
	if patience == 0 {
		return context.WithCancel(context.Background())
	}
	_, e.Limit = timeOf(time.Now().Add(patience), clock.Now)
	e.Options = append(e.Options, "limited")
	return context.WithTimeout(context.Background(), patience)
}

// refresh gives the lock a new ttl. While a Refresh to a shorter one is under way, the worker does not rely on the lock.
func (h *held) refresh(ttl, patience time.Duration, opt *redislock.Options) error {
	e := history.Event{Name: "Refresh"}
	ttl = h.g.Endpoint.Guard.clamp(ttl)
	shorter := time.Now().Add(ttl).Before(h.lock.Until()) // the one before may not have been sent
	if shorter {
		h.unclaim()
		e.Options = append(e.Options, "shorter")
	} else {
		e.Options = append(e.Options, "longer")
	}
	if opt != nil && opt.Metadata != "" {
		e.Options = append(e.Options, "metadata")
	}
	if opt != nil && opt.RetryStrategy != nil {
		e.Options = append(e.Options, "retry")
	}
	ctx, cancel := h.g.limited(patience, &e)
	defer cancel()
	e.Start = clock.Now()
	err := h.lock.Refresh(ctx, ttl, opt)
	// ErrNotObtained can also say that the answer came too late: a shorter ttl had brought the end forward.
	e.Lost = isLoss(err) || errors.Is(err, redislock.ErrNotObtained) && !shorter
	h.ttl = ttl
	h.done(e, err)
	h.claim()
	return err
}

// ask calls a function that changes nothing, and notes if the answer says that the lock is lost.
func (h *held) ask() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	switch h.g.random.IntN(4) {
	case 0, 1:
		e := history.Event{Name: "TTL", Start: clock.Now()}
		left, err := h.lock.TTL(ctx)
		if left < math.MaxInt64 {
			e.Left = left
		}
		e.Lost = err == nil && left == 0
		h.done(e, err)
	case 2:
		e := history.Event{Name: "Inspect", Start: clock.Now()}
		found, err := h.client.Inspect(ctx, h.keys...)
		for _, one := range found {
			e.Lost = e.Lost || h.isLost(one)
		}
		h.done(e, err)
	case 3:
		e := history.Event{Name: "Line", Start: clock.Now()}
		_, err := h.client.Line(ctx, h.keys[0])
		h.done(e, err)
	}
}

// isLost reports whether a status shows that a key is not held any more. On a quorum, servers that did not answer may hold
// the key.
func (h *held) isLost(s redislock.Status) bool {
	if len(s.Holders) > 0 {
		isOwn := func(holder redislock.Holder) bool { return holder.Token == h.lock.Token() }
		whole := len(s.Holders) == s.HolderCount && h.g.Endpoint.Topology != "quorum"
		return whole && !slices.ContainsFunc(s.Holders, isOwn)
	}
	if len(s.Places) == 0 {
		return s.Token != h.lock.Token()
	}
	servers := len(h.g.Endpoint.Addrs)
	most := servers - len(s.Places)
	for _, place := range s.Places {
		if place.Token == h.lock.Token() {
			most++
		}
	}
	return most <= servers/2
}
