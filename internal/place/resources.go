package place

import (
	"context"
	"hash/maphash"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/line"
	"github.com/redislock/redislock/internal/transport"
)

// resources is what all Clients of one Redis client share: what costs connections, goroutines or time of the server, and
// what is known of the server. So a program may make a Client for each call. The Redis client knows nothing of it.
type resources struct {
	client  any
	redis   *transport.Redis
	keeper  *Keeper
	health  *health.Server // how the server answers
	freeing atomic.Int64   // see claim.MaxFreeings
	waiters *line.Hub
}

// registry finds the resources of a Redis client. It keeps neither of the two alive: resources live as long as a Client, a
// lock or a goroutine of the library uses it. The next Client of the Redis client makes a new one.
var registry struct {
	mu     sync.Mutex // protects byHash
	byHash map[uint64][]weak.Pointer[resources]
}

var registrySeed = maphash.MakeSeed()

// resourcesOf returns what the Clients of a Redis client share, of which connOf returns the Conn. Clients share nothing if
// their Redis client cannot be compared.
func resourcesOf(client any, connOf func() (transport.Conn, error)) (*resources, error) {
	if !reflect.ValueOf(client).Comparable() {
		return newResources(client, connOf)
	}
	hash := maphash.Comparable(registrySeed, client)
	if r := registered(hash, client, nil); r != nil {
		return r, nil
	}
	r, err := newResources(client, connOf)
	if err != nil {
		return nil, err
	}
	return registered(hash, client, r), nil
}

// registered returns the resources that are registered for the Redis client. If there are none, it registers r, unless r is
// nil, and returns r.
func registered(hash uint64, client any, r *resources) *resources {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	for _, p := range registry.byHash[hash] {
		if found := p.Value(); found != nil && found.client == client {
			return found
		}
	}
	if r != nil {
		if registry.byHash == nil {
			registry.byHash = map[uint64][]weak.Pointer[resources]{}
		}
		registry.byHash[hash] = append(registry.byHash[hash], weak.Make(r))
		runtime.AddCleanup(r, unregister, hash)
	}
	return r
}

// unregister removes those with that hash that are gone.
func unregister(hash uint64) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	left := slices.DeleteFunc(registry.byHash[hash], func(p weak.Pointer[resources]) bool { return p.Value() == nil })
	if registry.byHash[hash] = left; len(left) == 0 {
		delete(registry.byHash, hash)
	}
}

// The name of an inbox must be unique among all processes. It begins with a random name of this process, and the number of
// its resources within the process.
var (
	processName    = sync.OnceValue(NewToken)
	resourcesCount atomic.Int64
)

func newResources(client any, connOf func() (transport.Conn, error)) (*resources, error) {
	conn, err := connOf()
	if err != nil {
		return nil, err
	}
	redis := transport.New(conn)
	r := &resources{client: client, redis: redis, keeper: newKeeper(), health: &health.Server{}}
	r.waiters = line.NewHub(redis, r, processName()+"."+strconv.FormatInt(resourcesCount.Add(1), 36))
	return r, nil
}

// The inboxes listen to s, with CanListen and Listen, and not to s.redis. So s lives as long as a subscription, and a new
// Client finds s and with it the subscription.

// CanListen reports whether Listen can receive what scripts publish.
func (r *resources) CanListen() bool { return r.redis.CanListen() }

// Listen listens to a channel: see transport.Redis.Listen.
func (r *resources) Listen(ctx context.Context, channel string, state func(open bool), message func(payload string)) {
	r.redis.Listen(ctx, channel, state, message)
}
