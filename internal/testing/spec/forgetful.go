package spec

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/redis/go-redis/v9"

	"github.com/redislock/redislock"
	"github.com/redislock/redislock/internal/keyname"
	"github.com/redislock/redislock/internal/testing/faultproxy"
)

// Forgetful is an in-memory Redis that can forget, behind a network that can be broken. Its fields are set anew for every
// spec.
type Forgetful struct {
	*MemoryServer

	Own  *redis.Client // of the spec
	Seen *Recorder     // of what happens to the Clients that Connect has returned

	mu   sync.Mutex // protects sent
	sent [][]string // the requests of Clients
}

// DescribeForgetful runs specs of what a guard does when a Redis forgets. The guard of the Redis is not open yet. Every
// message takes 100 µs.
func DescribeForgetful(what string, specs func(on *Forgetful)) bool {
	return Describe("On a Redis that forgets, "+what, Label(InMemory), func() {
		on := &Forgetful{}
		BeforeEach(func() {
			if Pipelined {
				Skip("the faults are those of calls that go by themselves")
			}
			CheckLeaks()
			on.MemoryServer, on.Seen, on.sent = NewMemoryServer(), &Recorder{}, nil
			DeferCleanup(on.End)
			on.SetLatency(Always(100 * time.Microsecond))
			on.RewriteRequests(func(m faultproxy.Message, _ []byte) {
				on.mu.Lock()
				defer on.mu.Unlock()
				if m.Client != 0 {
					on.sent = append(on.sent, slices.Clone(m.Args))
				}
			})
			on.Own = on.MemoryServer.Connect(0, nil)
			DeferCleanup(on.Own.Close)
			for _, script := range scriptNames { // so that each call is one request
				Expect(on.Own.ScriptLoad(context.Background(), Source(script)).Err()).To(Succeed())
				Expect(on.Own.ScriptLoad(context.Background(), Guarded(script)).Err()).To(Succeed())
			}
		})
		specs(on)
	})
}

// Connect returns a Client on a Redis client of its own, which waits for answers for as long as the spec does.
func (on *Forgetful) Connect(opts ...redislock.ClientOption) *redislock.Client {
	return on.ConnectBy(Ours, opts...)
}

// ConnectBy is Connect for the client with that number.
func (on *Forgetful) ConnectBy(number int, opts ...redislock.ClientOption) *redislock.Client {
	client := on.MemoryServer.Connect(number, func(opt *redis.Options) { opt.ReadTimeout = time.Hour })
	DeferCleanup(client.Close)
	locks := redislock.New(client, append([]redislock.ClientOption{redislock.WithTracer(on.Seen.Tracer())}, opts...)...)
	DeferCleanup(locks.Close)
	return locks
}

// Requests returns how many requests of Clients match. It hides the method of the network, which remembers none.
func (on *Forgetful) Requests(match func(args []string) bool) (n int) {
	on.mu.Lock()
	defer on.mu.Unlock()
	for _, args := range on.sent {
		if match(args) {
			n++
		}
	}
	return n
}

var scriptNames = []string{
	"obtain", "obtain_each", "refresh", "release", "release_each", "inspect", "pttl", "fence", "blocker", "waiters",
}

// Open opens the guard: see OpenGuard.
func (on *Forgetful) Open(ctx context.Context, maxTTL, deposed time.Duration) {
	GinkgoHelper()
	Expect(OpenGuard(ctx, on.Own, maxTTL, deposed)).To(Succeed())
}

// OpenGuard makes the marker of a guard say that nothing was lost, as redislock guard open does, for programs with
// WithGuard(maxTTL, deposed).
func OpenGuard(ctx context.Context, client *redis.Client, maxTTL, deposed time.Duration) error {
	id := Term(ctx, client)
	if id == "" {
		return errors.New("the server has no master_replid")
	}
	marker := fmt.Sprintf("%s %d %d", id, (maxTTL + deposed).Milliseconds(), deposed.Milliseconds())
	return client.Set(ctx, keyname.GuardMarker, marker, 0).Err()
}

// Term returns the id of a server's present term, which the marker of a guard names; "" if the server does not say it.
func Term(ctx context.Context, client redis.Cmdable) string {
	found := replicationID.FindStringSubmatch(client.Info(ctx, "replication").Val())
	if found == nil {
		return ""
	}
	return found[1]
}

var replicationID = regexp.MustCompile(`master_replid:(\w{40})`)

// ClosedFor returns for how long the guard of a server stays closed, by its marker; 0 if it is open.
func ClosedFor(ctx context.Context, client redis.Cmdable) time.Duration {
	GinkgoHelper()
	var id string
	var grace, deposed, opens int64
	marker := client.Get(ctx, keyname.GuardMarker).Val()
	if n, _ := fmt.Sscan(marker, &id, &grace, &deposed, &opens); n < 4 {
		return 0
	}
	return max(0, time.Duration(opens)*time.Millisecond-time.Duration(client.Time(ctx).Val().UnixNano()))
}

// LocksIn returns the names of all keys there are, apart from the marker of a guard.
func LocksIn(ctx context.Context, client redis.Cmdable) (keys []string) {
	for _, key := range client.Keys(ctx, "*").Val() {
		if key != keyname.GuardMarker {
			keys = append(keys, key)
		}
	}
	return keys
}

// IsScript matches the requests that run any script.
func IsScript(args []string) bool { return strings.HasPrefix(strings.ToLower(args[0]), "eval") }
