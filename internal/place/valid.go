package place

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/redislock/redislock/internal/fault"
	"github.com/redislock/redislock/internal/life"
)

// lateAnswer is how long past Until a Refresh waits, because an answer that comes so late may still extend the validity.
const lateAnswer = 250 * time.Millisecond

// LateAnswer returns how long past Until a Refresh waits. Under a guard, no answer counts that comes so late.
func (p *Place) LateAnswer() time.Duration {
	if p.IsGuarded() {
		return 0
	}
	return lateAnswer
}

// WhileValid returns a ctx that ends with ctx, or that time after the end of the lock's validity. A Refresh that waited
// any longer for a server that hangs would leave the holder in the belief that it has the lock. Call the returned
// function to release the ctx.
func WhileValid(ctx context.Context, o life.Owner, after time.Duration) (context.Context, context.CancelFunc) {
	free, leave := Detached(ctx) // has no deadline: with ContextTimeoutEnabled, go-redis would stop waiting for the answer
	limited, cancel := context.WithCancel(free)
	var timer *time.Timer
	timer = time.AfterFunc(math.MaxInt64, func() { // Reset below, when the variable is set
		// A renewal may have prolonged the validity meanwhile.
		if left := time.Until(life.Until(o)); left > 0 && limited.Err() == nil {
			timer.Reset(left + after)
			return
		}
		cancel()
	})
	timer.Reset(max(time.Until(life.Until(o)), 0) + after)
	return limited, func() {
		timer.Stop()
		leave()
		cancel()
	}
}

// Detached returns a ctx for calls that may outlast their caller. It has the values of ctx. It ends with ctx, but no
// longer once the returned function was called.
func Detached(ctx context.Context) (context.Context, func()) {
	if ctx.Done() == nil || ctx.Err() != nil {
		return ctx, func() {}
	}
	free, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return free, func() { stop() }
}

// Outlived returns why a ctx that WhileValid made from ctx has ended.
func Outlived(ctx context.Context) error {
	if err := fault.Ended(ctx); err != nil {
		return err
	}
	return fmt.Errorf("%w, and Redis has not answered the refresh", fault.ErrLapsed)
}
