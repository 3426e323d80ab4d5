package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// explainPatience is how long a refused obtain waits for the answer to its question what blocks it. The server has
	// just answered a try, so a healthy one replies at once.
	explainPatience = 250 * time.Millisecond

	// explainGrace is the same for an obtain whose ctx has ended, because it must return within milliseconds.
	explainGrace = 20 * time.Millisecond
)

// ask asks Redis what blocks the obtain. The Key of the answer is "" if nothing does any more, or if Redis does not
// answer in time.
func (o *obtaining) ask(ctx context.Context) *RefusedError {
	if o.spread != nil {
		return o.spread.whoBlocks(ctx)
	}
	patience := explainPatience
	if ended(ctx) != nil {
		ctx, patience = context.WithoutCancel(ctx), explainGrace
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	keys := slices.SortedStableFunc(slices.Values(o.keys), linesFirst)
	var ticket int64
	if o.waiter != nil {
		ticket = o.waiter.ticket
	}
	c := newBlocker(ctx, keys, o.token, ticket)
	if !o.place.redis.Do(ctx, c) || c.Err != nil {
		return &RefusedError{}
	}
	return readBlocker(keys, c.Reply)
}

// refused reports a refusal to the Tracer. With Explain, it first asks what blocks the first try.
func (o *obtaining) refused(ctx context.Context) {
	e := Refused{Keys: o.keys, Try: o.seen.tries}
	if o.explain && o.why == nil {
		o.why = o.ask(ctx)
		e.Key, e.Holder, e.Metadata, e.TTL, e.Ahead = o.why.Key, o.why.Token, o.why.Metadata, o.why.TTL, o.why.Ahead
		o.seen.explained = o.seen.tries
	}
	tell(ctx, o.client.tracer.Refused, e)
}

// explained returns the error of an obtain that has ended. With Explain, and if the last try was refused, that is a
// RefusedError. After more than one try, it asks again; if nothing blocks the obtain any more, the error says what
// blocked the first try.
func (o *obtaining) explained(ctx context.Context, err error) error {
	if o.why == nil || o.failure != nil || !errors.Is(err, ErrNotObtained) {
		return err
	}
	if o.seen.tries > o.seen.explained || o.cut != nil {
		if now := o.ask(ctx); now.Key != "" {
			o.why = now
		}
	}
	if o.cut != nil {
		return fmt.Errorf("%w: %w", o.why, o.cut)
	}
	return o.why
}
