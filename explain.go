package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/script"
)

const (
	// explainPatience is how long a refused obtain waits for the answer to its question what blocks it. The server has
	// just answered a try, so a healthy one replies at once.
	explainPatience = 250 * time.Millisecond

	// explainGrace is the same for an obtain whose ctx has ended, because it must return within milliseconds.
	explainGrace = 20 * time.Millisecond
)

// blocker asks a place what blocks an obtain with that token and ticket; 0 is none. The Key of the answer is "" if nothing
// does any more, or if Redis does not answer in time.
func blocker(ctx context.Context, at *place, keys []string, token string, ticket int64) *RefusedError {
	patience := explainPatience
	if fault.Ended(ctx) != nil {
		ctx, patience = context.WithoutCancel(ctx), explainGrace
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	keys = slices.SortedStableFunc(slices.Values(keys), script.LinesFirst)
	c := at.scripts.Blocker(keys, token, ticket)
	c.Ctx = ctx
	if !at.redis.Do(ctx, c) || c.Err != nil {
		return &RefusedError{}
	}
	why := RefusedError(script.ReadBlocker(keys, c.Reply))
	return &why
}

// blocker asks Redis what blocks the obtain.
func (o *obtaining) blocker(ctx context.Context) *RefusedError {
	if o.spread != nil {
		return o.spread.blocker(ctx)
	}
	a := &o.single.attempt
	return blocker(ctx, a.place, a.keys.Names, a.token, a.waiter.LastTicket())
}

// refused reports a refusal to the Tracer. With Explain, it first asks what blocks the first try.
func (o *obtaining) refused(ctx context.Context) {
	e := Refused{Keys: o.keys, Try: o.progress().tries}
	if o.opt.Explain && o.why == nil {
		o.why = o.blocker(ctx)
		e.Key, e.Holder, e.Metadata, e.TTL, e.Ahead = o.why.Key, o.why.Token, o.why.Metadata, o.why.TTL, o.why.Ahead
		o.explained = o.progress().tries
	}
	tell(ctx, o.client.tracer.Refused, e)
}

// explain returns the error of an obtain that has ended. With Explain, and if the last try was refused, that is a
// RefusedError. After more than one try, it asks again; if nothing blocks the obtain any more, the error says what
// blocked the first try.
func (o *obtaining) explain(ctx context.Context, err error) error {
	if o.why == nil || o.progress().failure != nil || !errors.Is(err, ErrNotObtained) {
		return err
	}
	if o.progress().tries > o.explained || o.cut != nil {
		if now := o.blocker(ctx); now.Key != "" {
			o.why = now
		}
	}
	if o.cut != nil {
		return fmt.Errorf("%w: %w", o.why, o.cut)
	}
	return o.why
}
