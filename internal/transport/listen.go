package transport

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	// relisten is how long to wait before subscribing again, ± half of that at random.
	// relistenRefused is the wait after Redis has refused to subscribe.
	relisten        = time.Second
	relistenRefused = 10 * time.Second
)

// CanListen reports whether Listen can receive what scripts publish.
func (r *Redis) CanListen() bool { return r.Listens }

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

// receive listens once.
func (r *Redis) receive(
	ctx context.Context, channel string, state func(open bool), message func(payload string),
) (err error) {
	defer func() {
		if value := recover(); value != nil { // from a hook for dialling
			err = fmt.Errorf("listening: %w", &hookPanicError{value})
		}
	}()
	return r.conn.Listen(ctx, channel, state, message)
}
