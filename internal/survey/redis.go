// Package survey looks through all keys of a Redis for locks, for lines, and for who waits for whom. It only reads, a page
// at a time, so that others are served in between.
package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
)

// Redis is a Redis, or the servers of a quorum.
type Redis struct {
	Locks *redislock.Client

	// Masters returns a client for each server that has keys. Of a quorum, it may leave out servers that do not answer.
	Masters func(ctx context.Context) ([]redis.UniversalClient, error)

	Client redis.UniversalClient // asks for keys whose slots are moving; nil for a quorum
	Quorum int                   // how many servers the quorum has; 0 for one Redis
}

// Of returns the Redis of a client, which locks use.
func Of(locks *redislock.Client, client redis.UniversalClient) *Redis {
	masters := func(ctx context.Context) ([]redis.UniversalClient, error) { return MastersOf(ctx, client) }
	return &Redis{Locks: locks, Client: client, Masters: masters}
}

// OfQuorum returns the servers of a quorum, which locks use. It leaves out those that do not answer a PING in a second.
func OfQuorum(locks *redislock.Client, servers []redis.UniversalClient) *Redis {
	masters := func(ctx context.Context) (up []redis.UniversalClient, err error) {
		ctx, cancel := context.WithTimeout(ctx, pingLimit)
		defer cancel()
		failed := make([]error, len(servers))
		var all sync.WaitGroup
		for i, server := range servers {
			all.Go(func() { failed[i] = server.Ping(ctx).Err() })
		}
		all.Wait()
		for i, server := range servers {
			if _, answered := errors.AsType[redis.Error](failed[i]); failed[i] == nil || answered { // an ACL may forbid PING
				up = append(up, server)
			} else {
				err = failed[i]
			}
		}
		if len(up) <= len(servers)/2 {
			return nil, fmt.Errorf("%d of %d servers answer, which is no majority: %w", len(up), len(servers), err)
		}
		return up, nil
	}
	return &Redis{Locks: locks, Quorum: len(servers), Masters: masters}
}

// pingLimit is how long a server of a quorum may take to answer a PING.
const pingLimit = time.Second

// ErrEnough is what a function returns to end a scan without an error.
var ErrEnough = errors.New("enough")

// answerLimit bounds one request.
const answerLimit = 5 * time.Second

// each calls look for all masters, one after the other. Of a quorum, a majority of the servers is enough: why is the error
// of the first one that failed.
func (r *Redis) each(ctx context.Context, look func(redis.UniversalClient) error) (why, err error) {
	servers, err := r.Masters(ctx)
	if err != nil {
		return nil, err
	}
	good := 0
	for _, server := range servers {
		switch err := look(server); {
		case err == nil:
			good++
		case r.Quorum == 0 || errors.Is(err, ErrEnough) || ctx.Err() != nil:
			return why, err
		default:
			why = cmp.Or(why, err)
		}
	}
	if good <= r.Quorum/2 && r.Quorum > 0 { // a lock can be on the others alone
		return why, why
	}
	return why, nil
}

func (r *Redis) inspect(ctx context.Context, keys []string) ([]redislock.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	return r.Locks.Inspect(ctx, keys...)
}

func (r *Redis) line(ctx context.Context, key string) ([]redislock.Waiter, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	return r.Locks.Line(ctx, key)
}

// now returns the time by the clock of a server; by that of this machine if an ACL forbids TIME.
func (r *Redis) now(ctx context.Context) time.Time {
	now := time.Now()
	_, _ = r.each(ctx, func(server redis.UniversalClient) error {
		found, err := server.Time(ctx).Result()
		if err != nil {
			return err
		}
		now = found
		return ErrEnough
	})
	return now
}

// MastersOf returns a client for each server of a client that has keys: all masters of a Cluster, all shards of a Ring, or
// the client itself. It knows a Cluster and a Ring by their methods, so that types that embed them count as well.
func MastersOf(ctx context.Context, client redis.UniversalClient) ([]redis.UniversalClient, error) {
	var mu sync.Mutex // protects all
	var all []redis.UniversalClient
	add := func(_ context.Context, server *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, server)
		return nil
	}
	addr := func(server redis.UniversalClient) string { return server.(*redis.Client).Options().Addr }
	var err error
	switch client := client.(type) {
	case interface {
		ForEachMaster(context.Context, func(context.Context, *redis.Client) error) error
	}:
		err = client.ForEachMaster(ctx, add)
	case interface {
		ForEachShard(context.Context, func(context.Context, *redis.Client) error) error
	}:
		err = client.ForEachShard(ctx, add)
	default:
		return []redis.UniversalClient{client}, nil
	}
	slices.SortFunc(all, func(a, b redis.UniversalClient) int { return strings.Compare(addr(a), addr(b)) })
	return all, err
}
