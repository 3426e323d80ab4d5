package redislock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
)

// instant is a Redis that grants and releases everything at once, so that what the library itself costs can be seen.
type instant struct{ redis.Scripter }

func (instant) EvalSha(_ context.Context, _ string, _ []string, args ...any) *redis.Cmd {
	if len(args) == 1 { // a release: the token
		return redis.NewCmdResult(int64(0), nil)
	}
	return redis.NewCmdResult(int64(1), nil)
}

// BenchmarkTracer takes a lock and releases it, without a Tracer and with one whose functions do nothing.
func BenchmarkTracer(b *testing.B) {
	empty := &redislock.Tracer{
		ObtainStart: func(ctx context.Context, _ redislock.ObtainStart) context.Context { return ctx },
		Refused:     func(context.Context, redislock.Refused) {},
		ObtainEnd:   func(context.Context, redislock.ObtainEnd) {},
		Refreshed:   func(context.Context, redislock.Refreshed) {},
		Lost:        func(context.Context, redislock.Lost) {},
		Released:    func(context.Context, redislock.Released) {},
		CleanedUp:   func(context.Context, redislock.CleanedUp) {},
	}
	for name, tracer := range map[string]*redislock.Tracer{"unset": nil, "empty": empty} {
		locks := redislock.New(instant{}, redislock.WithTracer(tracer))
		b.Run("tracer="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				lock, err := locks.Obtain(context.Background(), "a", time.Minute, nil)
				if err != nil {
					b.Fatal(err)
				}
				if err := lock.Release(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
