package transport

import (
	"sync/atomic"
	"time"
)

// Redis is where scripts are sent. It owns no connection and, at rest, no goroutine. It is safe for concurrent use.
type Redis struct {
	About

	conn   Conn
	single Node    // the only server; nil if there may be others
	only   *server // what is known of single or, without one, of where the calls go whose server is not known

	rewritten atomic.Bool // a hook has rewritten the arguments of a call, so every call goes by itself
	reached   atomic.Bool // something was answered; before that, asking a Cluster for the server of a key may hang
	servers   servers
	senders   senders
	watch     watch
}

// New returns the Redis behind a Conn. Users of the same client should share one Redis, and each have a Link to it.
func New(conn Conn) *Redis {
	r := &Redis{About: conn.About(), conn: conn}
	if r.Shares && r.Reach == OneServer {
		r.single, _ = conn.Node("")
	}
	r.senders.redis = r
	r.servers.byNode = map[WeakNode]*server{}
	r.watch.start(r)
	r.only = newServer(r)
	return r
}

// ConnectTimeout is how long a shared round trip waits for a connection, and a subscription for the answers to its
// first commands.
const ConnectTimeout = 5 * time.Second

// learn notes whether a command that was answered still had the arguments that it was made with.
func (r *Redis) learn(unchanged bool) {
	if !unchanged {
		r.rewritten.Store(true)
	}
}
