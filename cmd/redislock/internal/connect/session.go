package connect

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/cmd/redislock/internal/cli"
)

// Session is a connection to Redis for a command that asks something and ends.
type Session struct {
	*Target

	Client redis.UniversalClient
	Locks  *redislock.Client
}

// Open connects. The caller calls Close.
func (t *Target) Open(ctx context.Context) (*Session, error) {
	cli.EndOnQuit()
	client, err := t.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &Session{Target: t, Client: client, Locks: NewLocks(client)}, nil
}

// Close ends the connection.
func (s *Session) Close() {
	_ = s.Locks.Close()
	_ = s.Client.Close()
}

// answerLimit bounds one request to a Redis that has answered before.
const answerLimit = 5 * time.Second

// Line returns who waits for a key.
func (s *Session) Line(ctx context.Context, key string) ([]redislock.Waiter, error) {
	return asked(ctx, s, func(ctx context.Context) ([]redislock.Waiter, error) { return s.Locks.Line(ctx, key) })
}

// Inspect returns who holds keys.
func (s *Session) Inspect(ctx context.Context, keys []string) ([]redislock.Status, error) {
	return asked(ctx, s, func(ctx context.Context) ([]redislock.Status, error) { return s.Locks.Inspect(ctx, keys...) })
}

func asked[T any](ctx context.Context, s *Session, ask func(context.Context) (T, error)) (reply T, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	if reply, err = ask(ctx); err != nil {
		err = s.Refusal(err)
	}
	return reply, err
}

// Refusal gives an error of the library its exit code.
func (t *Target) Refusal(err error) error {
	switch {
	case errors.Is(err, redislock.ErrInvalid), redis.HasErrorPrefix(err, "CROSSSLOT"):
		return cli.Usagef("%w", err)
	case errors.Is(err, context.Canceled):
		return err
	}
	if _, answered := errors.AsType[redis.Error](err); !answered {
		if explained := t.Explain(err); explained != err {
			return explained
		}
	}
	return cli.Unavailablef("the Redis at %s: %w", t.where, err) // with the operation and the key
}
