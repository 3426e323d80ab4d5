package transport

import (
	"context"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
)

// The other types of this package name go-redis' clients only by the interfaces below. A package that sees redis.Client or
// redis.PubSub compiles 1,700 functions for it, even if it only imports a type that leads there through unexported fields
// or methods. An interface leads nowhere. So packages that import this one do not compile those functions once more.

// serverClient is the go-redis client of one server. Two are equal if they are the same client.
type serverClient interface {
	address() string
	newPipeline() pipeline
	weakly() weakClient
	askAnew() (took time.Duration, answered bool)
	pingIdle(patience time.Duration)
}

// weakClient is a serverClient that does not keep its client alive.
type weakClient interface{ isGone() bool }

// pipeline is what this package needs of a redis.Pipeliner.
type pipeline interface {
	Process(ctx context.Context, queued redis.Cmder) error
	Exec(ctx context.Context) ([]redis.Cmder, error)
}

// subscription is what Listen needs of a redis.PubSub.
type subscription interface {
	Subscribe(ctx context.Context, channels ...string) error
	Ping(ctx context.Context, payload ...string) error
	ReceiveTimeout(ctx context.Context, timeout time.Duration) (message any, err error)
	Close() error
}

// ofOneServer is the serverClient of a redis.Client.
type ofOneServer struct{ client *redis.Client }

func (o ofOneServer) address() string       { return o.client.Options().Addr }
func (o ofOneServer) newPipeline() pipeline { return o.client.Pipeline() }
func (o ofOneServer) weakly() weakClient    { return weakOfOneServer{weak.Make(o.client)} }

type weakOfOneServer struct{ client weak.Pointer[redis.Client] }

func (w weakOfOneServer) isGone() bool { return w.client.Value() == nil }

// nodeBy returns a function that returns the client that find finds.
func nodeBy(find func(key string) (*redis.Client, error)) func(key string) (serverClient, error) {
	return func(key string) (serverClient, error) {
		client, err := find(key)
		if err != nil {
			return nil, err
		}
		return ofOneServer{client}, nil
	}
}
