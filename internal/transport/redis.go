// Package transport carries Lua scripts to one Redis: a server, a Cluster, a Ring, or whatever a custom client type
// hides. It resends what was not answered, lets simultaneous calls share pipelines and scripts, finds the server of a
// key, and listens to channels.
//
// It knows nothing about locks: not what a script does, what a token means, or how long anything is held.
package transport

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is where scripts are sent. It owns no connection and, at rest, no goroutine. It is safe for concurrent use.
type Redis struct {
	abilities

	only *server // the server of single; nil without one

	sharing atomic.Int32 // one of sharingUnknown, sharingAllowed and sharingForbidden
	reached atomic.Bool  // something was answered; before that, asking a Cluster for the server of a key may hang
	servers servers
	senders senders

	batchMu sync.Mutex                // protects batches
	batches map[*redis.Client][]*trip // pipelines of SendBatches that are under way, oldest first, by server
}

// New returns the Redis behind client. If separate is true, every call goes by itself through client. New returns an
// error if client cannot run scripts.
func New(client redis.Scripter, separate bool) (*Redis, error) {
	can, err := abilitiesOf(client)
	if err != nil {
		return nil, err
	}
	r := &Redis{abilities: can, batches: map[*redis.Client][]*trip{}}
	r.senders.redis = r
	if r.single != nil {
		r.only = newServer(r)
	}
	if separate {
		r.sharing.Store(sharingForbidden)
	}
	return r, nil
}

// connectTimeout is how long a shared round trip waits for a connection, and a subscription for the answers to its
// first commands.
const connectTimeout = 5 * time.Second

// Address returns what the Redis is called in errors: the address of the server, or of one node.
func (r *Redis) Address() string {
	if r.address == "" {
		return fmt.Sprintf("%T", r.scripter)
	}
	return r.address
}

// Whether calls may share round trips. A hook of the Redis client may rewrite the keys of a command, for example to put
// the name of a tenant before each. A shared round trip does not carry the values of each ctx, and on a Cluster and a
// Ring it bypasses the client's own hooks, so the same key would get another name there. Calls that go by themselves
// show whether there is such a hook. No calls share before the first of them has been answered.
const (
	sharingUnknown int32 = iota
	sharingAllowed
	sharingForbidden // for good
)

// learn notes whether a command that was answered still had the arguments that it was made with.
func (r *Redis) learn(unchanged bool) {
	switch {
	case !unchanged:
		r.sharing.Store(sharingForbidden)
	case r.sharing.Load() == sharingUnknown:
		r.sharing.CompareAndSwap(sharingUnknown, sharingAllowed)
	}
}

// Separates reports whether every call has to go by itself, through the caller's client, because a hook rewrites keys
// or might. known is false until the first call has been answered.
func (r *Redis) Separates() (separates, known bool) {
	sharing := r.sharing.Load()
	return sharing == sharingForbidden, sharing != sharingUnknown
}
