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
	// quiet is how long a subscription may be silent before a PING checks that it is alive.
	quiet = time.Second

	// relisten is how long to wait before subscribing again, ± half of that at random.
	// relistenRefused is the wait after Redis has refused to subscribe.
	relisten        = time.Second
	relistenRefused = 10 * time.Second
)

// CanListen reports whether Listen can receive what scripts publish.
func (r *Redis) CanListen() bool { return r.subscribe != nil }

// Listen subscribes to a channel and calls message for each message, until ctx ends. If the subscription breaks, it
// makes a new one, at once the first time in a while. It calls state with true when there is a subscription, and with false
// when that has broken; messages published in between are lost. It blocks until ctx ends, and calls neither function
// afterwards.
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

// receive does the work of Listen for one subscription.
func (r *Redis) receive(
	ctx context.Context, channel string, state func(open bool), message func(payload string),
) (err error) {
	defer func() {
		if value := recover(); value != nil { // from a hook for dialling
			err = fmt.Errorf("listening: %w", &hookPanicError{value})
		}
	}()
	subscription := r.subscribe(ctx)
	defer subscription.Close()
	if err := subscription.Subscribe(ctx, channel); err != nil {
		return err
	}
	// The end of ctx does not interrupt a read in go-redis. Closing the subscription does, except while go-redis connects
	// for it, because Close waits for the connection.
	forget := context.AfterFunc(ctx, func() { _ = subscription.Close() })
	defer forget()
	asked := false
	var broke time.Time // the last time that its connection did
	for {
		received, err := subscription.ReceiveTimeout(ctx, quiet)
		var late net.Error
		silent := errors.As(err, &late) && late.Timeout()
		switch {
		case silent && !asked:
			asked = true
			if err := subscription.Ping(ctx); err != nil {
				return err
			}
			continue
		case err != nil && !silent && !IsAnswer(err) && ctx.Err() == nil && time.Since(broke) > relisten:
			broke, asked = time.Now(), false // go-redis has connected and subscribed again, if it could
			state(false)
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
