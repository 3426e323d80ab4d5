package redislock

import (
	"context"
	"errors"
	"fmt"
)

// blocker asks Redis what blocks the obtain.
func (o *obtaining) blocker(ctx context.Context) *RefusedError {
	why := new(RefusedError)
	if o.spread != nil {
		*why = RefusedError(o.spread.blocker(ctx))
	} else {
		*why = RefusedError(o.single.Blocker(ctx))
	}
	return why
}

// refused reports a refusal to the Tracer. With Explain, it first asks what blocks the first try.
func (o *obtaining) refused(ctx context.Context) {
	e := Refused{Keys: o.keys, Try: o.progress().Tries}
	if o.opt.Explain && o.why == nil {
		o.why = o.blocker(ctx)
		e.Key, e.Holder, e.Metadata, e.TTL, e.Ahead = o.why.Key, o.why.Token, o.why.Metadata, o.why.TTL, o.why.Ahead
		o.explained = o.progress().Tries
	}
	tell(ctx, o.client.tracer.Refused, e)
}

// explain returns the error of an obtain that has ended. With Explain, and if the last try was refused, that is a
// RefusedError. After more than one try, it asks again; if nothing blocks the obtain any more, the error says what
// blocked the first try.
func (o *obtaining) explain(ctx context.Context, err error) error {
	if o.why == nil || o.progress().Failure != nil || !errors.Is(err, ErrNotObtained) {
		return err
	}
	if o.progress().Tries > o.explained || o.cut != nil {
		if now := o.blocker(ctx); now.Key != "" {
			o.why = now
		}
	}
	if o.cut != nil {
		return fmt.Errorf("%w: %w", o.why, o.cut)
	}
	return o.why
}
