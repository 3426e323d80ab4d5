package transport

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is where scripts are sent. It owns no connection and, at rest, no goroutine. It is safe for concurrent use.
type Redis struct {
	abilities

	only *server // the server of single or, without one, of the calls whose server is not known

	rewritten atomic.Bool // a hook has rewritten the arguments of a call, so every call goes by itself
	reached   atomic.Bool // something was answered; before that, asking a Cluster for the server of a key may hang
	servers   servers
	senders   senders
	watch     watch
}

// New returns the Redis behind client, or an error if client cannot run scripts. Users of the same client should share one
// Redis, and each have a Link to it.
func New(client redis.Scripter) (*Redis, error) {
	can, err := abilitiesOf(client)
	if err != nil {
		return nil, err
	}
	r := &Redis{abilities: can}
	r.senders.redis = r
	r.servers.byClient = map[weakClient]*server{}
	r.watch.start(r)
	r.only = newServer(r)
	return r, nil
}

// connectTimeout is how long a shared round trip waits for a connection, and a subscription for the answers to its
// first commands.
const connectTimeout = 5 * time.Second

// Address returns the name of the Redis for errors: the address of the server, or of one node, or the type of the client.
func (r *Redis) Address() string {
	if r.address == "" {
		return fmt.Sprintf("%T", r.scripter)
	}
	return r.address
}

// learn notes whether a command that was answered still had the arguments that it was made with.
func (r *Redis) learn(unchanged bool) {
	if !unchanged {
		r.rewritten.Store(true)
	}
}
