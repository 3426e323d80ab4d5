package goredis

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/internal/transport"
)

const (
	// quiet is how long a subscription may be silent before a PING checks that it is alive.
	quiet = time.Second

	// reconnects is how long a connection has to last so that go-redis may make another one for the same subscription.
	reconnects = time.Second
)

// Listen receives what is published on a channel.
func (c *client) Listen(ctx context.Context, channel string, open func(is bool), message func(payload string)) error {
	subscription := c.subscribe(ctx)
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
		case err != nil && !silent && !transport.IsAnswer(err) && ctx.Err() == nil && time.Since(broke) > reconnects:
			broke, asked = time.Now(), false // go-redis has connected and subscribed again, if it could
			open(false)
			continue
		case err != nil:
			return err
		}
		asked = false
		switch received := received.(type) {
		case *redis.Subscription:
			open(true)
		case *redis.Message:
			message(received.Payload)
		}
	}
}
