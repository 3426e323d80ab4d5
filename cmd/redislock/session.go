package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"

	"github.com/redislock/redislock/cmd/redislock/internal/cli"
)

// session is a connection to Redis, for a command that asks it something and ends.
type session struct {
	*globals

	client redis.UniversalClient
	locks  *redislock.Client
}

// open connects. Whoever calls it calls close.
func (g *globals) open(ctx context.Context) (*session, error) {
	cli.EndOnQuit()
	client, err := g.connect(ctx)
	if err != nil {
		return nil, err
	}
	return &session{globals: g, client: client, locks: redislock.New(client)}, nil
}

func (s *session) close() {
	_ = s.locks.Close()
	_ = s.client.Close()
}

// answerLimit bounds one question to a Redis that has answered before.
const answerLimit = 5 * time.Second

// inspect returns who holds keys.
func (s *session) inspect(ctx context.Context, keys []string) ([]redislock.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	statuses, err := s.locks.Inspect(ctx, keys...)
	if err != nil {
		return nil, s.refusal(err)
	}
	return statuses, nil
}

// release releases keys, if the token holds all of them.
func (s *session) release(ctx context.Context, keys []string, token string) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	lock, err := s.locks.Attach(ctx, keys, token)
	if err != nil {
		return err
	}
	return lock.Release(ctx)
}

// refusal gives an error of the library its exit code.
func (g *globals) refusal(err error) error {
	switch {
	case errors.Is(err, redislock.ErrInvalid), redis.HasErrorPrefix(err, "CROSSSLOT"):
		return cli.Usagef("%w", err)
	case errors.Is(err, context.Canceled):
		return err
	}
	if _, answered := errors.AsType[redis.Error](err); !answered {
		if explained := g.connection.explain(err); explained != err {
			return explained
		}
	}
	return cli.Unavailablef("the Redis at %s: %w", g.connection.where, err) // with the operation and the key
}

// isFree reports whether a key could be had right now. Where there is a line, whoever is first in it comes first.
func isFree(s redislock.Status) bool { return s.TTL == 0 && s.Waiters == 0 }
