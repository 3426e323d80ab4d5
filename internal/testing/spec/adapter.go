package spec

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock/adapter"
)

// Adapter is an adapter of go-redis that knows nothing of the library but what it has to implement. It is for specs.
type Adapter struct{ Client *redis.Client }

// About is part of [adapter.Conn].
func (a Adapter) About() adapter.About {
	return adapter.About{Address: a.Client.Options().Addr, Reach: adapter.OneServer}
}

// neverAgain is a command that go-redis does not resend.
type neverAgain struct{ *redis.Cmd }

func (neverAgain) NoRetry() bool { return true }

// Run is part of [adapter.Conn].
func (a Adapter) Run(ctx context.Context, scripts []*adapter.Script) {
	commands := make([]neverAgain, len(scripts))
	for i, s := range scripts {
		args := []any{"evalsha", s.SHA1, len(s.Keys)}
		if s.Whole {
			args[0], args[1] = "eval", s.Source
		}
		for _, key := range s.Keys {
			args = append(args, key)
		}
		for _, arg := range s.Args {
			args = append(args, arg)
		}
		commands[i] = neverAgain{redis.NewCmd(ctx, args...)}
		if s.Err = s.Sent(); s.Err != nil {
			return
		}
	}
	if len(scripts) == 1 {
		_ = a.Client.Process(ctx, commands[0])
	} else {
		pipe := a.Client.Pipeline()
		for _, command := range commands {
			_ = pipe.Process(ctx, command)
		}
		_, _ = pipe.Exec(ctx)
	}
	for i, s := range scripts {
		s.Reply, s.Err = commands[i].Result()
		if s.Err = adapted(s.Err); errors.Is(s.Err, redis.Nil) {
			s.Reply, s.Err = nil, nil
		}
	}
}

// adapted returns an error as the library wants it.
func adapted(err error) error {
	failed, is := errors.AsType[*net.OpError](err)
	answer, answered := errors.AsType[redis.Error](err)
	switch {
	case err == nil, errors.Is(err, redis.Nil):
		return err
	case answered:
		return adapter.ReplyError(answer.Error())
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: %w", adapter.ErrClosed, err)
	case is && failed.Op == "dial":
		return fmt.Errorf("%w: %w", adapter.ErrNotSent, err)
	}
	return err
}

// StandsAlone is part of [adapter.Greeter].
func (a Adapter) StandsAlone(ctx context.Context) (bool, error) {
	hello := redis.NewMapStringInterfaceCmd(ctx, "hello")
	if err := a.Client.Process(ctx, hello); err != nil {
		return false, adapted(err)
	}
	return hello.Val()["mode"] == "standalone", nil
}

// Listen is part of [adapter.Listener].
func (a Adapter) Listen(ctx context.Context, channel string, open func(), message func(payload string)) error {
	subscription := a.Client.Subscribe(ctx)
	defer subscription.Close()
	if err := subscription.Subscribe(ctx, channel); err != nil {
		return adapted(err)
	}
	forget := context.AfterFunc(ctx, func() { _ = subscription.Close() })
	defer forget()
	for asked := false; ; {
		received, err := subscription.ReceiveTimeout(ctx, time.Second)
		var late net.Error
		switch {
		case errors.As(err, &late) && late.Timeout() && !asked:
			if asked, err = true, subscription.Ping(ctx); err == nil {
				continue
			}
		case err == nil:
			asked = false
		}
		if err != nil {
			return adapted(err)
		}
		switch received := received.(type) {
		case *redis.Subscription:
			open()
		case *redis.Message:
			message(received.Payload)
		}
	}
}
