package redislock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// explainPatience is how long a refused obtain waits to be told what is in the way. The question goes right after an
	// answer, so a server that is well replies at once.
	explainPatience = 250 * time.Millisecond

	// explainGrace is the same for an obtain whose ctx has ended: it has to return within milliseconds.
	explainGrace = 20 * time.Millisecond
)

// ask asks what is in the way. The Key of the answer is "" if nothing is any more, or if it did not come soon.
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
	keys := withLinesFirst(o.keys)
	var ticket int64
	if o.waiter != nil {
		ticket = o.waiter.ticket
	}
	c := newBlocker(ctx, keys, o.token, ticket)
	if !o.client.redis.Do(ctx, c) || c.Err != nil {
		return &RefusedError{}
	}
	return readBlocker(keys, c.Reply)
}

// refused takes down a refusal. The first one is explained, if that is wanted.
func (o *obtaining) refused(ctx context.Context) {
	e := Refused{Keys: o.keys, Try: o.seen.tries}
	if o.explain && o.why == nil {
		o.why = o.ask(ctx)
		e.Key, e.Holder, e.Metadata, e.TTL, e.Ahead = o.why.Key, o.why.Token, o.why.Metadata, o.why.TTL, o.why.Ahead
		o.seen.explained = o.seen.tries
	}
	tell(ctx, o.client.tracer.Refused, e)
}

// explained returns the error of an obtain that has ended, with what is in the way if the last try was a refusal and
// that is wanted. Of a call that tried more than once it asks again, and if nothing is in the way at last, it tells what
// was at first.
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

// withLinesFirst returns keys in the order in which scripts that look at lines want them.
func withLinesFirst(keys []string) []string {
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	sortByLine(keys, order)
	sorted := make([]string, len(keys))
	for i, at := range order {
		sorted[i] = keys[at]
	}
	return sorted
}
