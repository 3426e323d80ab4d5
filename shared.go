package redislock

import (
	"context"
	"hash/maphash"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/redislock/redislock/internal/health"
	"github.com/redislock/redislock/internal/inbox"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/transport"
)

// shared is what all Clients of one Redis client have in common: what costs connections, goroutines or time of the server,
// and what is known about the server. So a program may make a Client for each call. The Redis client owns none of it and
// knows nothing of it.
type shared struct {
	client   RedisClient
	redis    *transport.Redis
	renewals *renewals
	health   *health.Server // of a server of quorums
	cleaning atomic.Int64   // cleanups under way that release keys; see maxCleanups

	// Slots for tries with many keys; see waiter.admit.
	entering, staying chan struct{}

	name string // the names of its inboxes begin with it

	mu      sync.Mutex // protects inboxes
	inboxes map[string]*inbox.Inbox
}

// registry finds what was made for a Redis client. It keeps nothing alive, neither a shared nor a Redis client: a shared
// lives as long as a Client, a lock or a goroutine of the library uses it, and the next one begins anew.
var registry struct {
	mu     sync.Mutex // protects byHash
	byHash map[uint64][]weak.Pointer[shared]
}

var registrySeed = maphash.MakeSeed()

// sharedBy returns what the Clients of a Redis client share. A client type that cannot be compared shares nothing.
func sharedBy(client RedisClient) (*shared, error) {
	if !reflect.ValueOf(client).Comparable() {
		return newShared(client)
	}
	hash := maphash.Comparable(registrySeed, client)
	if s := registered(hash, client, nil); s != nil {
		return s, nil
	}
	s, err := newShared(client)
	if err != nil {
		return nil, err
	}
	return registered(hash, client, s), nil
}

// registered returns what is registered for the Redis client. If there is nothing, it registers the given one, unless that
// is nil, and returns that.
func registered(hash uint64, client RedisClient, s *shared) *shared {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	for _, p := range registry.byHash[hash] {
		if found := p.Value(); found != nil && found.client == client {
			return found
		}
	}
	if s != nil {
		if registry.byHash == nil {
			registry.byHash = map[uint64][]weak.Pointer[shared]{}
		}
		registry.byHash[hash] = append(registry.byHash[hash], weak.Make(s))
		runtime.AddCleanup(s, unregister, hash)
	}
	return s
}

// unregister removes what is gone.
func unregister(hash uint64) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	left := slices.DeleteFunc(registry.byHash[hash], func(p weak.Pointer[shared]) bool { return p.Value() == nil })
	if registry.byHash[hash] = left; len(left) == 0 {
		delete(registry.byHash, hash)
	}
}

// The names of all inboxes of this process begin alike, with a name that no other process has. Within the process, each
// shared has a number.
var (
	processName = sync.OnceValue(randomToken)
	sharedCount atomic.Int64
)

func newShared(client RedisClient) (*shared, error) {
	redis, err := transport.New(client)
	if err != nil {
		return nil, err
	}
	return &shared{
		client: client, redis: redis, renewals: newRenewals(), health: &health.Server{},
		entering: make(chan struct{}, maxBulk), staying: make(chan struct{}, maxBulk),
		name: processName() + "." + strconv.FormatInt(sharedCount.Add(1), 36), inboxes: map[string]*inbox.Inbox{},
	}, nil
}

const (
	// inboxLinger is how long an inbox stays subscribed after its last waiter, because the next one may come soon.
	inboxLinger = 10 * time.Second

	// maxNames is how many names to look at for one that belongs to a certain node of a Cluster.
	maxNames = 10_000
)

// inboxFor returns the inbox for waiters for the key. There is one for each node of a Cluster, with a channel that
// belongs to that node, so that go-redis subscribes there. From another node, messages would take the cluster bus,
// where the second of two messages within 40 ms waits for the acknowledgement of the first, which TCP delays for so
// long.
func (s *shared) inboxFor(key string) *inbox.Inbox {
	server := s.redis.Server(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.inboxes[server]
	if b == nil {
		name := s.name
		for i := 0; server != "" && i < maxNames && (i == 0 || s.redis.Server(keyname.InboxPrefix+name) != server); i++ {
			name = s.name + "." + strconv.FormatInt(int64(i), 36)
		}
		b = inbox.New(s, name, inboxLinger)
		s.inboxes[server] = b
	}
	return b
}

// CanListen and Listen make s the source of its inboxes, and not s.redis: so s lives as long as a subscription, and a new
// Client finds that.

// CanListen reports whether Listen can receive what scripts publish.
func (s *shared) CanListen() bool { return s.redis.CanListen() }

// Listen listens to a channel: see transport.Redis.Listen.
func (s *shared) Listen(ctx context.Context, channel string, state func(open bool), message func(payload string)) {
	s.redis.Listen(ctx, channel, state, message)
}
