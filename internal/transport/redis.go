// Package transport carries Lua scripts to one Redis: a server, a Cluster, a Ring, or what a client type of the
// caller's own hides. It resends what was not answered, lets calls that are made at the same time share pipelines and
// scripts, finds the server of a key, and listens to channels.
//
// It knows nothing of locks: not what a script does, what a token means, nor how long anything is held.
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

// Redis is where scripts are sent. It owns no connection, and at rest no goroutine. It is safe for concurrent use.
type Redis struct {
	scripter redis.Scripter

	// process sends one command of any kind. It is nil for a type of the caller's own, of which EvalSha and Eval are
	// all that may be called, and which does its own resending.
	process func(context.Context, redis.Cmder) error
	resends int // at most so many for one call
	single  *redis.Client
	only    *server // that of single; nil without
	cluster *redis.ClusterClient
	ring    *redis.Ring

	// subscribe returns a subscription to nothing yet. It is nil where there is none that hears what scripts publish: a
	// Ring runs a script where its keys are, and subscribes where the channel is.
	subscribe func(context.Context) *redis.PubSub

	sharing atomic.Int32 // one of sharingUnknown, sharingAllowed and sharingForbidden
	reached atomic.Bool  // something was answered; until then, to ask a Cluster for the server of a key may hang
	servers servers

	batchMu sync.Mutex                // protects batches
	batches map[*redis.Client][]*trip // of SendBatches, by server: those under way, the oldest first
}

// New returns the Redis behind client. If separate is true, every call goes by itself through client. It returns an
// error if client cannot run scripts.
func New(client redis.Scripter, separate bool) (*Redis, error) {
	r := &Redis{scripter: client, batches: map[*redis.Client][]*trip{}}
	if separate {
		r.sharing.Store(sharingForbidden)
	}
	none := client == nil
	switch client := client.(type) {
	case *redis.Client:
		if none = client == nil; !none {
			r.process, r.resends, r.single = client.Process, client.Options().MaxRetries, client
			r.only = newServer(r)
			listener := client
			if own := client.Options().ReadTimeout; own <= 0 || own > connectTimeout {
				// While it connects, a subscription can neither be interrupted nor closed. This one does without the
				// caller's hooks, but what never ends is worse.
				listener = client.WithTimeout(connectTimeout)
			}
			r.subscribe = func(ctx context.Context) *redis.PubSub { return listener.Subscribe(ctx) }
		}
	case *redis.ClusterClient:
		if none = client == nil; !none {
			r.process, r.cluster = client.Process, client
			// go-redis counts redirections in place of retries, and has the retries of a single node off by default.
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

// connectTimeout is how long shared round trips wait for a connection, and a subscription for the answers to its first
// commands.
const connectTimeout = 5 * time.Second

// Whether calls may share round trips. A hook of the Redis client may rewrite the keys of a command, to put the name of
// a tenant before each, say. A shared round trip does not carry the values of each ctx, and on a Cluster and a Ring it
// goes past the client's own hooks, so the same key would be another one there. Whether there is such a hook is learned
// from calls by themselves; until the first of them has been answered, no calls share.
const (
	sharingUnknown int32 = iota
	sharingAllowed
	sharingForbidden // for good
)

// learn notes whether a command that was answered had the arguments that it was made with.
func (r *Redis) learn(unchanged bool) {
	switch {
	case !unchanged:
		r.sharing.Store(sharingForbidden)
	case r.sharing.Load() == sharingUnknown:
		r.sharing.CompareAndSwap(sharingUnknown, sharingAllowed)
	}
}

// Separates reports whether every call has to go by itself, through the caller's client, because a hook rewrites keys
// or may, and whether that is known yet: until the first call has been answered it is not.
func (r *Redis) Separates() (separates, known bool) {
	sharing := r.sharing.Load()
	return sharing == sharingForbidden, sharing != sharingUnknown
}

func (r *Redis) separates() bool { return r.sharing.Load() == sharingForbidden }
