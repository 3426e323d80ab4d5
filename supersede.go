package redislock

import (
	"context"
	"fmt"
	"slices"

	"github.com/redislock/redislock/internal/transport"
)

// supersede ends the cleanups that could delete what an obtain with a custom token is about to acquire: the token may
// be that of an abandoned obtain or lock. Another cleanup takes over the keys that the obtain does not want. supersede
// waits for cleanups whose release is on its way, but not past the end of ctx or Close. It does not see other processes
// with the same token. It returns the cleanups that it has ended, even with an error. Unless the obtain makes a lock, it
// must now release those of its keys that they would have released.
//
// Of the calls under way, it waits for those that began before the obtain: their order is less than before. Such a call may
// lead to a cleanup, so supersede looks again afterwards. It does not wait for later calls: an obtain among them waits for
// this one, and an endless series of refreshes would keep it waiting.
//
// It compares the keys without holding the mutex, because there may be many. A cleanup never changes its keys, and one
// that begins to send meanwhile is found sending afterwards.
func (c *Client) supersede(
	ctx context.Context, token string, keys []string, before int,
) (superseded []*cleanup, err error) {
	for again := true; again && err == nil; {
		var some []*cleanup
		some, again, err = c.supersedeOnce(ctx, token, keys, before)
		superseded = append(superseded, some...)
	}
	return superseded, err
}

// supersedeOnce does the work of supersede. It reports whether further cleanups may have begun meanwhile.
func (c *Client) supersedeOnce(
	ctx context.Context, token string, keys []string, before int,
) (superseded []*cleanup, again bool, err error) {
	found := map[*cleanup]bool{} // whether it was superseded earlier
	c.cleanups.mu.Lock()
	for _, x := range c.cleanups.byToken[token] {
		if !x.isCall() || x.order < before {
			found[x] = !x.isCall() && x.release.IsDropped()
		}
	}
	c.cleanups.mu.Unlock()
	if len(found) == 0 {
		return nil, false, nil
	}
	wanted := setOf(keys)
	remainders := map[*cleanup]*cleanup{}
	for x, earlier := range found {
		if err := ended(ctx); err != nil {
			return nil, false, notObtained(err)
		}
		rest := slices.DeleteFunc(slices.Clone(x.keys), func(key string) bool { return wanted[key] })
		switch {
		case len(rest) == len(x.keys):
			delete(found, x)
		case len(rest) > 0 && !earlier && !x.isCall():
			remainders[x] = newRemainder(x, token, rest)
		}
	}
	var onTheWire []<-chan struct{}
	var dropped []*cleanup
	c.cleanups.mu.Lock()
	for x, earlier := range found {
		switch {
		case x.over:
			continue
		case x.isCall() || x.release.IsDropped():
			again = again || !earlier // what follows it was not found above
		default:
			superseded, again = append(superseded, x), true // what begins before the drop was not found above
			close(x.stop)
			if y := remainders[x]; y != nil {
				y.release.Ctx = x.release.Ctx
				if !c.startLocked(y, func() error { return c.cleanRemainder(y, x) }) {
					dropped = append(dropped, y)
				}
			}
			x.release.Drop()
		}
		if x.sending {
			onTheWire = append(onTheWire, x.ending())
		}
	}
	c.cleanups.mu.Unlock()
	for _, y := range dropped {
		c.tellDropped(y)
	}
	for _, done := range onTheWire {
		select {
		case <-done:
		case <-c.closed:
			return superseded, false, ErrClosed
		case <-ctx.Done():
			err := fmt.Errorf("%w; an earlier call with the same token: %w", ended(ctx), errUnanswered)
			return superseded, false, notObtained(err)
		}
	}
	return superseded, again, nil
}

// inherit waits until the superseded cleanups have ended, and takes over what they have left to release.
func (o *obtaining) inherit() {
	for _, x := range o.superseded {
		<-x.done
		o.taken = append(o.taken, x.left(o.keys)...)
	}
	o.superseded = nil
}

// left returns which of the keys a cleanup that has ended was to release and perhaps has not.
func (x *cleanup) left(keys []string) []string {
	if !x.release.Sent.IsZero() && x.release.Err == nil {
		return nil
	}
	of := x.taken
	if of == nil {
		of = x.keys
	}
	wanted := setOf(of)
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return !wanted[key] })
}

// newRemainder returns a cleanup that takes over the rest of the keys of one that is superseded. It must start when that
// is dropped, without unlocking cleanups.mu in between, so that a later obtain finds one of the two.
func newRemainder(x *cleanup, token string, rest []string) *cleanup {
	y := newCleanup(releaseOf(context.Background(), token, rest), x.why, rest, x.ttl)
	y.after = x.after
	return y
}

// cleanRemainder does the work of a remainder once the cleanup that it follows has ended.
func (c *Client) cleanRemainder(y, x *cleanup) error {
	<-x.done
	if x.taken != nil {
		taken := setOf(x.taken)
		y.limit(slices.DeleteFunc(slices.Clone(y.keys), func(key string) bool { return !taken[key] }))
		if len(y.taken) == 0 {
			return transport.ErrDropped
		}
	}
	return c.sweepNow(y)
}

func setOf(keys []string) map[string]bool {
	set := make(map[string]bool, len(keys))
	for _, key := range keys {
		set[key] = true
	}
	return set
}

// limit makes the cleanup release these keys only.
func (x *cleanup) limit(keys []string) {
	keys = unique(keys) // several tries may have taken a key, one after the other
	boxed, n := box(keys), len(keys)
	x.taken = append([]string{}, keys...)
	x.release.Keys, x.release.Spare, x.release.Args = boxed[:n:n], boxed[n:], []any{n}
	x.release.Simple = false // it was made for all keys
}
