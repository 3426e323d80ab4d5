package transport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// quiet is how long a subscription may be silent before it is asked whether it lives.
	quiet = time.Second

	// relisten is how long to wait before subscribing again, more or less by a half at random, and relistenRefused the
	// same where Redis has refused to.
	relisten        = time.Second
	relistenRefused = 10 * time.Second
)

// CanListen reports whether Listen hears what scripts publish.
func (r *Redis) CanListen() bool { return r.subscribe != nil }

// Listen subscribes to a channel, and calls message for each message, until ctx ends; whenever the subscription breaks,
// it makes a new one. It calls state with true when there is a subscription, and with false when that has broken;
// messages published meanwhile are lost. It blocks until ctx ends, and calls neither function afterwards from another
// goroutine.
func (r *Redis) Listen(ctx context.Context, channel string, state func(open bool), message func(payload string)) {
	for ctx.Err() == nil {
		err := r.receive(ctx, channel, state, message)
		state(false)
		wait := relisten/2 + rand.N(relisten)
		if IsAnswer(err) && IsFinal(err) {
			wait = relistenRefused
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// receive is Listen for as long as one subscription lives.
func (r *Redis) receive(
	ctx context.Context, channel string, state func(open bool), message func(payload string),
) (err error) {
	defer func() {
		if value := recover(); value != nil { // a hook's that dials
			err = fmt.Errorf("listening: %w", &hookPanicError{value})
		}
	}()
	subscription := r.subscribe(ctx)
	defer subscription.Close()
	// go-redis does not interrupt a read when ctx ends, but when the subscription is closed.
	forget := context.AfterFunc(ctx, func() { _ = subscription.Close() })
	defer forget()
	if err := subscription.Subscribe(ctx, channel); err != nil {
		return err
	}
	asked := false
	for {
		received, err := subscription.ReceiveTimeout(ctx, quiet)
		var late net.Error
		switch {
		case errors.As(err, &late) && late.Timeout() && !asked:
			asked = true
			if err := subscription.Ping(ctx); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		asked = false
		switch received := received.(type) {
		case *redis.Subscription:
			state(true)
		case *redis.Message:
			message(received.Payload)
		}
	}
}
