// Package transport carries Lua scripts to one Redis: a server, a Cluster, a Ring, or whatever a custom client type
// hides. It resends what was not answered, lets simultaneous calls share pipelines and scripts, finds the server of a
// key, and listens to channels.
//
// It knows nothing about locks: not what a script does, what a token means, or how long anything is held.
package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is where scripts are sent. It owns no connection and, at rest, no goroutine. It is safe for concurrent use.
type Redis struct {
	scripter redis.Scripter

	// process sends one command of any kind. It is nil for a custom client type, on which only EvalSha and Eval may be
	// called, and which does its own resending.
	process func(context.Context, redis.Cmder) error
	resends int // the most for one call
	single  *redis.Client
	only    *server // the server of single; nil without one
	cluster *redis.ClusterClient
	ring    *redis.Ring

	// subscribe returns a subscription without channels. It is nil if no subscription would receive what scripts publish:
	// a Ring runs a script on the shard of its keys, and subscribes on the shard of the channel.
	subscribe func(context.Context) *redis.PubSub

	rewritten atomic.Bool // a hook has rewritten the arguments of a call, so every call goes by itself
	reached   atomic.Bool // something was answered; before that, asking a Cluster for the server of a key may hang
	servers   servers
	senders   senders

	batchMu sync.Mutex                // protects batches
	batches map[*redis.Client][]*trip // pipelines of SendBatches that are under way, oldest first, by server
}

// New returns the Redis behind client, or an error if client cannot run scripts. Users of the same client should share one
// Redis, and each have a Link to it.
func New(client redis.Scripter) (*Redis, error) {
	r := &Redis{scripter: client, batches: map[*redis.Client][]*trip{}}
	r.senders.redis = r
	none := client == nil
	switch client := client.(type) {
	case *redis.Client:
		if none = client == nil; !none {
			r.process, r.resends, r.single = client.Process, client.Options().MaxRetries, client
			r.only = newServer(r)
			listener := client
			if own := client.Options().ReadTimeout; own <= 0 || own > connectTimeout {
				// A subscription that connects can neither be interrupted nor closed, so it needs a timeout. This client
				// lacks the caller's hooks, but a subscription that never ends would be worse.
				listener = client.WithTimeout(connectTimeout)
			}
			r.subscribe = func(ctx context.Context) *redis.PubSub { return listener.Subscribe(ctx) }
		}
	case *redis.ClusterClient:
		if none = client == nil; !none {
			r.process, r.cluster = client.Process, client
			// On a Cluster, go-redis counts redirections instead of retries, and does not retry on a single node by default.
			r.resends = max(client.Options().MaxRetries, client.Options().MaxRedirects)
			r.subscribe = func(ctx context.Context) *redis.PubSub { return client.Subscribe(ctx) }
		}
	case *redis.Ring:
		if none = client == nil; !none {
			r.process, r.resends, r.ring = client.Process, client.Options().MaxRetries, client
		}
	case redis.Pipeliner:
		return nil, fmt.Errorf("a %T queues scripts instead of running them; pass the client it was made from", client)
	}
	if none {
		return nil, errors.New("the Redis client is nil")
	}
	return r, nil
}

// connectTimeout is how long a shared round trip waits for a connection, and a subscription for the answers to its
// first commands.
const connectTimeout = 5 * time.Second

// Address returns what the Redis is called in errors: the address of the server, or of one node.
func (r *Redis) Address() string {
	switch {
	case r.single != nil:
		return r.single.Options().Addr
	case r.cluster != nil && len(r.cluster.Options().Addrs) > 0:
		return r.cluster.Options().Addrs[0]
	}
	return fmt.Sprintf("%T", r.scripter)
}

// learn notes whether a command that was answered still had the arguments that it was made with.
func (r *Redis) learn(unchanged bool) {
	if !unchanged {
		r.rewritten.Store(true)
	}
}
